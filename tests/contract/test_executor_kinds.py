"""Two kinds of machines among the workers: a search and an answer for each, told apart by ``api`` and by the command."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune import api
from autotune.cli import app
from autotune.errors import NothingFits, UsageError
from autotune.executors import workers as workers_module
from autotune.executors.asked import Execution
from autotune.model import Budget, KindFailed, SearchResult
from autotune.recommended.file import read_recommendation
from autotune.units import format_bytes
from tests.contract.searching import BUDGET
from tests.fakes import FakeProber
from tests.unit.planted_workers import GPU, PlantedLink, PlantedWorker

SMALL = replace(GPU, device_name="Planted 24")
NAMES = "cuda:0,cuda:1,cuda:2"


@pytest.fixture
def behave() -> list[PlantedWorker]:
    """Three workers, of which the second is of another kind and can bear half as much."""
    half = FakeProber(per_sample_bytes=128 << 20, fixed_bytes=60 << 20)
    return [PlantedWorker(), PlantedWorker(machine=SMALL, prober=half), PlantedWorker()]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behave: list[PlantedWorker]) -> str:
    """A file to be searched on them."""

    def start(execution: Execution, log: Path) -> PlantedLink:
        return behave[int(log.stem.removeprefix("worker-")) - 1].link()

    monkeypatch.setattr(workers_module, "_start", start)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_STORAGE", str(tmp_path / "ledger.sqlite3"))
    (tmp_path / "planted.py").touch()
    return "planted.py"


def test_each_kind_has_an_answer_and_a_search_of_its_own(model: str) -> None:
    plan = api.plan(model, device="cuda", memory_limit=BUDGET.limit_bytes)
    first, (second,) = api.search_kinds(plan, workers=NAMES)
    assert isinstance(second, SearchResult)
    assert (first.machine.device_name, first.answer.max_batch) == ("Planted 40", 15)
    assert (second.machine.device_name, second.answer.max_batch) == ("Planted 24", 7)
    assert [record.machine.device_name for record in api.searches()] == ["Planted 24", "Planted 40"]
    again, (other,) = api.search_kinds(plan, workers=NAMES)
    assert isinstance(other, SearchResult)
    assert again.from_ledger and other.from_ledger and other.answer == second.answer


def test_the_command_reports_them_apart_in_a_file_each(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = app.run(
        ["search", model, "--device", "cuda", "--allow", "none", "--memory-limit", "1GiB", "--workers", NAMES]
    )
    captured = capsys.readouterr()
    assert code == 0, captured.err
    (other,) = Path().glob("autotune.planted-24-*.json")
    said = f"for Planted 24 (cuda, {format_bytes(SMALL.capacity_bytes)}, driver 550.1), apart, in {other}:"
    assert captured.out.index("max batch 15") < captured.out.index(said)
    assert "max batch 7" in captured.out
    for name, batch in (("autotune.json", 15), (str(other), 7)):
        assert read_recommendation(Path(name)).batch.max_batch == batch


def test_kinds_of_one_device_name_have_a_file_each_whatever_else_is_there(
    model: str, behave: list[PlantedWorker], capsys: pytest.CaptureFixture[str]
) -> None:
    newer, larger = replace(SMALL, driver_version="560.2"), replace(SMALL, capacity_bytes=2 * SMALL.capacity_bytes)
    third = FakeProber(per_sample_bytes=256 << 20, fixed_bytes=60 << 20)
    argv = ["search", model, "--device", "cuda", "--allow", "none", "--memory-limit", "1GiB", "--workers", NAMES]
    behave[1].machine = newer
    behave[2] = PlantedWorker(machine=larger, prober=third)
    assert app.run(argv) == 0
    first = {name: name.read_text() for name in Path().glob("autotune.planted-24-*.json")}
    assert sorted(read_recommendation(name).batch.max_batch for name in first) == [3, 7]
    said = capsys.readouterr().out
    assert all(f", in {name}:" in said for name in first)
    assert "driver 560.2" in said and format_bytes(larger.capacity_bytes) in said
    (of_newer,) = [name for name in first if read_recommendation(name).machine.driver_version == "560.2"]
    of_newer.unlink()
    behave[2] = PlantedWorker()
    assert app.run(argv) == 0
    assert of_newer.exists(), "the same name, though there is no other of the device's name now"


def test_a_kind_that_nothing_fits_on_is_named_and_its_older_file_is_set_aside(
    model: str, behave: list[PlantedWorker], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["search", model, "--device", "cuda", "--allow", "none", "--memory-limit", "1GiB", "--workers", NAMES]
    assert app.run(argv) == 0
    (older,) = Path().glob("autotune.planted-24-*.json")
    capsys.readouterr()
    behave[1].prober = FakeProber(per_sample_bytes=2 << 30)
    assert app.run([*argv, "--fresh"]) == 0
    said = capsys.readouterr().out
    assert f"for Planted 24 (cuda, {format_bytes(SMALL.capacity_bytes)}, driver 550.1) there is no answer: " in said
    assert f"an older {older} no longer holds; it was moved to {older}.stale" in said
    assert not older.exists() and Path(f"{older}.stale").exists()
    assert read_recommendation(Path("autotune.json")).batch.max_batch == 15


def test_a_kind_without_an_answer_is_a_value_with_its_machine(model: str, behave: list[PlantedWorker]) -> None:
    behave[1].prober = FakeProber(per_sample_bytes=2 << 30)
    plan = api.plan(model, device="cuda", memory_limit=BUDGET.limit_bytes)
    first, (second,) = api.search_kinds(plan, workers=NAMES)
    assert first.answer.max_batch == 15 and isinstance(second, KindFailed)
    assert (second.machine.device_name, type(second.error)) == ("Planted 24", NothingFits)


def test_trouble_with_another_kind_costs_neither_the_first_answer_nor_an_older_file(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["search", model, "--device", "cuda", "--allow", "none", "--memory-limit", "1GiB", "--workers", NAMES]
    assert app.run(argv) == 0
    (older,) = Path().glob("autotune.planted-24-*.json")
    budget = workers_module.Workers.budget

    def refusing(workers: workers_module.Workers, held_bytes: int) -> Budget:
        if workers.other_kinds:
            return budget(workers, held_bytes)
        raise UsageError("the device has less than 1 GiB", hint="lower --memory-limit")

    monkeypatch.setattr(workers_module.Workers, "budget", refusing)
    assert app.run([*argv, "--fresh"]) == 0
    said = capsys.readouterr().out
    assert "there is no answer: the device has less than 1 GiB" in said and "lower --memory-limit" in said
    assert older.exists() and "stale" not in said


def test_max_batch_answers_for_the_first_kind_alone(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = app.run(["max-batch", model, "--device", "cuda", "--memory-limit", "1GiB", "--workers", NAMES])
    captured = capsys.readouterr()
    assert (code, captured.out) == (0, "15\n"), captured.err
    assert "is of another kind than Planted 40" in captured.err
    assert len(api.searches()) == 1


def test_ranks_and_workers_of_one_host_exclude_each_other(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["max-batch", model, "--device", "cuda", "--memory-limit", "1GiB", "--ranks", "2", "--workers", NAMES]
    assert app.run(argv) == 2
    assert "--ranks 2 and --workers 3 both ask for the devices of this host" in capsys.readouterr().err
