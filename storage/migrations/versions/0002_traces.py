"""What the allocator did in a probe."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make a table of their own: few probes have a trace, and who looks at probes with SQL has no use for its bytes."""
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


def downgrade() -> None:
    """Drop the traces; the probes stay."""
    op.drop_table("autotune_traces")
