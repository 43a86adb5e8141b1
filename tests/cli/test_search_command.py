import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import EnvironmentTrouble, NothingFits, TimeRanOut, WorkloadError
from autotune.planning import make_plan
from autotune.report.document import read
from tests.cli.conftest import FakeApi, Invoke
from tests.cli.evaluated import NARROWER, NONE, NOTHING
from tests.cli.results import RESULT, WORKLOAD


def test_the_report_is_on_stdout_and_the_progress_on_stderr(invoke: Invoke) -> None:
    ended = invoke("search", "model.py")
    assert ended.code == 0
    assert ended.out.startswith("max batch 27 - certified by 8 steps in a fresh process; 28 refuted")
    assert "\nprobes\n#  batch" in ended.out
    assert ended.out.endswith("train with batch size 24 (batch.micro_batch in autotune.json)\n")
    assert "using spawn" not in ended.out
    assert ended.err.splitlines() == [
        "model.py: 124.4 M parameters, AdamW; NVIDIA H200 (cuda); budget 40 GiB (--memory-limit)",
        "fork is unsafe because of threads; using spawn",
        "probe 1   batch 4       short  first size    fits  peak 6.6 GiB of 40 GiB (16 %)  16 samples/s  2.5 s",
        "probe 2   batch 16      short  grow          fits  peak 23.4 GiB of 40 GiB (58 %)  128 samples/s  2.5 s",
        "probe 3   batch 32      short  grow          out of memory in forward  peak 40 GiB of 40 GiB (100 %)  1.5 s",
    ]


def test_the_recommendation_is_written_by_default(invoke: Invoke) -> None:
    invoke("search", "model.py")
    assert read(Path("autotune.json").read_text()).batch.micro_batch == 24
    assert [path.name for path in Path().iterdir()] == ["autotune.json"]


def test_another_file_can_be_named(invoke: Invoke) -> None:
    ended = invoke("search", "model.py", "--output", "best.json")
    assert read(Path("best.json").read_text()).batch.max_batch == 27
    assert "(batch.micro_batch in best.json)" in ended.out


def test_an_older_recommendation_is_replaced(invoke: Invoke) -> None:
    Path("autotune.json").write_text("old")
    invoke("search", "model.py")
    assert read(Path("autotune.json").read_text()).search_id == RESULT.search_id


@pytest.mark.parametrize("error", [NothingFits("no"), WorkloadError("no")])
def test_c04_a_recommendation_that_no_longer_holds_is_moved_aside(
    invoke: Invoke, fake: FakeApi, error: Exception
) -> None:
    Path("autotune.json").write_text("old")
    fake.error = error
    ended = invoke("search", "model.py")
    assert [path.name for path in Path().iterdir()] == ["autotune.json.stale"]
    assert Path("autotune.json.stale").read_text() == "old"
    assert "an older autotune.json no longer holds; it was moved to autotune.json.stale" in ended.err


@pytest.mark.parametrize("error", [EnvironmentTrouble("no"), TimeRanOut("no"), KeyboardInterrupt(), ValueError("bug")])
def test_a_failure_that_says_nothing_about_the_batch_leaves_the_file_alone(
    invoke: Invoke, fake: FakeApi, error: BaseException
) -> None:
    Path("autotune.json").write_text("old")
    fake.error = error
    invoke("search", "model.py")
    assert [path.name for path in Path().iterdir()] == ["autotune.json"]
    assert Path("autotune.json").read_text() == "old"


