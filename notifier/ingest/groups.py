"""The one door for events: accept() decides under the user's lock, in a transaction shared by whoever waits.

Whatever arrives while the transactions under way are at work shares the next, so no event waits for a timer. A group
that fails is undone as a whole, and its events run alone, side by side, so that one of them never harms the others.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from notifier import observe
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import Busy, NotifierError
from notifier.domain.event import Event
from notifier.domain.journey import Journeys
from notifier.ingest.transaction import Accepted, Door, transact
from notifier.store.acceptance import Overtaken
from notifier.store.database import RETRYABLE, UNAVAILABLE, Database

EVENT_BUDGET_S = 4.0  # an event is answered within this, one way or the other
GROUP_MAX = 256  # events in one transaction
GROUP_WHOLE = 32  # events that are not divided among two groups
GROUP_MANY = 64  # events that do not wait for more of them
GROUP_LOTS = 128  # events that make a group also where there are three
GROUPS_AT_ONCE = 2  # one is prepared and read here while the database is at work on the other
GROUPS_MAX = 4  # where lots wait, and the pool has connections left for them
GROUP_LOCK_TIMEOUT_S = 0.1  # a group does not wait long for anybody
ALONE_LOCK_TIMEOUT_S = 2.0
HELD_UP_S = 5.0  # how long events of a user whose lock could not be had stay out of groups
WAITING_MAX = 20_000  # events in this process that wait for a transaction
_AGAIN = (*RETRYABLE, Overtaken)

Outcome: TypeAlias = Accepted | Exception


@dataclass(slots=True)
class _Waiting:
    event: Event
    deadline: float
    tell: Callable[[Outcome], None]
    keys: tuple[str, tuple[str, str]]  # what no two events under way have in common: the user, and source and id
    is_over: bool = False  # the sender has been told, or hung up

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(slots=True)
class Ingest:
    """Accepts events for one process."""

    database: Database
    journeys: Journeys
    wakeup: Wakeup
    pool_size: int  # of the database's connections
    _waiting: list[_Waiting] = field(default_factory=list)
    _deadlines: deque[_Waiting] = field(default_factory=deque)  # in order of their deadlines, that of their arrival
    _timer: asyncio.TimerHandle | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _groups: set[asyncio.Task[None]] = field(default_factory=set)
    _in_groups: int = 0  # events
    _alone: set[asyncio.Task[None]] = field(default_factory=set)
    _busy: set[str | tuple[str, str]] = field(default_factory=set)
    _held_up: dict[str, float] = field(default_factory=dict)
    _alone_max: int = field(init=False)
    _groups_max: int = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _door: Door = field(init=False)

    def __post_init__(self) -> None:
        """Half the pool at most is for events that run alone; more than two groups leave a connection to all others."""
        self._alone_max = self.pool_size // 2
        left = self.pool_size - self._alone_max - 1
        self._groups_max = max(GROUPS_AT_ONCE, min(GROUPS_MAX, left))
        self._slots = asyncio.Semaphore(self._alone_max)
        self._door = Door(self.database, self.journeys, self.wakeup)

    async def accept(self, event: Event) -> Accepted:
        """Decide what `event` means and commit it; returns only after the commit.

        Raises Invalid (422), KeyReused (422) or Busy (503). After Busy the event may still be committed; a repeat
        then gets its answer.
        """
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def tell(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        waiting = self.put(event, tell)
        try:
            outcome = await done
        finally:
            waiting.is_over = True
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def put(self, event: Event, tell: Callable[[Outcome], None]) -> _Waiting:
        """Do the same without waiting: `tell` hears once what accept() returns or raises. Raises Busy itself."""
        if len(self._waiting) + len(self._alone) >= WAITING_MAX:
            raise Busy("too many events wait for the database; repeat this one")
        waiting = _Waiting(event, time.monotonic() + EVENT_BUDGET_S, tell, (event.user_id, (event.source, event.id)))
        self._waiting.append(waiting)
        self._deadlines.append(waiting)
        if self._timer is None:
            self._watch_deadlines()
        if not self._changed.is_set() and self._next_size():  # otherwise the end of a group is what changes something
            self._changed.set()
        return waiting

    def _watch_deadlines(self) -> None:
        """Answer those whose time is over, and look again when that of the first of the others will be."""
        while self._deadlines and (self._deadlines[0].is_over or self._deadlines[0].left_s <= 0):
            self._finish((self._deadlines.popleft(), Busy("the event could not be stored in time; repeat it")))
        self._timer = None
        if self._deadlines:
            self._timer = asyncio.get_running_loop().call_at(self._deadlines[0].deadline, self._watch_deadlines)

    def _finish(self, *ended: tuple[_Waiting, Outcome]) -> None:
        """Tell the senders, each once, and count what they were told."""
        told: Counter[tuple[str, str]] = Counter()
        for waiting, outcome in ended:
            if waiting.is_over:
                continue  # the sender has been told to repeat, or hung up; the repeat will find the stored answer
            waiting.is_over = True
            if (name := _name_of(outcome)) is not None:
                told[waiting.event.type, name] += 1
            waiting.tell(outcome)
        for (type_, name), number in told.items():
            observe.event_counter(type_ if type_ in self.journeys.event_types else "other", name).inc(number)

    async def run(self) -> None:
        """Form groups and run them, for ever."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while (size := self._next_size()) and (group := self._next_group(size)):
                    self._start(self._groups, self._run_group(group))
        finally:
            for task in self._groups:
                task.cancel()
            await asyncio.gather(*self._groups, return_exceptions=True)

    def _start(self, running: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            running.discard(task)
            self._changed.set()

        task = asyncio.create_task(work)
        running.add(task)
        task.add_done_callback(ended)

    def _next_size(self) -> int:
        """How many events the next group may have; 0: it is not to begin yet.

        Two groups of one size keep both this process and the database at work; small ones cost more than they gain.
        So half of those who wait begin, and the others when they are as many as are under way, or many. Many are also
        enough for a third group, and lots for a fourth. Lots are divided among all that may begin: at the end of a
        batch there is only the database left to wait for, and it does two halves sooner.
        """
        waiting, under_way = len(self._waiting), len(self._groups)
        if not under_way:
            return min(GROUP_MAX, max(GROUP_WHOLE, (waiting + 1) // 2))
        enough = (0, min(self._in_groups, GROUP_MANY), GROUP_MANY, GROUP_LOTS)  # for the next beside so many
        if under_way >= self._groups_max or waiting < enough[under_way]:
            return 0
        parts = min(self._groups_max - under_way, max(1, waiting // GROUP_LOTS))
        return min(GROUP_MAX, math.ceil(waiting / parts))

    def _next_group(self, size: int) -> list[_Waiting]:
        """At most one event per id and one per user; who meets somebody under way stays in the queue.

        Events of a user whose lock was waited for in vain a moment ago start alone at once, so that they do not undo
        group after group.
        """
        if self._held_up:
            now = time.monotonic()
            self._held_up = {user: until for user, until in self._held_up.items() if until > now}
        group: list[_Waiting] = []
        taken = set(self._busy)
        rest: list[_Waiting] = []
        for index, waiting in enumerate(self._waiting):
            if len(group) == size:
                rest += self._waiting[index:]
                break
            if waiting.is_over:
                continue
            by_user, by_id = waiting.keys
            if by_user in taken or by_id in taken:
                rest.append(waiting)
                # Later events of the same user must not overtake this one.
                taken.update(waiting.keys)
                continue
            taken.update(waiting.keys)
            if by_user in self._held_up:
                self._start_alone(waiting)
            else:
                self._busy.update(waiting.keys)
                group.append(waiting)
        self._waiting = rest
        self._in_groups += len(group)
        return group

    async def _run_group(self, group: Sequence[_Waiting]) -> None:
        try:
            async with asyncio.timeout(EVENT_BUDGET_S):
                outcomes = await transact(self._door, [w.event for w in group], GROUP_LOCK_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - whatever it was, each event finds out for itself
            if not isinstance(error, (*_AGAIN, *UNAVAILABLE)):
                observe.log().warning("ingest_group_failed", size=len(group), error=_name(error))
            for waiting in group:
                self._start_alone(waiting)
            return
        finally:
            self._in_groups -= len(group)
        for waiting in group:
            self._busy.difference_update(waiting.keys)
        self._finish(*zip(group, outcomes, strict=True))
        while self._deadlines and self._deadlines[0].is_over:
            self._deadlines.popleft()

    def _start_alone(self, waiting: _Waiting) -> None:
        self._busy.update(waiting.keys)
        self._start(self._alone, self._run_alone(waiting))

    async def _run_alone(self, waiting: _Waiting) -> None:
        try:
            async with asyncio.timeout(max(0.0, waiting.left_s)):
                self._finish((waiting, await self._try_until_deadline(waiting)))
        except TimeoutError:
            self._finish((waiting, Busy("the event could not be stored in time; repeat it")))
        except Exception as error:  # noqa: BLE001 - the top of this event's own run
            observe.log().error("ingest_failed", error=_name(error), exc_info=error)
            self._finish((waiting, error))
        finally:
            self._busy.difference_update(waiting.keys)

    def _patience_s(self, waiting: _Waiting) -> float:
        """How long one try may wait for one lock: little while there are more events alone than slots for them."""
        if len(self._alone) > self._alone_max:
            return GROUP_LOCK_TIMEOUT_S
        return max(0.01, min(ALONE_LOCK_TIMEOUT_S, waiting.left_s))

    async def _try_until_deadline(self, waiting: _Waiting) -> Outcome:
        pause_s = 0.02
        while True:
            try:
                async with self._slots:  # for one try, not for all of them: who waits for a lock leaves it to others
                    [outcome] = await transact(self._door, [waiting.event], self._patience_s(waiting))
            except _AGAIN:
                self._held_up[waiting.event.user_id] = time.monotonic() + HELD_UP_S
            except UNAVAILABLE as error:
                return Busy(f"the database is not available ({_name(error)}); repeat the event")
            else:
                return outcome
            if waiting.left_s <= pause_s:
                return Busy("another event of the same user or id is still at work; repeat this one")
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 2, 0.5)


def _name_of(outcome: Outcome) -> str | None:
    """How an outcome is counted; None: it is a defect of ours, which the log tells."""
    if isinstance(outcome, Accepted):
        return "replayed" if outcome.replayed else "accepted"
    if isinstance(outcome, NotifierError):
        return "busy" if isinstance(outcome, Busy) else "refused"
    return None


def _name(error: BaseException) -> str:
    return type(error).__name__
