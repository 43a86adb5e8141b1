"""The document of this benchmark: for each row what was found, the true limit, and the training at the answer."""

from typing import Any, Literal

from pydantic import Field

from benchmarks.common.documents import Answer, Part, Run, check_alike
from benchmarks.comparison.results import Trial

CLOSE = 0.01
"""Share of the true limit by which an answer may differ from it."""
NOTHING_FITS = 3
"""Exit code of autotune where no size is safe."""


class Rank(Part):
    """One of the processes that trained together."""

    peak_bytes: int | None
    """Of the probe that certified: device-wide peak of its job. Of a training: what its allocator reserved."""
    non_pytorch_bytes: int | None = None
    """Outside the allocator, NCCL's buffers included; of a training not measured."""
    retries: int | None = None
    """Of a training's allocator, in all steps."""


class Alone(Answer):
    """The same limit for one process."""

    exit_code: int | None = None


class Found(Answer):
    """``autotune max-batch --ranks`` as a whole command with an empty ledger."""

    answer: int | None = None
    refuted_at: int | None = None
    limited_by: str = ""
    trials: tuple[Trial, ...] = ()
    outside_bytes: int = 0
    """The most that a probe held outside the allocator, NCCL's buffers included; 0 on the CPU."""
    cap_bytes: int | None = None
    """What the allocator of each rank had where the answer was certified; brute force and the training have the same."""
    ranks: tuple[Rank, ...] = ()
    config: dict[str, Any] | None = None
    """The content of autotune.json."""


class Limit(Answer):
    """Brute force around the answer."""

    answer: int | None = None
    """The largest size that is safe."""
    trials: tuple[Trial, ...] = ()
    exact: bool = True
    """Whether the next size was seen to fail."""


class Trained(Answer):
    """A training under ``torchrun`` at the recommendation."""

    batch: int | None = None
    """Of each rank."""
    survived: bool = False
    steps: int = 0
    """That all ranks did."""
    ranks: tuple[Rank, ...] = ()
    nccl: str = ""
    """Version; empty on the CPU."""


class Row(Part):
    """One workload and how its ranks share it."""

    limit_bytes: int
    """``--memory-limit``."""
    alone: Alone | None = None
    found: Found | None = None
    limit: Limit | None = None
    trained: Trained | None = None


class Results(Part):
    """All of it."""

    what = "results file of this benchmark"
    kind: Literal["ranks"] = "ranks"
    survival_steps: int
    runs: tuple[Run, ...] = ()
    rows: dict[str, Row] = Field(default_factory=dict)

    def with_row(self, name: str, row: Row) -> "Results":
        """One row replaced."""
        return self.model_copy(update={"rows": {**self.rows, name: row}})


def merge(documents: list[Results]) -> Results:
    """All rows of all documents, in order; of two of one row, that of the later document.

    Raises:
        BadResults: they were made with different numbers of survival steps.
    """
    check_alike(documents, "survival_steps")
    rows = {name: row for document in documents for name, row in document.rows.items()}
    runs = tuple(run for document in documents for run in document.runs)
    return Results(survival_steps=documents[0].survival_steps, runs=runs, rows=rows)


def close(answer: int, limit: int) -> bool:
    """Whether an answer is within CLOSE of the true limit."""
    return abs(answer - limit) <= CLOSE * limit


def nothing_fits(alone: Alone) -> bool:
    """Whether one process found that no size is safe."""
    return alone.exit_code == NOTHING_FITS
