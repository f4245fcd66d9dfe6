"""How Alembic runs our revisions: on the connection it is given, each in a transaction of its own."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=None,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
