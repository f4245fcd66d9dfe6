"""The worker: claim, fill the slots, renew leases, settle in batches, drain on stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast
from uuid import UUID

from notifier import observe
from notifier.clock import boot_clock
from notifier.runtime import Runtime, background, open_runtime, way_out
from notifier.settings import Settings
from notifier.side_door import side_door
from notifier.store import deliveries
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection
from notifier.store.deliveries import Claim, Claimant, Look
from notifier.store.results import Result
from notifier.worker.breaker import Breaker
from notifier.worker.deliver import Deliverer, Held
from notifier.worker.resume import LOOK_S, Resume
from notifier.worker.settling import Settler
from providers.base import Provider

FREE_FOR_A_CLAIM = 1 / 8  # of the slots: while mails are in hand a claim waits until so many are free,
PATIENCE_S = 0.05  # but for no longer than this
LOOK_AFTER = 0.97  # of the poll interval: the look itself, the claim and the way to the call belong to it
DRAIN_SETTLE_S = 5.0  # after the calls have ended, how long the last results may take to be written


@dataclass(slots=True)
class Worker:
    """One worker process: what it holds and what wakes it."""

    runtime: Runtime
    provider: Provider
    stop: asyncio.Event
    breaker: Breaker = field(default_factory=Breaker)
    _held: dict[UUID, Held] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)  # one for each call
    _waiting: deque[Sequence[Held]] = field(default_factory=deque)  # for a call to end
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _looked_at: float = 0.0
    _turn_at: float = 0.0
    _patience: asyncio.TimerHandle | None = None  # runs while free slots wait for others
    _is_impatient: bool = False
    _left_over: bool = False  # the last claim may have left something for want of slots
    _resume: Resume = field(default_factory=Resume)
    calls_max: int = field(init=False)
    batch_max: int = field(init=False)
    slots: int = field(init=False)
    _interval_s: float = field(init=False)
    _look_s: float = field(init=False)
    deliverer: Deliverer = field(init=False)
    settler: Settler = field(init=False)

    def __post_init__(self) -> None:
        """Tie the parts together.

        `batch_max`: how many mails go in one call. Who may only mail some addresses looks at each by itself.
        `slots`: how many mails may be in calls: `calls_max` of them, each with all it takes.
        """
        observe.expose(observe.OF_A_WORKER)
        settings = self.runtime.settings
        self.calls_max = settings.slots
        self.batch_max = 1 if settings.only_to is not None else min(settings.batch_max, self.provider.traits.batch_max)
        self.slots = self.calls_max * self.batch_max
        self._interval_s = settings.poll_s * LOOK_AFTER
        self._look_s = min(settings.poll_s, LOOK_S) * LOOK_AFTER
        self.deliverer = Deliverer(self.runtime, self.provider, self.breaker)
        self.settler = Settler(self.runtime, self._written)

    @property
    def _claimant(self) -> Claimant:
        traits = self.provider.traits
        return Claimant(
            worker=self.runtime.process_id,
            ttl=timedelta(seconds=self.runtime.settings.claim_ttl_s),
            templates={kind: template.hash for kind, template in self.runtime.templates.items()},
            provider=traits.name,
            account=traits.account,
            has_keys=traits.has_keys,
            batch_max=self.batch_max,
        )

    @property
    def _free(self) -> int:
        """How many more claims may be taken. A call counts as one, however few mails go in it, and until it has ended.

        What has ended and is not written yet takes no slot, so that writing and claiming overlap with the calls; but
        while the database does not write, there are never more in hand than twice as many. Without keys, where a crash
        leaves each of them to a person, it takes its slot until it is written.
        """
        calls = self.calls_max - len(self._tasks)  # none while groups wait
        in_hand_max = 2 * self.slots if self.provider.traits.has_keys else self.slots
        return min(in_hand_max - len(self._held), calls * self.batch_max)

    @property
    def _is_enough(self) -> bool:
        """Whether so many slots are free that a claim is worth it, or there is nothing in hand to wait for."""
        return self._free >= max(self.batch_max, int(self.slots * FREE_FOR_A_CLAIM)) or not self._held

    async def run(self) -> None:
        """Work until told to stop, then drain."""
        listening = self.runtime.wakeup.listen(self._wake.set)
        async with background(self.settler.run(), self._renew(), listening, self._wake_to_stop()):
            asked = True
            while not self.stop.is_set():
                asked = await self._claim_once(asked) or await self._sleep()
            await self._drain()

    async def _wake_to_stop(self) -> None:
        await self.stop.wait()
        self._wake.set()

    async def _sleep(self) -> bool:
        """Wait for a nudge, free slots with work left, the next probe, or the next look.

        Returns whether there is a reason to claim; after a mere interval the look will tell.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rest_s()):
                await self._wake.wait()
        asked = self._wake.is_set() or self.breaker.is_open
        self._wake.clear()
        return asked

    def _rest_s(self) -> float:
        """How long to sleep; not at all when something became due since the last turn began.

        What was due before that and found no slot to be done with is left to the poll interval.
        """
        moments = [self._look_at, *([self.breaker.probe_at] if self.breaker.is_open else [])]
        now = time.monotonic()
        return max(0.0, min([self._interval_s, *(at - now for at in moments if at > self._turn_at)]))

    async def _claim_once(self, asked: bool) -> bool:
        """Claim what the slots allow and start delivering. Returns whether there is likely more to claim now."""
        self._turn_at = time.monotonic()
        limit = self._allowance()
        if limit <= 0:
            self._left_over = self._left_over or asked or self._is_look_due
            if not self._is_enough:
                self._wake_for_more()
            return False
        probe = self.breaker.is_open
        if probe and any(held.probe for held in self._held.values()):
            return False  # one asks already
        self._is_impatient = False
        try:
            self._left_over = await self._claim(limit, asked=asked or self._left_over, probe=probe)
        except (*RETRYABLE, *UNAVAILABLE) as error:
            observe.log().warning("claim_failed", error=type(error).__name__)
            self._looked_at = time.monotonic()
            self._left_over = self._resume.is_unsure = True  # the next look is a second away, not a poll interval
            return False
        return self._left_over and not probe and self._free > 0

    def _allowance(self) -> int:
        """How many rows a claim may take now; 0 where no slot is free, or too few are to be worth it yet.

        Never more than half of the slots: calls that begin together end together, and the next claim is to be under
        way while those of the other half still are.
        """
        if not (self._is_enough or self._is_impatient or self._is_look_due or self.breaker.is_open):
            return 0
        half = (self.calls_max + 1) // 2 * self.batch_max
        return min(self.breaker.allowance(self._free, time.monotonic()), half, deliveries.CLAIM_MAX)

    @property
    def _look_at(self) -> float:
        """When there is a reason to look at everything again."""
        return self._looked_at + (self._look_s if self._resume.is_unsure else self._interval_s)

    @property
    def _is_look_due(self) -> bool:
        return time.monotonic() >= self._look_at

    @property
    def _is_look_old(self) -> bool:
        """Whether no claim may rely on the last look any more."""
        return time.monotonic() >= self._looked_at + self._look_s

    async def _claim(self, limit: int, *, asked: bool, probe: bool) -> bool:
        """Take over what others left, where the last look is old; then, if there is a reason to, claim what is due.

        Returns whether there may be more.
        """
        claimant = self._claimant
        kinds = list(claimant.templates)
        more_to_take_over = False
        async with self.runtime.database.connection() as conn:
            if self._is_look_old:
                look = await deliveries.look(conn, claimant, list(self._held))
                self._resume.see(look)
                self._looked_at = time.monotonic()  # from its end on: one that takes long must not be old at once
                asked = asked or bool(look.due)
                taken = len(await self._take_over(conn, claimant, kinds, look, limit, probe=probe))
                more_to_take_over = taken > 0 and (look.is_full or len(look.expired) >= limit or taken >= limit)
                limit -= taken
            more = asked and limit > 0 and await self._claim_due(conn, claimant, kinds, limit, probe=probe)
        if more_to_take_over:  # a dead worker's are many: they are not to wait for the interval each time
            self._looked_at = float("-inf")
        return more or more_to_take_over

    async def _claim_due(
        self, conn: Connection, claimant: Claimant, kinds: list[str], limit: int, *, probe: bool
    ) -> bool:
        """Claim what is due, for as long as there are slots. Returns whether there may be more.

        The connection is kept meanwhile: so the next claim is on its way before the calls of the last one begin.
        """
        while True:
            random.shuffle(kinds)  # so that a long queue of one kind does not always come first
            until = self._until()
            found = await deliveries.claim(conn, claimant, kinds, limit, self._resume.places(kinds))
            self._resume.learn(found, limit)
            self._hold(found, until, probe=probe)
            if len(found) < limit:
                return False
            limit = self._allowance()
            if limit <= 0 or probe or self.breaker.is_open or self.stop.is_set() or self._is_look_old:
                return True

    def _until(self) -> float:
        return boot_clock() + self.runtime.settings.claim_ttl_s

    async def _take_over(
        self, conn: Connection, claimant: Claimant, kinds: list[str], look: Look, limit: int, *, probe: bool
    ) -> list[Claim]:
        """Claim rows whose claim ran out, but leave those whose owner still renews its lease, for a while.

        Each statement's are in hand before the next, which may fail.
        """
        patient = {row.lease: row.claimed_by for row in look.expired if not row.overdue}
        held = await self.runtime.leases.held(patient)
        free = [row for row in look.expired if row.lease not in held]
        ids = [row.id for row in free if row.batch_id is None][:limit]
        expired = {row.batch_id for row in free if row.batch_id is not None}
        claims: list[Claim] = []
        if ids:
            until = self._until()
            claims += self._hold(await deliveries.take_over(conn, claimant, kinds, ids), until, probe=probe)
            observe.LOST_RACES.labels("take_over").inc(len(ids) - len(claims))
            observe.CLAIMS_RECOVERED.inc(len(claims))
        for batch in sorted(expired | set(look.batches)):
            if len(claims) >= limit:
                break
            until = self._until()
            taken = await deliveries.take_over_batches(conn, claimant, kinds, [batch])
            observe.CLAIMS_RECOVERED.inc(len(taken) if batch in expired else 0)
            claims += self._hold(taken, until, probe=probe)
        return claims

    def _hold(self, claims: list[Claim], until: float, *, probe: bool) -> list[Claim]:
        batches: dict[UUID, list[Held]] = {}
        for claim in claims:
            held = Held(claim, until, probe)
            self._held[claim.id] = held
            if claim.batch_id is None:
                self._start([held])
            else:
                batches.setdefault(claim.batch_id, []).append(held)
        observe.DUE_LATENESS.observe_all(claim.due_late_s for claim in claims if claim.first_attempt)
        for batch in batches.values():
            self._start(sorted(batch, key=lambda held: held.claim.id))  # a repeat has to send the same bytes
        observe.IN_HAND.set(len(self._held))
        return claims

    def _start(self, group: Sequence[Held]) -> None:
        """Have it delivered, or keep it until a call ends: what was to go in batches may be many calls, one by one."""
        if len(self._tasks) < self.calls_max:
            self._tasks.add(asyncio.create_task(self._deliver(group)))
        else:
            self._waiting.append(group)

    def _ended(self) -> None:
        """Give this task's place to the next group."""
        self._tasks.discard(cast(asyncio.Task[None], asyncio.current_task()))
        if self._waiting:
            self._start(self._waiting.popleft())
        self._out_of_hand()

    def _out_of_hand(self) -> None:
        """Have more claimed; or, where the provider is away, see when to ask next, which what ended may have moved."""
        if self.breaker.is_open:
            self._wake.set()
        else:
            self._wake_for_more()

    def _wake_for_more(self) -> None:
        """Have what was left claimed once enough slots are free, or those that are have waited long enough."""
        if not self._left_over or self._wake.is_set() or self._free <= 0 or self.breaker.is_open:
            return
        if self._is_enough:
            self._wake.set()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        self._is_impatient = True
        self._wake.set()

    async def _deliver(self, group: Sequence[Held]) -> None:
        try:
            if group[0].claim.batch_id is None:
                self.settler.put(await self.deliverer.deliver(group[0]))
            else:
                self.settler.put(*await self.deliverer.deliver_batch(group, self._settle_first))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of one delivery: the claim runs out and is taken over
            observe.log().error("delivery_broke", notification=str(group[0].claim.id), error=type(error).__name__)
            self._written([held.claim for held in group])
        finally:
            self._ended()

    async def _settle_first(self, results: Sequence[Result]) -> bool:
        """Have these written before a call; once they are, they are no longer in hand."""
        if not await self.settler.settle_first(results):
            return False
        self._written([result.claim for result in results])
        return True

    def _written(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            held = self._held.get(claim.id)
            if held is not None and held.claim.generation == claim.generation:  # not a newer claim of the same row
                del self._held[claim.id]
        observe.IN_HAND.set(len(self._held))
        self._out_of_hand()

    async def _renew(self) -> None:
        """Keep the leases of claims that have been in hand for more than a third of their time, no longer."""
        ttl = timedelta(seconds=self.runtime.settings.claim_ttl_s)
        third_s = ttl.total_seconds() / 3
        renewed: set[UUID] = set()
        while True:
            await asyncio.sleep(third_s / 2)
            old = {
                held.claim.batch_id or held.claim.id
                for held in self._held.values()
                if boot_clock() - (held.until - third_s * 3) > third_s
            }
            await self.runtime.leases.release(sorted(renewed - old), self.runtime.process_id)
            await self.runtime.leases.renew(sorted(old), self.runtime.process_id, ttl)
            renewed = old

    async def _drain(self) -> None:
        """Claim no more; what has not begun goes back by itself; calls may end; what is cut is in doubt."""
        self.deliverer.stopping = True
        for group in self._waiting:  # for nothing any more: no call begins
            self._tasks.add(asyncio.create_task(self._deliver(group)))
        self._waiting.clear()
        deadline = time.monotonic() + self.runtime.settings.stop_grace_s
        while self._tasks and time.monotonic() < deadline:
            await asyncio.wait(set(self._tasks), timeout=max(0.0, deadline - time.monotonic()))
        for task in set(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(DRAIN_SETTLE_S):
                await self.settler.drained()
        except TimeoutError:
            observe.log().warning("results_unwritten", results=len(self._held))


async def serve(settings: Settings, *, stop: asyncio.Event, ready: Callable[[str, str, None, str], None]) -> None:
    """Run one worker until `stop`; `ready` hears its own address, that of its metrics, no SMTP, and its id."""
    provider = way_out(settings)
    try:
        async with (
            open_runtime(settings, "worker") as runtime,
            side_door(settings.host, settings.metrics_port) as url,
        ):
            ready(url, f"{url}/metrics", None, runtime.process_id)
            await Worker(runtime, provider, stop).run()
    finally:
        await provider.close()
