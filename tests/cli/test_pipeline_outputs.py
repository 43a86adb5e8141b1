"""What pipelines read beside stdout, of every command that has an answer."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli.pipeline import _assignment
from autotune.errors import NothingFits, WorkloadError
from autotune.report.document import read
from autotune.report.fields import FailureDocument
from autotune.report.outputs import NAMES
from tests.cli.checked import CHECKED, OUTDATED
from tests.cli.conftest import FakeApi, Invoke
from tests.cli.results import RESULT, WORKLOAD

COMMANDS = {"search": ("search", "model.py"), "max-batch": ("max-batch", "model.py"), "check": ("check",)}
EVIL = "m.py\nsafe=true\n::error::\x1b[31m`<b>"


@pytest.fixture
def github(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A step of GitHub Actions, in the folder that ``invoke`` has made; returns its two files."""
    files = Path("output").absolute(), Path("summary").absolute()
    monkeypatch.setenv("GITHUB_OUTPUT", str(files[0]))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(files[1]))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    return files


def parsed(path: Path) -> dict[str, str]:
    """As GitHub's runner reads the file."""
    found, lines = {}, iter(path.read_text().splitlines())
    for line in lines:
        name, equals, value = line.partition("=")
        if "<<" in name:
            name, _, end = line.partition("<<")
            value = "\n".join(iter(lambda end=end: next(lines), end))  # type: ignore[misc]
        else:
            assert equals
        found[name] = value
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_appends_its_values_and_a_page(invoke: Invoke, github: tuple[Path, Path], command: str) -> None:
    output, page = github
    output.write_text("earlier=1\n")
    assert invoke(*COMMANDS[command]).code == 0
    values = parsed(output)
    assert set(values) == {"earlier", *NAMES}
    assert (values["safe"], values["max_batch"], values["micro_batch"]) == ("true", "27", "24")
    assert page.read_text().startswith(f"### autotune {command}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_failure_has_no_number_and_a_page(
    invoke: Invoke, fake: FakeApi, github: tuple[Path, Path], command: str
) -> None:
    fake.error = fake.check_error = WorkloadError("it failed", detail="Traceback ...", hint="look")
    ended = invoke(*COMMANDS[command])
    assert ended.code == 4
    assert parsed(github[0]) == {"safe": "false", "error": "workload"}
    assert "it failed\nTraceback ..." in github[1].read_text()
    assert f"::error title=autotune {command}::it failed\n" in ended.err


def test_a_check_that_fails_says_so_in_every_place(invoke: Invoke, fake: FakeApi, github: tuple[Path, Path]) -> None:
    fake.checked = OUTDATED
    ended = invoke("check")
    assert parsed(github[0]) == {"safe": "false", "error": "check_failed"}
    assert "- `driver: 570.1 in the file, 580.2 here - another version`" in github[1].read_text()
    assert "::error title=autotune check::autotune.json does not hold here: driver" in ended.err


def test_a_renewed_file_gives_the_values_of_the_new_one(
    invoke: Invoke, fake: FakeApi, github: tuple[Path, Path]
) -> None:
    fake.checked = OUTDATED
    assert invoke("check", "--if-stale", "search").code == 0
    assert parsed(github[0])["search_id"] == RESULT.search_id
    assert "checked now" not in github[1].read_text()


