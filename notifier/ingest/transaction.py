"""One transaction for a group of events: lock, read, plan, cancel, decide, answer.

Each step is a statement of its own, because only a new statement sees what a lock waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from notifier import observe
from notifier.coordination.wakeup import Wakeup
from notifier.domain.errors import Busy, Invalid, KeyReused
from notifier.domain.event import Event
from notifier.domain.journey import Journeys, Plan, Seen, UserState, cancel_reason, concerns, plan
from notifier.domain.notification import NotificationRow, State
from notifier.failpoints import Point, reach
from notifier.ids import new_id
from notifier.ingest.answer import build_answer, left_standing
from notifier.store import events, moves, outbox, restores, users
from notifier.store.database import Connection, Database

CANCEL_ROUNDS_MAX = 20  # repeats while a row keeps coming back; once is nearly always enough


@dataclass(frozen=True, slots=True)
class Accepted:
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
        new = await events.insert(conn, group)
        fresh = [event for event in group if (event.source, event.id) in new]
        known = [event for event in group if (event.source, event.id) not in new]
        outcomes = await _replay(conn, known) if known else {}
        decided = _Decided()
        if fresh:
            decided = await _decide(door, conn, fresh)
            outcomes |= {key: Accepted(answer, replayed=False) for key, answer in decided.answers.items()}
            await reach(Point.INGEST_BEFORE_COMMIT)
    if fresh:
        for state, reason in decided.closed:
            observe.count_settled(state, reason)
        observe.ANSWERS_LEFT_STANDING.inc(decided.left_standing)
        await reach(Point.INGEST_AFTER_COMMIT)
        door.wakeup.nudge()
    return [outcomes[event.source, event.id] for event in group]


@dataclass(frozen=True, slots=True)
class _Decided:
    """The answer per event, (state, reason) of everything that ended by them, and what they wrongly left standing."""

    answers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    closed: list[tuple[str, str]] = field(default_factory=list)
    left_standing: int = 0


async def _decide(door: Door, conn: Connection, group: Sequence[Event]) -> _Decided:
    """Lock the users, decide and write. One event per user."""
    user_ids = [event.user_id for event in group]
    await users.lock(conn, user_ids)
    await reach(Point.INGEST_AFTER_LOCK)
    now, lost = await restores.now_and_lost_time(conn)
    at = {event.user_id: event.occurred_at or now for event in group}
    profiles = [(e.user_id, at[e.user_id], e.profile) for e in group if not e.profile.is_empty]
    if profiles:
        await users.merge(conn, profiles)
    states = await _read_users(conn, user_ids)
    plans = {e.user_id: plan(e, at[e.user_id], states[e.user_id], door.journeys, now, lost) for e in group}
    meaningful = [e for e in group if e.type in door.journeys.event_types and not states[e.user_id].erased]
    if meaningful:
        seen = [(e.user_id, e.type, Seen(at[e.user_id], e.ref)) for e in meaningful]
        await users.remember(conn, sorted(seen, key=lambda item: item[:2]))
    canceled: set[UUID] = set()
    standing = {user_id: list(states[user_id].notifications) for user_id in user_ids}
    if any(event.type in door.journeys.canceling_types for event in group) or any(p.cancel for p in plans.values()):
        canceled, standing = await _cancel(conn, group, at, plans)
    created = await _create(conn, group, plans)
    answers = [
        (
            event,
            at[event.user_id],
            build_answer(event, at[event.user_id], plans[event.user_id], created, canceled, standing[event.user_id]),
        )
        for event in group
    ]
    await events.store_answers(conn, answers, now)
    closed = [
        (decision.creation.state.value, decision.creation.reason)
        for decision in created.values()
        if decision.creation.reason is not None and decision.creation.state is not State.PENDING
    ]
    for event, _, answer in answers:
        closed += [("canceled", cancel_reason(event.type))] * len(answer["canceled"])
    return _Decided(
        answers={(event.source, event.id): answer for event, _, answer in answers},
        closed=closed,
        left_standing=sum(
            left_standing(answer, event, occurred_at, standing[event.user_id]) for event, occurred_at, answer in answers
        ),
    )


async def _cancel(
    conn: Connection, group: Sequence[Event], at: Mapping[str, datetime], plans: Mapping[str, Plan]
) -> tuple[set[UUID], dict[str, list[NotificationRow]]]:
    """Stop what can still be stopped: first what waits, then, as a later statement, what is owed.

    A release moves rows from the first place to the second; the other order, or one statement for both, would
    miss a row in between. A give-back or an operator's retry may bring a row back behind us, hence the rounds.
    """
    by_user = {event.user_id: event for event in group}
    canceled: set[UUID] = set()
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
    conn: Connection, group: Sequence[Event], plans: Mapping[str, Plan]
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
            erased=profile.erased_at is not None,
        )
        for user_id, profile in profiles.items()
    }
