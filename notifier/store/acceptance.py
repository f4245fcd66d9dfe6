"""What accepting events reads and writes under their users' locks: one statement for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from notifier.domain.event import Event
from notifier.domain.notification import State
from notifier.store import users
from notifier.store.database import Connection, Row
from notifier.store.outbox import Decision
from notifier.store.rows import to_json

# Looked up and locked in one statement: what the look sees is from before the wait for the locks, as it would be in a
# statement before. It is a look only: the primary key decides when the events are stored.
# What is known or held back touches no user. notifier.now() is asked in a subquery of its own, which runs once.
# Real time is read when all locks are there, for which the count waits; how far business time is ahead, as the look
# saw it. That restores are asked for keeps `notifier restored` waiting until these events are decided. There is nothing
# to say of a new event of a new user: a user's row is never deleted, so whoever has none has nothing else.
MEET = f"""
    WITH met AS MATERIALIZED (
        SELECT t.*, e.fingerprint, e.answer, e.occurred_at,
               EXISTS (SELECT FROM switches s
                        WHERE s.name = 'maintenance' AND s.expires_at > notifier.now()) AS maintenance,
               coalesce(t.at > (SELECT notifier.now()) + interval '5 minutes', false) AS in_future
          FROM json_to_recordset($1::json) AS t (number integer, source text, id text, {users.SAID})
          LEFT JOIN LATERAL (SELECT e.fingerprint, e.answer, e.occurred_at FROM events e
                              WHERE e.source = t.source AND e.id = t.id LIMIT 1) AS e ON true),
    said AS (SELECT * FROM met WHERE fingerprint IS NULL AND NOT maintenance AND NOT in_future),
    {users.LOCKED},
    moment AS MATERIALIZED (
        SELECT clock_timestamp() AS received_at, (SELECT clock_offset FROM installation) AS ahead
          FROM (SELECT count(*) FROM locked) AS all_of_them)
    SELECT t.received_at, t.received_at + t.ahead AS now, EXISTS (SELECT FROM restores) AS was_restored,
           m.number, m.fingerprint, m.answer, m.occurred_at, m.maintenance, m.in_future
      FROM moment t
      LEFT JOIN (met m LEFT JOIN locked l ON l.user_id = m.user_id) ON l.is_new IS NOT TRUE
"""  # noqa: S608 - constants of ours


class Met(NamedTuple):
    """What stands against storing an event: it is there (with what is kept of it), or a rule holds it back.

    `is_new_user`: the look-up made the user, so nothing is known but what this event says.
    """

    fingerprint: bytes | None = None
    answer: dict[str, Any] | None = None
    occurred_at: datetime | None = None
    maintenance: bool = False
    in_future: bool = False
    is_new_user: bool = False

    @property
    def is_new(self) -> bool:
        """Whether nothing does."""
        return self.fingerprint is None and not self.maintenance and not self.in_future


_OF_A_NEW_USER = Met(is_new_user=True)


class Meeting(NamedTuple):
    """What was found of each event, in their order.

    `received_at` and `now`: real and business time, read when all users were locked. `was_restored`: this database once
    was, from a backup.
    """

    met: Sequence[Met]
    received_at: datetime
    now: datetime
    was_restored: bool


async def meet(conn: Connection, events: Sequence[Event]) -> Meeting:
    """Look events up; create and lock the users of those that are new, and merge what they say.

    One event a user. What is said at no time is left for users.lock(), when there is one.
    """
    asked = [
        {
            "number": number,
            "source": event.source,
            "id": event.id,
            **users.what_is_said(event.user_id, event.occurred_at, event.profile),
        }
        for number, event in enumerate(events)
    ]
    rows = await conn.fetch(MEET, to_json(asked))
    met = [_OF_A_NEW_USER] * len(events)
    for row in rows:
        if row["number"] is not None:
            met[row["number"]] = _met(row)
    return Meeting(met, rows[0]["received_at"], rows[0]["now"], rows[0]["was_restored"])


def _met(row: Row) -> Met:
    answer = row["answer"]
    return Met(
        fingerprint=row["fingerprint"],
        answer=None if answer is None else json.loads(answer),
        occurred_at=row["occurred_at"],
        maintenance=row["maintenance"],
        in_future=row["in_future"],
    )


# Of most users all there is to read, where there is any: whoever had no event has no times and no notifications.
# EXISTS would let the planner hash the whole of either table; LATERAL with LIMIT 1 is one look into the index.
READ = """
    SELECT u.user_id, u.email, u.name, u.timezone, u.locale, u.attributes, u.erased_at IS NOT NULL AS erased,
           l.user_id IS NOT NULL AS was_seen, o.user_id IS NOT NULL AS has_notifications
      FROM unnest($1::text[]) AS t (user_id)
      JOIN LATERAL (SELECT * FROM users u WHERE u.user_id = t.user_id LIMIT 1) AS u ON true
      LEFT JOIN LATERAL (SELECT l.user_id FROM last_seen l
                          WHERE l.user_id = t.user_id ORDER BY l.user_id, l.event_type LIMIT 1) AS l ON true
      LEFT JOIN LATERAL (SELECT o.user_id FROM outbox o
                          WHERE o.user_id = t.user_id ORDER BY o.user_id, o.kind LIMIT 1) AS o ON true
