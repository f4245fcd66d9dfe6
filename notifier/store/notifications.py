"""Notifications as the outside sees them: the decision, and what its one present place adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from notifier.domain.notification import State
from notifier.store.database import Connection, Row


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification in full. `created_by` is the deciding event; `decided_by` what ended it, None while open.

    decided_at, due_at and next_attempt_at are business time; taken_at and the times of claim, doubt and end are real.
    """

    id: UUID
    user_id: str
    kind: str
    state: State
    reason: str | None
    decided_by: str | None
    created_by: str
    generation: int
    resend_number: int
    attempts: int
    doubt_since: datetime | None
    provider: str | None
    provider_message_id: str | None
    evidence: str | None
    decided_at: datetime
    taken_at: datetime
    due_at: datetime
    next_attempt_at: datetime | None
    claimed_by: str | None
    claimed_at: datetime | None
    claim_expires_at: datetime | None
    settled_at: datetime | None
    trimmed_at: datetime | None
    cancel_on: tuple[str, ...]
    cancel_from: datetime
    batch_id: UUID | None

    @property
    def sent_at(self) -> datetime | None:
        """When it became known to be sent."""
        return self.settled_at if self.state is State.SENT else None


# LATERAL with LIMIT per place: each is one look-up by primary key, whatever the statistics say.
_FULL = """
    o.id, o.user_id, o.kind, o.decided_at, o.decided_by AS created_by, o.taken_at, o.due_at, o.cancel_on,
    o.cancel_from,
    CASE WHEN t.id IS NOT NULL THEN t.state
         WHEN d.id IS NOT NULL THEN CASE WHEN d.claimed_by IS NULL THEN 'pending' ELSE 'sending' END
         WHEN s.id IS NOT NULL THEN 'scheduled' END AS state,
    coalesce(t.reason, d.reason) AS reason,
    CASE WHEN t.decided_by = 'worker' THEN 'worker:' || t.claimed_by ELSE t.decided_by END AS decided_by, t.evidence,
    t.provider_message_id, t.settled_at, t.trimmed_at,
    coalesce(t.generation, d.generation, s.generation) AS generation,
    coalesce(t.resend_number, d.resend_number, s.resend_number) AS resend_number,
    coalesce(t.attempts, d.attempts, 0) AS attempts,
    coalesce(t.doubt_since, d.doubt_since) AS doubt_since,
    coalesce(t.provider, d.provider) AS provider,
    coalesce(t.claimed_by, d.claimed_by) AS claimed_by,
    coalesce(t.claimed_at, d.claimed_at) AS claimed_at,
    d.claim_expires_at, d.next_attempt_at,
    coalesce(t.batch_id, d.batch_id) AS batch_id
"""
_PLACES = """
    LEFT JOIN LATERAL (SELECT * FROM settlements x WHERE x.id = o.id LIMIT 1) AS t ON true
    LEFT JOIN LATERAL (SELECT * FROM deliveries x WHERE x.id = o.id LIMIT 1) AS d ON true
    LEFT JOIN LATERAL (SELECT * FROM scheduled_sends x WHERE x.id = o.id LIMIT 1) AS s ON true
"""
READ = f"SELECT {_FULL} FROM outbox o {_PLACES} WHERE o.id = $1"  # noqa: S608 - constants of ours


async def read(conn: Connection, notification: UUID) -> Notification | None:
    """One notification, in one snapshot."""
    row = await conn.fetchrow(READ, notification)
    return None if row is None else _notification(row)


@dataclass(frozen=True, slots=True)
class Page:
    """Some notifications in id order. `next`: where to go on, None at the end; a page may be short before the end."""

    notifications: Sequence[Notification]
    next: UUID | None


# A kind is named whole, or by its part before the @.
_OF_KIND = "($2::text IS NULL OR y.kind = $2 OR split_part(y.kind, '@', 1) = $2)"


def _page(source: str, *, wanted: str = "true") -> str:
    """Walk one table in id order, at most 50 000 rows a page, so that a rare kind never makes a page slow.

    `horizon`: where a short page stopped looking although there are more rows; null where it came to the end.
    """
    return f"""
        WITH p AS MATERIALIZED (
            SELECT y.id FROM (SELECT x.* FROM {source} AND x.id > $1::uuid ORDER BY x.id LIMIT 50000) AS y
             WHERE {wanted} AND {_OF_KIND}
             ORDER BY y.id LIMIT $3),
        w AS (
            SELECT CASE WHEN (SELECT count(*) FROM p) < $3
                        THEN (SELECT x.id FROM {source} AND x.id > $1 ORDER BY x.id OFFSET 49999 LIMIT 1)
                    END AS horizon)
        SELECT w.horizon, f.*
          FROM w LEFT JOIN LATERAL (
                SELECT {_FULL}
                  FROM p, LATERAL (SELECT * FROM outbox o WHERE o.id = p.id LIMIT 1) AS o
                  {_PLACES}) AS f ON true
         ORDER BY f.id
    """  # noqa: S608 - constants of ours


