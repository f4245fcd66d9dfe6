"""Accepted events: the primary key makes a repeat harmless, the stored answer makes it cheap."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from notifier.domain.event import Event
from notifier.store.database import Connection

FUTURE_MAX = "5 minutes"


class Met(NamedTuple):
    """What stands against storing an event: it is there (fingerprint and answer), or a rule holds it back."""

    fingerprint: bytes | None
    answer: dict[str, Any] | None
    maintenance: bool
    in_future: bool

    @property
    def is_new(self) -> bool:
        """Whether nothing does."""
        return self.fingerprint is None and not self.maintenance and not self.in_future


LOOK_UP = f"""
    SELECT e.fingerprint, e.answer,
           EXISTS (SELECT FROM switches s
                    WHERE s.name = 'maintenance' AND s.expires_at > notifier.now()) AS maintenance,
           coalesce(t.occurred_at > notifier.now() + interval '{FUTURE_MAX}', false) AS in_future
      FROM unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS t (source, id, occurred_at, number)
      LEFT JOIN LATERAL (SELECT e.fingerprint, e.answer FROM events e
                          WHERE e.source = t.source AND e.id = t.id LIMIT 1) AS e ON true
     ORDER BY t.number
"""  # noqa: S608 - a constant of ours


async def look_up(conn: Connection, events: Sequence[Event]) -> list[Met]:
    """What is known of each, in their order. A look only: the primary key decides when they are stored."""
    rows = await conn.fetch(
        LOOK_UP,
        [event.source for event in events],
        [event.id for event in events],
        [event.occurred_at for event in events],
    )
    return [
        Met(
            fingerprint=row["fingerprint"],
            answer=None if row["answer"] is None else json.loads(row["answer"]),
            maintenance=row["maintenance"],
            in_future=row["in_future"],
        )
        for row in rows
    ]


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
