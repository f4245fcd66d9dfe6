"""${message}."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

STATEMENTS = (
    """
    """,
)


def upgrade() -> None:
    """Forward only; one statement each, so that an error names the one that failed."""
    for statement in STATEMENTS:
        op.execute(statement)