def test_without_an_older_file_nothing_is_said_of_one(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = NothingFits("no")
    ended = invoke("search", "model.py")
    assert "stale" not in ended.err
    assert list(Path().iterdir()) == []


def test_a_file_that_cannot_be_moved_aside_does_not_hide_why(invoke: Invoke, fake: FakeApi) -> None:
    Path("autotune.json").write_text("old")
    Path("autotune.json.stale").mkdir()
    fake.error = NothingFits("batch 1 does not fit")
    ended = invoke("search", "model.py")
    assert ended.code == 3
    assert "error: batch 1 does not fit\n" in ended.err
    assert (
        "autotune.json no longer holds, and cannot be moved aside: Is a directory; remove autotune.json by hand"
        in ended.err
    )


def test_json_is_the_same_document_as_the_file_and_nothing_else(invoke: Invoke) -> None:
    ended = invoke("search", "model.py", "--json")
    assert ended.out == Path("autotune.json").read_text()
    assert json.loads(ended.out)["batch"]["refuted_at"] == 28
    assert "probe 1 " in ended.err


def test_quiet_leaves_stderr_empty(invoke: Invoke) -> None:
    ended = invoke("search", "model.py", "-q")
    assert ended.err == ""
    assert ended.out.startswith("max batch 27")


def test_verbose_tells_what_is_about_to_run_and_whole_failures(invoke: Invoke) -> None:
    ended = invoke("search", "model.py", "-v")
    assert "probe 1   batch 4       short  grow          running\n" in ended.err
    assert "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB.\n" in ended.err
    assert "\nfailures\nbatch 32: out of memory in forward\n" in ended.out


@pytest.mark.parametrize("no_color", [None, "1"])
@pytest.mark.parametrize("options", [(), ("-v",), ("--json",)])
def test_a_pipe_gets_plain_text(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], no_color: str | None
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    ended = invoke("search", "model.py", *options)
    for text in (ended.out, ended.err):
        assert "\x1b" not in text
        assert text.isascii()  # no box-drawing either


def test_every_option_arrives(invoke: Invoke, fake: FakeApi) -> None:
    options = (
        "--device cuda:1 --memory-limit 24GiB --precision bf16 --parallel zero --allocator expandable_segments:True --accumulate 3 "
        "--multiple-of 8 --start-batch 16 --max-batch 512 --timeout 60 --time-budget 600.5 --seed 7 --fresh "
        "--eval-batch 48 --device-wait 90.5 "
        "--storage sqlite:///x.db --objective batch --fix precision=bf16 --fix compile --allow all --forbid allocator "
        "--world 2 --ranks 2 --trials 3"
    )
    assert invoke("search", "model.py:Task", *options.split(), "--", "--depth", "3").code == 0
    assert fake.calls["plan"] == {
        "ref": "model.py:Task",
        "script_args": ("--depth", "3"),
        "command": (),
        "templates": (),
        "device": "cuda:1",
        "precision": "bf16",
        "parallel": "zero",
        "allocator": "expandable_segments:True",
        "accumulate": 3,
        "memory_limit": "24GiB",
        "multiple_of": 8,
        "start_batch": 16,
        "max_batch": 512,
        "timeout_s": 60.0,
        "time_budget_s": 600.5,
        "device_wait_s": 90.5,
        "seed": 7,
        "eval_batch": 48,
        "recommend": True,
        "tune": True,
        "objective": "batch",
        "fix": ("precision=bf16", "compile"),
        "allow": ("all",),
        "forbid": ("allocator",),
        "effective_batch": None,
        "world": 2,
        "ranks": "2",
        "trials": 3,
    }
    assert fake.calls["search"]["storage"] == "sqlite:///x.db"
    assert fake.calls["search"]["fresh"] is True


def test_without_options_the_defaults_of_the_api_hold(invoke: Invoke, fake: FakeApi) -> None:
    invoke("search", "model.py")
    of_the_api = inspect.signature(make_plan).parameters.values()
    assert fake.calls["plan"] == {
        **{one.name: one.default for one in of_the_api if one.kind is one.KEYWORD_ONLY},
        "ref": "model.py",
        "script_args": (),
        "command": (),
        "templates": (),
        "tune": True,
        "ranks": "1",
    }
    assert (fake.calls["search"]["storage"], fake.calls["search"]["fresh"]) == (None, False)


def test_the_ledger_can_come_from_the_environment(
    invoke: Invoke, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_STORAGE", "sqlite:///env.db")
    invoke("search", "model.py")
    assert fake.calls["search"]["storage"] == "sqlite:///env.db"


@pytest.mark.parametrize("output", ["nowhere/autotune.json", "folder", "/dev/null"])
def test_an_output_that_cannot_be_written_fails_before_the_search(invoke: Invoke, fake: FakeApi, output: str) -> None:
    Path("folder").mkdir()
    ended = invoke("search", "model.py", "--output", output)
    assert ended.code == 2
    assert output in ended.err
    assert "search" not in fake.calls


def test_the_answer_is_shown_although_the_file_cannot_be_written(
    invoke: Invoke, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise EnvironmentTrouble("cannot write autotune.json: No space left on device")

    monkeypatch.setattr("autotune.cli.asking.write_whole", full)
    ended = invoke("search", "model.py")
    assert ended.code == 5
    assert ended.out.startswith("max batch 27")
    assert "No space left" in ended.err
    ended = invoke("search", "model.py", "--json")
    assert ended.code == 5
    assert json.loads(ended.out)["complete"] is True


def test_user_text_in_a_report_is_printed_literally(invoke: Invoke, fake: FakeApi) -> None:
    fake.result = replace(RESULT, workload=replace(WORKLOAD, notes=("[red]only 5 % of [the] data were read[/red]",)))
    assert "- [red]only 5 % of [the] data were read[/red]\n" in invoke("search", "model.py").out


def test_c11_both_limits_are_in_the_text_and_in_the_json(invoke: Invoke, fake: FakeApi) -> None:
    fake.result = NARROWER
    text = invoke("search", "model.py")
    assert text.code == 0
    assert text.out.startswith("max batch 27 - ")
    assert "\nevaluation   max batch 15 - 16 refuted: out of memory in evaluate\n" in text.out
    assert "- evaluation takes less than training: 15, where 27 train" in text.out
    content = json.loads(invoke("search", "model.py", "--json").out)
    assert (content["batch"]["max_batch"], content["evaluation"]["max_batch"]) == (27, 15)


def test_c11_an_evaluation_that_fits_nowhere_leaves_an_answer_with_a_warning(invoke: Invoke, fake: FakeApi) -> None:
    fake.result = NOTHING
    ended = invoke("search", "model.py", "--json")
    assert ended.code == 0
    content = json.loads(ended.out)
    assert (content["complete"], content["batch"]["max_batch"], content["evaluation"]["max_batch"]) == (True, 27, None)
    assert "out of memory in evaluate" in content["evaluation"]["failure"]
    alone = invoke("max-batch", "model.py")
    assert (alone.code, alone.out) == (0, "27\n")
    assert "its evaluation at no batch" in alone.err


def test_c11_without_an_evaluation_text_and_json_say_that_it_was_not_probed(invoke: Invoke, fake: FakeApi) -> None:
    fake.result = NONE
    assert "evaluation was not probed" in invoke("search", "model.py").out
    content = json.loads(invoke("search", "model.py", "--json").out)
    assert content["evaluation"] is None
    assert any("evaluation was not probed" in text for text in content["warnings"])
