"""The gate before training, with real probes: what holds, what does not, and what the ledger keeps of it."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import CheckFailed, api, check
from autotune.cli import app
from autotune.cli.progress import Progress
from autotune.errors import EnvironmentTrouble, UsageError, WorkloadError
from autotune.model import Form, Outcome, Reason, SearchState
from autotune.probe import launcher as launching
from autotune.recommended.checked import Checked
from autotune.report.document import document, to_text
from tests.process.conftest import ASSETS, Kept, Search, planned
from tests.process.support import ROOT, clean_environment, run

LIMIT = 13
PLANTED = str(ASSETS / "planted.py")

Checking = Callable[..., Checked]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test has its recommendation."""
    return tmp_path / "autotune.json"


@pytest.fixture(scope="module")
def made(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recommendation and its ledger: of a search whose limit is 13, and so is the recommended batch."""
    folder = tmp_path_factory.mktemp("made")
    kept.arguments.write_text(json.dumps(["forward:type", str(LIMIT)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "Launcher", lambda *_, **__: kept)
        result = api.search(planned("planted.py", f"@{kept.arguments}"), storage=str(folder / "ledger.sqlite3"))
    (folder / "autotune.json").write_text(to_text(document(result)))
    return folder


@pytest.fixture
def searched(made: Path, path: Path) -> Path:
    """The same, for one test to change."""
    shutil.copytree(made, path.parent, dirs_exist_ok=True)
    return path


@pytest.fixture
def check_forked(storage: str, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Checking:
    """``check_forked(FILE, KIND, LIMIT, option=value...)``: with planted.py as it is now, loaded once for all tests."""
    monkeypatch.setattr(launching, "Launcher", lambda *_, **__: kept)

    def checked(path: Path, *args: object, **options: Any) -> Checked:
        kept.arguments.write_text(json.dumps([str(arg) for arg in args]))
        return check(path, PLANTED, storage=storage, **options)

    return checked


def changed(path: Path, **parts: dict[str, object]) -> Path:
    content = json.loads(path.read_text())
    for name, fields in parts.items():
        content[name] = {**content[name], **fields} if isinstance(fields, dict) else fields
    path.write_text(json.dumps(content))
    return path


def test_what_holds_is_confirmed_by_one_long_probe_at_the_recommended_batch(
    searched: Path, check_forked: Checking, storage: str
) -> None:
    changed(searched, batch={"micro_batch": 5, "effective": 5})
    found = check_forked(searched, "forward:type", LIMIT)
    assert found.ok and found.changes == ()
    (probe,) = found.probes
    assert (probe.batch_size, probe.form, probe.reason, probe.outcome) == (5, Form.LONG, Reason.CONFIRM, Outcome.FITS)
    assert probe.measurement.steps_executed == 8
    assert (found.found.batch, found.found.outcome, found.found.budget_bytes) == (5, "fits", 1 << 30)
    assert check_forked(searched, "forward:type", LIMIT, at="max").probes[0].batch_size == LIMIT


def test_the_ledger_keeps_it_and_no_search_takes_it_for_an_answer(
    searched: Path, check_forked: Checking, search_forked: Search, storage: str
) -> None:
    changed(searched, batch={"micro_batch": 5, "effective": 5})
    found = check_forked(searched, "forward:type", LIMIT)
    made, *_ = api.searches(storage)
    original = found.document.search_id
    assert (made.id, made.state, made.based_on) == (found.found.search_id, SearchState.ANSWERED, original)
    assert api.show(made.id, storage)[1] == found.probes
    again = search_forked("forward:type", LIMIT)
    assert (again.answer.max_batch, again.answer.refuted_at, again.from_ledger) == (LIMIT, LIMIT + 1, True)
    assert api.show(again.search_id, storage)[0].based_on == original


def test_a_ledger_that_never_saw_the_search_will_do(searched: Path, check_forked: Checking, tmp_path: Path) -> None:
    os.rename(tmp_path / "ledger.sqlite3", tmp_path / "away.sqlite3")
    found = check_forked(searched, "forward:type", LIMIT)
    (made,) = api.searches(str(tmp_path / "ledger.sqlite3"))
    assert (made.id, made.based_on) == (found.found.search_id, None)


def test_a_batch_that_is_no_longer_safe_fails_the_check(searched: Path, check_forked: Checking, storage: str) -> None:
    with pytest.raises(CheckFailed, match="batch 13 is not safe: out of memory in forward") as caught:
        check_forked(searched, "forward:type", LIMIT - 1)
    assert "memory at batch 13" in caught.value.detail
    assert caught.value.hint == f"to make it anew: autotune check {searched} --if-stale search {PLANTED}"
    assert api.searches(storage)[0].state is SearchState.NO_ANSWER


@pytest.mark.parametrize(("kind", "words"), [("nan", "unstable"), ("native:segfault", "crashed")])
def test_so_does_one_that_ends_otherwise(searched: Path, check_forked: Checking, kind: str, words: str) -> None:
    with pytest.raises(CheckFailed, match=f"batch 13 is not safe: {words}"):
        check_forked(searched, kind, 4)


def test_a_training_that_raises_by_itself_is_no_verdict_on_the_file(searched: Path, check_forked: Checking) -> None:
    with pytest.raises(WorkloadError, match="the workload fails at batch 13") as caught:
        check_forked(searched, "always", 0, "boom")
    assert "RuntimeError: boom" in caught.value.detail


def test_a_changed_model_is_stale_before_any_probe(searched: Path, check_forked: Checking, storage: str) -> None:
    before = api.searches(storage)
    with pytest.raises(CheckFailed, match="parameters changed - another training") as caught:
        check_forked(searched, "heavy", 9)
    assert "number of parameters: 5 in the file, 41 here" in caught.value.detail
    assert api.searches(storage) == before


def test_so_is_another_version_of_torch(searched: Path, check_forked: Checking) -> None:
    changed(searched, machine={"torch_version": "2.6.0"})
    with pytest.raises(CheckFailed, match=r"torch: 2\.6\.0 in the file, .* here - .*another version"):
        check_forked(searched, "forward:type", LIMIT)


def test_comparing_alone_trains_nothing(searched: Path, check_forked: Checking) -> None:
    found = check_forked(searched, "always", 0, "boom", probe=False)
    assert (found.ok, found.probes, found.found.batch) == (True, (), None)


def test_an_incomplete_search_is_told_and_does_not_fail_the_check(searched: Path, check_forked: Checking) -> None:
    found = check_forked(changed(searched, complete=False), "forward:type", LIMIT)  # type: ignore[arg-type]
    assert found.ok
    assert [change.what for change in found.changes] == ["search"]


def test_another_limit_is_told_and_the_probe_decides(searched: Path, check_forked: Checking) -> None:
    found = check_forked(searched, "forward:type", LIMIT, memory_limit="900MiB")
    assert found.notes == ("budget: 1 GiB in the file, 900 MiB here - the probe decides whether it is enough",)
    assert (found.budget and found.budget.limit_bytes, found.plan.memory_limit_bytes) == (900 << 20, 900 << 20)


def test_a_limit_of_the_file_that_is_not_to_be_had_here_fails_the_check(searched: Path, check_forked: Checking) -> None:
    changed(searched, asked={"memory_limit_bytes": 1 << 60})
    with pytest.raises(CheckFailed, match="is more than"):
        check_forked(searched, "forward:type", LIMIT)


def test_a_device_that_is_not_there_is_no_verdict(searched: Path, check_forked: Checking) -> None:
    with pytest.raises(EnvironmentTrouble, match="cuda:77"):
        check_forked(searched, "forward:type", LIMIT, device="cuda:77")


@pytest.mark.parametrize(
    ("kind", "limit", "parts"), [("forward:type", LIMIT - 4, []), ("batch_norm", LIMIT, ["parameters"])]
)
def test_what_does_not_hold_is_made_anew_by_the_same_search(
    searched: Path,
    check_forked: Checking,
    storage: str,
    kept: Kept,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    limit: int,
    parts: list[str],
) -> None:
    before = json.loads(searched.read_text())
    kept.arguments.write_text(json.dumps([kind, str(limit)]))
    argv = ["check", str(searched), PLANTED, "--if-stale", "search", "--storage", storage, "--json"]
    assert app.run(argv) == 0
    out, err = capsys.readouterr()
    assert out == searched.read_text()
    renewed = json.loads(out)
    assert (renewed["batch"]["max_batch"], renewed["batch"]["refuted_at"]) == (limit, limit + 1)
    assert (renewed["asked"], renewed["check"]) == (before["asked"], None)
    assert all(f"{part} changed" in err for part in parts)
    assert check_forked(searched, kind, limit).ok


EXITS: dict[str, tuple[int, tuple[str, ...], dict[str, Any], tuple[str, ...], str]] = {
    "holds": (0, ("forward:type", "13"), {}, (), "holds here"),
    "incomplete": (0, ("forward:type", "13"), {"complete": False}, (), "search: out of time in the file"),
    "another limit": (
        0,
        ("forward:type", "13"),
        {},
        ("--memory-limit", "900MiB"),
        "budget: 1 GiB in the file, 900 MiB",
    ),
    "not compared": (0, ("always", "0"), {}, ("--no-probe",), "was not probed"),
    "newer": (2, ("forward:type", "13"), {"schema_version": 2}, (), "has schema_version 2"),
    "corrupt": (2, ("forward:type", "13"), {"batch": {"micro_batch": 99}}, (), "batch"),
    "raises": (4, ("always", "0", "boom"), {}, (), "RuntimeError: boom"),
    "no device": (5, ("forward:type", "13"), {}, ("--device", "cuda:77"), "cuda:77"),
    "smaller limit": (6, ("forward:type", "12"), {}, (), "batch 13 is not safe: out of memory in forward"),
    "smaller budget": (6, ("forward:type", "13"), {}, ("--memory-limit", "64MiB"), "is not safe: "),
    "changed model": (6, ("heavy", "9"), {}, (), "parameters changed"),
}
"""Name -> (exit code, arguments of planted.py, changes of the file, options, what is said)."""


@pytest.mark.parametrize("name", EXITS)
def test_every_exit_of_the_command(
    searched: Path,
    storage: str,
    kept: Kept,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    code, arguments, changes, options, said = EXITS[name]
    monkeypatch.setattr(launching, "Launcher", lambda *_, **__: kept)
    changed(searched, **changes)
    kept.arguments.write_text(json.dumps(arguments))
    assert app.run(["check", str(searched), PLANTED, "--storage", storage, *options]) == code
    out, err = capsys.readouterr()
    assert said in (out if code == 0 else err)
    assert (out == "") == (code != 0)


def test_a_check_that_is_stopped_leaves_the_file_and_a_search_that_says_so(
    searched: Path, storage: str, kept: Kept, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "Launcher", lambda *_, **__: kept)
    monkeypatch.setattr(
        Progress, "asked", lambda *_: signal.raise_signal(signal.SIGINT)
    )  # as Ctrl-C does, in the probe
    kept.arguments.write_text(json.dumps(["forward:type", str(LIMIT)]))
    before = searched.read_text()
    argv = ["check", str(searched), PLANTED, "--storage", storage, "--json", "--if-stale", "search"]
    assert app.run(argv) == 130
    out, err = capsys.readouterr()
    assert f"hint: to continue: autotune {shlex.join(argv)}" in err
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert searched.read_text() == before
    stopped, original = api.searches(storage)
    assert (stopped.state, stopped.based_on) == (SearchState.INTERRUPTED, original.id)


# what never gets as far as a process


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "there is no "),
        ("", "Invalid JSON|fields? (is|are) wrong"),
        ("{}", "fields are wrong"),
        ('{"schema_version": 2}', "has schema_version 2"),
        ("[" * 100_000, "is wrong"),
    ],
)
def test_a_file_that_is_none_is_a_usage_error(
    path: Path, storage: str, text: str | None, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "Launcher", None)
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=complaint) as caught:
        check(path, storage=storage)
    assert str(path) in caught.value.message
    assert not Path(storage).exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"at": "best"}, "at 'best' is not known"),
        ({"workload": PLANTED, "memory_limit": "many"}, "'many' is not a size"),
        ({"workload": PLANTED, "timeout_s": -1.0}, "timeout_s is -1.0"),
        ({"workload": "gone.py"}, "gone.py: no such file"),
        ({"workload": PLANTED, "templates": ["batch=env:B"]}, "is for training commands"),
        ({"templates": ["batch=env:B"]}, "is for training commands, and none was given"),
        ({"workload": []}, "has no words"),
        ({}, "lies outside of its project"),
    ],
)
def test_arguments_that_make_no_sense(
    searched: Path, storage: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], complaint: str
) -> None:
    monkeypatch.setattr(launching, "Launcher", None)
    monkeypatch.chdir(searched.parent)
    with pytest.raises(UsageError, match=complaint):
        check(searched, storage=storage, **options)


def test_an_option_that_there_is_none_is_not_passed_over(path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'memory_limits'"):
        check(path, memory_limits="1GiB")  # type: ignore[call-arg]


# whole commands


def autotune(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(AUTOTUNE_STORAGE=str(folder / "ledger.sqlite3"), **variables)
    return run([sys.executable, "-m", "autotune", *words], folder, environment)


def test_a_training_command_is_checked_by_the_file_alone_only_where_it_was_searched(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "assets" / "commands" / "behaving.py", tmp_path)
    command = ("python", "behaving.py", "train", "{batch}")
    limits = ("--device", "cpu", "--memory-limit", "1GiB")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    made = autotune(tmp_path, "max-batch", *limits, "--max-batch", "1", "--output", "r.json", "--", *command, PATH=path)
    assert made.returncode == 0, made.stderr
    done = autotune(tmp_path, "check", "r.json", PATH=path)
    assert (done.returncode, done.stdout[:32]) == (0, "r.json holds here: batch 1 ran 8"), done.stderr
    (tmp_path / "ledger.sqlite3").unlink()
    refused = autotune(tmp_path, "check", "r.json", PATH=path)
    assert refused.returncode == 2
    (hint,) = (line for line in refused.stderr.splitlines() if line.startswith("hint: "))
    given = shlex.split(hint.partition("autotune check ")[2])
    assert given == ["r.json", "--", *command]
    changed(tmp_path / "r.json", asked={"command": ["python", "-c", "evil", "{batch}"]})
    assert "evil" in autotune(tmp_path, "check", "r.json", PATH=path).stderr
