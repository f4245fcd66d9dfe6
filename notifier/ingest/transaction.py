"""One transaction for a group of events: look up and lock, read, plan, cancel, decide, answer.

Each step is a statement of its own, because only a new statement sees what a lock waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from notifier import observe
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import Busy, Invalid, KeyReused
from notifier.domain.event import Event
from notifier.domain.journey import Journeys, Plan, UserState, cancel_reason, concerns, plan
from notifier.domain.notification import NotificationRow, State
from notifier.domain.restore import NOTHING_LOST
from notifier.failpoints import Point, reach
from notifier.ids import new_id_texts
from notifier.ingest.answer import Packed, left_standing, pack_answer, unpack
from notifier.store import acceptance, moves, outbox, restores, users
from notifier.store.database import Connection, Database

CANCEL_ROUNDS_MAX = 20  # repeats while a row keeps coming back; once is nearly always enough


class Accepted(NamedTuple):
    """What the sender is told. `answer` is the stored body; `replayed`: it was stored by an earlier request."""

    answer: Mapping[str, Any]
    replayed: bool


@dataclass(frozen=True, slots=True)
class Door:
    """What a transaction needs."""

    database: Database
    journeys: Journeys
    wakeup: Wakeup


async def transact(door: Door, group: Sequence[Event], lock_timeout_s: float) -> list[Accepted | Exception]:
    """Run one group as one transaction. Outcomes in the group's order; an exception undoes all of them."""
    async with door.database.transaction(lock_timeout_s=lock_timeout_s) as conn:
        meeting = await acceptance.meet(conn, group)
        fresh = [(event, found) for event, found in zip(group, meeting.met, strict=True) if found.is_new]
        decided = _Decided()
        if fresh:
            await reach(Point.INGEST_AFTER_LOCK)
            decided = await _decide(door, conn, fresh, meeting)
            await reach(Point.INGEST_BEFORE_COMMIT)
    if fresh:
        for state, reason in decided.closed:
            observe.count_settled(state, reason)
        observe.ANSWERS_LEFT_STANDING.inc(decided.left_standing)
        await reach(Point.INGEST_AFTER_COMMIT)
        door.wakeup.nudge()
    answers = iter(decided.answers)
    return [
        Accepted(next(answers), replayed=False) if found.is_new else _known(event, found)
        for event, found in zip(group, meeting.met, strict=True)
    ]


@dataclass(slots=True)
class _Decided:
    """The answers in order, (state, reason) of everything that ended by them, and what they wrongly left standing."""

    answers: list[Mapping[str, Any]] = field(default_factory=list)
    closed: list[tuple[str, str]] = field(default_factory=list)
    left_standing: int = 0

    def add(
        self,
        event: Event,
        occurred_at: datetime,
        packed: Packed,
        new: Sequence[outbox.Decision],
        standing: Sequence[NotificationRow],
    ) -> None:
        """Add what came of one event."""
        self.answers.append(unpack(event, occurred_at, packed))
        for _, made in new:
            if made.reason is not None and made.state is not State.PENDING:
                self.closed.append((made.state.value, made.reason))
        if standing:
            self.closed += [("canceled", cancel_reason(event.type))] * len(packed.get("canceled", ()))
            self.left_standing += left_standing(packed, event, occurred_at, standing)


async def _decide(
    door: Door, conn: Connection, fresh: Sequence[tuple[Event, acceptance.Met]], meeting: acceptance.Meeting
) -> _Decided:
    """Decide and write, with the users locked. One event per user."""
    group, now = [event for event, _ in fresh], meeting.now
    await _merge_undated(conn, group, now)
    times = [event.occurred_at or now for event in group]
    lost = NOTHING_LOST
    if meeting.was_restored:
        _, lost = await restores.now_and_lost_time(conn)
    people = await _read_users(conn, fresh)
    plans = [plan(*asked, door.journeys, now, lost) for asked in zip(group, times, people, strict=True)]
    canceled: set[UUID] = set()
    standing: Sequence[Sequence[NotificationRow]] = [user.notifications for user in people]
    if any(event.type in door.journeys.canceling_types for event in group) or any(p.cancel for p in plans):
        canceled, standing = await _cancel(conn, group, times, plans, standing)
    decided = _Decided()
    ids = iter(new_id_texts(sum([len(planned.create) for planned in plans])))
    taken: list[acceptance.Taken] = []
    for event, occurred_at, user, planned, found in zip(group, times, people, plans, standing, strict=True):
        new = [outbox.Decision(next(ids), creation) for creation in planned.create]
        packed = pack_answer(event.type, occurred_at, new, planned.existing, canceled, found)
        is_timed = event.type in door.journeys.event_types and not user.erased
        is_first = event.type not in user.last_seen if is_timed else None
        taken.append(acceptance.Taken(event, occurred_at, packed, new, is_first))
        decided.add(event, occurred_at, packed, new, found)
    # Under the user's lock nobody else decides for this user: the guard can only meet a bug, and then this fails.
    await acceptance.write(conn, taken, now, meeting.received_at)
    return decided


