"""The pure parts of benchmarks/ranks.py: when answer and limit agree, what a training's reports say, the file, the table."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.common.documents import BadResults, Run, Status, write
from benchmarks.comparison.processes import Ended
from benchmarks.comparison.results import Trial
from benchmarks.ranked.parts import How, judged
from benchmarks.ranked.results import Alone, Found, Limit, Rank, Results, Row, Trained, close, merge
from benchmarks.ranked.table import render
from benchmarks.ranks import known, options

GIB = 1 << 30
SILENT = How(device="cpu", timeout_s=1, probe_timeout_s=1, say=lambda text: None)


def ended(exit_code: int | None = 0) -> Ended:
    return Ended(exit_code=exit_code, stdout="", stderr_tail="no devices\n", seconds=30)


def report(message: str = "", steps: int = 200, retries: int = 0) -> dict[str, Any]:
    return {
        "batch": 100,
        "steps": steps,
        "message": message,
        "retries": retries,
        "peak_reserved_bytes": GIB,
        "nccl": "2.28",
    }


@pytest.mark.parametrize(
    ("answer", "limit", "agree"),
    [(100, 100, True), (99, 100, True), (101, 100, True), (98, 100, False), (14, 15, False), (102, 100, False)],
)
def test_an_answer_agrees_with_the_limit_within_one_percent(answer: int, limit: int, agree: bool) -> None:
    assert close(answer, limit) is agree


def test_a_training_survives_if_every_rank_says_so() -> None:
    both = judged(ended(), [report(), report(retries=2)], SILENT)
    assert both.survived and both.done and both.steps == 200
    assert [rank.retries for rank in both.ranks] == [0, 2]
    assert not judged(ended(), [report()], SILENT).done


def test_a_training_that_one_rank_ends_has_not_survived_and_is_not_repeated() -> None:
    one = judged(ended(1), [report("rank 1: OutOfMemoryError: out of memory", steps=36)], SILENT)
    assert one.done and not one.survived and one.steps == 36
    assert one.message == "rank 1: OutOfMemoryError: out of memory"


def test_a_training_that_says_nothing_is_run_again() -> None:
    assert judged(ended(1), [], SILENT).status is Status.FAILED
    assert judged(ended(1), [], SILENT).message == "no devices"
    assert judged(ended(None), [report()], SILENT).status is Status.TIMED_OUT


def test_results_are_read_as_they_were_written_and_gone_on_with(tmp_path: Path) -> None:
    results = Results(survival_steps=200).with_row("gpt2-ddp", row(100, 100))
    write(tmp_path / "out.json", results)
    assert known(tmp_path / "out.json", 200) == results
    with pytest.raises(BadResults, match="survival_steps is 200 and 50"):
        known(tmp_path / "out.json", 50)


def test_rows_of_several_files_come_together() -> None:
    one = Results(survival_steps=200).with_row("gpt2-ddp", row(100, 100))
    two = Results(survival_steps=200).with_row("gpt2-fsdp", row(90, 90)).with_row("gpt2-ddp", row(99, 99))
    assert {name: one.found.answer for name, one in merge([one, two]).rows.items() if one.found} == {
        "gpt2-ddp": 99,
        "gpt2-fsdp": 90,
    }


def test_the_rows_of_the_table_are_run_by_default() -> None:
    given = options().parse_args(["--memory-limit", "24GiB"])
    assert given.rows == ["gpt2-ddp", "gpt2-fsdp", "large-fsdp"]
    assert (given.device, given.survival_steps, given.memory_limit) == ("cuda", 200, 24 * GIB)


def row(answer: int, limit: int, *, exact: bool = True) -> Row:
    trials = tuple(
        Trial(size=size, outcome="fits" if size <= limit else "out_of_memory", seconds=5)
        for size in range(limit, limit + 3)
    )
    return Row(
        limit_bytes=40 * GIB,
        found=Found(
            status=Status.DONE,
            seconds=71.2,
            answer=answer,
            trials=trials,
            outside_bytes=GIB,
            cap_bytes=39 * GIB,
            ranks=(Rank(peak_bytes=39 * GIB, non_pytorch_bytes=GIB), Rank(peak_bytes=38 * GIB)),
        ),
        limit=Limit(status=Status.DONE, seconds=15, answer=limit, trials=trials, exact=exact),
        trained=Trained(
            status=Status.DONE,
            seconds=40,
            batch=answer,
            survived=True,
            steps=200,
            ranks=(Rank(peak_bytes=38 * GIB, retries=1), Rank(peak_bytes=38 * GIB, retries=0)),
            nccl="2.28.9",
        ),
    )


def test_the_table_reads_as_written_here() -> None:
    run = Run(
        command="NCCL_NVLS_ENABLE=0 python benchmarks/ranks.py",
        created="2026-12-01T10:00:00+00:00",
        device="NVIDIA H200",
        driver="580",
        capacity_bytes=140 * GIB,
        cuda="13.0",
        python="3.12.3",
        versions={"torch": "2.11.0"},
    )
    nothing = Alone(status=Status.DONE, seconds=20, exit_code=3, message="nothing fits: batch 1")
    large = row(14, 14).model_copy(
        update={
            "limit_bytes": 12 * GIB,
            "alone": nothing,
            "trained": Trained(status=Status.DONE, batch=14, steps=36, message="rank 1: out | of memory"),
        }
    )
    fsdp = Row(limit_bytes=40 * GIB, found=Found(status=Status.FAILED, message="no devices", seconds=3))
    results = Results(
        survival_steps=200,
        runs=(run,),
        rows={"large-fsdp": large, "gpt2-fsdp": fsdp, "gpt2-ddp": row(99, 100)},
    )
    assert render(results) == TABLE
    assert "| 98 | 100 | no: -2.0 % |" in render(results.with_row("gpt2-ddp", row(98, 100)))
    assert "| 100 | at least 100 | as far as it was tried |" in render(
        results.with_row("gpt2-ddp", row(100, 100, exact=False))
    )


TABLE = """\
- `NCCL_NVLS_ENABLE=0 python benchmarks/ranks.py`: 2026-12-01, NVIDIA H200 (driver 580), Python 3.12.3, torch 2.11.0.
- gpt2-ddp: brute force under 39.00 GiB for the allocator: 100 fits, 101 out_of_memory, 102 out_of_memory.
- gpt2-ddp: the training reserved 38.00, 38.00 GiB, NCCL 2.28.9.
- large-fsdp: brute force under 39.00 GiB for the allocator: 14 fits, 15 out_of_memory, 16 out_of_memory.

| workload | ranks | limit of each | answer | brute force | within 1 % | probes | wall time | peak of each rank | \
200 steps by torchrun | one process, same limit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| GPT-2 124M, 256 tokens, bf16, AdamW | 2, ddp | 40 GiB | 99 | 100 | yes: -1.00 % | 3 | 71 s | 39.00, 38.00 GiB | \
yes, 1 retry |  |
| GPT-2 124M, 256 tokens, bf16, AdamW | 2, fsdp | 40 GiB | failed: no devices |  |  |  | 3 s |  |  |  |
| GPT-2 large 774M, 64 tokens, bf16, AdamW | 2, fsdp | 12 GiB | 14 | 14 | equal (1 % is less than one sample) | 3 | 71 s | \
39.00, 38.00 GiB | no, ends in step 37: rank 1: out / of memory | nothing fits (exit code 3) |
"""
