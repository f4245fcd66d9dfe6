"""What accepting events reads and writes under their users' locks: one statement for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from notifier.domain.event import Event
from notifier.domain.journey import Seen
from notifier.domain.notification import State
from notifier.store.database import Connection
from notifier.store.outbox import Decision

# For most events all there is to read: a new user has no times and no notifications, and restores are rare. That they
# are asked for keeps `notifier restored` waiting until these events are decided.
# EXISTS would let the planner hash the whole of either table; LATERAL with LIMIT 1 is one look into the index.
READ = """
    SELECT u.user_id, u.email, u.name, u.timezone, u.locale, u.attributes, u.erased_at IS NOT NULL AS erased,
           l.user_id IS NOT NULL AS was_seen, o.user_id IS NOT NULL AS has_notifications,
           EXISTS (SELECT FROM restores) AS was_restored, notifier.now() AS now
      FROM unnest($1::text[]) AS t (user_id)
      JOIN LATERAL (SELECT * FROM users u WHERE u.user_id = t.user_id LIMIT 1) AS u ON true
      LEFT JOIN LATERAL (SELECT l.user_id FROM last_seen l
                          WHERE l.user_id = t.user_id ORDER BY l.user_id, l.event_type LIMIT 1) AS l ON true
      LEFT JOIN LATERAL (SELECT o.user_id FROM outbox o
                          WHERE o.user_id = t.user_id ORDER BY o.user_id, o.kind LIMIT 1) AS o ON true
"""


class Profiled(NamedTuple):
    """One user as the transaction finds it, and what more there is to read. `now`: business time of the read."""

    user_id: str
    email: str | None
    name: str | None
    timezone: str | None
    locale: str | None
    attributes: Mapping[str, Any]
    erased: bool
    was_seen: bool
    has_notifications: bool
    was_restored: bool
    now: datetime


async def read(conn: Connection, user_ids: Sequence[str]) -> list[Profiled]:
    """Read the users; must be a later statement than the one that locked them, so that it sees what that waited for."""
    return [
        Profiled(
            user_id=row["user_id"],
            email=row["email"],
            name=row["name"],
            timezone=row["timezone"],
            locale=row["locale"],
            attributes={} if row["attributes"] is None else json.loads(row["attributes"]),
            erased=row["erased"],
            was_seen=row["was_seen"],
            has_notifications=row["has_notifications"],
            was_restored=row["was_restored"],
            now=row["now"],
        )
        for row in await conn.fetch(READ, list(user_ids))
    ]


# Guard and place are one statement: where (user, kind) is there already, nothing goes in anywhere. An event goes in
# with its answer: two under one id, of two users, meet here and nowhere before, and the second waits for the first.
# Under the users' locks only those can meet, so ON CONFLICT, which costs a record of its own a row, is for times alone.
WRITE = """
    WITH l AS MATERIALIZED (
        SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::boolean[])
                      AS t (user_id, event_type, seen_at, event_ref, is_new)),
    l_new AS (
        INSERT INTO last_seen (user_id, event_type, seen_at, event_ref)
        SELECT user_id, event_type, seen_at, event_ref FROM l WHERE is_new ORDER BY user_id, event_type),
    l_again AS (
        INSERT INTO last_seen AS s (user_id, event_type, seen_at, event_ref)
        SELECT user_id, event_type, seen_at, event_ref FROM l WHERE NOT is_new ORDER BY user_id, event_type
            ON CONFLICT (user_id, event_type) DO UPDATE SET seen_at = excluded.seen_at, event_ref = excluded.event_ref
         WHERE excluded.seen_at > s.seen_at),
    n AS MATERIALIZED (
        SELECT * FROM unnest($6::uuid[], $7::text[], $8::text[], $9::timestamptz[], $10::text[], $11::timestamptz[],
                             $12::text[], $13::timestamptz[], $14::text[], $15::text[], $16::text[], $17::text[],
                             $18::timestamptz[], $19::text[])
               AS t (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data,
                     state, reason, ended_by, doubt_since, account)
         ORDER BY user_id, kind),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data)
        SELECT id, user_id, kind, decided_at, decided_by, due_at, string_to_array(cancel_on, E'\\x1f'), cancel_from,
               data::jsonb
          FROM n),
    s AS (
        INSERT INTO scheduled_sends (id, user_id, kind, due_at)
        SELECT id, user_id, kind, due_at FROM n WHERE state = 'scheduled'),
    d AS (
        INSERT INTO deliveries (id, user_id, kind, next_attempt_at, doubt_since, provider, reason)
        SELECT id, user_id, kind, notifier.now(), doubt_since, account, reason FROM n WHERE state = 'pending'),
    c AS (
        INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation)
        SELECT id, user_id, kind, state, reason, ended_by, 0 FROM n WHERE state IN ('canceled', 'skipped'))
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, answer, taken_at)
    SELECT t.source, t.id, t.type, t.user_id, t.occurred_at, t.fingerprint, t.answer::json, $27
      FROM unnest($20::text[], $21::text[], $22::text[], $23::text[], $24::timestamptz[], $25::bytea[], $26::text[])
           AS t (source, id, type, user_id, occurred_at, fingerprint, answer)
     ORDER BY t.source, t.id
"""


class Overtaken(Exception):
    """An event of the group was stored by somebody else since it was looked up; whoever tries again finds it."""


class Taken(NamedTuple):
    """One event that is accepted, when it occurred, and what is kept of the answer."""

    event: Event
    occurred_at: datetime
    answer: Mapping[str, Any]


class Time(NamedTuple):
    """The latest event of one type of one user. `is_new`: no earlier one of that type is known."""

    user_id: str
    seen: Seen
    event_type: str
    is_new: bool


async def write(
    conn: Connection, times: Sequence[Time], decisions: Sequence[Decision], taken: Sequence[Taken], taken_at: datetime
) -> None:
    """Write the latest times, the decisions with their places, and the events with their answers; all or nothing.

    The caller holds the users' locks. Rows go in in the order of their keys, whatever order they come in. Raises
    Overtaken.
    """
    times = sorted(times, key=lambda item: (item.user_id, item.event_type))
    decisions = sorted(decisions, key=lambda item: (item.user_id, item.creation.kind))
    taken = sorted(taken, key=lambda item: (item.event.source, item.event.id))
    made = [row.creation for row in decisions]
    assert all(c.state in (State.SCHEDULED, State.PENDING, State.CANCELED, State.SKIPPED) for c in made)
    arguments = (
        [item.user_id for item in times],
        [item.event_type for item in times],
        [item.seen.at for item in times],
        [item.seen.ref for item in times],
        [item.is_new for item in times],
        [row.id for row in decisions],
        [row.user_id for row in decisions],
        [c.kind for c in made],
        [c.decided_at for c in made],
        [row.decided_by for row in decisions],
        [c.due_at for c in made],
        ["\x1f".join(c.cancel_on) for c in made],
        [c.cancel_from for c in made],
        [_compact(c.data) for c in made],
        [c.state.value for c in made],
        [c.reason for c in made],
        [c.decided_by for c in made],
        [c.doubt.since if c.doubt else None for c in made],
        [c.doubt.account if c.doubt else None for c in made],
        [item.event.source for item in taken],
        [item.event.id for item in taken],
        [item.event.type for item in taken],
        [item.event.user_id for item in taken],
        [item.occurred_at for item in taken],
        [item.event.fingerprint for item in taken],
        [_compact(item.answer) for item in taken],
        taken_at,
    )
    try:
        await conn.execute(WRITE, *arguments)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "events_pkey":
            raise
        raise Overtaken from None


def _compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))
