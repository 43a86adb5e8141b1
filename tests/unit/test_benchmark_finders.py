"""The pure parts of benchmarks/finders.py: brute force, who has to survive, the results file, the table."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.common.documents import BadResults, Run, Status, read, write
from benchmarks.comparison.cases import ACCELERATE, AUTOTUNE, BRUTE_FORCE, LIGHTNING_BINSEARCH, LIGHTNING_POWER
from benchmarks.comparison.limit import MOST_PROBES, is_exact, largest, next_size
from benchmarks.comparison.results import Cell, Entry, Prediction, Results, Survival, Trial, merge
from benchmarks.comparison.survival import FULL_EVERY, SHORTEST, shares
from benchmarks.comparison.survivors import Wanted, sizes, verdict
from benchmarks.comparison.table import render
from benchmarks.finders import known, options

CAP = 40 << 30


def probed(start: int, fits: set[int]) -> dict[int, bool]:
    """Every size that brute force tries from ``start``, in order."""
    tried: dict[int, bool] = {}
    while (size := next_size(tried, start)) is not None:
        assert size not in tried and size >= 1
        tried[size] = size in fits
    return tried


def up_to(limit: int) -> set[int]:
    return set(range(1, limit + 1))


def trained(batch: int, *, survived: bool = True, steps: int = 200, retries: int = 0) -> Survival:
    return Survival(
        batch=batch,
        survived=survived,
        steps=steps,
        retries=retries,
        peak_reserved_bytes=None,
        seconds=30,
        message="" if survived else "OutOfMemoryError: CUDA out of memory.",
    )


def done(answer: int, *trials: tuple[int, str], seconds: float = 30, exact: bool = True) -> Cell:
    rows = tuple(Trial(size=size, outcome=outcome, seconds=1) for size, outcome in trials)
    return Cell(status=Status.DONE, answer=answer, seconds=seconds, trials=rows, exact=exact)


@pytest.mark.parametrize(
    ("start", "limit", "tried"),
    [
        (27, 27, [27, 28, 29]),
        (585, 585, [585, 586, 587]),
        (585, 588, [585, 586, 587, 588, 589, 590]),
        (484, 495, [484, 485, 486, 487, 488, 489, 494, 504, 499, 496, 495]),
        (28, 27, [28, 27]),
        (490, 484, [490, 485, 480, 482, 483, 484]),
        (1, 1, [1, 2, 3]),
        (2, 0, [2, 1]),
    ],
)
def test_brute_force_tries_these_sizes(start: int, limit: int, tried: list[int]) -> None:
    assert list(probed(start, up_to(limit))) == tried


def test_brute_force_finds_every_limit_within_ten_percent_of_where_it_starts() -> None:
    for limit in range(1, 700, 3):
        for start in {limit, max(1, limit - limit // 10), limit + limit // 10}:
            found = probed(start, up_to(limit))
            assert largest(found) == limit, (limit, start)
            assert is_exact(found), (limit, start)


def test_a_size_that_fails_below_one_that_fits_does_not_end_brute_force() -> None:
    assert probed(27, up_to(29) - {28}) == {27: True, 28: False, 29: True, 31: False, 30: False}


def test_brute_force_that_starts_far_off_stops_and_is_not_called_exact() -> None:
    found = probed(1, up_to(100_000))
    assert len(found) == MOST_PROBES
    assert not is_exact(found)


def test_only_wanted_answers_are_trained_with_and_equal_ones_once() -> None:
    answers = {AUTOTUNE: 27, LIGHTNING_POWER: 16, LIGHTNING_BINSEARCH: 27, ACCELERATE: 28, "nothing": 0}
    assert sizes(answers, Wanted.AUTOTUNE) == [27]
    assert sizes(answers, Wanted.LARGER) == [27, 28]
    assert sizes(answers, Wanted.ALL) == [16, 27, 28]
    del answers[AUTOTUNE]
    assert sizes(answers, Wanted.AUTOTUNE) == []
    assert sizes(answers, Wanted.LARGER) == [16, 27, 28]


def test_the_verdict_on_a_size_says_what_was_run() -> None:
    runs = {27: trained(27), 28: trained(28, survived=False, steps=36), 26: trained(26, retries=1)}
    assert verdict(27, runs) == "yes"
    assert verdict(26, runs) == "yes, 1 retry"
    assert verdict(28, runs) == "no, ends in step 37"
    assert verdict(16, runs) == "not run; 26 does"
    assert verdict(30, runs) == "not run"


def test_lengths_are_seeded_and_full_now_and_then() -> None:
    drawn = shares(200)
    assert drawn == shares(200)
    assert all(share == 1 for share in drawn[FULL_EVERY - 1 :: FULL_EVERY])
    assert all(SHORTEST <= share <= 1 for share in drawn)
    assert len(set(drawn)) > 150


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = Results(cap_bytes=CAP, survival_steps=200).with_cell("gpt2", AUTOTUNE, done(27, (16, "fits")))
    results = results.with_survival("gpt2", trained(27))
    write(tmp_path / "out.json", results)
    assert read(tmp_path / "out.json", Results) == results
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "other", "cap_bytes": 1, "survival_steps": 1}'])
def test_a_file_that_is_no_results_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadResults, match=r"x\.json is no results file"):
        read(tmp_path / "x.json", Results)


def test_merging_keeps_finished_cells_over_unfinished_ones_and_later_over_earlier() -> None:
    empty = Results(cap_bytes=CAP, survival_steps=200)
    failed = Cell(status=Status.FAILED, message="no")
    one = empty.with_cell("gpt2", AUTOTUNE, done(27)).with_cell("gpt2", ACCELERATE, failed)
    one = one.with_survival("gpt2", trained(27))
    two = (
        empty.with_cell("gpt2", AUTOTUNE, failed)
        .with_cell("gpt2", ACCELERATE, done(24))
        .with_cell("vit", AUTOTUNE, failed)
    )
    three = empty.with_cell("gpt2", AUTOTUNE, done(26))
    both = merge([one, two])
    assert both.entry("gpt2").finders == {AUTOTUNE: done(27), ACCELERATE: done(24)}
    assert both.entry("gpt2").survival == {27: trained(27)}
    assert both.entry("vit").finders == {AUTOTUNE: failed}
    assert merge([both, three]).entry("gpt2").finders[AUTOTUNE].answer == 26


def test_results_under_different_conditions_are_not_put_together(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write(path, Results(cap_bytes=CAP, survival_steps=200))
    assert known(path, CAP, 200).workloads == {}
    with pytest.raises(BadResults, match="cap_bytes is 42949672960 and 1"):
        known(path, 1, 200)
    with pytest.raises(BadResults, match="survival_steps is 200 and 50"):
        known(path, CAP, 50)


def test_the_table_reads_as_written_here() -> None:
    own = done(27, (2, "fits"), (27, "fits"), (28, "out_of_memory"), seconds=21.4).model_copy(
        update={
            "prediction": Prediction(limit=27, allocated_bytes=999, reserved_bytes=1010),
            "measured_allocated_bytes": 1000,
            "measured_reserved_bytes": 1000,
        }
    )
    entry = Entry(
        outside_bytes=768 << 20,
        finders={
            BRUTE_FORCE: done(27, (27, "fits"), (28, "out_of_memory"), (29, "out_of_memory"), seconds=15),
            AUTOTUNE: own,
            LIGHTNING_POWER: done(16, (2, "fits"), (16, "fits"), (32, "out_of_memory"), seconds=33),
            LIGHTNING_BINSEARCH: Cell(status=Status.NOT_INSTALLED, message="pip install lightning"),
            ACCELERATE: Cell(status=Status.TIMED_OUT, seconds=300, message="ended after 300 s"),
        },
        survival={27: trained(27, retries=3)},
    )
    vit = Entry(finders={AUTOTUNE: done(600), BRUTE_FORCE: done(601, exact=False)})
    run = Run(
        command="python benchmarks/finders.py",
        created="2026-12-01T10:00:00+00:00",
        device="NVIDIA H200",
        driver="580",
        capacity_bytes=140 << 30,
        cuda="13.0",
        python="3.12.3",
        versions={"torch": "2.11.0", "accelerate": "1.15.0"},
    )
    results = Results(cap_bytes=CAP, survival_steps=200, runs=(run,), workloads={"vit": vit, "gpt2": entry})
    assert render(results) == TABLE


TABLE = """\
- PyTorch's allocator is capped at 40 GiB for every finder.
- `python benchmarks/finders.py`: 2026-12-01, NVIDIA H200 (driver 580), Python 3.12.3, torch 2.11.0, accelerate 1.15.0.

