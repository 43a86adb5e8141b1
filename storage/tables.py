"""The tables of the ledger. What people ask for in SQL is a column; the rest is JSON text, and bytes where it is bulk.

A column marked *copy* repeats a fact of a JSON document so that SQL can filter and sort by it; the document is what
is read back. Names begin with ``autotune_``, so that the file or schema can be shared with others' tables.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar

from sqlalchemy import BigInteger, Double, ForeignKey, Index, MetaData, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from autotune.storage.column_types import Blob, UtcDateTime

Bytes = Annotated[int, mapped_column(BigInteger)]
Instant = Annotated[datetime, mapped_column(UtcDateTime)]
Document = Annotated[str, mapped_column(Text)]
"""JSON text of a dataclass of ``autotune.model``."""


class Base(DeclarativeBase):
    """Names of constraints are fixed: a migration can only alter what it can name."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: Text, float: Double}


class SearchRow(Base):
    """One search."""

    __tablename__ = "autotune_searches"
    __table_args__ = (
        Index(None, "key", "created"),
        Index(None, "created"),
        Index(None, "workload_ref", "created"),
        Index(None, "state"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str]
    state: Mapped[str]
    created: Mapped[Instant]
    finished: Mapped[Instant | None]
    owner: Mapped[str]
    version: Mapped[str]
    based_on: Mapped[str | None]
    message: Mapped[str]

    workload_ref: Mapped[str]
    """Copy, like all columns down to ``limited_by``."""
    workload_fingerprint: Mapped[str]
    machine_fingerprint: Mapped[str]
    device_name: Mapped[str]
    precision: Mapped[str]
    allocator: Mapped[str]
    accumulate: Mapped[int]
    budget_bytes: Mapped[Bytes]
    max_batch: Mapped[int | None]
    refuted_at: Mapped[int | None]
    recommended_batch: Mapped[int | None]
    limited_by: Mapped[str | None]

    plan: Mapped[Document]
    workload: Mapped[Document]
    machine: Mapped[Document]
    budget: Mapped[Document]
    answer: Mapped[Document | None]

    lease_until: Mapped[Instant | None]
    """Until when a running search counts as running though its process cannot be seen from here; null = it ended."""


class ProbeRow(Base):
    """One probe of a search."""

    __tablename__ = "autotune_probes"
    __table_args__ = (UniqueConstraint("search_id", "number"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    search_id: Mapped[str] = mapped_column(ForeignKey(SearchRow.id, ondelete="CASCADE"))
    number: Mapped[int]
    """Order within the search, from 1."""
    batch_size: Mapped[int]
    evaluate_at: Mapped[int | None]
    """Null = evaluation, where there is one, was at ``batch_size``; 0 = there was none."""
    form: Mapped[str]
    reason: Mapped[str]
    outcome: Mapped[str]
    accumulate: Mapped[int]
    """Copy: it is in ``settings``."""
    budget_bytes: Mapped[Bytes]
    launcher: Mapped[str]
    started_at: Mapped[Instant]
    seconds: Mapped[float]
    stdout_tail: Mapped[str]
    stderr_tail: Mapped[str]

    cause: Mapped[str | None]
    """Copy, like all columns down to ``non_pytorch_bytes``."""
    phase: Mapped[str | None]
    message: Mapped[str | None]
    steps_executed: Mapped[int]
    median_step_seconds: Mapped[float | None]
    samples_per_second: Mapped[float | None]
    peak_allocated_bytes: Mapped[Bytes | None]
    peak_reserved_bytes: Mapped[Bytes | None]
    peak_device_bytes: Mapped[Bytes | None]
    non_pytorch_bytes: Mapped[Bytes | None]

    settings: Mapped[Document] = mapped_column(server_default="{}")
    failure: Mapped[Document | None]
    measurement: Mapped[Document]
    ranks: Mapped[Document] = mapped_column(server_default="[]")
    """Of a probe of several ranks, each one's own figures; empty for one process."""

    # Joined: all probes of a search are read with their traces in one query.
    trace: Mapped["TraceRow | None"] = relationship(lazy="joined", cascade="all, delete-orphan", passive_deletes=True)


class TraceRow(Base):
    """What the allocator did in a probe that recorded it."""

    __tablename__ = "autotune_traces"

    probe_id: Mapped[int] = mapped_column(ForeignKey(ProbeRow.id, ondelete="CASCADE"), primary_key=True)
    format: Mapped[int]
    """Copy, like ``num_events``."""
    num_events: Mapped[int]
    data: Mapped[bytes] = mapped_column(Blob)
    """See ``autotune.memory.encoding``."""
