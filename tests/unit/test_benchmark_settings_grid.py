"""A grid of settings: the order of its probes, and the file they are written to."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from autotune.knobs import choices, make_space
from autotune.model import (
    Checkpointing,
    Compile,
    Form,
    MemoryFormat,
    OptimizerKind,
    Outcome,
    Precision,
    Settings,
    Traits,
)
from benchmarks.common.documents import BadResults, read, write
from benchmarks.comparison.cases import ROOT
from benchmarks.grid import recording
from benchmarks.grid.cases import CASES, TRIAL_CASES, GridCase, Need
from benchmarks.grid.cells import Cell, is_complete, next_cell
from benchmarks.grid.recording import Recording, Row
from tests.unit.grid_samples import FUSED, GIVEN, RUN, failed, recorded, row

COMPILED = Settings(compile=Compile.DEFAULT)
SMALL = GridCase(
    name="tiny",
    title="tiny",
    file=Path("tiny.py"),
    knobs={
        "optimizer": (OptimizerKind.DEFAULT, OptimizerKind.FUSED),
        "compile": (Compile.OFF, Compile.DEFAULT),
        "precision": (Precision.DEFAULT, Precision.BF16),
    },
    sizes={
        Need(half=False, checkpointed=False, compiled=False): (2, 4),
        Need(half=True, checkpointed=False, compiled=False): (3, 6),
        Need(half=False, checkpointed=False, compiled=True): (8, 4, 6),
        Need(half=True, checkpointed=False, compiled=True): (16, 8, 12),
    },
)


def played(case: GridCase, limit: int, *, unsupported: Settings | None = None) -> list[Row]:
    """All rows of a grid in order, where sizes above the limit run out of memory; larger batches are faster."""
    rows: list[Row] = []
    while (cell := next_cell(case, rows)) is not None:
        assert len(rows) < 500
        if cell.settings == unsupported:
            rows.append(failed(cell.settings, cell.batch, Outcome.UNSUPPORTED))
        elif cell.batch > limit:
            rows.append(failed(cell.settings, cell.batch, form=cell.form))
        else:
            changes = len(cell.settings.changes(Settings()))
            rows.append(row(cell.settings, cell.batch, 100.0 * cell.batch + changes, form=cell.form))
    return rows


def test_a_grid_is_run_without_compiling_first_and_neighbours_differ_in_the_optimizer_alone() -> None:
    rows = [r for r in played(SMALL, limit=100) if r.form is Form.TIMED]
    compiled = [bool(r.settings.get("compile")) for r in rows]
    assert compiled == sorted(compiled)
    assert len(rows) == 2 * 2 * 2 + 2 * 2 * 2
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        assert other.chosen.changes(one.chosen) == {"optimizer": OptimizerKind.FUSED}
        assert one.batch == other.batch
    assert [r.batch for r in rows if r.chosen == GIVEN] == [2, 4]
    assert [r.batch for r in rows if compiled[rows.index(r)]] == [8, 8, 16, 16, 4, 4, 8, 8]


def test_after_a_failure_no_larger_size_is_tried_and_what_compiles_gets_one_between() -> None:
    rows = played(SMALL, limit=7)
    tried = {(r.chosen, r.batch) for r in rows if r.form is Form.TIMED}
    assert {batch for settings, batch in tried if settings == COMPILED} == {8, 6}
    assert {batch for settings, batch in tried if settings == replace(COMPILED, precision=Precision.BF16)} == {16, 12}
    assert {batch for settings, batch in played_sizes(SMALL, limit=2) if settings == GIVEN} == {2, 4}
    assert {batch for settings, batch in played_sizes(SMALL, limit=1) if settings == GIVEN} == {2}


def played_sizes(case: GridCase, limit: int) -> set[tuple[Settings, int]]:
    return {(r.chosen, r.batch) for r in played(case, limit)}


def test_settings_that_are_not_supported_are_probed_once() -> None:
    rows = played(SMALL, limit=100, unsupported=COMPILED)
    assert [r.batch for r in rows if r.chosen == COMPILED] == [8]


def test_the_fastest_settings_are_compared_with_the_users_own_and_the_next_where_that_fails() -> None:
    rows = [row(GIVEN, 2, 10), row(GIVEN, 4, 11), row(FUSED, 2, 20), row(FUSED, 4, 21)]
    case = replace(SMALL, knobs={"optimizer": SMALL.knobs["optimizer"]})
    assert next_cell(case, rows) == Cell(FUSED, 8, Form.COMPARE)
    assert is_complete(case, [*rows, row(FUSED, 8, form=Form.COMPARE)])
    rejected = [*rows, failed(FUSED, 8, Outcome.CHANGES_TRAINING, Form.COMPARE)]
    assert is_complete(case, rejected)  # the user's own are the fastest of those left
    best = recorded(*rejected).best
    assert best is not None and best.chosen == GIVEN and best.batch == 4
    unknown = [*rows, failed(FUSED, 8, Outcome.OUT_OF_MEMORY, Form.COMPARE)]
    assert is_complete(case, unknown)
    best = recorded(*unknown).best
    assert best is not None and best.chosen == FUSED  # nothing speaks against them


def test_cells_that_prove_nothing_are_left_out_of_one_run_and_not_counted_as_done() -> None:
    first = next_cell(SMALL, [])
    assert first == Cell(GIVEN, 2)
    assert first is not None and next_cell(SMALL, [], {first}) == Cell(FUSED, 2)
    assert not is_complete(SMALL, [])


@pytest.mark.parametrize("case", TRIAL_CASES.values(), ids=lambda case: case.name)
def test_every_combination_of_a_case_has_sizes_and_is_what_allow_opens(case: GridCase) -> None:
    assert (ROOT / case.file).is_file()
    made = case.combinations()
    assert len(set(made)) == len(made)
    for settings in made:
        sizes = case.sizes[Need.of(settings)]
        assert len(sizes) == 3 if Need.of(settings).compiled else list(sizes) == sorted(sizes)
    traits = Traits(own_checkpointing="x", convolutions=True, optimizer_kinds=("for-loop", "foreach", "fused"))
    space, left = make_space(GIVEN, choices((), case.allow, (), GIVEN), traits, "cuda")
    assert left == ()
    assert set(space.all()) == set(made)


def test_what_is_compared_are_all_precisions_optimizers_and_compiling() -> None:
    for case in CASES.values():
        assert len(case.combinations()) == 4 * 2 * 2 * 2
    assert CASES["resnet50"].knobs["memory_format"] == (MemoryFormat.DEFAULT, MemoryFormat.CHANNELS_LAST)
    assert CASES["gpt2"].knobs["checkpointing"] == (Checkpointing.OFF, Checkpointing.OWN)


def test_a_recording_reads_back_as_it_was_written(tmp_path: Path) -> None:
    made = recorded(row(FUSED, 2), failed(COMPILED, 8), runs=(RUN,))
    write(tmp_path / "grid.json", made)
    again = read(tmp_path / "grid.json", Recording)
    assert again == made
    assert again.rows[0].chosen == FUSED and again.cost_s == 3.0
    assert [path.name for path in tmp_path.iterdir()] == ["grid.json"]


def broken(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(recorded(row(FUSED)).model_dump_json())
    content["rows"][0].update(changes)
    return content


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"speed": "high"}}, "rows.0.settings: Value error, there is no setting speed"),
        ({"settings": {"precision": "int4"}}, "rows.0.settings.precision"),
        ({"settings": {"activation_budget": 7}}, "activation budget is 7"),
        ({"settings": {"cudnn_benchmark": "yes"}}, "rows.0.settings.cudnn_benchmark"),
        ({"batch": "2"}, "rows.0.batch: Input should be a valid integer"),
        ({"batch": 0}, "rows.0.batch"),
        ({"outcome": "fine"}, "rows.0.outcome"),
        ({"outcome": "out_of_memory"}, "outcome out_of_memory with cause None"),
        ({"cause": "timeout"}, "outcome fits with cause timeout"),
        ({"step_seconds": []}, "a timed probe that fits has step times"),
        ({"speed": 1}, "rows.0.speed: Extra inputs are not permitted"),
    ],
)
def test_a_recording_with_a_wrong_field_is_refused_by_its_name(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    path = tmp_path / "grid.json"
    path.write_text(json.dumps(broken(**changes)))
    with pytest.raises(BadResults) as error:
        read(path, Recording)
    assert str(error.value).startswith(f"{path} is no recorded grid: rows.0") and told in str(error.value)


def test_a_recording_of_another_workload_is_not_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(BadResults, match="workload is tiny there and gpt2 here; give another --out"):
        recording.check_same(recorded(), recorded(workload="gpt2"), tmp_path / "grid.json")
    recording.check_same(recorded(), recorded(row()), tmp_path / "grid.json")