| workload | finder | answer | of the limit | wall time | trials | above half the limit | out of memory | 200 steps |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| GPT-2 124M, 1024 tokens, bf16, AdamW | autotune | 27 | 100.0 % | 21 s | 3 | 2 | 1 | yes, 3 retries |
|  | lightning-power | 16 | 59.3 % | 33 s | 3 | 2 | 1 | not run; 27 does |
|  | lightning-binsearch | not installed: pip install lightning |  |  |  |  |  |  |
|  | accelerate | timed out: ended after 300 s |  | 300 s |  |  |  |  |
|  | brute-force | 27 |  | 15 s | 3 | 3 | 2 | yes, 3 retries |
| ViT-B/16, 224x224, bf16, AdamW | autotune | 600 | at most 99.8 % | 30 s | 0 | 0 | 0 | not run |
|  | brute-force | at least 601 |  | 30 s | 0 | 0 | 0 | not run |

| workload | predicted limit | true limit | error | allocated at the answer | reserved at the answer | outside PyTorch |
| --- | --- | --- | --- | --- | --- | --- |
| GPT-2 124M, 1024 tokens, bf16, AdamW | 27 | 27 | +0.00 % | -0.10 % | +1.00 % | 768 MiB |
"""


def test_a_share_that_is_nearly_the_limit_is_not_rounded_to_it() -> None:
    entry = Entry(finders={AUTOTUNE: done(4999), BRUTE_FORCE: done(5000)})
    assert "| 4999 | 99.98 % |" in render(Results(cap_bytes=CAP, survival_steps=200, workloads={"vit": entry}))


def test_by_default_everything_is_compared_but_the_network_with_a_made_up_limit() -> None:
    given = options().parse_args([])
    assert "tiny" not in given.workloads and len(given.workloads) == 6
    assert len(given.finders) == 5
    assert (given.cap_gib, given.survival_steps, given.device) == (40, 200, "cuda")
