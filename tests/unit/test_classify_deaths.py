"""Processes that end without an exception: signals, exit codes, deadlines, and what they left on their error output."""

import signal

import pytest

from autotune.model import Cause, Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from tests.unit.classify_samples import CUDA_OOM, raised, runtime_error

CXX = (
    "terminate called after throwing an instance of '{}'\n  what():  {}\n\nFatal Python error: Aborted\nout of memory\n"
)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("number", "code"), [(9, None), (None, -9), (None, 137)])
def test_c23_a_kill_that_the_kernel_counted_is_host_memory(device: str, number: int | None, code: int | None) -> None:
    facts = Evidence(signal=number, exit_code=code, host_oom_kills=1, device=device, phase=Phase.BACKWARD, step=2)
    outcome, failure = classify(facts)
    assert outcome is (Outcome.OUT_OF_MEMORY if device == "cpu" else Outcome.HOST_OUT_OF_MEMORY)
    assert (failure.cause, failure.confirm, failure.signal) == (Cause.HOST_MEMORY, False, "SIGKILL")
    assert (failure.phase, failure.step, failure.exit_code) == (Phase.BACKWARD, 2, code)


@pytest.mark.parametrize(("number", "code"), [(9, None), (None, -9), (None, 137)])
def test_a_kill_that_nobody_explains_says_nothing_about_the_size(number: int | None, code: int | None) -> None:
    outcome, failure = classify(Evidence(signal=number, exit_code=code, stderr_tail="MemoryError"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.CRASHED, Cause.SIGNAL, True)
    assert failure.signal == "SIGKILL"
    assert not outcome.is_ceiling


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (11, None, "SIGSEGV"),
        (6, None, "SIGABRT"),
        (7, None, "SIGBUS"),
        (4, None, "SIGILL"),
        (8, None, "SIGFPE"),
        (None, -11, "SIGSEGV"),
        (None, 139, "SIGSEGV"),
        (None, 134, "SIGABRT"),
        (None, 135, "SIGBUS"),
    ],
)
def test_c19_a_native_crash_is_a_crash_with_the_name_of_its_signal(
    number: int | None, code: int | None, name: str
) -> None:
    outcome, failure = classify(Evidence(signal=number, exit_code=code, phase=Phase.FORWARD, step=1, host_oom_kills=1))
    assert (outcome, failure.cause, failure.confirm, failure.signal) == (Outcome.CRASHED, Cause.SIGNAL, False, name)
    assert name in failure.message
    assert "forward of step 1" in failure.message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_from_outside_has_to_be_tried_again(number: signal.Signals) -> None:
    outcome, failure = classify(Evidence(signal=number, stderr_tail=CXX.format("std::bad_alloc", "std::bad_alloc")))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.CRASHED, Cause.SIGNAL, True)


def test_a_signal_without_a_name_keeps_its_number() -> None:
    assert classify(Evidence(signal=63))[1].signal == "signal 63"


@pytest.mark.parametrize("code", [0, 1, 2, 3, 128, 255, None])
def test_ending_without_a_result_is_no_answer_whatever_the_exit_code(code: int | None) -> None:
    outcome, failure = classify(Evidence(exit_code=code))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.CRASHED, Cause.NO_ANSWER, False)
    assert (failure.exit_code, failure.signal) == (code, "")
    assert f"exit code {code}" in failure.message


