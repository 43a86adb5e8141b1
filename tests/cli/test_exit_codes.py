"""One table: what goes wrong, and the exit code and words it ends with."""

import json
import signal

import pytest

from autotune.cli.signals import Stopped
from autotune.errors import NothingFits, StoreError, UsageError, WorkloadError
from tests.cli.conftest import FakeApi, Invoke, ends

ENDS = ends()
NAMES = [repr(error) for error, _, _ in ENDS]


@pytest.mark.parametrize("command", ["search", "max-batch"])
@pytest.mark.parametrize(("error", "code", "kind"), ENDS, ids=NAMES)
def test_every_error_of_a_search_has_its_exit_code(
    invoke: Invoke, fake: FakeApi, command: str, error: BaseException, code: int, kind: str
) -> None:
    fake.error = error
    ended = invoke(command, "model.py")
    assert ended.code == code
    assert ended.out == ""
    message = "finished probes are kept" if kind == "interrupted" else "error: it failed"
    assert message in ended.err


@pytest.mark.parametrize(("error", "code", "kind"), ENDS, ids=NAMES)
def test_every_error_is_one_json_document_where_json_was_asked(
    invoke: Invoke, fake: FakeApi, error: BaseException, code: int, kind: str
) -> None:
    fake.error = error
    ended = invoke("search", "model.py", "--json")
    content = json.loads(ended.out)
    assert ended.code == code
    assert content["complete"] is False
    assert content["batch"]["max_batch"] is None
    assert content["error"]["kind"] == kind
    assert content["machine"]["device_name"] == "NVIDIA H200"


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        (("inspect", "model.py"), WorkloadError("it failed"), 4),
        (("inspect", "model.py"), Stopped(signal.SIGTERM), 143),
        (("inspect", "model.py"), KeyboardInterrupt(), 130),
        (("runs", "show", "zz"), StoreError("it failed"), 5),
    ],
)
def test_other_commands_end_the_same_way(
    invoke: Invoke, fake: FakeApi, command: tuple[str, ...], error: BaseException, code: int
) -> None:
    fake.error = error
    ended = invoke(*command)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("error: ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("serch",), "No such command 'serch'"),
        (("--nonsense",), "No such option: --nonsense"),
        (("search",), "nothing to train was given"),
        (("search", "model.py", "--nonsense"), "No such option: --nonsense"),
        (("search", "model.py", "--accumulate", "many"), "Invalid value for '--accumulate'"),
        (("search", "model.py", "--accumulate", "many"), "'many' is no whole number"),
        (("search", "model.py", "--time-budget", "5m"), "'5m' is no number"),
        (("search", "model.py", "--precision", "fp8"), "'fp8' is not one of"),
        (("report", "--format", "pdf"), "error: Invalid value for '--format': 'pdf' is not one of"),
        (("search", "model.py", "-q", "-v"), "--quiet and --verbose exclude each other"),
        (("runs", "ls", "--limit", "0"), "Invalid value for '--limit'"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_a_usage_error(
    invoke: Invoke, fake: FakeApi, argv: tuple[str, ...], message: str
) -> None:
    ended = invoke(*argv)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert "hint: " in ended.err
    assert "search" not in fake.calls


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("search ok.py --hidden 5", "search ok.py -- --hidden 5"),
        ("search ok.py --hidden=5 --seed 1", "search ok.py --seed 1 -- --hidden=5"),
        ("max-batch -v ok.py --wide --json", "max-batch -v ok.py --json -- --wide"),
        ("inspect --device cpu ok.py --hidden 5 -- --depth 3", "inspect --device cpu ok.py -- --hidden 5 --depth 3"),
    ],
)
def test_an_option_of_the_users_file_is_moved_behind_the_dashes(invoke: Invoke, typed: str, instead: str) -> None:
    ended = invoke(*typed.split())
    assert ended.code == 2
    assert ended.err.endswith(f"hint: arguments for your file come after --: autotune {instead}\n")


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("search --hidden ok.py", "search"),
        ("search --device cpu --hidden 5", "search"),
        ("runs show abc --hidden", "runs show"),
    ],
)
def test_an_unknown_option_without_a_model_before_it_is_just_unknown(invoke: Invoke, typed: str, path: str) -> None:
    assert invoke(*typed.split()).err.endswith(f"hint: autotune {path} --help\n")


