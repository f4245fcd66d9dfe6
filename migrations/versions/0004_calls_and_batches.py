"""The call that sent a mail stands in its settlement, and deliveries may go in frozen batches."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE settlements
        ADD COLUMN call_started_at timestamptz,
        ADD COLUMN call_ended_at   timestamptz
    """,
    # `sent` never leaves its table, so the call that led there needs no row of its own; every other call has one.
    """
    CREATE VIEW calls AS
    SELECT a.notification_id, a.generation, a.worker, a.user_id, a.provider, a.resend_number, a.outcome, a.reason,
           a.provider_message_id, a.claimed_at, a.started_at, a.finished_at
      FROM attempts a
     UNION ALL
    SELECT t.id, t.generation, t.claimed_by, t.user_id, t.provider, t.resend_number, t.evidence, NULL,
           t.provider_message_id, t.claimed_at, t.call_started_at, t.call_ended_at
      FROM settlements t WHERE t.call_started_at IS NOT NULL
    """,
    # The worker that sent it is named once, as the owner of the last claim.
    """
    CREATE OR REPLACE VIEW notifications AS
    SELECT o.id, o.user_id, o.kind, o.kind_name, o.decided_at, o.due_at, o.decided_by AS created_by, o.taken_at,
           CASE WHEN t.id IS NOT NULL THEN t.state
                WHEN d.id IS NOT NULL THEN CASE WHEN d.claimed_by IS NULL THEN 'pending' ELSE 'sending' END
                WHEN s.id IS NOT NULL THEN 'scheduled' END AS state,
           coalesce(t.reason, d.reason) AS reason,
           CASE WHEN t.decided_by = 'worker' THEN ('worker:' || t.claimed_by) COLLATE "default"
                ELSE t.decided_by END AS decided_by,
           t.evidence, t.settled_at, t.provider_message_id,
           coalesce(t.generation, d.generation, s.generation) AS generation,
           coalesce(t.attempts, d.attempts, 0) AS attempts,
           coalesce(t.claimed_by, d.claimed_by) AS claimed_by,
           coalesce(t.claimed_at, d.claimed_at) AS claimed_at,
           d.claim_expires_at, d.next_attempt_at,
           coalesce(t.doubt_since, d.doubt_since) AS doubt_since,
           coalesce(t.provider, d.provider) AS provider,
           coalesce(t.template_hash, d.template_hash) AS template_hash,
           coalesce(t.resend_number, d.resend_number, s.resend_number) AS resend_number,
           coalesce(t.entered_at, d.entered_at) AS entered_at
      FROM outbox o
      LEFT JOIN settlements t ON t.id = o.id
      LEFT JOIN deliveries d ON d.id = o.id
      LEFT JOIN scheduled_sends s ON s.id = o.id
    """,
    # Every row is claimed, and so written a second time, and then leaves: both versions are to stand in one page.
    "ALTER TABLE deliveries SET (fillfactor = 50)",
    "ALTER TABLE deliveries ADD COLUMN alone boolean NOT NULL DEFAULT false",
    # Only a batch in doubt that waits for its repeat is in it: a claim, which writes batch_id, never pays for it.
    """
    CREATE INDEX deliveries_batches ON deliveries (batch_id, next_attempt_at)
     WHERE batch_id IS NOT NULL AND claimed_by IS NULL
    """,
    "COMMENT ON VIEW calls IS 'every finished call of a provider: those that sent a mail, and all others'",
    "COMMENT ON COLUMN settlements.call_started_at IS 'real time of the call that sent it; null: none is known'",
    "COMMENT ON COLUMN settlements.call_ended_at IS 'real time of that call''s end'",
    "COMMENT ON COLUMN deliveries.alone IS 'goes by itself: a batch with it was refused, or could not be made'",
    "COMMENT ON TABLE attempts IS 'every finished call of a provider but those that sent the mail; append-only'",
)


def upgrade() -> None:
    """Add what this build writes; the build before it reads and writes on as it did."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: migrations go forward only."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
