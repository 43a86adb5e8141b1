"""Children that hang, die, fork, or write garbage: each is classified, none outlives the search."""

import os
import uuid

import psutil
import pytest

from autotune.errors import EnvironmentTrouble, WorkloadError
from autotune.model import Cause, Form, Outcome
from tests.process.conftest import Search


def processes_with(marker: str) -> list[int]:
    """Processes whose command line holds the marker."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(marker in part for part in process.info["cmdline"] or ()):
            found.append(process.pid)
    return found


@pytest.mark.parametrize(
    ("kind", "cause", "signal"),
    [("segfault", Cause.SIGNAL, "SIGSEGV"), ("abort", Cause.SIGNAL, "SIGABRT"), ("sigkill", Cause.SIGNAL, "SIGKILL")],
)
def test_c19_a_native_death_above_a_size_bounds_the_answer_with_its_own_reason(
    search_forked: Search, kind: str, cause: Cause, signal: str
) -> None:
    result = search_forked(f"native:{kind}", 10)
    assert result.answer.max_batch == 10
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.outcome is Outcome.CRASHED
    assert (result.refutation.failure.cause, result.refutation.failure.signal) == (cause, signal)


def test_c19_a_loss_that_is_silently_not_finite_is_never_recommended(search_forked: Search) -> None:
    result = search_forked("nan", 10)
    assert result.answer.max_batch == 10
    assert result.refutation is not None and result.refutation.outcome is Outcome.UNSTABLE


@pytest.mark.parametrize("kind", ["exit0", "sysexit"])
def test_an_exit_without_an_answer_is_a_failure_whatever_its_code(search_forked: Search, kind: str) -> None:
    result = search_forked(f"native:{kind}", 10)
    assert result.answer.max_batch == 10
    assert all(not p.fits for p in result.probes if p.batch_size > 10)


@pytest.mark.parametrize("kind", ["hang", "hang_hard"])
def test_c20_a_hanging_probe_is_stopped_and_the_search_goes_on_below(search_forked: Search, kind: str) -> None:
    result = search_forked(f"native:{kind}", 3, timeout_s=5.0)
    assert result.answer.max_batch == 3
    hung = [p for p in result.probes if p.batch_size > 3]
    assert hung and all(p.outcome is Outcome.TIMED_OUT for p in hung)
    assert all(p.seconds < 5.0 + 5 for p in hung)
    assert hung[0].failure is not None and hung[0].failure.phase == "forward"


def test_c20_a_file_that_hangs_at_import_is_an_error_that_says_so(search: Search) -> None:
    with pytest.raises(WorkloadError, match=r"did not finish within --timeout 3 s"):
        search("hang_at_import", timeout_s=3.0)


def test_a_file_that_exits_at_import_is_told_plainly(search: Search) -> None:
    with pytest.raises(WorkloadError, match=r"sys\.exit\(3\)"):
        search("exit_at_import")


def test_a_file_that_kills_the_interpreter_at_import_is_an_error(search: Search) -> None:
    with pytest.raises(WorkloadError, match="load"):
        search("die_at_import")


def test_a_process_killed_twice_while_it_loads_says_nothing_of_the_file(search: Search) -> None:
    with pytest.raises(EnvironmentTrouble, match="was not loaded: the probe was killed by SIGKILL") as raised:
        search("killed_at_import")
    assert "kernel log" in raised.value.hint


def test_c21_grandchildren_do_not_outlive_their_probe(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"planted-{uuid.uuid4().hex}"
    monkeypatch.setenv("PLANTED_MARKER", marker)
    result = search("grandchildren", max_batch=2)
    assert result.answer.max_batch == 2
    assert processes_with(marker) == []


def test_garbage_on_every_descriptor_does_not_hide_the_answer(search: Search) -> None:
    result = search("garbage", max_batch=4)
    assert result.answer.max_batch == 4
    assert "garbage" in result.certificate.stdout_tail


@pytest.mark.usefixtures("certified_in_forks")
def test_output_that_looks_like_an_answer_is_only_output(search: Search) -> None:
    result = search("prints", max_batch=2)
    assert result.certificate.measurement.steps_executed == 8


def test_threads_started_at_import_make_probes_spawn_and_it_is_said_once(
    search: Search, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="autotune")
    result = search("threads_at_import", max_batch=2)
    assert {p.launcher for p in result.probes} == {"spawn"}
    assert sum("starts threads" in record.message for record in caplog.records) == 1


def test_probes_are_forked_where_that_is_safe_and_what_certifies_on_the_cpu_starts_afresh_and_nothing_is_left_of_them(
    search: Search,
) -> None:
    before = set(psutil.Process(os.getpid()).children(recursive=True))
    result = search("fine", max_batch=2)
    assert set(psutil.Process(os.getpid()).children(recursive=True)) == before
    assert {(p.form, p.launcher) for p in result.probes} == {(Form.SHORT, "fork"), (Form.LONG, "spawn")}