def test_a_slip_in_an_option_of_autotune_is_corrected_and_not_moved(invoke: Invoke) -> None:
    assert invoke("search", "ok.py", "--max-bach", "3").err.endswith("hint: did you mean --max-batch?\n")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("search ok.py --buckets 128", "--buckets is an option of autotune max-batch"),
        ("max-batch ok.py --trials 3", "--trials is an option of autotune search"),
        ("predict ok.py --output=x", "--output is an option of autotune search and autotune max-batch"),
    ],
)
def test_an_option_of_another_search_is_told_from_those_of_the_users_file(
    invoke: Invoke, typed: str, hint: str
) -> None:
    assert invoke(*typed.split()).err.endswith(f"hint: {hint}\n")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("search ok.py --trials x", "autotune search --help says of --trials: Settings the sampler may propose"),
        ("search ok.py --memory-limit", "autotune search --help\n"),
        ("runs show", "autotune runs show --help\n"),
    ],
)
def test_the_hint_says_what_an_option_is_for(invoke: Invoke, typed: str, hint: str) -> None:
    assert f"\nhint: {hint}" in invoke(*typed.split()).err


def test_a_usage_error_of_the_plan_is_json_too(invoke: Invoke, fake: FakeApi) -> None:
    fake.plan_error = UsageError("accumulate is 0", hint="give --accumulate 1 or more")
    ended = invoke("search", "model.py", "--accumulate", "0", "--json")
    content = json.loads(ended.out)
    assert ended.code == 2
    assert content["settings"] is None
    assert content["workload"]["ref"] == "model.py"
    assert content["error"]["hint"] == "give --accumulate 1 or more"


@pytest.mark.parametrize("typed", ["search --json", "max-batch ok.py --json --seed x", "check --json --at never"])
def test_a_command_line_that_cannot_be_read_is_json_too(invoke: Invoke, typed: str) -> None:
    ended = invoke(*typed.split())
    content = json.loads(ended.out)
    assert ended.code == 2
    assert (content["complete"], content["batch"]["max_batch"]) == (False, None)
    assert f"error: {content['error']['message']}\nhint: {content['error']['hint']}\n" == ended.err


@pytest.mark.parametrize(
    ("typed", "code", "kind"),
    [
        ("runs show zz --json", 5, "store"),
        ("inspect --json", 2, "usage"),
        ("runs ls --limit 0 --json", 2, "usage"),
        ("export --to hf --json", 2, "usage"),
    ],
)
def test_under_json_other_commands_say_why_they_have_no_answer(
    invoke: Invoke, fake: FakeApi, typed: str, code: int, kind: str
) -> None:
    fake.error = StoreError("it failed")
    ended = invoke(*typed.split())
    content = json.loads(ended.out)["error"]
    assert (ended.code, content["kind"]) == (code, kind)
    assert f"error: {content['message']}\n" in ended.err


def test_an_interruption_is_json_too(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = Stopped(signal.SIGTERM)
    ended = invoke("inspect", "model.py", "--json")
    assert ended.code == 143
    assert json.loads(ended.out)["error"]["kind"] == "interrupted"


def test_json_of_the_users_own_file_is_theirs(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = NothingFits("it failed")
    assert invoke("search", "model.py", "--", "--json").out == ""


def test_an_unexpected_exception_is_called_a_bug_and_shown_whole(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = ZeroDivisionError("division by zero")
    ended = invoke("search", "model.py")
    assert (ended.code, ended.out) == (1, "")
    assert "this is a bug in autotune: ZeroDivisionError: division by zero" in ended.err
    assert "Traceback (most recent call last):" in ended.err


def test_a_broken_pipe_that_is_not_stdout_is_a_bug_and_not_hidden(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = BrokenPipeError(32, "Broken pipe")
    ended = invoke("search", "model.py")
    assert ended.code == 1
    assert "this is a bug in autotune: BrokenPipeError" in ended.err


def test_message_detail_and_hint_are_shown_in_this_order(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = NothingFits("batch 1 does not fit", detail="weights  9 GiB\nbatch  1 MiB", hint="use a smaller model")
    ended = invoke("search", "model.py", "-q")
    assert ended.err == ("error: batch 1 does not fit\nweights  9 GiB\nbatch  1 MiB\nhint: use a smaller model\n")


def test_text_of_the_user_is_never_markup(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = WorkloadError("[red]boom[/red] [/] :smile:", detail="x[0] = [bold]y[/bold]", hint="[link=x]z[/link]")
    ended = invoke("search", "model.py", "-q")
    assert ended.err == "error: [red]boom[/red] [/] :smile:\nx[0] = [bold]y[/bold]\nhint: [link=x]z[/link]\n"


def test_control_sequences_of_the_user_do_not_reach_the_terminal(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = WorkloadError("\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07 back\x08space")
    ended = invoke("search", "model.py", "-q")
    assert ended.err == "error: red bell backspace\n"


def test_long_lines_are_not_folded(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = WorkloadError("word " * 100)
    ended = invoke("search", "model.py", "-q")
    assert ended.err.count("\n") == 1