"""


class Profiled(NamedTuple):
    """One user as the transaction finds it, and what more there is to read."""

    user_id: str
    email: str | None
    name: str | None
    timezone: str | None
    locale: str | None
    attributes: Mapping[str, Any] | None
    erased: bool
    was_seen: bool
    has_notifications: bool


async def read(conn: Connection, user_ids: Sequence[str]) -> list[Profiled]:
    """Read the users; must be a later statement than the one that locked them, so that it sees what that waited for."""
    return [_profiled(row) for row in await conn.fetch(READ, list(user_ids))]


def _profiled(row: Row) -> Profiled:
    profiled = Profiled(*row)
    return profiled if profiled.attributes is None else profiled._replace(attributes=json.loads(row["attributes"]))


# Guard and place are one statement: where (user, kind) is there already, nothing goes in anywhere. An event goes in
# with its answer: two under one id, of two users, meet here and nowhere before, and the second waits for the first.
# Under the users' locks only those can meet, so ON CONFLICT, which costs a record of its own a row, is for times alone.
# Its time of arrival is from before all that it led to, which the timeline shows after it.
# The rows come as JSON: for each event fifty values would have to be put into arrays, one by one. `data` becomes jsonb
# where it is stored: on the way out of other JSON that takes four times as long.
WRITE = """
    WITH e AS MATERIALIZED (
        SELECT * FROM json_to_recordset($1::json)
                      AS t (number integer, source text, id text, type text, user_id text, occurred_at timestamptz,
                            fingerprint bytea, answer json, is_first boolean)),
    l_new AS (
        INSERT INTO last_seen (user_id, event_type, seen_at, event_ref)
        SELECT user_id, type, occurred_at, source || '/' || id FROM e WHERE is_first ORDER BY user_id, type),
    l_again AS (
        INSERT INTO last_seen AS s (user_id, event_type, seen_at, event_ref)
        SELECT user_id, type, occurred_at, source || '/' || id FROM e WHERE NOT is_first ORDER BY user_id, type
            ON CONFLICT (user_id, event_type) DO UPDATE SET seen_at = excluded.seen_at, event_ref = excluded.event_ref
         WHERE excluded.seen_at > s.seen_at),
    n AS MATERIALIZED (
        SELECT t.*, e.user_id, e.occurred_at AS decided_at, 'event:' || e.source || '/' || e.id AS decided_by,
               coalesce(t.due, e.occurred_at) AS due_at, coalesce(t.graced, e.occurred_at) AS cancel_from
          FROM json_to_recordset($2::json)
               AS t (event integer, id uuid, kind text, due timestamptz, cancel_on text[], graced timestamptz,
                     data json, state text, reason text, ended_by text, doubt_since timestamptz, account text)
          JOIN e ON e.number = t.event
         ORDER BY e.user_id, t.kind),
    o AS (
        INSERT INTO outbox (id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data)
        SELECT id, user_id, kind, decided_at, decided_by, due_at, cancel_on, cancel_from, data::jsonb FROM n),
    s AS (
        INSERT INTO scheduled_sends (id, user_id, kind, due_at)
        SELECT id, user_id, kind, due_at FROM n WHERE state = 'scheduled'),
    d AS (
        INSERT INTO deliveries (id, user_id, kind, next_attempt_at, doubt_since, provider, reason)
        SELECT id, user_id, kind, (SELECT notifier.now()), doubt_since, account, reason FROM n WHERE state = 'pending'),
    c AS (
        INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation)
        SELECT id, user_id, kind, state, reason, ended_by, 0 FROM n WHERE state IN ('canceled', 'skipped'))
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint, answer, taken_at,
                        received_at)
    SELECT t.source, t.id, t.type, t.user_id, t.occurred_at, t.fingerprint, t.answer, $3, $4
      FROM e AS t
     ORDER BY t.source COLLATE "C", t.id COLLATE "C"
