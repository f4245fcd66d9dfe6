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
           EXISTS (SELECT FROM restores) AS was_restored, notifier.now() AS now,
           clock_timestamp() AS received_at
      FROM unnest($1::text[]) AS t (user_id)
      JOIN LATERAL (SELECT * FROM users u WHERE u.user_id = t.user_id LIMIT 1) AS u ON true
      LEFT JOIN LATERAL (SELECT l.user_id FROM last_seen l
                          WHERE l.user_id = t.user_id ORDER BY l.user_id, l.event_type LIMIT 1) AS l ON true
      LEFT JOIN LATERAL (SELECT o.user_id FROM outbox o
                          WHERE o.user_id = t.user_id ORDER BY o.user_id, o.kind LIMIT 1) AS o ON true
"""


class Profiled(NamedTuple):
    """One user as the transaction finds it, and what more there is to read.

    `now` and `received_at`: business and real time of the read.
    """

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
    received_at: datetime


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
            received_at=row["received_at"],
        )
        for row in await conn.fetch(READ, list(user_ids))
    ]


# Guard and place are one statement: where (user, kind) is there already, nothing goes in anywhere. An event goes in
# with its answer: two under one id, of two users, meet here and nowhere before, and the second waits for the first.
# Under the users' locks only those can meet, so ON CONFLICT, which costs a record of its own a row, is for times alone.
# Its time of arrival is from before all that it led to, which the timeline shows after it.
# The rows come as JSON: for each event fifty values would have to be put into arrays, one by one.
WRITE = """
    WITH l AS MATERIALIZED (
        SELECT * FROM json_to_recordset($1::json)
                      AS t (user_id text, event_type text, seen_at timestamptz, event_ref text, is_new boolean)),
    l_new AS (
        INSERT INTO last_seen (user_id, event_type, seen_at, event_ref)
        SELECT user_id, event_type, seen_at, event_ref FROM l WHERE is_new ORDER BY user_id, event_type),
    l_again AS (
        INSERT INTO last_seen AS s (user_id, event_type, seen_at, event_ref)
        SELECT user_id, event_type, seen_at, event_ref FROM l WHERE NOT is_new ORDER BY user_id, event_type
            ON CONFLICT (user_id, event_type) DO UPDATE SET seen_at = excluded.seen_at, event_ref = excluded.event_ref
         WHERE excluded.seen_at > s.seen_at),
    n AS MATERIALIZED (
        SELECT * FROM json_to_recordset($2::json)
                      AS t (id uuid, user_id text, kind text, decided_at timestamptz, decided_by text,
                            due_at timestamptz, cancel_on text[], cancel_from timestamptz, data jsonb, state text,
                            reason text, ended_by text, doubt_since timestamptz, account text)
         ORDER BY user_id, kind),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data)
        SELECT id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data FROM n),
    s AS (
        INSERT INTO scheduled_sends (id, user_id, kind, due_at)
        SELECT id, user_id, kind, due_at FROM n WHERE state = 'scheduled'),
    d AS (
        INSERT INTO deliveries (id, user_id, kind, next_attempt_at, doubt_since, provider, reason)
        SELECT id, user_id, kind, notifier.now(), doubt_since, account, reason FROM n WHERE state = 'pending'),
    c AS (
        INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation)
        SELECT id, user_id, kind, state, reason, ended_by, 0 FROM n WHERE state IN ('canceled', 'skipped'))
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, answer, taken_at,
                        received_at)
    SELECT t.source, t.id, t.type, t.user_id, t.occurred_at, t.fingerprint, t.answer, $4, $5
      FROM json_to_recordset($3::json)
           AS t (source text, id text, type text, user_id text, occurred_at timestamptz, fingerprint bytea, answer json)
     ORDER BY t.source COLLATE "C", t.id COLLATE "C"
"""


_PLACES = frozenset({State.SCHEDULED, State.PENDING, State.CANCELED, State.SKIPPED})


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
    conn: Connection,
    times: Sequence[Time],
    decisions: Sequence[Decision],
    taken: Sequence[Taken],
    taken_at: datetime,
    received_at: datetime,
) -> None:
    """Write the latest times, the decisions with their places, and the events with their answers; all or nothing.

    The caller holds the users' locks, and has read the time, business and real, since. Rows go in in the order of
    their keys, whatever order they come in. Raises Overtaken.
    """
    times = sorted(times, key=lambda item: (item.user_id, item.event_type))
    decisions = sorted(decisions, key=lambda item: (item.user_id, item.creation.kind))
    taken = sorted(taken, key=lambda item: (item.event.source, item.event.id))
    assert all(row.creation.state in _PLACES for row in decisions)
    arguments = (
        [
            {
                "user_id": item.user_id,
                "event_type": item.event_type,
                "seen_at": _text(item.seen.at),
                "event_ref": item.seen.ref,
                "is_new": item.is_new,
            }
            for item in times
        ],
        [_row(row) for row in decisions],
        [
            {
                "source": item.event.source,
                "id": item.event.id,
                "type": item.event.type,
                "user_id": item.event.user_id,
                "occurred_at": _text(item.occurred_at),
                "fingerprint": f"\\x{item.event.fingerprint.hex()}",
                "answer": item.answer,
            }
            for item in taken
        ],
    )
    try:
        await conn.execute(WRITE, *map(_compact, arguments), taken_at, received_at)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "events_pkey":
            raise
        raise Overtaken from None


def _row(row: Decision) -> dict[str, Any]:
    made = row.creation
    decided_at = _text(made.decided_at)
    found: dict[str, Any] = {
        "id": row.id,
        "user_id": row.user_id,
        "kind": made.kind,
        "decided_at": decided_at,
        "decided_by": row.decided_by,
        "due_at": decided_at if made.due_at == made.decided_at else _text(made.due_at),
        "cancel_on": made.cancel_on,
        "cancel_from": decided_at if made.cancel_from == made.decided_at else _text(made.cancel_from),
        "data": made.data,
        "state": made.state,
    }
    if made.reason is not None:
        found |= {"reason": made.reason, "ended_by": made.decided_by}
    if made.doubt is not None:
        found |= {"doubt_since": _text(made.doubt.since), "account": made.doubt.account}
    return found


_text = datetime.isoformat
_compact = json.JSONEncoder(separators=(",", ":")).encode