async def _merge_undated(conn: Connection, group: Sequence[Event], now: datetime) -> None:
    """Merge what events say of their users that do not say when they occurred.

    Their time is read once the locks are there, and only then is it known what their profiles are newer than.
    """
    undated = [(e.user_id, now, e.profile) for e in group if e.occurred_at is None and not e.profile.is_empty]
    if undated:
        await users.lock(conn, undated)


async def _cancel(
    conn: Connection,
    group: Sequence[Event],
    times: Sequence[datetime],
    plans: Sequence[Plan],
    standing: Sequence[Sequence[NotificationRow]],
) -> tuple[set[UUID], Sequence[Sequence[NotificationRow]]]:
    """Stop what can still be stopped: first what waits, then, as a later statement, what is owed.

    A release moves rows from the first place to the second; the other order, or one statement for both, would
    miss a row in between. A give-back or an operator's retry may bring a row back behind us, hence the rounds.
    """
    canceled: set[UUID] = set()
    pending = [
        (event, row)
        for event, planned in zip(group, plans, strict=True)
        for row in planned.cancel
        if not row.state_is_closed
    ]
    for round_number in range(CANCEL_ROUNDS_MAX):
        cancels = [moves.Cancel(row.id, cancel_reason(event.type), f"event:{event.ref}") for event, row in pending]
        if round_number:
            observe.CANCEL_REPEATS.inc()
        if cancels:
            canceled |= await moves.cancel_scheduled(conn, cancels)
        await reach(Point.LOGIN_BETWEEN_CANCELS)
        if cancels:
            canceled |= await moves.cancel_open(conn, cancels)
            found = await outbox.of_users(conn, [event.user_id for event in group])
            standing = [found[event.user_id] for event in group]
        pending = [
            (event, row)
            for event, at, rows in zip(group, times, standing, strict=True)
            for row in rows
            if row.can_still_be_canceled and concerns(event.type, at, row)
        ]
        if not pending:
            lost = sum(1 for p in plans for row in p.cancel if row.can_still_be_canceled)
            observe.LOST_RACES.labels("cancel").inc(max(0, lost - len(canceled)))
            return canceled, standing
    raise Busy("a notification keeps moving while this event stops it; repeat the event")


def _known(event: Event, met: acceptance.Met) -> Accepted | Exception:
    """What the sender of an event is told that is not to be stored."""
    if met.maintenance:
        return Busy("closed for maintenance; repeat the event later", retry_after_s=10)
    if met.answer is not None and met.fingerprint == event.fingerprint:
        assert met.occurred_at is not None, "an answer is kept with its time"
        return Accepted(unpack(event, met.occurred_at, met.answer), replayed=True)
    if met.fingerprint is not None:
        return KeyReused(event.id)
    return Invalid("occurred_at is more than 5 minutes ahead of the service's clock", pointer="/occurred_at")


async def _read_users(conn: Connection, fresh: Sequence[tuple[Event, acceptance.Met]]) -> list[UserState]:
    """What is true of each event's user; of whoever is new there is nothing to be read."""
    known = [event.user_id for event, met in fresh if not met.is_new_user]
    profiles = await acceptance.read(conn, known) if known else []
    was_seen = [profile.user_id for profile in profiles if profile.was_seen]
    has_notifications = [profile.user_id for profile in profiles if profile.has_notifications]
    seen = await users.last_seen(conn, was_seen) if was_seen else {}
    notifications = await outbox.of_users(conn, has_notifications) if has_notifications else {}
    states = {}
    for profile in profiles:
        states[profile.user_id] = UserState(
            user_id=profile.user_id,
            email=profile.email,
            name=profile.name,
            locale=profile.locale,
            timezone=profile.timezone,
            attributes=profile.attributes or {},
            notifications=notifications.get(profile.user_id, ()),
            last_seen=seen.get(profile.user_id, {}),
            erased=profile.erased,
        )
    return [_new_user(event) if met.is_new_user else states[event.user_id] for event, met in fresh]


def _new_user(event: Event) -> UserState:
    said = event.profile
    return UserState(event.user_id, said.email, said.name, said.locale, said.timezone, said.attributes or {}, (), {})
