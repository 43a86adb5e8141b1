"""Until when a search counts as running though nobody sees its process, and quick lists."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

INSTANT = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")
GRACE = timedelta(hours=1)
"""For searches that an older version runs elsewhere while the ledger is brought up to date."""


def upgrade() -> None:
    """Add the column, and two indexes: by what is trained, and by state."""
    op.add_column("autotune_searches", sa.Column("lease_until", INSTANT))
    op.create_index(op.f("ix_autotune_searches_workload_ref_created"), "autotune_searches", ["workload_ref", "created"])
    op.create_index(op.f("ix_autotune_searches_state"), "autotune_searches", ["state"])
    connection = op.get_bind()
    end = datetime.now(UTC) + GRACE
    written = end.isoformat(sep=" ", timespec="microseconds") if connection.dialect.name == "sqlite" else end
    searches = sa.table("autotune_searches", sa.column("state", sa.Text), sa.column("lease_until", INSTANT))
    connection.execute(sa.update(searches).where(searches.c.state == "running").values(lease_until=written))


def downgrade() -> None:
    """Drop them; the searches stay."""
    op.drop_index(op.f("ix_autotune_searches_state"), "autotune_searches")
    op.drop_index(op.f("ix_autotune_searches_workload_ref_created"), "autotune_searches")
    op.drop_column("autotune_searches", "lease_until")
