"""The error that decides is found wherever it hides: in causes, groups and quotations; words and figures are kept."""

import pytest

from autotune.model import Cause, Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from autotune.units import GIB
from tests.unit.classify_samples import CPU_OOM, CUDA_OOM, raised, runtime_error

OOM = raised("torch.OutOfMemoryError", CUDA_OOM)
GROUP = raised("builtins.ExceptionGroup", "unhandled errors in a TaskGroup (2 sub-exceptions)")
POISON = runtime_error("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize(
    "outer",
    [
        runtime_error("training step failed"),
        raised("builtins.KeyError", "'loss'"),
        raised("builtins.ValueError", "bad batch"),
        raised("builtins.AssertionError", "unreachable"),
        GROUP,
        runtime_error("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED"),
        runtime_error("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        runtime_error("Storage size calculation overflowed"),
        raised("triton.runtime.errors.OutOfResources", "out of resource: shared memory"),
        raised("builtins.NotImplementedError", "\"x\" not implemented for 'Half'"),
        POISON,
    ],
    ids=lambda outer: outer.text[:30],
)
def test_c14_memory_within_the_chain_decides_over_what_was_raised_from_it(outer: Raised) -> None:
    outcome, failure = classify(Evidence(raised=(outer, OOM), device="cuda", free_bytes=60 * GIB))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, False)
    assert failure.error_type == "torch.OutOfMemoryError"
    assert failure.message.startswith("CUDA out of memory. Tried to allocate 2.50 GiB.")


def test_memory_decides_over_what_it_was_raised_from() -> None:
    assert (
        classify(Evidence(raised=(OOM, raised("builtins.ValueError", "x")), device="cuda"))[0] is Outcome.OUT_OF_MEMORY
    )


def test_a_kernel_without_resources_explains_least() -> None:
    resources = raised("triton.runtime.errors.OutOfResources", "out of resource: shared memory")
    limit = runtime_error("Storage size calculation overflowed with sizes=[9]")
    for chain in ((resources, limit), (limit, resources)):
        assert classify(Evidence(raised=chain, phase=Phase.FORWARD, device="cuda"))[0] is Outcome.SIZE_LIMIT


def test_a_context_lost_before_memory_ran_out_is_what_happened() -> None:
    assert classify(Evidence(raised=(OOM, POISON), device="cuda"))[1].cause is Cause.CONTEXT_LOST


def test_c14_memory_within_a_group_decides_over_the_other_members() -> None:
    members = (GROUP, raised("builtins.ValueError", "x"), OOM, raised("builtins.KeyError", "'y'"))
    assert classify(Evidence(raised=members, device="cuda"))[0] is Outcome.OUT_OF_MEMORY


def test_a_group_speaks_through_its_first_member() -> None:
    outcome, failure = classify(
        Evidence(raised=(GROUP, raised("builtins.ValueError", "odd batch")), phase=Phase.FORWARD)
    )
    assert (outcome, failure.cause, failure.message) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, "odd batch")


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("builtins.NameError", "builtins.AssertionError"), Cause.USER_CODE),
        (("builtins.ValueError", "builtins.KeyError"), Cause.USER_CODE),
        (("builtins.AttributeError", "builtins.KeyError"), Cause.USER_BUG),
    ],
)
def test_only_a_chain_of_bugs_alone_is_a_bug(types: tuple[str, ...], expected: Cause) -> None:
    chain = tuple(raised(name, "x") for name in types)
    assert classify(Evidence(raised=chain, phase=Phase.FORWARD))[1].cause is expected


def _quoting(last_lines: str, *, head: str = "Caught {} in replica 0 on device 0.\nOriginal ") -> str:
    return (
        f"{head}Traceback (most recent call last):\n"
        '  File "model.py", line 7, in forward\n'
        '    raise ValueError("CUDA out of memory")\n'
        f"{last_lines}\n"
    )


def test_an_error_raised_again_from_a_replica_keeps_type_words_and_figures() -> None:
    text = _quoting(f"torch.OutOfMemoryError: {CUDA_OOM}")
    outcome, failure = classify(Evidence(raised=(raised("torch.OutOfMemoryError", text),), device="cuda"))
    assert outcome is Outcome.OUT_OF_MEMORY
    assert failure.message.startswith("CUDA out of memory.")
    assert failure.requested_bytes == 2_684_354_560


def test_source_lines_in_a_quoted_traceback_are_not_words_of_the_error() -> None:
    text = _quoting(
        "RuntimeError: shapes do not match", head="Caught RuntimeError in DataLoader worker process 0.\nOriginal "
    )
    outcome, failure = classify(Evidence(raised=(runtime_error(text),), phase=Phase.DATA, device="cuda"))
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE)
    assert failure.message == "shapes do not match"


