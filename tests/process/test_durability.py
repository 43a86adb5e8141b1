"""The tool is killed, stopped, run twice, out of time: nothing lives on, nothing measured is lost or measured again."""

import os
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Cause, Form, Outcome, Reason, SearchState
from tests.postgres import Server
from tests.process.support import Tool, alive, guardian_of, keys, run, wait_for

SHORT_1, SHORT_2, LONG_2 = (1, Form.SHORT), (2, Form.SHORT), (2, Form.LONG)
WHOLE_SEARCH = [SHORT_1, SHORT_2, LONG_2]


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path, forks=True)


def went_on(tool: Tool, done: subprocess.CompletedProcess[str], search_id: str, before: int) -> None:
    """Check that a run went on with a search without repeating what was finished."""
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    record, probes = tool.search()
    assert (record.id, record.state) == (search_id, SearchState.ANSWERED)
    assert f"going on with search {search_id}: {before} finished probes are used again" in done.stderr
    assert keys(probes) == WHOLE_SEARCH


@pytest.mark.parametrize(
    ("step", "before"),
    [pytest.param(1, [SHORT_1], id="in a forked probe"), pytest.param(5, [SHORT_1, SHORT_2], id="in a spawned probe")],
)
def test_c21_the_tool_killed_in_mid_probe_takes_everything_along_and_goes_on_later(
    tool: Tool, step: int, before: list[tuple[int, Form]]
) -> None:
    tool.forks = step == 1  # what it is killed in, and what goes on: forked and afresh
    tool.hold(2, step)
    with tool.running() as running:
        tool.wait_until_held(running)
        running.kill()
        tool.no_process_left()
    killed, finished = tool.search()
    assert (killed.state, keys(finished)) == (SearchState.INTERRUPTED, before)
    assert "ended without a word" in killed.message
    tool.let_go()
    went_on(tool, tool.run(), killed.id, len(before))
    assert tool.search()[1][: len(before)] == finished
    tool.no_process_left()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_c21_a_search_stopped_in_mid_probe_goes_on_with_the_command_it_names(
    tool: Tool, number: signal.Signals, code: int
) -> None:
    tool.hold(2, 1)
    with tool.running() as running:
        tool.wait_until_held(running)
        os.killpg(running.pid, number)  # as Ctrl-C does: to the whole group of the terminal
        assert running.wait(30) == code
        tool.no_process_left(0.0)
    record, finished = tool.search()
    assert (record.state, keys(finished)) == (SearchState.INTERRUPTED, [SHORT_1])
    assert record.message == f"stopped by {number.name}"
    (command,) = (line for line in tool.stderr.splitlines() if line.startswith("hint: to continue: "))
    argv = shlex.split(command.removeprefix("hint: to continue: "))
    assert argv[:3] == ["python", "-m", "autotune"]
    if number is signal.SIGTERM:  # once is enough
        tool.let_go()
        went_on(tool, run([sys.executable, *argv[1:]], tool.folder, tool.environment), record.id, 1)


def test_c21_a_probe_killed_from_outside_is_tried_again(tool: Tool) -> None:
    tool.hold(2, 1)
    with tool.running() as running:
        (probe,) = tool.wait_until_held(running)
        os.kill(probe, signal.SIGKILL)
        tool.let_go()
        assert running.wait(60) == 0, tool.stderr
        tool.no_process_left(0.0)
    record, probes = tool.search()
    assert keys(probes) == [SHORT_1, SHORT_2, SHORT_2, LONG_2]
    killed, again = probes[1:3]
    assert killed.failure is not None
    assert (killed.outcome, killed.failure.cause, killed.failure.signal) == (Outcome.CRASHED, Cause.SIGNAL, "SIGKILL")
    assert (again.reason, again.outcome) == (Reason.RETRY, Outcome.FITS)
    assert record.answer is not None and record.answer.max_batch == 2


