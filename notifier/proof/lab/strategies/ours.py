"""Ours: a decision is one row, a claim carries a number, a login moves the row, and the call carries a key."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import timedelta
from functools import cache
from importlib.resources import files

from notifier.domain.event import Event, Profile, fingerprint
from notifier.domain.journey import LOGGED_IN, Journeys, parse_journeys
from notifier.domain.notification import Settlement, State, may_repeat, settle
from notifier.domain.provider_key import provider_key
from notifier.domain.retry import RetryPolicy
from notifier.proof.lab.loop import Process, Signal, nap
from notifier.proof.lab.queue import SLOTS, Job
from notifier.proof.lab.record import Login, Mail
from notifier.proof.lab.script import FOLLOWUP, KEYS_KNOWN_S, User
from notifier.proof.lab.strategies.base import Strategy, World
from notifier.proof.lab.strategies.guards import Guard
from notifier.proof.lab.strategies.outbox import Claim, Outbox, instant
from providers.base import Ambiguous

# As the service has them when nobody sets anything else.
CLAIM_TTL_S = 30.0
PROVIDER_TIMEOUT_S = 10.0
POLL_S = 1.0
POLICY = RetryPolicy(first_s=1, max_s=600, attempts_max=8, give_up_after=timedelta(days=1))
NAMESPACE = uuid.UUID("5b0f4f0e-6a53-4d0e-9c64-2b6a1a0f7c11")
WINDOW = timedelta(seconds=KEYS_KNOWN_S)
NOT_BEGUN = Settlement(State.PENDING, None, doubt=False, counted=False)


@cache
def shipped_journeys() -> Journeys:
    """The two kinds that ship."""
    return parse_journeys(files("notifier.journeys").joinpath("journeys.toml").read_text("utf-8"), "(shipped)")


class Ours(Strategy):
    """The service's own rules over tables in memory.

    Its very functions: plan, settle, may_repeat, the table of moves, provider_key, the retry policy, the journeys that
    ship. Written anew for the lab, and only as true as it reads: Outbox for the SQL of notifier.store, and this class
    for the loops and the last look of notifier.worker and notifier.ingest. That those hold is for the tests against
    PostgreSQL and the chaos runs to show. Left out: the breaker, operators, everything a database may suffer. What a
    sender posts comes again until it is answered, as with every queue here.
    """

    name = "ours"
    title = "ours"
    writes_failed = True
    says_uncertain = True

    def __init__(self, world: World, without: Collection[Guard] = ()) -> None:
        super().__init__(world)
        self.without = frozenset(without)
        self.outbox = Outbox(shipped_journeys(), self.without)
        self._users = {user.id: user for user in world.script.users}
        self._work = Signal()
        self._deliveries = 0
        self._signups = 0
        self._login_at: dict[str, float] = {}

    # ------------------------------------------------------------------------------------------ events

    def signed_up(self, user: User) -> None:
        """Have the signup posted; a repeat is posted as an event of its own, which is worse than a replay."""
        self._signups += 1
        self.world.queue.put(Job(f"signup {self._signups}", (user.id, "")))

    def logged_in(self, user: User) -> None:
        """Have the login posted."""
        self._login_at[user.id] = self.world.loop.now
        self.world.queue.put(Job("login", (user.id, "")))

    async def work(self, job: Job, process: Process) -> None:
        """Take one event: everything it means in one transaction, and the answer after its commit."""
        user = self._users[job.mail[0]]
        is_login = job.what == "login"
        event = Event(
            source="api",
            id=f"{user.id}/{job.what}",
            type=LOGGED_IN if is_login else "user.signed_up",
            user_id=user.id,
            occurred_at=instant(self._login_at[user.id] if is_login else user.signs_up_at),
            fingerprint=fingerprint({"user": user.id, "what": job.what}),
            profile=Profile(email=f"{user.id}@example.com"),
            data={},
        )
        await self.query()
        answer = self.outbox.accept(event, self.world.loop.now)
        if is_login:
            stopped = FOLLOWUP in answer.stopped
            was_late = self.outbox.is_beyond_recall((user.id, FOLLOWUP))
            self.world.record.logins.setdefault(user.id, Login(self.world.loop.now, stopped, was_late))
            told = "stopped" if stopped else "too late" if FOLLOWUP in answer.too_late else "nothing to stop"
            self.note(process, f"takes the login: {told}", (user.id, FOLLOWUP))
        for kind in answer.created:
            self.note(process, f"decides it: one row, {self.outbox.state((user.id, kind))}", (user.id, kind))
        self._work.fire(self.world.loop)
        await self.query()

    # ------------------------------------------------------------------------------------------ workers

    def started(self, process: Process) -> None:
        """Every process delivers; each also releases what is due, which any number may do at once."""
        process.spawn(self._deliver_all(process))

    async def _deliver_all(self, process: Process) -> None:
        held: set[Mail] = set()
        while True:
            await self.query()
            for mail in self.outbox.release(self.world.loop.now):
                self.note(process, "releases it: due", mail)
            claims = await self._claim(process, SLOTS - len(held))
            for claim in claims:
                held.add(claim.mail)
                process.spawn(self._deliver(process, claim, held))
            await nap(self._idle_s(), self._work)

    def _idle_s(self) -> float:
        """Until the next poll that can find anything; polls in between are left out, for they would change nothing."""
        if self.outbox.deliveries:
            return POLL_S
        due = min(self.outbox.scheduled.values(), default=float("inf"))
        return max(POLL_S, min(due - self.world.loop.now, 1e12) + self.world.draw.uniform(0, POLL_S))

    async def _claim(self, process: Process, free: int) -> list[Claim]:
        """Take over what ran out and no lease speaks for, then claim what is due."""
        if free <= 0:
            return []
        await self.query()
        expired = self.outbox.expired(self.world.loop.now, CLAIM_TTL_S)
        wanted = [m for m, overdue in expired.items() if overdue or not await self._is_leased(m)][:free]
        asked = self.world.loop.now
        taken = self.outbox.take_over(process.name, wanted, asked, CLAIM_TTL_S)
        claims = taken + self.outbox.claim(process.name, free - len(taken), asked, CLAIM_TTL_S)
        await self.query()
        for claim in claims:
            doubt = ", in doubt" if claim.doubt_since is not None else ""
            self.note(process, f"claims it, generation {claim.generation}{doubt}", claim.mail)
        return claims

    async def _is_leased(self, mail: Mail) -> bool:
        if Guard.LEASE in self.without:
            return False
        return await self.world.redis.get(f"lease:{mail}") is not None

    async def _deliver(self, process: Process, claim: Claim, held: set[Mail]) -> None:
        process.spawn(self._renew(process, claim, held))
        settlement, called = await self._call(process, claim)
        await self.query()
        written = self.outbox.settle(claim, settlement, called=called, now=self.world.loop.now)
        if written and settlement.state is State.FAILED:
            self.world.record.failed.add(claim.mail)
        uncertain = self.world.record.uncertain
        (uncertain.add if self.outbox.is_uncertain(claim.mail) else uncertain.discard)(claim.mail)
        fate = settlement.state if written else "0 rows: the claim was lost, nothing changes"
        self.note(process, f"settles generation {claim.generation}: {fate}", claim.mail)
        held.discard(claim.mail)
        self._work.fire(self.world.loop)
        await self.query()

    async def _call(self, process: Process, claim: Claim) -> tuple[Settlement, bool]:
        """Look at the claim for the last time, call, and read the outcome; whether a call was made."""
        doubt = claim.doubt_since is not None
        if doubt and not self._may_repeat(claim):
            return Settlement(State.UNCERTAIN, "window_passed", True, counted=False), False
        if claim.attempts > POLICY.attempts_max:
            return Settlement(State.UNCERTAIN if doubt else State.FAILED, "attempts_exhausted", doubt), False
        if claim.claimed_at + CLAIM_TTL_S - self.world.loop.now < PROVIDER_TIMEOUT_S:
            self.note(process, "looks at its claim: too late to call", claim.mail)
            return NOT_BEGUN, False
        outcome = await self.world.provider.send(process, claim.mail, self._key(claim), timeout_s=PROVIDER_TIMEOUT_S)
        settlement = settle(
            outcome,
            policy=POLICY,
            attempt=claim.attempts,
            waits=claim.waits,
            doubt=doubt,
            may_repeat=self._may_repeat(claim),
            given_up_waiting=self.world.loop.now - claim.entered_at > POLICY.give_up_after.total_seconds(),
            jitter=self.world.draw.random(),
        )
        if Guard.DOUBT in self.without and isinstance(outcome, Ambiguous) and settlement.state is State.UNCERTAIN:
            return Settlement(State.FAILED, settlement.reason, False), True
        return settlement, True

    def _may_repeat(self, claim: Claim) -> bool:
        since = claim.claimed_at if claim.doubt_since is None else claim.doubt_since
        left = WINDOW - timedelta(seconds=self.world.loop.now - since + CLAIM_TTL_S)
        return may_repeat(has_keys=True, same_account=True, window_left=left)

    def _key(self, claim: Claim) -> str:
        self._deliveries += 1
        salt = self._deliveries if Guard.KEY in self.without else 0
        return provider_key(NAMESPACE, *claim.mail, salt)

    async def _renew(self, process: Process, claim: Claim, held: set[Mail]) -> None:
        """Keep the lease while the claim is in hand and older than a third of its time: a hint, no more."""
        await nap(CLAIM_TTL_S / 3)
        lease = f"lease:{claim.mail}"
        while claim.mail in held:
            await self.world.redis.set(lease, process.name, ex=CLAIM_TTL_S)
            await nap(CLAIM_TTL_S / 6)
        await self.world.redis.delete(lease, process.name)