def test_ending_in_failure_while_the_kernel_killed_something_is_probably_host_memory() -> None:
    outcome, failure = classify(Evidence(exit_code=1, host_oom_kills=2, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, True)
    assert classify(Evidence(exit_code=0, host_oom_kills=2, device="cuda"))[1].cause is Cause.NO_ANSWER


@pytest.mark.parametrize("kills", [0, 1])
def test_c20_a_probe_out_of_time_timed_out_however_it_was_ended(kills: int) -> None:
    facts = Evidence(timed_out=True, signal=9, exit_code=-9, phase=Phase.FORWARD, step=3, host_oom_kills=kills)
    outcome, failure = classify(facts)
    assert (outcome, failure.cause, failure.confirm) == (Outcome.TIMED_OUT, Cause.TIMEOUT, False)
    assert "forward of step 3" in failure.message
    assert ("kernel killed" in failure.hint) is bool(kills)


def test_c20_a_hang_before_the_first_mark_has_no_place() -> None:
    assert classify(Evidence(timed_out=True))[1].message == "no answer within the time limit"


@pytest.mark.parametrize(
    "form",
    [
        raised("builtins.KeyboardInterrupt"),
        raised("builtins.SystemExit", "143"),
        runtime_error("DataLoader worker (pid 7) is killed by signal: Terminated. "),
        runtime_error("DataLoader worker (pid(s) 7) exited unexpectedly"),
    ],
)
def test_what_the_deadline_itself_provokes_is_a_time_out(form: Raised) -> None:
    assert classify(Evidence(raised=(form,), timed_out=True))[0] is Outcome.TIMED_OUT


def test_an_error_reported_before_a_hang_at_exit_is_the_reason() -> None:
    facts = Evidence(raised=(runtime_error(CUDA_OOM),), timed_out=True, signal=9, device="cuda")
    assert classify(facts)[0] is Outcome.OUT_OF_MEMORY


def test_an_interrupt_from_outside_says_nothing_about_the_size() -> None:
    outcome, failure = classify(Evidence(raised=(raised("builtins.KeyboardInterrupt"),), phase=Phase.FORWARD))
    assert (outcome, failure.cause, failure.confirm, failure.signal) == (Outcome.CRASHED, Cause.SIGNAL, True, "SIGINT")


def test_ending_the_interpreter_is_the_users_code() -> None:
    outcome, failure = classify(Evidence(raised=(raised("builtins.SystemExit", "1"),), phase=Phase.FORWARD))
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (CXX.format("std::bad_alloc", "std::bad_alloc"), (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, False)),
        (
            "libc++abi: terminating due to uncaught exception of type std::bad_alloc: std::bad_alloc",
            (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, False),
        ),
        (CXX.format("c10::OutOfMemoryError", CUDA_OOM), (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, False)),
        (CXX.format("c10::Error", "CUDA error: out of memory"), (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, False)),
        (
            CXX.format("c10::AcceleratorError", "CUDA error: device-side assert triggered"),
            (Outcome.CRASHED, Cause.CONTEXT_LOST, True),
        ),
        (CXX.format("std::runtime_error", "lost the plot"), (Outcome.CRASHED, Cause.SIGNAL, False)),
        ("terminate called without an active exception\n", (Outcome.CRASHED, Cause.SIGNAL, False)),
        ("warning: the cache is nearly out of memory\n", (Outcome.CRASHED, Cause.SIGNAL, False)),
        ("malloc(): corrupted top size\n", (Outcome.CRASHED, Cause.SIGNAL, False)),
        (
            "memory allocation of 268435456 bytes failed\n",
            (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, False),
        ),
        (
            "host:7:9 [0] include/alloc.h:112 NCCL WARN Failed to CUDA calloc 6291456 bytes\n",
            (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, True),
        ),
        (
            "host:7:9 [0] NCCL WARN Cuda failure 2 'out of memory'\n",
            (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, True),
        ),
        (
            "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1024 (0)MB\n",
            (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, True),
        ),
        ("Memory access fault by GPU node-1 on address 0x7f\n", (Outcome.CRASHED, Cause.CONTEXT_LOST, True)),
        (
            "ERROR: Unexpected bus error encountered in worker. Probably caused by insufficient shared memory (shm).\n",
            (Outcome.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY, False),
        ),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_the_error_output_of_an_aborted_process_explains_it_or_does_not(
    tail: str, expected: tuple[Outcome, Cause, bool]
) -> None:
    outcome, failure = classify(Evidence(signal=signal.SIGABRT, stderr_tail=tail, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == expected
    assert failure.signal == "SIGABRT"


def test_the_message_of_an_abort_quotes_what_it_was_called_for() -> None:
    failure = classify(Evidence(signal=6, stderr_tail=CXX.format("std::runtime_error", "lost the plot")))[1]
    assert failure.message == "the probe was killed by SIGABRT: std::runtime_error: lost the plot"


def test_the_error_output_is_not_consulted_where_there_is_an_exception() -> None:
    facts = Evidence(
        raised=(raised("builtins.ValueError", "odd"),), phase=Phase.FORWARD, stderr_tail="std::bad_alloc", exit_code=1
    )
    assert classify(facts)[0] is Outcome.WORKLOAD_ERROR


def test_threads_that_cannot_start_under_a_full_limit_are_host_memory() -> None:
    tail = "\nlibgomp: Thread creation failed: Resource temporarily unavailable\n"
    outcome, failure = classify(Evidence(exit_code=1, stderr_tail=tail, device="cpu", free_bytes=1, cap_bytes=1 << 31))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, True)
    outcome, failure = classify(Evidence(exit_code=1, stderr_tail=tail, device="cpu"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.CRASHED, Cause.MASKED_MEMORY, True)
    assert failure.message == "libgomp: Thread creation failed: Resource temporarily unavailable"


@pytest.mark.parametrize(
    ("last", "code", "expected"),
    [
        ("MemoryError", 1, (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, True)),
        ("MemoryError", 0, (Outcome.CRASHED, Cause.NO_ANSWER, False)),
        ("ValueError: out of memory", 1, (Outcome.CRASHED, Cause.NO_ANSWER, False)),
    ],
)
def test_a_traceback_on_the_error_output_counts_for_memory_but_has_to_be_confirmed(
    last: str, code: int, expected: tuple[Outcome, Cause, bool]
) -> None:
    tail = f'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n{last}\n'
    outcome, failure = classify(Evidence(exit_code=code, stderr_tail=tail))
    assert (outcome, failure.cause, failure.confirm) == expected


def test_an_absurd_request_on_the_error_output_needs_no_confirmation() -> None:
    tail = "host:7:9 [0] include/alloc.h:112 NCCL WARN Failed to CUDA calloc 1152921504606846976 bytes\n"
    outcome, failure = classify(Evidence(exit_code=1, stderr_tail=tail, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, False)
