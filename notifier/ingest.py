"""The one door for events: accept() decides under the user's lock, in a transaction shared by whoever waits.

Concurrent events form groups without a timer: while one group is in flight the next collects. A group that fails is
undone as a whole, and its events run alone, side by side, so that one of them never harms the others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from notifier import observe
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import Busy, Invalid, KeyReused, NotifierError
from notifier.domain.event import Event
from notifier.domain.journey import Journeys, Plan, Seen, UserState, cancel_reason, concerns, plan
from notifier.domain.notification import NotificationRow
from notifier.failpoints import Point, reach
from notifier.ids import new_id
from notifier.store import events, installation, moves, outbox, users
from notifier.store.database import RETRYABLE, UNAVAILABLE, Connection, Database

EVENT_BUDGET_S = 4.0  # an event is answered within this, one way or the other
GROUP_MAX = 256  # events in one transaction
GROUP_LOCK_TIMEOUT_S = 0.1  # a group does not wait long for anybody
WAITING_MAX = 20_000  # events in this process that wait for a transaction
CANCEL_ROUNDS_MAX = 20  # repeats while a row keeps coming back; once is nearly always enough


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the sender is told. `answer` is the stored body; `replayed`: it was stored by an earlier request."""

    answer: Mapping[str, Any]
    replayed: bool


@dataclass(slots=True)
class _Waiting:
    event: Event
    deadline: float
    done: asyncio.Future[Accepted]

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def finish(self, outcome: Accepted | Exception) -> None:
        if self.done.done():
            return  # the sender has been told to repeat, or hung up; the repeat will find the stored answer
        if isinstance(outcome, Accepted):
            self.done.set_result(outcome)
        else:
            self.done.set_exception(outcome)


