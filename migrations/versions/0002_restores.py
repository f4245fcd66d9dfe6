"""Restores from a backup: what they forgot is remembered, and a row may be in doubt before anybody here claimed it."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE restores (
        at           timestamptz NOT NULL PRIMARY KEY,
        made_at      timestamptz NOT NULL DEFAULT now(),
        events_from  timestamptz NOT NULL,
        events_until timestamptz NOT NULL,
        account      text        NOT NULL,
        CHECK (at <= made_at),
        CHECK (events_from <= events_until)
    )
    """,
    # A claim of the lost time froze the template, and the claim is lost with it: the next one freezes it anew.
    """
    DO $$
    DECLARE found text;
    BEGIN
        SELECT conname INTO STRICT found FROM pg_constraint
         WHERE conrelid = 'deliveries'::regclass AND contype = 'c' AND pg_get_constraintdef(oid) LIKE '%doubt_since%';
        EXECUTE format('ALTER TABLE deliveries DROP CONSTRAINT %I', found);
    END $$
    """,
    # What is there already was good enough for the narrower rule. To look at it would hold everybody up meanwhile.
    """
    ALTER TABLE deliveries ADD CONSTRAINT deliveries_doubt
          CHECK (doubt_since IS NULL
                 OR (provider IS NOT NULL AND (generation > 0 OR reason IS NOT DISTINCT FROM 'restored'))) NOT VALID
    """,
    "COMMENT ON TABLE restores IS 'backups this database was restored from, as an operator said; append-only'",
    "COMMENT ON COLUMN restores.at IS 'real time whose state the backup held'",
    "COMMENT ON COLUMN restores.made_at IS 'real time at which the operator said so, before any process started'",
    "COMMENT ON COLUMN restores.events_from IS 'business time: events from here on may have been taken and forgotten'",
    "COMMENT ON COLUMN restores.events_until IS 'business time of made_at: later events are new'",
    "COMMENT ON COLUMN restores.account IS 'provider account the mails of the lost time went to'",
    "COMMENT ON COLUMN deliveries.reason IS 'why the last attempt led to no end; restored: in doubt since a restore'",
)


def upgrade() -> None:
    """Make the table and widen the rule; the build before this one needs neither and is not disturbed."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: migrations go forward only."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