def test_a_guardian_killed_in_mid_probe_is_trouble_that_leaves_nothing_alive_and_goes_on_later(tool: Tool) -> None:
    tool.hold(2, 1)
    with tool.running() as running:
        tool.wait_until_held(running)
        guardian_of(running).kill()
        assert running.wait(30) == 5, tool.stderr
        assert "error: the guardian of the probe processes died\n" in tool.stderr
        assert "hint: run the same command again: finished probes are kept" in tool.stderr
        assert "Traceback" not in tool.stderr
        left = alive(tool.marker)
        assert not any("autotune" in command for command in left.values()), left  # guardian, zygote, probe
        record, finished = tool.search()
        assert (record.state, keys(finished)) == (SearchState.INTERRUPTED, [SHORT_1])
        tool.let_go()
        went_on(tool, tool.run(), record.id, 1)
        tool.no_process_left(0.0)  # what the probe itself had started


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_c35_two_searches_at_once_in_one_ledger_both_finish_with_all_their_probes(
    tool: Tool, where: str, request: pytest.FixtureRequest
) -> None:
    if where == "postgres":
        server: Server = request.getfixturevalue("postgres")
        tool.storage = server.new_url()
    tool.hold(2, 1)
    with tool.running() as first:
        tool.wait_until_held(first)
        with tool.running() as second:
            tool.wait_until_held(second, probes=2)
            tool.let_go()
            assert (first.wait(60), second.wait(60)) == (0, 0)
    newer, older = tool.searches()
    assert f"search {older.id} of the same workload is running elsewhere; this one is separate" in tool.stderr
    for record in (newer, older):
        assert record.state is SearchState.ANSWERED
        assert keys(api.show(record.id, tool.storage)[1]) == WHOLE_SEARCH


def test_a_repeated_command_confirms_with_one_probe_and_another_question_is_searched_anew(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tool.run().returncode == 0
    (first,) = tool.searches()
    again = tool.run()
    assert (again.returncode, again.stdout) == (0, "2\n")
    assert f"search {first.id} answered this before; confirming it with one probe" in again.stderr
    confirmation = tool.searches()[0]
    assert (confirmation.based_on, confirmation.state) == (first.id, SearchState.ANSWERED)
    (probe,) = api.show(confirmation.id, tool.storage)[1]
    assert (probe.batch_size, probe.form, probe.reason) == (2, Form.LONG, Reason.CONFIRM)
    # Whether a search is new is decided before its first probe, so that no time is needed for more.
    other_questions: dict[str, tuple[list[str], str]] = {
        "--fresh": (["--fresh"], ""),
        "an argument": (["--", "other"], "script args none -> other"),
        "the memory limit": (["--memory-limit", "2GiB"], "memory limit 1 GiB -> 2 GiB"),
        "the file": ([], "code of holding.py changed"),
        "the heap": ([], "variable MALLOC_ARENA_MAX none -> "),
    }
    for what, (options, changed) in other_questions.items():
        former = tool.searches()[0].id
        if what == "the file":
            with (tool.folder / "holding.py").open("a") as file:
                file.write("\nWIDER = True\n")
        if what == "the heap":
            monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
        done = tool.run("--time-budget", "0.001", *options)
        assert done.returncode == 124, (what, done.stderr)
        newest = tool.searches()[0]
        assert (newest.based_on, newest.state) == (None, SearchState.INTERRUPTED), what
        assert (newest.key == first.key) == (what == "--fresh"), what
        assert first.id not in done.stderr or former == first.id, what
        anew = [line for line in done.stderr.splitlines() if "changed since" in line]
        assert len(anew) == bool(changed), what
        assert all(line.startswith(f"changed since search {former} of") and changed in line for line in anew), what


def test_a_search_out_of_time_goes_on_when_it_is_given_more(tool: Tool) -> None:
    tool.hold(1, 1)
    budget_s = 5.0
    with tool.running("--time-budget", f"{budget_s:g}") as running:
        tool.wait_until_held(running)
        (begun,) = tool.searches()
        over = begun.created + timedelta(seconds=budget_s)  # the search is older than its record
        wait_for(lambda: datetime.now(UTC) > over, "the end of the time budget")
        tool.let_go()
        assert running.wait(30) == 124, tool.stderr
    assert "error: the time budget of 5 s ended after 1 probe, before an answer" in tool.stderr
    assert f"hint: run the same command again to go on with search {begun.id}" in tool.stderr
    assert tool.search()[0].state is SearchState.INTERRUPTED
    went_on(tool, tool.run("--time-budget", "100"), begun.id, 1)