def test_annotations_are_for_github_alone_and_never_on_stdout(
    invoke: Invoke, fake: FakeApi, github: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.result = replace(RESULT, warnings=("50 %\nof it",))
    ended = invoke("search", "model.py", "--json")
    assert read(ended.out).warnings == ("50 %\nof it",)
    assert "::warning title=autotune search::50 %25%0Aof it\n" in ended.err
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    assert "::" not in invoke("search", "model.py").err


def test_without_the_variables_nothing_is_written(invoke: Invoke) -> None:
    ended = invoke("check", "-q")
    assert (list(Path().iterdir()), ended.err) == ([], "")


def test_text_of_the_user_sets_no_value_and_ends_no_block(
    invoke: Invoke, fake: FakeApi, github: tuple[Path, Path]
) -> None:
    content = CHECKED.document.model_copy(
        update={"search_id": EVIL, "workload": CHECKED.document.workload.model_copy(update={"ref": EVIL})}
    )
    fake.checked = replace(CHECKED, document=content, workload=replace(WORKLOAD, ref=EVIL))
    ended = invoke("check")
    values = parsed(github[0])
    assert set(values) == set(NAMES)
    assert values["search_id"] == EVIL
    assert "``m.py safe=true ::error::[31m`<b>``" in github[1].read_text()
    assert "::error" not in [line[:7] for line in ended.out.splitlines()]


def test_a_value_of_several_lines_stands_between_lines_it_cannot_hold() -> None:
    first, second = (_assignment("x", "1\ny=2").splitlines() for _ in range(2))
    assert first[0] != second[0]
    assert first[1:-1] == ["1", "y=2"]
    assert first[0] == f"x<<{first[-1]}"
    assert _assignment("x", "1\r") != "x=1\r\n"


def test_a_file_of_github_that_cannot_be_written_is_told_after_the_answer(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", "gone/output")
    ended = invoke("check")
    assert ended.code == 5
    assert ended.out.startswith("autotune.json holds here")
    assert "cannot write gone/output, which GITHUB_OUTPUT names" in ended.err


def test_and_does_not_hide_an_error(invoke: Invoke, fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", "gone/output")
    fake.error = NothingFits("batch 1 does not fit")
    ended = invoke("search", "model.py")
    assert ended.code == 3
    assert "error: batch 1 does not fit\ncannot write gone/output" in ended.err


# one-value files


@pytest.mark.parametrize("command", COMMANDS)
def test_each_value_can_have_a_file_of_its_own(invoke: Invoke, command: str) -> None:
    ended = invoke(
        *COMMANDS[command], "--output-file", "max_batch=out/deep/max", "--output-file", "safe=out/safe", "-q"
    )
    assert ended.code == 0
    assert Path("out/deep/max").read_text() == "27"
    assert Path("out/safe").read_text() == "true"


def test_the_whole_document_too_as_airflow_reads_it(invoke: Invoke) -> None:
    ended = invoke("search", "model.py", "--json", "--output-file", "json=airflow/xcom/return.json")
    assert Path("airflow/xcom/return.json").read_text() == ended.out


def test_on_a_failure_no_number_is_left_nor_one_of_before(invoke: Invoke, fake: FakeApi) -> None:
    Path("max").write_text("99")
    fake.error = NothingFits("no")
    files = ("max_batch=max", "safe=safe", "json=doc")
    assert invoke("search", "model.py", *(word for file in files for word in ("--output-file", file))).code == 3
    assert not Path("max").exists()
    assert Path("safe").read_text() == "false"
    assert FailureDocument.model_validate_json(Path("doc").read_text()).error.kind == "nothing_fits"


@pytest.mark.parametrize("text", ["max_batch", "max=x", "max_batch=", "=x", ""])
def test_what_is_no_value_is_a_usage_error(invoke: Invoke, fake: FakeApi, text: str) -> None:
    ended = invoke("search", "model.py", "--output-file", text)
    assert ended.code == 2
    assert f"--output-file {text!r} is no NAME=PATH" in ended.err
    assert "values are safe, max_batch" in ended.err
    assert fake.calls == {}


def test_a_value_has_one_file(invoke: Invoke) -> None:
    ended = invoke("check", "--output-file", "safe=a", "--output-file", "safe=b")
    assert (ended.code, "names safe twice" in ended.err) == (2, True)


@pytest.mark.parametrize("place", ["folder", "file/x"])
def test_a_file_that_cannot_be_written_is_found_out_before_the_search(
    invoke: Invoke, fake: FakeApi, place: str
) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    assert invoke("search", "model.py", "--output-file", f"safe={place}").code == 2
    assert fake.calls == {}


def test_nothing_half_written_is_left(invoke: Invoke) -> None:
    invoke("search", "model.py", "--output-file", "safe=out/safe")
    assert os.listdir("out") == ["safe"]


def test_no_text_of_others_is_taken_for_a_command_of_github(
    invoke: Invoke, fake: FakeApi, github: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.error = WorkloadError("x\n::stop-commands::y", detail="  ::add-mask::z\nsee ##[error]w :: here")
    ended = invoke("search", "model.py")
    assert "x\n: :stop-commands::y\n  : :add-mask::z\nsee ## [error]w :: here\n" in ended.err
    assert [line for line in ended.err.splitlines() if line.startswith("::")] == [
        "::error title=autotune search::x%0A::stop-commands::y"
    ]
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "x\n::stop-commands::y\n  ::add-mask::z\n" in invoke("search", "model.py").err
