"""``autotune check``: what it prints, how it ends, and what becomes of the file."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from autotune.errors import CheckFailed, EnvironmentTrouble, NothingFits, TimeRanOut, WorkloadError
from autotune.recommended.checked import Checked
from autotune.report.document import bucket_document, read, schema
from tests.cli.bucketed import BUCKETED, PARTLY
from tests.cli.checked import CHECKED, OUTDATED, UNSAFE
from tests.cli.conftest import FakeApi, Invoke, ends
from tests.cli.results import MACHINE, PLAN, RESULT

DONE = "autotune.json holds here: batch 24 ran 8 steps in a fresh process, peak 34.6 GiB of 40 GiB (86 %)"


def test_a_file_that_holds_is_said_to_with_what_changed_that_does_not_matter(invoke: Invoke) -> None:
    ended = invoke("check")
    assert (ended.code, ended.out) == (0, f"{DONE}\n- Python: 3.12.3 in the file, 3.13.1 here - no matter\n")
    assert "budget 40 GiB" in ended.err


def test_quiet_leaves_the_verdict(invoke: Invoke) -> None:
    ended = invoke("check", "-q")
    assert (ended.code, ended.out, ended.err) == (0, f"{DONE}\n", "")


def test_without_a_probe_the_verdict_says_so(invoke: Invoke, fake: FakeApi) -> None:
    fake.checked = replace(CHECKED, probes=())
    ended = invoke("check", "--no-probe", "-q")
    assert ended.out == "autotune.json is as valid as when it was made; batch 24 was not probed\n"
    assert fake.calls["examine"]["probe"] is False


@pytest.mark.parametrize("checked", [UNSAFE, OUTDATED])
def test_a_file_that_does_not_hold_is_exit_code_6_with_the_reasons(
    invoke: Invoke, fake: FakeApi, checked: Checked
) -> None:
    fake.checked = checked
    ended = invoke("check", "-q")
    assert (ended.code, ended.out) == (6, "")
    assert ended.err.startswith("error: autotune.json does not hold here: ")
    assert ("a split\nhint: next" in ended.err) == (checked is UNSAFE)


# JSON


def test_json_is_the_files_document_with_what_was_found(invoke: Invoke) -> None:
    ended = invoke("check", "--json")
    content = json.loads(ended.out)
    assert ended.code == 0
    assert (content["batch"]["micro_batch"], content["search_id"]) == (24, RESULT.search_id)
    assert (content["check"]["outcome"], content["check"]["search_id"]) == ("fits", "c0ffee")
    assert [change["what"] for change in content["check"]["changes"]] == ["Python"]
    assert jsonschema.Draft202012Validator(schema()).is_valid(content)
    assert read(ended.out).check is not None


def test_json_of_a_failure_has_the_error_and_what_was_found(invoke: Invoke, fake: FakeApi) -> None:
    fake.checked = OUTDATED
    ended = invoke("check", "--json")
    content = json.loads(ended.out)
    assert (ended.code, content["complete"], content["batch"]["max_batch"]) == (6, False, None)
    assert content["error"]["kind"] == "check_failed"
    assert content["machine"]["driver_version"] == MACHINE.driver_version
    assert [(change["what"], change["stale"]) for change in content["check"]["changes"]] == [
        ("driver", True),
        ("Python", False),
    ]
    assert jsonschema.Draft202012Validator(schema()).is_valid(content)


ENDS = [*ends(), (CheckFailed("it failed"), 6, "check_failed")]


@pytest.mark.parametrize(("error", "code", "kind"), ENDS, ids=[repr(error) for error, _, _ in ENDS])
def test_every_end_has_its_exit_code_and_its_document(
    invoke: Invoke, fake: FakeApi, error: BaseException, code: int, kind: str
) -> None:
    fake.check_error = error
    ended = invoke("check", "--json", "-q")
    content = json.loads(ended.out)
    assert (ended.code, content["error"]["kind"], content["batch"]["micro_batch"]) == (code, kind, None)
    assert "to continue: autotune check" in ended.err or kind != "interrupted"


def test_a_bug_is_a_bug(invoke: Invoke, fake: FakeApi) -> None:
    fake.check_error = ZeroDivisionError("division by zero")
    assert invoke("check").code == 1


# what is checked


def test_every_option_arrives(invoke: Invoke, fake: FakeApi) -> None:
    options = "--device cuda:1 --memory-limit 24GiB --at max --timeout 60 --device-wait 9.5 --storage sqlite:///x.db"
    assert invoke("check", "best.json", "model.py:Task", *options.split(), "--", "--depth", "3").code == 0
    fake.calls["examine"].pop("observer")
    assert fake.calls["examine"] == {
        "path": Path("best.json"),
        "workload": "model.py:Task",
        "script_args": ("--depth", "3"),
        "templates": (),
        "device": "cuda:1",
        "memory_limit": "24GiB",
        "at": "max",
        "probe": True,
        "timeout_s": 60.0,
        "device_wait_s": 9.5,
        "storage": "sqlite:///x.db",
    }


@pytest.mark.parametrize(
    ("argv", "path", "workload", "script_args"),
    [
        ("", "autotune.json", None, None),
        ("a.json", "a.json", None, None),
        ("a.json model.py", "a.json", "model.py", None),
        ("a.json model.py -- --depth 3", "a.json", "model.py", ("--depth", "3")),
        ("a.json -- --depth 3", "a.json", None, ("--depth", "3")),
        ("-- --depth 3", "autotune.json", None, ("--depth", "3")),
        ("a.json -- python t.py {batch}", "a.json", ("python", "t.py", "{batch}"), None),
        ("-- python t.py {batch}", "autotune.json", ("python", "t.py", "{batch}"), None),
        ("-- ./train", "autotune.json", ("./train",), None),
    ],
)
def test_file_model_arguments_and_commands_are_told_apart(
    invoke: Invoke,
    fake: FakeApi,
    argv: str,
    path: str,
    workload: str | tuple[str, ...] | None,
    script_args: tuple[str, ...] | None,
) -> None:
    assert invoke("check", *argv.split()).code == 0
    call = fake.calls["examine"]
    assert (call["path"], call["workload"], call["script_args"]) == (Path(path), workload, script_args)


# renewal


def test_a_file_that_holds_is_not_searched_again(invoke: Invoke, fake: FakeApi) -> None:
    Path("autotune.json").write_text("as it was")
    ended = invoke("check", "--if-stale", "search")
    assert ended.code == 0
    assert "search" not in fake.calls
    assert Path("autotune.json").read_text() == "as it was"


@pytest.mark.parametrize("checked", [UNSAFE, OUTDATED])
def test_one_that_does_not_is_made_anew_by_the_same_search(invoke: Invoke, fake: FakeApi, checked: Checked) -> None:
    fake.checked = replace(checked, plan=replace(PLAN, seed=7))
    Path("autotune.json").write_text("as it was")
    ended = invoke("check", "--if-stale", "search")
    assert ended.code == 0
    assert fake.calls["search"]["plan"].seed == 7
    assert read(Path("autotune.json").read_text()).batch.micro_batch == 24
    assert [path.name for path in Path().iterdir()] == ["autotune.json"]
    assert "does not hold here" in ended.err and "searching again" in ended.err
    assert ended.out.startswith("max batch 27 - certified")


def test_a_file_of_length_buckets_is_made_anew_for_each_of_them(invoke: Invoke, fake: FakeApi) -> None:
    of_buckets = OUTDATED.document.model_copy(update={"buckets": bucket_document(BUCKETED).buckets})
    fake.checked = replace(OUTDATED, document=of_buckets, plan=replace(PLAN, seed=7, length_bucket=2048))
    Path("autotune.json").write_text("as it was")
    ended = invoke("check", "--if-stale", "search")
    assert ended.code == 0, ended.err
    asked = fake.calls["search_buckets"]
    assert (asked["buckets"], asked["plan"]) == ([64, 512, 2048], replace(PLAN, seed=7))
    assert "search" not in fake.calls
    assert [one.max_length for one in read(Path("autotune.json").read_text()).buckets] == [64, 512, 2048]
    assert all(length in ended.out for length in ("64", "512", "2048"))


def test_a_file_of_length_buckets_stays_where_one_of_them_has_no_answer_any_more(invoke: Invoke, fake: FakeApi) -> None:
    of_buckets = OUTDATED.document.model_copy(update={"buckets": bucket_document(BUCKETED).buckets})
    fake.checked, fake.bucketed = replace(OUTDATED, document=of_buckets), PARTLY
    Path("autotune.json").write_text("as it was")
    ended = invoke("check", "--if-stale", "search")
    assert ended.code == 3
    assert "error: length bucket 2048: nothing fits" in ended.err
    assert Path("autotune.json").read_text() == "as it was"


def test_under_json_the_new_document_is_all_of_stdout(invoke: Invoke, fake: FakeApi) -> None:
    fake.checked = OUTDATED
    ended = invoke("check", "--if-stale", "search", "--json")
    assert ended.out == Path("autotune.json").read_text()
    assert json.loads(ended.out)["check"] is None


def test_under_json_a_new_file_that_cannot_be_written_is_one_document_with_the_answer(
    invoke: Invoke, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise EnvironmentTrouble(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("autotune.cli.asking.write_whole", full)
    fake.checked = OUTDATED
    ended = invoke("check", "--if-stale", "search", "--json")
    assert ended.code == 5
    assert json.loads(ended.out)["batch"]["max_batch"] == RESULT.answer.max_batch
    assert "cannot write autotune.json" in ended.err


def test_it_is_written_elsewhere_if_asked(invoke: Invoke, fake: FakeApi) -> None:
    fake.checked = OUTDATED
    Path("autotune.json").write_text("as it was")
    assert invoke("check", "--if-stale", "search", "--output", "new.json").code == 0
    assert Path("autotune.json").read_text() == "as it was"
    assert read(Path("new.json").read_text()).search_id == RESULT.search_id


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NothingFits("no"), 3),
        (WorkloadError("no"), 4),
        (EnvironmentTrouble("no"), 5),
        (TimeRanOut("no"), 124),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_old_file_stays_where_the_new_search_fails(
    invoke: Invoke, fake: FakeApi, error: BaseException, code: int
) -> None:
    fake.checked, fake.error = OUTDATED, error
    Path("autotune.json").write_text("as it was")
    ended = invoke("check", "--if-stale", "search", "--json")
    assert ended.code == code
    assert [path.name for path in Path().iterdir()] == ["autotune.json"]
    assert Path("autotune.json").read_text() == "as it was"
    assert [change["what"] for change in json.loads(ended.out)["check"]["changes"]] == ["driver", "Python"]


def test_an_output_without_renewal_makes_no_sense(invoke: Invoke, fake: FakeApi) -> None:
    ended = invoke("check", "--output", "new.json")
    assert ended.code == 2
    assert "hint: give --if-stale search as well" in ended.err
    assert fake.calls == {}


def test_whether_it_can_be_written_is_found_out_first(invoke: Invoke, fake: FakeApi) -> None:
    ended = invoke("check", "--if-stale", "search", "--output", "gone/new.json")
    assert ended.code == 2
    assert fake.calls == {}
