"""Accepted events: the primary key makes a repeat harmless, the stored answer makes it cheap."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from notifier.domain.event import Event
from notifier.store.database import Connection

FUTURE_MAX = "5 minutes"

# Inserts in id order and waits for a concurrent insert of the same id, which is why it stands alone: only the next
# statement sees what it waited for. Nothing is inserted under the maintenance switch or for an event of the future.
INSERT = f"""
    INSERT INTO events (source, id, type, user_id, occurred_at, fingerprint)
    SELECT t.source, t.id, t.type, t.user_id, t.occurred_at, t.fingerprint
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::bytea[])
           AS t (source, id, type, user_id, occurred_at, fingerprint)
     WHERE (t.occurred_at IS NULL OR t.occurred_at <= notifier.now() + interval '{FUTURE_MAX}')
       AND NOT EXISTS (SELECT FROM switches s WHERE s.name = 'maintenance' AND s.expires_at > notifier.now())
     ORDER BY t.source, t.id
        ON CONFLICT (source, id) DO NOTHING
    RETURNING source, id
"""  # noqa: S608 - a constant of ours


async def insert(conn: Connection, events: Sequence[Event]) -> set[tuple[str, str]]:
    """Insert what is new, in (source, id) order. Returns the (source, id) of what was inserted."""
    ordered = sorted(events, key=lambda event: (event.source, event.id))
    rows = await conn.fetch(
        INSERT,
        [event.source for event in ordered],
        [event.id for event in ordered],
        [event.type for event in ordered],
        [event.user_id for event in ordered],
        [event.occurred_at for event in ordered],
        [event.fingerprint for event in ordered],
    )
    return {(row["source"], row["id"]) for row in rows}


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an event was not inserted: it exists (fingerprint and answer given), or a rule held it back."""

    fingerprint: bytes | None
    answer: dict[str, Any] | None
    maintenance: bool
    in_future: bool


WHY_NOT = f"""
    SELECT t.source, t.id, e.fingerprint, e.answer,
           EXISTS (SELECT FROM switches s
                    WHERE s.name = 'maintenance' AND s.expires_at > notifier.now()) AS maintenance,
           coalesce(t.occurred_at > notifier.now() + interval '{FUTURE_MAX}', false) AS in_future
      FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS t (source, id, occurred_at)
      LEFT JOIN LATERAL (SELECT * FROM events e WHERE e.source = t.source AND e.id = t.id LIMIT 1) AS e ON true
"""  # noqa: S608 - a constant of ours


async def why_not(conn: Connection, events: Sequence[Event]) -> dict[tuple[str, str], Refused]:
    """Look up what `insert` did not take; a later statement, so it sees what that one waited for."""
    rows = await conn.fetch(
        WHY_NOT,
        [event.source for event in events],
        [event.id for event in events],
        [event.occurred_at for event in events],
    )
    return {
        (row["source"], row["id"]): Refused(
            fingerprint=row["fingerprint"],
            answer=None if row["answer"] is None else json.loads(row["answer"]),
            maintenance=row["maintenance"],
            in_future=row["in_future"],
        )
        for row in rows
    }


STORE_ANSWERS = """
    UPDATE events AS e
       SET occurred_at = t.occurred_at, answer = t.answer::json, taken_at = t.taken_at
      FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::timestamptz[])
           AS t (source, id, occurred_at, answer, taken_at)
     WHERE e.source = t.source AND e.id = t.id
    RETURNING e.id
"""


async def store_answers(
    conn: Connection, answers: Sequence[tuple[Event, datetime, dict[str, Any]]], taken_at: datetime
) -> None:
    """Write what each sender is told into its own event row, inside the accepting transaction."""
    rows = await conn.fetch(
        STORE_ANSWERS,
        [event.source for event, _, _ in answers],
        [event.id for event, _, _ in answers],
        [occurred_at for _, occurred_at, _ in answers],
        [json.dumps(answer) for _, _, answer in answers],
        [taken_at] * len(answers),
    )
    assert len(rows) == len(answers), "an event row of our own transaction is gone"


@dataclass(frozen=True, slots=True)
class Taken:
    """An event as the timeline shows it. `at`: real time; `taken_at`: business time; both under the user's lock.

    Once business time has ever been moved, nobody knows by how much it was ahead then; `at` is the arrival instead.
    """

    ref: str
    type: str
    occurred_at: datetime
    taken_at: datetime
    at: datetime


OF_USER = """
    SELECT e.source || '/' || e.id AS ref, e.type, e.occurred_at, e.taken_at,
           CASE WHEN (SELECT i.clock_offset FROM installation i) = interval '0'
                THEN e.taken_at ELSE e.received_at END AS at
      FROM events e WHERE e.user_id = $1 AND e.answer IS NOT NULL ORDER BY e.received_at DESC LIMIT 1000
"""


async def of_user(conn: Connection, user_id: str) -> list[Taken]:
    """The user's last 1000 events, the newest first."""
    return [Taken(**dict(row)) for row in await conn.fetch(OF_USER, user_id)]
