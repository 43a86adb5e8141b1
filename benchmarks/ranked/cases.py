"""The rows of the table: a workload, how two ranks share it, and the limit of each."""

from dataclasses import dataclass
from pathlib import Path

from autotune.units import GIB
from benchmarks.comparison.cases import Case

RANKS = 2
_WORKLOADS = Path("benchmarks", "workloads")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCase:
    """One row."""

    case: Case
    parallel: str
    """As ``autotune --parallel`` has it."""
    limit_bytes: int
    """``--memory-limit``, for each rank, unless another is asked for."""
    too_large: bool = False
    """Whether one process alone is to find that nothing fits under the same limit."""

    @property
    def name(self) -> str:
        """How it is chosen on the command line."""
        return self.case.name


def _row(
    name: str, title: str, file: str, parallel: str, limit_gib: int, *, precision: str = "bf16", too_large: bool = False
) -> tuple[str, RankedCase]:
    case = Case(name=name, title=title, file=_WORKLOADS / file, precision=precision)
    return name, RankedCase(case=case, parallel=parallel, limit_bytes=limit_gib * GIB, too_large=too_large)


CASES = dict(
    [
        _row("gpt2-ddp", "GPT-2 124M, 256 tokens, bf16, AdamW", "gpt2_short.py", "ddp", 40),
        _row("gpt2-fsdp", "GPT-2 124M, 256 tokens, bf16, AdamW", "gpt2_short.py", "fsdp", 40),
        _row("large-fsdp", "GPT-2 large 774M, 64 tokens, bf16, AdamW", "gpt2_large.py", "fsdp", 12, too_large=True),
    ]
)
"""What the table shows."""
TRIAL_CASES = CASES | dict(
    [
        _row("tiny-ddp", "a small network", "tiny_blocks.py", "ddp", 2, precision="default"),
        _row("tiny-fsdp", "a small network", "tiny_blocks.py", "fsdp", 2, precision="default", too_large=True),
    ]
)
"""... and what only tries the benchmark itself, without GPUs."""
