"""benchmarks/settings.py: its command line, its results and table, and a whole small grid on the CPU."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from autotune.model import Cause, Form, Precision
from benchmarks import settings as command
from benchmarks.common.documents import BadResults, Status, read, write
from benchmarks.comparison.processes import Ended
from benchmarks.grid import commands
from benchmarks.grid.cases import TRIAL_CASES
from benchmarks.grid.cells import is_complete
from benchmarks.grid.recording import Recording
from benchmarks.grid.results import DEFAULT_SPACE, GRID_SPACE, NO_CONFIG, Check, Peer, Results, Search, Trial, merge
from benchmarks.grid.table import render
from tests.unit.grid_samples import CAP, FUSED, GIVEN, RUN, failed, recorded, row

SEARCH = Search(
    status=Status.DONE,
    seconds=50.0,
    settings={"optimizer": "fused"},
    batch=4,
    samples_per_second=99.0,
    baseline_samples_per_second=25.0,
    baseline_batch=4,
    trials=(
        Trial(
            settings={},
            batch=4,
            form="long",
            reason="baseline",
            outcome="fits",
            seconds=3.0,
            samples_per_second=25.0,
            first_step_seconds=0.5,
        ),
    ),
    config={"schema_version": 1},
)
CHECK = Check(
    status=Status.DONE, batch=4, steps=50, survived=True, samples_per_second=97.0, expected=99.0, retries=1, seconds=9.0
)


def compared(**changes: Any) -> Results:
    made = Results(cap_bytes=CAP, check_steps=50)
    return made.with_entry("tiny", **({"searches": {GRID_SPACE: SEARCH}, "checks": {GRID_SPACE: CHECK}} | changes))


def test_the_table_has_baseline_grid_search_and_peer_with_regret_and_cost() -> None:
    peer = Peer(
        status=Status.DONE, batch=4, pick="tf32 fused", samples_per_second=50.0, search_seconds=100.0, seconds=120.0
    )
    own = CHECK.model_copy(update={"samples_per_second": 24.0, "expected": None, "retries": 0})
    grid = recorded(row(GIVEN, 4, 24.0, seconds=190), row(FUSED, 2, 100.0, seconds=10), failed(FUSED, 4), runs=(RUN,))
    text = render([grid], compared(peer=peer, checks={GRID_SPACE: CHECK, NO_CONFIG: own}))
    title = TRIAL_CASES["tiny"].title
    lines = text.splitlines()
    assert f"| {title} | the user's own | as it is | 4 | 25.0 | 75.0 % |  |  | yes, 24.0/s |" in lines
    assert "|  | grid's best | optimizer=fused | 2 | 100.0 |  | 201 s |  |  |" in lines
    assert (
        "|  | autotune, the grid's knobs | optimizer=fused | 4 | 99.0 | 1.0 % | 50 s, 1 probes | 25 %"
        " | yes, 97.0/s (-2.0 %), 1 retries |" in lines
    )
    assert "|  | pytorch-autotune, budget balanced | tf32 fused | 4 | 50.0 | 50.0 % | 100 s | 50 % |  |" in lines
    assert "- PyTorch's allocator is capped at 40 GiB." in lines
    assert "- Grid of tiny: 3 probes in 201 s, 1 of them failed, 1 for memory; not complete." in lines
    assert (
        "- `python benchmarks/settings.py`: 2026-11-30, NVIDIA H200 (driver 580), Python 3.12.3, torch 2.11.0." in lines
    )


def test_the_table_says_why_a_part_has_no_figures() -> None:
    peer = Peer(status=Status.NOT_INSTALLED, message="pip install pytorch-autotune")
    gone = Search(status=Status.FAILED, message="nothing fits: batch 1 | too large")
    died = Check(status=Status.DONE, batch=4, survived=False, message="OutOfMemoryError: 1 GiB")
    made = compared(peer=peer, searches={GRID_SPACE: SEARCH, DEFAULT_SPACE: gone}, checks={GRID_SPACE: died})
    lines = render([], made).splitlines()
    assert (
        "|  | pytorch-autotune, budget balanced | not installed: pip install pytorch-autotune |  |  |  |  |  |  |"
        in lines
    )
    assert "|  | autotune, all knobs | failed: nothing fits: batch 1 / too large |  |  |  |  |  |  |" in lines
    assert any(line.endswith("| 50 s, 1 probes |  | no: OutOfMemoryError: 1 GiB |") for line in lines)


def test_a_training_holds_what_was_promised_within_five_percent() -> None:
    assert CHECK.holds and CHECK.deviation == pytest.approx(97 / 99 - 1)
    assert not CHECK.model_copy(update={"samples_per_second": 94.0}).holds
    assert not CHECK.model_copy(update={"survived": False}).holds
    assert CHECK.model_copy(update={"expected": None}).deviation is None


def test_merging_keeps_what_is_done() -> None:
    broke = Search(status=Status.TIMED_OUT, message="ended after 900 s")
    done, late = compared(), compared(searches={GRID_SPACE: broke}, checks={NO_CONFIG: CHECK})
    entry = merge([done, late]).entry("tiny")
    assert entry.searches == {GRID_SPACE: SEARCH} and entry.checks == {GRID_SPACE: CHECK, NO_CONFIG: CHECK}
    assert merge([late, done]).entry("tiny").searches == {GRID_SPACE: SEARCH}
    assert merge([late]).entry("tiny").best_search() is None
    with pytest.raises(BadResults, match="check_steps is 50 and 9"):
        merge([done, done.model_copy(update={"check_steps": 9})])


def test_results_read_back_and_the_table_tells_the_two_kinds_of_files_apart(tmp_path: Path) -> None:
    grid, other = tmp_path / "grid.json", tmp_path / "settings.json"
    write(grid, recorded(row(FUSED, 2, 100.0)))
    write(other, compared())
    assert read(other, Results) == compared()
    assert command.table([other, grid]) == render([recorded(row(FUSED, 2, 100.0))], compared())
    with pytest.raises(BadResults, match=r"settings\.json is no recorded grid: "):
        read(other, Recording)
    with pytest.raises(BadResults, match=r"nothing\.json cannot be read: No such file"):
        command.table([tmp_path / "nothing.json"])
    (tmp_path / "text.json").write_text("no")
    with pytest.raises(BadResults, match=r"text\.json is no JSON"):
        command.table([tmp_path / "text.json"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["grid", "--out", "a.json"], "--workload and --out are needed"),
        (["grid", "search", "--workload", "tiny", "--out", "a.json"], "grid writes a file of its own"),
        (["fly", "--workload", "tiny", "--out", "a.json"], "there is no part fly; there are grid, search, peer, check"),
        (["grid", "--workload", "tiny", "--out", "/nowhere/a.json"], "there is no folder /nowhere to write to"),
        ([], "give the parts to run, or --table with files"),
        (["grid", "--table", "a.json"], "give the parts to run, or --table with files"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: list[str], told: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["settings.py", *line])
    with pytest.raises(SystemExit) as stop:
        command.asked()
    assert stop.value.code == 2 and told in capsys.readouterr().err


def ended(stdout: str = "", stderr: str = "", exit_code: int | None = 0) -> Ended:
    return Ended(exit_code=exit_code, stdout=stdout, stderr_tail=stderr, seconds=12.34)


def test_a_command_without_an_answer_becomes_a_cell_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    case = TRIAL_CASES["tiny"]

    def answering(what: Ended) -> None:
        monkeypatch.setattr(commands, "run", lambda command, timeout_s: what)

    answering(ended(stderr="ValueError: broken", exit_code=1))
    search = commands.search(case, (), device="cpu", limit_bytes=None, timeout_s=1)
    assert (search.status, search.message, search.seconds) == (Status.FAILED, "ValueError: broken", 12.3)
    answering(ended(exit_code=None))
    check = commands.check(case, None, batch=4, steps=1, device="cpu", cap_bytes=CAP, timeout_s=1)
    assert (check.status, check.batch, check.message) == (Status.TIMED_OUT, 4, "ended after 12 s")
    refused = {"evidence": None, "error": {"message": "nothing fits"}}
    answering(ended(stdout=json.dumps(refused), exit_code=3))
    assert commands.search(case, (), device="cpu", limit_bytes=None, timeout_s=1).message == "nothing fits"
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    peer = commands.peer(case, 4, budget="fast", device="cpu", cap_bytes=CAP, timeout_s=1)
    assert (peer.status, peer.message) == (Status.NOT_INSTALLED, "pip install pytorch-autotune")


def test_a_small_grid_is_recorded_on_the_cpu_gone_on_with_and_trained_without_a_recommendation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "tiny-grid.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # restored at the end, as what the command sets
    monkeypatch.setenv("TRITON_CACHE_DIR", "")

    def run(*more: str) -> str:
        line = ["settings.py", "grid", "--workload", "tiny", "--device", "cpu", "--out", str(out)]
        monkeypatch.setattr(sys, "argv", [*line, *more])
        command.main()
        return capsys.readouterr().err

    err = run()
    made = read(out, Recording)
    case = TRIAL_CASES["tiny"]
    assert made.device == "cpu" and made.parameters == 49 and len(made.runs) == 1
    timed = [r for r in made.rows if r.form is Form.TIMED]
    assert [(r.chosen, r.batch) for r in timed] == [
        (replace(settings, precision=precision), batch)
        for precision in (Precision.DEFAULT, Precision.BF16)
        for batch in (32, 64)
        for settings in (GIVEN, FUSED)
    ]
    assert {r.batch: (r.fits, r.cause) for r in timed} == {32: (True, None), 64: (False, Cause.DEVICE_MEMORY)}
    assert all(len(r.step_seconds) == 8 for r in timed if r.fits)
    assert is_complete(case, made.rows) and err.count("tiny ") == len(made.rows)
    write(out, made.model_copy(update={"rows": made.rows[:-1]}))
    assert run().count("tiny ") == 1
    assert run() == ""  # nothing is left to do
    assert len(read(out, Recording).rows) == len(made.rows) and len(read(out, Recording).runs) == 2
    check = commands.check(case, None, batch=4, steps=7, device="cpu", cap_bytes=CAP, timeout_s=300)
    assert check.done and check.survived and check.steps == 7 and check.expected is None and check.batch == 4
    assert check.samples_per_second is not None and check.samples_per_second > 0
