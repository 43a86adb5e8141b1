"""Searches and their probes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    """Make the first two tables."""
    op.create_table(
        "autotune_searches",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created", INSTANT, nullable=False),
        sa.Column("finished", INSTANT),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("based_on", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("workload_ref", sa.Text, nullable=False),
        sa.Column("workload_fingerprint", sa.Text, nullable=False),
        sa.Column("machine_fingerprint", sa.Text, nullable=False),
        sa.Column("device_name", sa.Text, nullable=False),
        sa.Column("precision", sa.Text, nullable=False),
        sa.Column("allocator", sa.Text, nullable=False),
        sa.Column("accumulate", sa.Integer, nullable=False),
        sa.Column("budget_bytes", sa.BigInteger, nullable=False),
        sa.Column("max_batch", sa.Integer),
        sa.Column("refuted_at", sa.Integer),
        sa.Column("recommended_batch", sa.Integer),
        sa.Column("limited_by", sa.Text),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("budget", sa.Text, nullable=False),
        sa.Column("answer", sa.Text),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotune_searches")),
    )
    op.create_index(op.f("ix_autotune_searches_key_created"), "autotune_searches", ["key", "created"])
    op.create_index(op.f("ix_autotune_searches_created"), "autotune_searches", ["created"])
    op.create_table(
        "autotune_probes",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("search_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("accumulate", sa.Integer, nullable=False),
        sa.Column("budget_bytes", sa.BigInteger, nullable=False),
        sa.Column("launcher", sa.Text, nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("stdout_tail", sa.Text, nullable=False),
        sa.Column("stderr_tail", sa.Text, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("phase", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("steps_executed", sa.Integer, nullable=False),
        sa.Column("median_step_seconds", sa.Double),
        sa.Column("samples_per_second", sa.Double),
        sa.Column("peak_allocated_bytes", sa.BigInteger),
        sa.Column("peak_reserved_bytes", sa.BigInteger),
        sa.Column("peak_device_bytes", sa.BigInteger),
        sa.Column("non_pytorch_bytes", sa.BigInteger),
        sa.Column("failure", sa.Text),
        sa.Column("measurement", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_autotune_probes")),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["autotune_searches.id"],
            name=op.f("fk_autotune_probes_search_id"),
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("search_id", "number", name=op.f("uq_autotune_probes_search_id_number")),
    )


def downgrade() -> None:
    """Drop both tables, with everything in them."""
    op.drop_table("autotune_probes")
    op.drop_table("autotune_searches")