"""


_PLACES = (State.SCHEDULED, State.PENDING, State.CANCELED, State.SKIPPED)


class Overtaken(Exception):
    """An event of the group was stored by somebody else since it was looked up; whoever tries again finds it."""


class Taken(NamedTuple):
    """One event that is accepted, when it occurred, what is kept of the answer, and what it decided.

    `is_first`: no other of its type is known of the user; None: when the user was last seen so is not kept.
    """

    event: Event
    occurred_at: datetime
    answer: Mapping[str, Any]
    decisions: Sequence[Decision] = ()
    is_first: bool | None = None


async def write(conn: Connection, taken: Sequence[Taken], taken_at: datetime, received_at: datetime) -> None:
    """Write the decisions with their places, and the events with their answers and times; all or nothing.

    The caller holds the users' locks, and has read the time, business and real, since. The statement puts rows
    in in the order of their keys, whatever order they come in. Raises Overtaken.
    """
    events = [_event(number, item) for number, item in enumerate(taken)]
    decisions = [_decision(number, item, row) for number, item in enumerate(taken) for row in item.decisions]
    try:
        await conn.execute(WRITE, to_json(events), to_json(decisions), taken_at, received_at)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "events_pkey":
            raise
        raise Overtaken from None


def _event(number: int, item: Taken) -> dict[str, Any]:
    event = item.event
    return {
        "number": number,
        "source": event.source,
        "id": event.id,
        "type": event.type,
        "user_id": event.user_id,
        "occurred_at": item.occurred_at,
        "fingerprint": f"\\x{event.fingerprint.hex()}",
        "answer": item.answer,
        "is_first": item.is_first,
    }


def _decision(event: int, item: Taken, row: Decision) -> dict[str, Any]:
    """What of a decision does not follow from its event."""
    made = row.creation
    assert made.state in _PLACES
    assert made.decided_at == item.occurred_at
    found: dict[str, Any] = {
        "event": event,
        "id": row.id,
        "kind": made.kind,
        "cancel_on": made.cancel_on,
        "data": made.data,
        "state": made.state,
    }
    if made.due_at != item.occurred_at:
        found["due"] = made.due_at
    if made.cancel_from != item.occurred_at:
        found["graced"] = made.cancel_from
    if made.reason is not None:
        found |= {"reason": made.reason, "ended_by": made.decided_by}
    if made.doubt is not None:
        found |= {"doubt_since": made.doubt.since, "account": made.doubt.account}
    return found
