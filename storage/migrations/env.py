"""Run by Alembic for every command: works on the connection handed over in ``attributes``, inside its transaction."""

from alembic import context

from autotune.storage.schema import VERSION_TABLE, is_ours
from autotune.storage.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_name=is_ours,
    # SQLite can alter almost nothing in place; Alembic then copies the table.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
