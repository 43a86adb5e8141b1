"""What each of several ranks held that trained together in a probe."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; every probe so far was one process."""
    op.add_column("autotune_probes", sa.Column("ranks", sa.Text, nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop it; the probes stay."""
    op.drop_column("autotune_probes", "ranks")
