"""Accepted events, as the timeline of a user shows them; acceptance.py puts them in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from notifier.store.database import Connection


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
