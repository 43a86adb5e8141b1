"""What the allocator did in a probe, and what settings a probe ran with."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make a table for traces, and a column for settings.

    Traces have a table of their own: few probes have one, and who looks at probes with SQL has no use for its bytes.
    """
    op.create_table(
        "autotune_traces",
        sa.Column("probe_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("num_events", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("probe_id", name=op.f("pk_autotune_traces")),
        sa.ForeignKeyConstraint(
            ["probe_id"],
            ["autotune_probes.id"],
            name=op.f("fk_autotune_traces_probe_id"),
            ondelete="CASCADE",
        ),
    )
    op.add_column("autotune_probes", sa.Column("settings", sa.Text, nullable=False, server_default="{}"))
    _fill_settings()


def downgrade() -> None:
    """Drop the traces and the settings; the probes stay."""
    op.drop_column("autotune_probes", "settings")
    op.drop_table("autotune_traces")


def _fill_settings() -> None:
    """Give every probe the settings of its search's plan: until now all probes of a search ran with the same."""
    # Not the classes of the program: they go on changing, and this has to do the same for ever.
    searches = sa.table("autotune_searches", sa.column("id", sa.Text), sa.column("plan", sa.Text))
    probes = sa.table("autotune_probes", sa.column("search_id", sa.Text), sa.column("settings", sa.Text))
    connection = op.get_bind()
    # The driver of SQLite refuses to fetch text that is not UTF-8: bytes can be fetched, and then judged.
    read = sa.cast(searches.c.plan, sa.LargeBinary) if connection.dialect.name == "sqlite" else searches.c.plan
    for search_id, plan in connection.execute(sa.select(searches.c.id, read)).all():
        settings = _settings(plan)
        if settings is not None:
            connection.execute(
                sa.update(probes).where(probes.c.search_id == search_id).values(settings=json.dumps(settings))
            )


def _settings(plan: Any) -> dict[str, Any] | None:
    """What a plan, perhaps damaged, says of the settings; None where that cannot be told."""
    try:
        found = json.loads(plan)["settings"]
    except (ValueError, TypeError, KeyError, RecursionError):
        # One damaged search must not lock its owner out of the ledger; whoever reads that search is told.
        return None
    return found if isinstance(found, dict) else None
