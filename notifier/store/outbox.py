"""Decisions: one row per (user, kind) for ever, and where each notification stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from notifier.domain.journey import Creation
from notifier.domain.notification import NotificationRow, State
from notifier.store.database import Connection, Row


class Decision(NamedTuple):
    """A creation with its id, as text."""

    id: str
    creation: Creation


# LATERAL with LIMIT per user and per place: the plan stays an index look-up whatever the statistics say.
_STANDING = """
    o.id, o.user_id, o.kind, o.decided_at, o.due_at, o.cancel_on, o.cancel_from,
    CASE WHEN t.id IS NOT NULL THEN t.state
         WHEN d.id IS NOT NULL THEN CASE WHEN d.claimed_by IS NULL THEN 'pending' ELSE 'sending' END
         WHEN s.id IS NOT NULL THEN 'scheduled' END AS state,
    coalesce(t.reason, d.reason) AS reason,
    coalesce(t.claimed_at, d.claimed_at) AS claimed_at,
    coalesce(t.doubt_since, d.doubt_since) AS doubt_since,
    t.settled_at
"""
_PLACES = """
    LEFT JOIN LATERAL (SELECT * FROM settlements x WHERE x.id = o.id LIMIT 1) AS t ON true
    LEFT JOIN LATERAL (SELECT * FROM deliveries x WHERE x.id = o.id LIMIT 1) AS d ON true
    LEFT JOIN LATERAL (SELECT * FROM scheduled_sends x WHERE x.id = o.id LIMIT 1) AS s ON true
"""
OF_USERS = f"""
    SELECT {_STANDING}
      FROM unnest($1::text[]) AS u (user_id),
           LATERAL (SELECT * FROM outbox o WHERE o.user_id = u.user_id ORDER BY o.user_id, o.kind LIMIT 1000) AS o
      {_PLACES}
"""  # noqa: S608 - constants of ours


async def of_users(conn: Connection, user_ids: Sequence[str]) -> dict[str, list[NotificationRow]]:
    """Each user's notifications and where they stand, in order of kind; one snapshot, so none is seen twice."""
    found: dict[str, list[NotificationRow]] = {user_id: [] for user_id in user_ids}
    for row in await conn.fetch(OF_USERS, list(user_ids)):
        found[row["user_id"]].append(_row(row))
    return found


def _row(row: Row) -> NotificationRow:
    return NotificationRow(
        id=row["id"],
        user_id=row["user_id"],
        kind=row["kind"],
        state=State(row["state"]),
        reason=row["reason"],
        decided_at=row["decided_at"],
        due_at=row["due_at"],
        cancel_on=tuple(row["cancel_on"]),
        cancel_from=row["cancel_from"],
        claimed_at=row["claimed_at"],
        doubt_since=row["doubt_since"],
        settled_at=row["settled_at"],
    )


EMPTY = "UPDATE outbox SET data = '{}' WHERE user_id = $1 AND data <> '{}'"


async def empty(conn: Connection, user_id: str) -> None:
    """Drop what the templates of this user's mails could have used; the decisions stay."""
    await conn.execute(EMPTY, user_id)
