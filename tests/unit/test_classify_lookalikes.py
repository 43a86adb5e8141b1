"""What only sounds like memory is not memory, and what users break themselves is theirs."""

import errno

import pytest

from autotune.model import Cause, Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from autotune.units import GIB
from tests.unit.classify_samples import CPU_OOM, CUDA_OOM, raised, runtime_error

LOOKALIKES = [
    raised(
        "triton.runtime.errors.OutOfResources",
        "out of resource: shared memory, Required: 262144, Hardware limit: 232448.",
    ),
    runtime_error("No valid triton configs. OutOfResources: out of resource: registers, Required: 300"),
    runtime_error("mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)"),
    runtime_error("The size of tensor a (31) must match the size of tensor b (32) at non-singleton dimension 0"),
    raised("builtins.ValueError", "dataset ran out of memory cells"),
    raised("builtins.ValueError", "Expected more than 1 value per channel when training, got input size [1, 8]"),
    raised("builtins.AssertionError", "memory bank must be even, got 37: CUDA out of memory budget"),
    raised("builtins.AssertionError", "CUDA out of memory"),
    raised("builtins.IndexError", "index 9 is out of range of the memory"),
    raised("builtins.Exception", "out of memory"),
    raised("builtins.RecursionError", "maximum recursion depth exceeded while handling out of memory"),
    runtime_error("element 0 of tensors does not require grad and does not have a grad_fn"),
    raised("builtins.OSError", "[Errno 28] No space left on device: '/home/me/log'", errno=errno.ENOSPC),
    raised("builtins.OSError", "ran out of memory slots", errno=errno.EIO),
    runtime_error("the memory of this network has 12 cells"),
    runtime_error(""),
]


@pytest.mark.parametrize("form", LOOKALIKES, ids=lambda form: form.text[:45] or form.type)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_c14_a_lookalike_is_an_error_of_the_workload(form: Raised, device: str) -> None:
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.FORWARD, device=device, free_bytes=0))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, False)
    assert failure.hint


BUGS = [
    raised("builtins.NameError", "name 'x' is not defined"),
    raised("builtins.UnboundLocalError", "cannot access local variable 'x'"),
    raised("builtins.AttributeError", "'Net' object has no attribute 'out of memory'"),
    raised("builtins.ImportError", "cannot import name 'x'"),
    raised("builtins.ModuleNotFoundError", "No module named 'x'"),
    raised("builtins.SyntaxError", "invalid syntax"),
    raised("builtins.TypeError", "forward() takes 2 positional arguments but 3 were given"),
    raised("builtins.NotImplementedError", "out of memory handling is not implemented"),
    raised("builtins.KeyError", "'labels'"),
    raised("builtins.FileNotFoundError", "[Errno 2] No such file or directory: 'data.csv'", errno=errno.ENOENT),
]


@pytest.mark.parametrize("form", BUGS, ids=lambda form: form.type)
def test_types_that_cannot_depend_on_the_size_are_bugs(form: Raised) -> None:
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.FORWARD))
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_BUG)


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.BUILD])
@pytest.mark.parametrize(
    "text", ["shapes do not fit", "Storage size calculation overflowed with sizes=[9]", "out of resource: registers"]
)
def test_what_fails_while_the_model_is_made_is_a_bug_whatever_the_size(phase: Phase, text: str) -> None:
    outcome, failure = classify(Evidence(raised=(runtime_error(text),), phase=phase))
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_BUG)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CUDA_OOM, Outcome.OUT_OF_MEMORY),
        (CPU_OOM, Outcome.HOST_OUT_OF_MEMORY),
        ("No CUDA GPUs are available", Outcome.UNSUPPORTED),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", Outcome.CRASHED),
        ("CUDA error: device-side assert triggered", Outcome.CRASHED),
    ],
)
def test_memory_and_machine_stay_what_they_are_while_the_model_is_made(text: str, expected: Outcome) -> None:
    assert classify(Evidence(raised=(runtime_error(text),), phase=Phase.BUILD, device="cuda"))[0] is expected


def test_c15_an_assertion_on_the_batch_size_is_a_matter_of_legal_sizes() -> None:
    outcome, failure = classify(
        Evidence(raised=(raised("builtins.AssertionError", "batch size must be even"),), phase=Phase.FORWARD)
    )
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE)
    assert not outcome.is_ceiling
    assert "--multiple-of" in failure.hint


def test_c18_an_index_out_of_range_keeps_its_words_and_points_at_the_rows() -> None:
    outcome, failure = classify(
        Evidence(raised=(raised("builtins.IndexError", "index out of range in self"),), phase=Phase.FORWARD, step=1)
    )
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE)
    assert failure.message == "index out of range in self"
    assert failure.phase is Phase.FORWARD
    assert "rows" in failure.hint


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("CUDA out of memory. Tried to allocate 130206.04 GiB. GPU 0 has a total capacity of 23.56 GiB", "cuda"),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", "cuda"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000000 bytes.", "cpu"),
    ],
)
def test_a_request_no_machine_could_satisfy_is_a_bug(text: str, device: str) -> None:
    facts = Evidence(raised=(runtime_error(text),), phase=Phase.FORWARD, device=device, capacity_bytes=24 * GIB)
    outcome, failure = classify(facts)
    assert (outcome, failure.cause, failure.confirm) == (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, False)
    assert failure.requested_bytes is not None


def test_a_request_of_a_hundred_devices_is_still_a_need_and_one_more_byte_is_not() -> None:
    def outcome_of(requested: int) -> Outcome:
        form = runtime_error(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {requested} bytes.")
        return classify(Evidence(raised=(form,), phase=Phase.FORWARD, capacity_bytes=GIB))[0]

    assert outcome_of(100 * GIB) is Outcome.OUT_OF_MEMORY
    assert outcome_of(100 * GIB + 1) is Outcome.WORKLOAD_ERROR


def test_a_request_to_the_host_is_not_measured_by_a_small_device() -> None:
    form = raised("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 300. GiB for an array")
    assert classify(Evidence(raised=(form,), device="cuda", capacity_bytes=2 * GIB))[0] is Outcome.HOST_OUT_OF_MEMORY


def test_an_absurd_request_while_building_is_a_bug_of_the_model() -> None:
    form = raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate more than 1EB memory.")
    assert classify(Evidence(raised=(form,), phase=Phase.BUILD, device="cuda"))[1].cause is Cause.USER_BUG


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.BUILD])
@pytest.mark.parametrize(
    "form",
    [
        raised("builtins.AssertionError", "Torch not compiled with CUDA enabled"),
        runtime_error("Found no NVIDIA driver on your system."),
    ],
)
def test_a_model_that_moves_itself_is_told_to_stay_on_the_cpu(form: Raised, phase: Phase) -> None:
    hint = classify(Evidence(raised=(form,), phase=phase, device="cpu"))[1].hint
    assert hint == "return the model on the CPU: autotune moves it to the device"
    assert "nvidia-smi" in classify(Evidence(raised=(form,), phase=Phase.FORWARD, device="cpu"))[1].hint
    assert "nvidia-smi" in classify(Evidence(raised=(form,), phase=phase, device="cuda"))[1].hint


@pytest.mark.parametrize("kind", ["ImportError", "OSError"])
def test_a_library_on_a_mount_that_forbids_running_it_is_not_memory(kind: str) -> None:
    form = raised(f"builtins.{kind}", "lib.so: failed to map segment from shared object: Operation not permitted")
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.FORWARD))
    assert (outcome, failure.cause) == (Outcome.UNSUPPORTED, Cause.ENVIRONMENT)
    assert "noexec" in failure.hint
