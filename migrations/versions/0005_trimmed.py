"""What ended long ago loses its detail and says so: a mark that a move back can look at under the row's own lock."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    # Without a default nothing is rewritten, and the build before this one neither reads nor writes it.
    "ALTER TABLE settlements ADD COLUMN trimmed_at timestamptz",
    # NOT VALID: there is no such row yet, and to look for one would hold everybody up.
    """
    ALTER TABLE settlements ADD CONSTRAINT settlements_trimmed CHECK (trimmed_at IS NULL OR state <> 'uncertain')
          NOT VALID
    """,
    "COMMENT ON COLUMN settlements.trimmed_at IS"
    " 'real time at which retention took its attempts, its data and how it was sent; null: it has them'",
    "COMMENT ON TABLE events IS"
    " 'accepted events, for as long as retention keeps them; the primary key makes a repeat harmless'",
    "COMMENT ON TABLE attempts IS"
    " 'every finished call of a provider but those that sent the mail; append-only, until it ended long ago'",
)


def upgrade() -> None:
    """Add the mark."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: migrations go forward only."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