OF_ALL = _page("outbox x WHERE true")
OF_SCHEDULED = _page("scheduled_sends x WHERE true")
# num_nulls, not "IS NULL": it must not imply the partial indexes, which know no id order.
OF_PENDING = _page("deliveries x WHERE true", wanted="num_nulls(y.claimed_by) = 1")
OF_SENT = _page("settlements x WHERE true", wanted="y.state = 'sent'")
OF_CANCELED = _page("settlements x WHERE x.state = 'canceled'")
OF_SKIPPED = _page("settlements x WHERE x.state = 'skipped'")
OF_FAILED = _page("settlements x WHERE x.state = 'failed'")
OF_UNCERTAIN = _page("settlements x WHERE x.state = 'uncertain'")

# What is in workers' hands is never much: all of it by the partial index, then the order.
OF_SENDING = f"""
    WITH c AS MATERIALIZED (SELECT y.id, y.kind FROM deliveries y WHERE y.claimed_by IS NOT NULL)
    SELECT NULL::uuid AS horizon, {_FULL}
      FROM (SELECT y.id FROM c AS y WHERE y.id > $1::uuid AND {_OF_KIND} ORDER BY y.id LIMIT $3) AS p,
           LATERAL (SELECT * FROM outbox o WHERE o.id = p.id LIMIT 1) AS o
      {_PLACES}
     ORDER BY o.id
"""  # noqa: S608 - constants of ours

_BY_STATE = {
    None: OF_ALL,
    State.SCHEDULED: OF_SCHEDULED,
    State.PENDING: OF_PENDING,
    State.SENDING: OF_SENDING,
    State.SENT: OF_SENT,
    State.CANCELED: OF_CANCELED,
    State.SKIPPED: OF_SKIPPED,
    State.FAILED: OF_FAILED,
    State.UNCERTAIN: OF_UNCERTAIN,
}
_BEFORE_ALL = UUID(int=0)


# A plan made while the tables were small would collect and sort; kept for a big table, that reads all of it a page.
WALK_IN_ORDER = "SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off"


async def page(conn: Connection, *, state: State | None, kind: str | None, after: UUID | None, limit: int) -> Page:
    """One page of all users' notifications, those of one state if given. Needs a transaction, for its settings."""
    await conn.execute(WALK_IN_ORDER)
    rows = await conn.fetch(_BY_STATE[state], after or _BEFORE_ALL, kind, limit + 1)
    horizon = rows[0]["horizon"] if rows else None
    return _cut([_notification(row) for row in rows if row["id"] is not None], limit, horizon)


# The user's own index finds the rows; id order comes after, or the planner might walk the whole primary key.
OF_USER = f"""
    WITH m AS MATERIALIZED (
        SELECT y.* FROM outbox y WHERE y.user_id = $4 AND {_OF_KIND} AND y.id > $1::uuid)
    SELECT * FROM (SELECT {_FULL} FROM m AS o {_PLACES}) AS f
     WHERE $5::text IS NULL OR f.state = $5
     ORDER BY f.id LIMIT $3
"""  # noqa: S608 - constants of ours


async def page_of_user(
    conn: Connection,
    user_id: str,
    *,
    state: State | None = None,
    kind: str | None = None,
    after: UUID | None = None,
    limit: int,
) -> Page:
    """One page of one user's notifications."""
    rows = await conn.fetch(OF_USER, after or _BEFORE_ALL, kind, limit + 1, user_id, state)
    return _cut([_notification(row) for row in rows], limit, None)


def _cut(found: list[Notification], limit: int, horizon: UUID | None) -> Page:
    """The statement asks for one more than the page holds: that one says whether to go on."""
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1].id)
    return Page(found, horizon)


def _notification(row: Row) -> Notification:
    return Notification(
        id=row["id"],
        user_id=row["user_id"],
        kind=row["kind"],
        state=State(row["state"]),
        reason=row["reason"],
        decided_by=row["decided_by"],
        created_by=row["created_by"],
        generation=row["generation"],
        resend_number=row["resend_number"],
        attempts=row["attempts"],
        doubt_since=row["doubt_since"],
        provider=row["provider"],
        provider_message_id=row["provider_message_id"],
        evidence=row["evidence"],
        decided_at=row["decided_at"],
        taken_at=row["taken_at"],
        due_at=row["due_at"],
        next_attempt_at=row["next_attempt_at"],
        claimed_by=row["claimed_by"],
        claimed_at=row["claimed_at"],
        claim_expires_at=row["claim_expires_at"],
        settled_at=row["settled_at"],
        trimmed_at=row["trimmed_at"],
        cancel_on=tuple(row["cancel_on"]),
        cancel_from=row["cancel_from"],
        batch_id=row["batch_id"],
    )
