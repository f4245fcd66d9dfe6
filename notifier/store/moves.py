"""The moves between the three places, each one conditional statement whose rows say who came first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from notifier.store.database import Connection

BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Which notification an event stops, with the reason and the event it will carry."""

    id: UUID
    reason: str
    decided_by: str


CANCEL_SCHEDULED = """
    WITH n AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS t (id, reason, decided_by)),
    m AS (
        DELETE FROM scheduled_sends
         WHERE id = ANY (ARRAY (SELECT s.id FROM scheduled_sends s
                                 WHERE s.id = ANY ($1::uuid[]) ORDER BY s.id FOR UPDATE))
        RETURNING id, user_id, kind, generation, resend_number)
    INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation, resend_number)
    SELECT m.id, m.user_id, m.kind, 'canceled', n.reason, n.decided_by, m.generation, m.resend_number
      FROM m JOIN n USING (id)
    RETURNING id
"""

# num_nulls, not "IS NULL": a condition that implied the partial index would let the planner leave the primary key.
CANCEL_OPEN = """
    WITH n AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS t (id, reason, decided_by)),
    m AS (
        DELETE FROM deliveries
         WHERE id = ANY (ARRAY (SELECT d.id FROM deliveries d
                                 WHERE d.id = ANY ($1::uuid[]) AND num_nulls(d.claimed_by, d.doubt_since) = 2
                                 ORDER BY d.id FOR UPDATE))
        RETURNING *)
    INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation, attempts, entered_at, provider,
                             template_hash, batch_id, resend_number)
    SELECT m.id, m.user_id, m.kind, 'canceled', n.reason, n.decided_by, m.generation, m.attempts, m.entered_at,
           m.provider, m.template_hash, m.batch_id, m.resend_number
      FROM m JOIN n USING (id)
    RETURNING id
"""


async def cancel_scheduled(conn: Connection, cancels: Sequence[Cancel]) -> set[UUID]:
    """Close those that still wait for their date. Returns the ids this call stopped."""
    return await _cancel(conn, CANCEL_SCHEDULED, cancels)


async def cancel_open(conn: Connection, cancels: Sequence[Cancel]) -> set[UUID]:
    """Close those that are owed, unclaimed and without doubt. Returns the ids this call stopped.

    Must be a later statement than cancel_scheduled: a release may move a row over between the two, never back.
    """
    return await _cancel(conn, CANCEL_OPEN, cancels)


async def _cancel(conn: Connection, statement: str, cancels: Sequence[Cancel]) -> set[UUID]:
    ordered = sorted(cancels, key=lambda item: item.id)
    rows = await conn.fetch(
        statement,
        [item.id for item in ordered],
        [item.reason for item in ordered],
        [item.decided_by for item in ordered],
    )
    return {row["id"] for row in rows}


# The lower bound compares rows: with `due_at >= $1` the planner sees a narrow range, and collects and sorts it.
RELEASE = """
    WITH due AS (
        DELETE FROM scheduled_sends
         WHERE id = ANY (ARRAY (SELECT s.id FROM scheduled_sends s
                                 WHERE s.due_at <= notifier.now()
                                   AND (s.due_at, s.id) >= ($1, '00000000-0000-0000-0000-000000000000'::uuid)
                                 ORDER BY s.due_at, s.id
                                 LIMIT 500                    -- literal: a parameter turns the plan into a full scan
                                   FOR UPDATE SKIP LOCKED))
        RETURNING id, user_id, kind, due_at, generation, resend_number),
    u AS (
        SELECT due.*, p.email
          FROM due LEFT JOIN LATERAL (SELECT email FROM users u WHERE u.user_id = due.user_id LIMIT 1) AS p ON true),
    nobody AS (
        INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation, resend_number)
        SELECT id, user_id, kind, 'skipped', 'no_recipient', 'rule:no_recipient', generation, resend_number
          FROM u WHERE email IS NULL),
    owed AS (
        INSERT INTO deliveries (id, user_id, kind, next_attempt_at, generation, resend_number)
        SELECT id, user_id, kind, notifier.now(), generation, resend_number FROM u WHERE email IS NOT NULL)
    SELECT count(*) AS moved, count(email) AS owed, max(due_at) AS last FROM u
"""
BATCH = 500  # what one release moves at most


@dataclass(frozen=True, slots=True)
class Released:
    """How many left scheduled_sends, and how many of them are owed now (the others have no address).

    `last`: the latest due date among them, None where nothing was due.
    """

    moved: int
    owed: int
    last: datetime | None


async def release(conn: Connection, since: datetime = BEFORE_ALL) -> Released:
    """Move up to 500 due scheduled sends into deliveries; any number of schedulers may do so at once.

    What was due before `since` is passed over, and with it what earlier releases left in the index.
    """
    row = await conn.fetchrow(RELEASE, since)
    return Released(moved=row["moved"], owed=row["owed"], last=row["last"])