def test_a_quoted_memory_error_counts_under_whatever_type_it_is_reported() -> None:
    text = _quoting("MemoryError", head="worker failed:\n")
    outcome, failure = classify(Evidence(raised=(raised("builtins.Exception", text),), device="cuda"))
    assert (outcome, failure.cause) == (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY)
    assert failure.error_type == "builtins.MemoryError"


def test_a_spawned_process_is_judged_by_the_error_it_raised() -> None:
    text = _quoting(f"RuntimeError: {CPU_OOM}", head="\n\n-- Process 1 terminated with the following error:\n")
    spawned = raised("torch.multiprocessing.spawn.ProcessRaisedException", text)
    outcome, failure = classify(Evidence(raised=(spawned,), device="cpu"))
    assert (outcome, failure.error_type) == (Outcome.OUT_OF_MEMORY, "builtins.RuntimeError")


def test_a_spawned_process_with_a_bug_has_that_bug() -> None:
    text = _quoting(
        "NameError: name 'x' is not defined", head="\n\n-- Process 1 terminated with the following error:\n"
    )
    spawned = raised("torch.multiprocessing.spawn.ProcessRaisedException", text)
    assert classify(Evidence(raised=(spawned,), phase=Phase.FORWARD))[1].cause is Cause.USER_BUG


ELASTIC = """
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 42)
  traceback : Signal 6 (SIGABRT) received by PID 42
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 41)
  error_file: /tmp/e.json
  traceback : {}
============================================================"""
QUOTED = """Traceback (most recent call last):
    File "train.py", line 3, in main
      step()
  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."""


@pytest.mark.parametrize(
    ("traceback", "kills", "expected"),
    [
        (QUOTED, 0, (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, False)),
        ("Signal 9 (SIGKILL) received by PID 41", 0, (Outcome.CRASHED, Cause.SIGNAL, True)),
        ("Signal 9 (SIGKILL) received by PID 41", 1, (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, False)),
        ("Signal 11 (SIGSEGV) received by PID 41", 0, (Outcome.CRASHED, Cause.SIGNAL, False)),
        ("To enable traceback see: https://pytorch.org", 0, (Outcome.CRASHED, Cause.NO_ANSWER, False)),
    ],
)
def test_a_failed_launch_is_judged_by_the_rank_that_failed_first(
    traceback: str, kills: int, expected: tuple[Outcome, Cause, bool]
) -> None:
    failed = raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", ELASTIC.format(traceback))
    outcome, failure = classify(Evidence(raised=(failed,), device="cuda", host_oom_kills=kills))
    assert (outcome, failure.cause, failure.confirm) == expected
    if traceback is QUOTED:
        assert failure.message == "CUDA out of memory. Tried to allocate 1.00 GiB."


def test_a_spawned_process_that_was_killed_counts_as_killed() -> None:
    gone = raised("torch.multiprocessing.spawn.ProcessExitedException", "process 0 terminated with signal SIGSEGV")
    outcome, failure = classify(Evidence(raised=(gone,), device="cuda"))
    assert (outcome, failure.cause, failure.signal) == (Outcome.CRASHED, Cause.SIGNAL, "SIGSEGV")


@pytest.mark.parametrize(
    "form", [raised("builtins.EOFError", ""), raised("builtins.BrokenPipeError", "[Errno 32] Broken pipe", errno=32)]
)
def test_lost_contact_is_host_memory_only_if_the_kernel_counted_a_kill(form: Raised) -> None:
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.DATA, device="cuda", host_oom_kills=1))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, True)
    assert classify(Evidence(raised=(form,), phase=Phase.DATA, device="cuda"))[1].cause is Cause.USER_CODE


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        (CUDA_OOM, 2_684_354_560),
        (CPU_OOM, 419_430_400),
        (
            "MPS backend out of memory (MPS allocated: 17.36 GB). Tried to allocate 192.00 MB on private pool.",
            192 << 20,
        ),
        ("XPU out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.91 GiB", 20 << 20),
        ("HIP out of memory. Tried to allocate 512 bytes.", 512),
        ("CUDA out of memory. Tried to allocate 4.07 KiB", 4168),
        ("would exceed allowed memory. (out of memory)\nRequested               : 4.50 GiB", 9 << 29),
        ("RESOURCE_EXHAUSTED: Attempting to reserve 5.50G at the bottom of memory.", 11 << 29),
        ("Failed to CUDA calloc 10485760 bytes", 10 << 20),
        ("PT_DEVMEM Allocation failed for size::1073741824 (1024)MB", GIB),
        ("Invalid buffer size: 12.50 GB", 25 << 29),
        ("Out of memory allocating 1,048,576 bytes (allocated so far: 0 bytes).", 1 << 20),
        ("CUDA error: out of memory", None),
        ("CUDA out of memory. Tried to allocate " + "9" * 5000 + " bytes", None),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_the_failed_request_is_read_from_every_form(text: str, requested: int | None) -> None:
    assert classify(Evidence(raised=(runtime_error(text),), device="cuda"))[1].requested_bytes == requested