@dataclass(slots=True)
class Ingest:
    """Accepts events for one process."""

    database: Database
    journeys: Journeys
    wakeup: Wakeup
    alone_max: int
    _waiting: list[_Waiting] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _alone: set[asyncio.Task[None]] = field(default_factory=set)
    _busy: set[tuple[str, ...]] = field(default_factory=set)
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Half the pool at most is for events that run alone."""
        self._slots = asyncio.Semaphore(self.alone_max)

    async def accept(self, event: Event) -> Accepted:
        """Decide what `event` means and commit it; returns only after the commit.

        Raises Invalid (422), KeyReused (422) or Busy (503). After Busy the event may still be committed; a repeat
        then gets its answer.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Busy("too many events wait for the database; repeat this one")
        waiting = _Waiting(event, time.monotonic() + EVENT_BUDGET_S, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._changed.set()
        try:
            async with asyncio.timeout(EVENT_BUDGET_S):
                accepted = await waiting.done
        except TimeoutError:
            self._count(event, "busy")
            raise Busy("the event could not be stored in time; repeat it") from None
        except NotifierError as error:
            self._count(event, "busy" if isinstance(error, Busy) else "refused")
            raise
        self._count(event, "replayed" if accepted.replayed else "accepted")
        return accepted

    def _count(self, event: Event, outcome: str) -> None:
        label = event.type if event.type in self.journeys.event_types else "other"
        observe.EVENTS.labels(label, outcome).inc()

    async def run(self) -> None:
        """Form groups and run them, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while group := self._next_group():
                await self._run_group(group)

    def _next_group(self) -> list[_Waiting]:
        """At most one event per id and one per user; who meets somebody running alone stays in the queue."""
        group: list[_Waiting] = []
        taken = set(self._busy)
        rest: list[_Waiting] = []
        for waiting in self._waiting:
            keys = _keys(waiting.event)
            if waiting.done.done():
                continue
            if len(group) >= GROUP_MAX or any(key in taken for key in keys):
                rest.append(waiting)
                # Later events of the same user must not overtake this one.
                taken.update(keys)
                continue
            taken.update(keys)
            group.append(waiting)
        self._waiting = rest
        return group

    async def _run_group(self, group: Sequence[_Waiting]) -> None:
        try:
            async with asyncio.timeout(EVENT_BUDGET_S):
                outcomes = await self._transact([w.event for w in group], GROUP_LOCK_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - whatever it was, each event finds out for itself
            if not isinstance(error, (*RETRYABLE, *UNAVAILABLE)):
                observe.log().warning("ingest_group_failed", size=len(group), error=_name(error))
            for waiting in group:
                self._start_alone(waiting)
            return
        for waiting, outcome in zip(group, outcomes, strict=True):
            waiting.finish(outcome)

    def _start_alone(self, waiting: _Waiting) -> None:
        self._busy.update(_keys(waiting.event))
        task = asyncio.create_task(self._run_alone(waiting))
        self._alone.add(task)
        task.add_done_callback(self._alone.discard)

    async def _run_alone(self, waiting: _Waiting) -> None:
        try:
            async with asyncio.timeout(max(0.0, waiting.left_s)), self._slots:
                waiting.finish(await self._try_until_deadline(waiting))
        except TimeoutError:
            waiting.finish(Busy("the event could not be stored in time; repeat it"))
        except Exception as error:  # noqa: BLE001 - the top of this event's own run
            observe.log().error("ingest_failed", error=_name(error), exc_info=error)
            waiting.finish(error)
        finally:
            self._busy.difference_update(_keys(waiting.event))
            self._changed.set()

    async def _try_until_deadline(self, waiting: _Waiting) -> Accepted | Exception:
        pause_s = 0.02
        while True:
            try:
                [outcome] = await self._transact([waiting.event], max(0.01, min(2.0, waiting.left_s)))
            except RETRYABLE:
                pass
            except UNAVAILABLE as error:
                return Busy(f"the database is not available ({_name(error)}); repeat the event")
            else:
                return outcome
            if waiting.left_s <= pause_s:
                return Busy("another event of the same user or id is still at work; repeat this one")
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 2, 0.5)

    async def _transact(self, group: Sequence[Event], lock_timeout_s: float) -> list[Accepted | Exception]:
        """Run one group as one transaction. Outcomes in the group's order; an exception undoes all of them."""
        async with self.database.transaction(lock_timeout_s=lock_timeout_s) as conn:
            new = await events.insert(conn, group)
            fresh = [event for event in group if (event.source, event.id) in new]
            known = [event for event in group if (event.source, event.id) not in new]
            outcomes = await _replay(conn, known) if known else {}
            answers: dict[tuple[str, str], dict[str, Any]] = {}
            if fresh:
                answers = await self._decide(conn, fresh)
                outcomes |= {key: Accepted(answer, replayed=False) for key, answer in answers.items()}
                await reach(Point.INGEST_BEFORE_COMMIT)
        if fresh:
            _count_closed(answers)
            await reach(Point.INGEST_AFTER_COMMIT)
            self.wakeup.nudge()
        return [outcomes[event.source, event.id] for event in group]

    async def _decide(self, conn: Connection, group: Sequence[Event]) -> dict[tuple[str, str], dict[str, Any]]:
        """Lock the users, decide, write, and say what came of it. One event per user."""
        user_ids = [event.user_id for event in group]
        await users.lock(conn, user_ids)
        await reach(Point.INGEST_AFTER_LOCK)
        now = await installation.business_now(conn)
        at = {event.user_id: event.occurred_at or now for event in group}
        profiles = [(e.user_id, at[e.user_id], e.profile) for e in group if not e.profile.is_empty]
        if profiles:
            await users.merge(conn, profiles)
        states = await _read_users(conn, user_ids)
        plans = {e.user_id: plan(e, at[e.user_id], states[e.user_id], self.journeys, now) for e in group}
        meaningful = [event for event in group if event.type in self.journeys.event_types]
        if meaningful:
            seen = [(e.user_id, e.type, Seen(at[e.user_id], e.ref)) for e in meaningful]
            await users.remember(conn, sorted(seen, key=lambda item: item[:2]))
        canceled: set[Any] = set()
        standing = {user_id: list(states[user_id].notifications) for user_id in user_ids}
        if any(event.type in self.journeys.canceling_types for event in group) or any(p.cancel for p in plans.values()):
            canceled, standing = await self._cancel(conn, group, at, plans)
        created = await self._create(conn, group, plans)
        answers = [
            (
                event,
                at[event.user_id],
                _answer(event, at[event.user_id], plans[event.user_id], created, canceled, standing[event.user_id]),
            )
            for event in group
        ]
        await events.store_answers(conn, answers, now)
        return {(event.source, event.id): answer for event, _, answer in answers}

    async def _cancel(
        self, conn: Connection, group: Sequence[Event], at: Mapping[str, datetime], plans: Mapping[str, Plan]
    ) -> tuple[set[Any], dict[str, list[NotificationRow]]]:
        """Stop what can still be stopped: first what waits, then, as a later statement, what is owed.

        A release moves rows from the first place to the second; the other order, or one statement for both, would
        miss a row in between. A give-back or an operator's retry may bring a row back behind us, hence the rounds.
        """
        by_user = {event.user_id: event for event in group}
        canceled: set[Any] = set()
        pending = [row for p in plans.values() for row in p.cancel if not row.state_is_closed]
        for round_number in range(CANCEL_ROUNDS_MAX):
            cancels = [
                moves.Cancel(row.id, cancel_reason(by_user[row.user_id].type), f"event:{by_user[row.user_id].ref}")
                for row in pending
            ]
            if round_number:
                observe.CANCEL_REPEATS.inc()
            if cancels:
                canceled |= await moves.cancel_scheduled(conn, cancels)
            await reach(Point.LOGIN_BETWEEN_CANCELS)
            if cancels:
                canceled |= await moves.cancel_open(conn, cancels)
            standing = await outbox.of_users(conn, list(by_user))
            pending = [
                row
                for rows in standing.values()
                for row in rows
                if row.can_still_be_canceled and concerns(by_user[row.user_id].type, at[row.user_id], row)
            ]
            if not pending:
                lost = sum(1 for p in plans.values() for row in p.cancel if row.can_still_be_canceled)
                observe.LOST_RACES.labels("cancel").inc(max(0, lost - len(canceled)))
                return canceled, standing
        raise Busy("a notification keeps moving while this event stops it; repeat the event")

    async def _create(
        self, conn: Connection, group: Sequence[Event], plans: Mapping[str, Plan]
    ) -> dict[tuple[str, str], outbox.Decision]:
        decisions = [
            outbox.Decision(new_id(), event.user_id, f"event:{event.ref}", creation)
            for event in group
            for creation in plans[event.user_id].create
        ]
        if not decisions:
            return {}
        made = await outbox.decide(conn, decisions)
        # Under the user's lock nobody else decides for this user, so the guard can only meet a bug.
        assert len(made) == len(decisions), "a notification was decided outside the user's lock"
        return {(decision.user_id, decision.creation.kind): decision for decision in decisions}


async def _replay(conn: Connection, known: Sequence[Event]) -> dict[tuple[str, str], Accepted | Exception]:
    found = await events.why_not(conn, known)
    outcomes: dict[tuple[str, str], Accepted | Exception] = {}
    for event in known:
        key = (event.source, event.id)
        refused = found[key]
        if refused.maintenance:
            outcomes[key] = Busy("closed for maintenance; repeat the event later", retry_after_s=10)
        elif refused.answer is not None and refused.fingerprint == event.fingerprint:
            outcomes[key] = Accepted(refused.answer, replayed=True)
        elif refused.fingerprint is not None:
            outcomes[key] = KeyReused(event.id)
        elif refused.in_future:
            outcomes[key] = Invalid(
                "occurred_at is more than 5 minutes ahead of the service's clock", pointer="/occurred_at"
            )
        else:  # it was there when we inserted and is gone now: retention took it in between
            outcomes[key] = Busy("the event could not be stored; repeat it")
    return outcomes


async def _read_users(conn: Connection, user_ids: Sequence[str]) -> dict[str, UserState]:
    """What is true of each user, in statements after the one that locked, so that they see what it waited for."""
    profiles = await users.read(conn, user_ids)
    seen = await users.last_seen(conn, user_ids)
    notifications = await outbox.of_users(conn, user_ids)
    return {
        user_id: UserState(
            user_id=user_id,
            email=profile.email,
            name=profile.name,
            locale=profile.locale,
            timezone=profile.timezone,
            attributes=profile.attributes,
            notifications=notifications[user_id],
            last_seen=seen[user_id],
        )
        for user_id, profile in profiles.items()
    }


def _answer(
    event: Event,
    occurred_at: datetime,
    planned: Plan,
    created: Mapping[tuple[str, str], outbox.Decision],
    canceled: Iterable[Any],
    standing: Sequence[NotificationRow],
) -> dict[str, Any]:
    """What the sender is told, for both doors: each takes the parts that its own contract names."""
    stopped = set(canceled)
    by_id = {row.id: row for row in standing}
    concerned = [row for row in standing if concerns(event.type, occurred_at, row)]
    too_late = [row for row in concerned if row.id not in stopped and row.is_too_late]
    late_ids = {row.id for row in too_late}
    new = [created[event.user_id, creation.kind] for creation in planned.create]
    existing = [by_id.get(row.id, row) for row in planned.existing]
    return {
        "event": {"id": event.id, "type": event.type, "duplicate": False},
        "notifications": [
            {
                "id": str(decision.id),
                "kind": decision.creation.kind,
                "state": decision.creation.state.value,
                "due_at": decision.creation.due_at.isoformat(),
            }
            for decision in new
        ]
        + [
            {
                "id": str(row.id),
                "kind": row.kind,
                "state": row.state.value,
                "due_at": row.due_at.isoformat(),
                "existing": True,
            }
            for row in existing
        ],
        "canceled": [
            {"id": str(row.id), "kind": row.kind, "due_at": row.due_at.isoformat()}
            for row in standing
            if row.id in stopped
        ],
        "too_late": [
            {"id": str(row.id), "kind": row.kind, "state": row.state.value, "since": _iso(row.since)}
            for row in too_late
        ],
        "untouched": [
            {"id": str(row.id), "kind": row.kind, "state": row.state.value}
            for row in standing
            if row.id not in stopped and row.id not in late_ids
        ],
        "user_id": event.user_id,
    }


def _count_closed(answers: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Count what these events closed: stopped by them, or closed the moment it was decided."""
    for answer in answers.values():
        stopped = len(answer["canceled"])
        if stopped:
            observe.SETTLED.labels("canceled", cancel_reason(answer["event"]["type"])).inc(stopped)
        for row in answer["notifications"]:
            if not row.get("existing") and row["state"] in ("canceled", "skipped"):
                observe.SETTLED.labels(row["state"], "").inc()


def _keys(event: Event) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("user", event.user_id), ("event", event.source, event.id)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _name(error: BaseException) -> str:
    return type(error).__name__
