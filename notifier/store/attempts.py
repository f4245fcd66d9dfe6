"""Finished calls of a provider, wherever they were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from notifier.store.database import Connection


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call: under which claim, by whom, and what came back. Times are real."""

    notification: UUID
    generation: int
    worker: str
    provider: str
    resend_number: int
    outcome: str
    reason: str | None
    provider_message_id: str | None
    claimed_at: datetime
    started_at: datetime
    finished_at: datetime


OF_NOTIFICATIONS = """
    SELECT a.notification_id AS notification, a.generation, a.worker, a.provider, a.resend_number, a.outcome, a.reason,
           a.provider_message_id, a.claimed_at, a.started_at, a.finished_at
      FROM unnest($1::uuid[]) AS t (id),
           LATERAL (SELECT * FROM calls a WHERE a.notification_id = t.id LIMIT 1000) AS a
     ORDER BY a.started_at, a.generation
"""


async def of_notifications(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, list[Attempt]]:
    """Up to 1000 calls for each notification, the oldest first."""
    found: dict[UUID, list[Attempt]] = {notification: [] for notification in ids}
    for row in await conn.fetch(OF_NOTIFICATIONS, list(ids)):
        found[row["notification"]].append(Attempt(**dict(row)))
    return found
