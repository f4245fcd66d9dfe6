"""A claimed row is written beside the one it replaces: a page of open rows keeps room for all of its claims."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


STATEMENTS = (
    # A claim more than doubles a row. Where the page is full, it goes to another: a lock is logged for that, and the
    # whole row in place of what has changed. The price: a backlog takes up to 1.7 times the pages.
    "ALTER TABLE deliveries SET (fillfactor = 30)",
    "COMMENT ON COLUMN templates.hash IS 'from a SHA-256 of sender and sources; names the content'",
)


def upgrade() -> None:
    """Leave more of a page free. It stops nobody and rewrites nothing; the build before writes on as it did."""
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    """There is no way back: migrations go forward only."""
    raise NotImplementedError("migrations go forward only; restore a backup instead")