def test_free_memory_comes_from_the_device_or_else_from_the_text() -> None:
    assert classify(Evidence(raised=(OOM,), device="cuda"))[1].free_bytes == round(1.2 * GIB)
    assert classify(Evidence(raised=(OOM,), device="cuda", free_bytes=7))[1].free_bytes == 7


@pytest.mark.parametrize(
    ("unallocated", "fragmented"),
    [("120.54 MiB", False), ("2.00 GiB", False), ("2.50 GiB", True), ("30.00 GiB", True)],
)
def test_c27_fragmentation_is_named_only_where_the_request_would_have_fitted(
    unallocated: str, fragmented: bool
) -> None:
    text = CUDA_OOM.replace("120.54 MiB", unallocated)
    hint = classify(Evidence(raised=(runtime_error(text),), device="cuda", capacity_bytes=80 * GIB))[1].hint
    assert ("fragmented" in hint) is fragmented


def test_a_small_request_does_not_turn_little_slack_into_fragmentation() -> None:
    text = CUDA_OOM.replace("2.50 GiB", "20.00 MiB")
    hint = classify(Evidence(raised=(runtime_error(text),), device="cuda", capacity_bytes=80 * GIB))[1].hint
    assert hint == "use a smaller batch"


def test_graphs_that_hold_the_memory_are_named() -> None:
    text = CUDA_OOM.replace(
        "allocated by PyTorch, and",
        "allocated by PyTorch, with 9.00 GiB allocated in private pools (e.g., CUDA Graphs), and",
    )
    assert "9 GiB in private pools" in classify(Evidence(raised=(runtime_error(text),), device="cuda"))[1].hint


@pytest.mark.parametrize(
    ("phase", "word"),
    [(Phase.BUILD, "model alone"), (Phase.EVALUATE, "evaluation"), (Phase.OPTIMIZER, "smaller batch")],
)
def test_the_advice_on_memory_depends_on_where_it_ran_out(phase: Phase, word: str) -> None:
    outcome, failure = classify(Evidence(raised=(OOM,), phase=phase, step=2, device="cuda"))
    assert outcome is Outcome.OUT_OF_MEMORY
    assert word in failure.hint


def test_the_message_is_short_and_the_traceback_whole() -> None:
    text = "CUDA out of memory.\n\n  " + "x" * 1000
    failure = classify(Evidence(raised=(runtime_error(text),), traceback="Traceback …"))[1]
    assert failure.message.startswith("CUDA out of memory.\nxxx")
    assert len(failure.message) == 300
    assert failure.traceback == "Traceback …"


def test_an_error_without_words_is_called_by_its_type() -> None:
    assert classify(Evidence(raised=(raised("builtins.MemoryError"),)))[1].message == "MemoryError"


def test_every_error_of_a_printed_chain_is_read() -> None:
    text = (
        "worker failed:\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n    g()\n        ^^^\n'
        f"torch.OutOfMemoryError: {CUDA_OOM}\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in h\n    f()\n'
        "KeyError: 'loss'\n"
    )
    outcome, failure = classify(Evidence(raised=(runtime_error(text),), device="cuda"))
    assert outcome is Outcome.OUT_OF_MEMORY
    assert failure.message.startswith("CUDA out of memory.")
    assert "KeyError" not in failure.message


@pytest.mark.parametrize("frames", ["", "  File\n", "no frame\n", "  File\n12 is no error line\n"])
def test_a_torn_traceback_is_only_text(frames: str) -> None:
    form = runtime_error(f"failed: Traceback (most recent call last):\n{frames}")
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.FORWARD))
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE)
    assert failure.message.startswith("failed: ")


def test_a_printed_chain_speaks_through_its_last_error() -> None:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    text = f"\n\n-- Process 1 terminated with the following error:\n{frames}KeyError: 'x'\n{frames}ValueError: odd\n"
    spawned = raised("torch.multiprocessing.spawn.ProcessRaisedException", text)
    outcome, failure = classify(Evidence(raised=(spawned,), phase=Phase.FORWARD))
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE)
    assert (failure.error_type, failure.message) == ("builtins.ValueError", "odd")


def test_a_printed_error_ends_where_the_next_traceback_begins() -> None:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    text = f"worker failed:\n{frames}MemoryError: no room\n{frames}ValueError: odd\n"
    assert classify(Evidence(raised=(runtime_error(text),)))[1].message == "no room"
