"""Alembic's way in: runs migrations on the connection the ledger hands it."""

from alembic import context

from gateway.ledger.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)

with context.begin_transaction():
    context.run_migrations()
