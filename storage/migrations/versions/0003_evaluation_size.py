"""At which batch size a probe evaluated."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; it is empty for every probe so far: evaluation was always at the size of training."""
    op.add_column("autotune_probes", sa.Column("evaluate_at", sa.Integer))


def downgrade() -> None:
    """Drop it; the probes stay."""
    op.drop_column("autotune_probes", "evaluate_at")
