"""The moves an operator may make. Each names id and generation, raises the generation, and says whether it happened.

The caller holds the user's lock; claim, settle and release do not take it, so a move may still come second.
"""

from __future__ import annotations

from uuid import UUID

from notifier.domain.notification import State
from notifier.store.database import Connection

CANCEL_SCHEDULED = """
    WITH m AS (
        DELETE FROM scheduled_sends WHERE id = $1 AND generation = $2
        RETURNING id, user_id, kind, generation, resend_number)
    INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation, resend_number)
    SELECT id, user_id, kind, 'canceled', 'operator', $3, generation + 1, resend_number FROM m
    RETURNING id
"""
# num_nulls, not "IS NULL": a condition that implied the partial index would let the planner leave the primary key.
CANCEL_PENDING = """
    WITH m AS (
        DELETE FROM deliveries WHERE id = $1 AND generation = $2 AND num_nulls(claimed_by, doubt_since) = 2
        RETURNING *)
    INSERT INTO settlements (id, user_id, kind, state, reason, decided_by, generation, attempts, entered_at, provider,
                             template_hash, batch_id, resend_number)
    SELECT id, user_id, kind, 'canceled', 'operator', $3, generation + 1, attempts, entered_at, provider,
           template_hash, batch_id, resend_number
      FROM m
    RETURNING id
"""


async def cancel(conn: Connection, notification: UUID, generation: int, decided_by: str) -> bool:
    """Close what waits or is owed without doubt. First the one place, then the other: a release moves rows over."""
    if await conn.fetchval(CANCEL_SCHEDULED, notification, generation, decided_by) is not None:
        return True
    return await conn.fetchval(CANCEL_PENDING, notification, generation, decided_by) is not None


# Trimmed meanwhile: the mark is in the row itself, so that who waited for its lock finds it.
RETRY_SCHEDULED = """
    WITH m AS (
        DELETE FROM settlements WHERE id = $1 AND generation = $2 AND state = $3 AND trimmed_at IS NULL
        RETURNING id, user_id, kind, generation, resend_number)
    INSERT INTO scheduled_sends (id, user_id, kind, due_at, generation, resend_number)
    SELECT m.id, m.user_id, m.kind, o.due_at, m.generation + 1, m.resend_number
      FROM m, LATERAL (SELECT o.due_at FROM outbox o WHERE o.id = m.id LIMIT 1) AS o
    RETURNING id
"""


async def schedule_again(conn: Connection, notification: UUID, generation: int, state: State) -> bool:
    """Let a closed notification wait for its date again."""
    return await conn.fetchval(RETRY_SCHEDULED, notification, generation, state) is not None


# Recipient, locale and template stay empty: the next claim freezes them anew. Attempts and waits begin at 0.
# What had ended before a restore may have been retried, and sent, after the backup: under the same key it is in doubt.
RETRY_OWED = """
    WITH m AS (
        DELETE FROM settlements WHERE id = $1 AND generation = $2 AND state = $3 AND trimmed_at IS NULL
        RETURNING id, user_id, kind, generation, resend_number, settled_at, provider),
    lost AS (
        SELECT r.at, r.account FROM m, restores r WHERE r.made_at > m.settled_at AND $4::int = 0
         ORDER BY r.at LIMIT 1)
    INSERT INTO deliveries (id, user_id, kind, next_attempt_at, generation, resend_number, doubt_since, provider,
                            reason)
    SELECT m.id, m.user_id, m.kind, notifier.now(), m.generation + 1, m.resend_number + $4::int,
           lost.at, CASE WHEN lost.account = 'several' THEN lost.account
                         WHEN lost.at IS NOT NULL THEN coalesce(m.provider, lost.account) END,
           CASE WHEN lost.at IS NOT NULL THEN 'restored' END
      FROM m LEFT JOIN lost ON true
    RETURNING id
"""


async def owe_again(
    conn: Connection, notification: UUID, generation: int, state: State, *, new_key: bool = False
) -> bool:
    """Owe a closed notification again, with a fresh allowance; under a new provider key only where a person says so."""
    assert not new_key or state is State.UNCERTAIN
    return await conn.fetchval(RETRY_OWED, notification, generation, state, int(new_key)) is not None


# The place stays the same here, so the move is an update of the row that names what is expected of it.
RESOLVE = """
    UPDATE settlements
       SET state = $4, reason = $5, decided_by = $6, evidence = $7, doubt_since = NULL, generation = generation + 1,
           settled_at = clock_timestamp()
     WHERE id = $1 AND generation = $2 AND state = $3
    RETURNING id
"""


async def resolve(
    conn: Connection,
    notification: UUID,
    generation: int,
    *,
    state: State,
    decided_by: str,
    reason: str | None = None,
    evidence: str | None = None,
) -> bool:
    """End what was uncertain: sent with evidence, or canceled or skipped with a reason."""
    assert state in (State.SENT, State.CANCELED, State.SKIPPED)
    changed = await conn.fetchval(
        RESOLVE, notification, generation, State.UNCERTAIN, state, reason, decided_by, evidence
    )
    return changed is not None


SUPPRESSED = "SELECT s.reason FROM suppressions s WHERE s.address = lower($1::text)"


async def suppressed(conn: Connection, address: str) -> bool:
    """Whether nothing may go to this address any more."""
    return await conn.fetchval(SUPPRESSED, address) is not None
