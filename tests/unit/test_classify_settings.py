"""Settings that cannot be applied or compiled are unsupported; memory that runs out meanwhile stays out of memory."""

from collections.abc import Callable

import pytest

from autotune.apply import Unsupported
from autotune.model import Cause, Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from autotune.probe.raised import chain
from autotune.units import GIB
from tests.unit.classify_samples import CPU_OOM, CUDA_OOM, raised, runtime_error

DYNAMO = ("torch._dynamo.exc.TorchDynamoException", "builtins.RuntimeError", "builtins.Exception")
WRAPPER = ("torch._dynamo.exc.BackendCompilerFailed", "torch._dynamo.exc.ShortenTraceback", *DYNAMO)


def inductor(text: str) -> Raised:
    """As of torch 2.13."""
    name = "torch._inductor.exc.InductorError"
    return Raised(type=name, bases=(name, *WRAPPER), text=text)


def dynamo(text: str) -> Raised:
    """As of torch 2.6."""
    return Raised(type=WRAPPER[0], bases=WRAPPER, text=f"backend='inductor' raised:\n{text}")


def internal(text: str) -> Raised:
    name = "torch._dynamo.exc.InternalTorchDynamoError"
    return Raised(type=name, bases=(name, *DYNAMO), text=text)


def of_inductor(name: str, text: str, base: str = "builtins.RuntimeError") -> Raised:
    qualified = f"torch._inductor.exc.{name}"
    return Raised(type=qualified, bases=(qualified, base, "builtins.Exception"), text=text)


NO_COMPILER = of_inductor(
    "InvalidCxxCompiler", "No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')"
)
NO_TRITON = of_inductor(
    "TritonMissing",
    "Cannot find a working triton installation. Either the package is not installed or it is too old.",
    "torch._dynamo.exc.TorchDynamoException",
)
STARVED = of_inductor(
    "CppCompileError",
    "C++ compile error\n\nCommand:\ng++ x.cpp\n\nOutput:\nvirtual memory exhausted: Cannot allocate memory",
)
RESOURCES = raised("triton.runtime.errors.OutOfResources", "out of resource: shared memory, Required: 147456")
LAUNCHER = raised(
    "subprocess.CalledProcessError",
    "Command '['/usr/bin/gcc', 'main.c', '-I/x/triton/backends/nvidia/include']' returned non-zero exit status 1.",
)

NOT_COMPILED: dict[str, tuple[Raised, ...]] = {
    "no C++ compiler": (inductor(f"InvalidCxxCompiler: {NO_COMPILER.text}"), NO_COMPILER),
    "no C++ compiler, 2.6": (dynamo(f"RuntimeError: {NO_COMPILER.text}"), runtime_error(NO_COMPILER.text)),
    "no Triton": (NO_TRITON,),
    "a compiler without memory": (inductor(f"CppCompileError: {STARVED.text}"), STARVED),
    "a compiler without memory, told by the wrapper alone": (inductor(f"CppCompileError: {STARVED.text}"),),
    "no C compiler for Triton": (
        runtime_error("Failed to find C compiler. Please specify via CC environment variable"),
    ),
    "no Python headers for Triton": (LAUNCHER,),
    "a bug of the compiler": (
        internal("AttributeError: 'NoneType' object has no attribute 'x'"),
        raised("builtins.AttributeError"),
    ),
    "an assertion in it": (inductor("AssertionError: "), raised("builtins.AssertionError")),
    "a shape that only tracing minds": (
        Raised(type="torch._dynamo.exc.TorchRuntimeError", bases=DYNAMO, text="Dynamo failed to run FX node"),
    ),
    "a kernel of the compiler's without resources": (inductor("OutOfResources: out of resource"), RESOURCES),
    "a graph that writes over a result": (
        runtime_error("Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run."),
    ),
}


@pytest.mark.parametrize("case", NOT_COMPILED)
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD, Phase.BUILD])
def test_c31_what_cannot_be_compiled_is_unsupported(case: str, phase: Phase) -> None:
    outcome, failure = classify(Evidence(raised=NOT_COMPILED[case], phase=phase, step=1, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED, False)
    assert "compile" in failure.hint


def test_c31_the_innermost_error_of_the_compiler_is_told() -> None:
    failure = classify(Evidence(raised=NOT_COMPILED["no C++ compiler"]))[1]
    assert failure.error_type == "torch._inductor.exc.InvalidCxxCompiler"
    assert failure.message.startswith("No working C++ compiler found")


@pytest.mark.parametrize("wrap", [inductor, dynamo, internal])
@pytest.mark.parametrize("with_cause", [True, False])
@pytest.mark.parametrize(
    ("inner", "device"),
    [
        (raised("torch.OutOfMemoryError", CUDA_OOM), "cuda"),
        (runtime_error("CUDA error: out of memory"), "cuda"),
        (runtime_error(CPU_OOM), "cpu"),
    ],
    ids=["allocator", "runtime", "cpu"],
)
def test_memory_that_runs_out_while_compiling_is_out_of_memory(
    wrap: Callable[[str], Raised], with_cause: bool, inner: Raised, device: str
) -> None:
    outer = wrap(f"OutOfMemoryError: {inner.text}")
    chain_ = (outer, inner) if with_cause else (outer,)
    outcome, _ = classify(Evidence(raised=chain_, phase=Phase.FORWARD, device=device, free_bytes=GIB // 100))
    assert outcome is Outcome.OUT_OF_MEMORY


def test_a_size_that_the_compiler_cannot_index_is_a_limit_of_size() -> None:
    chain_ = (inductor("RuntimeError: ..."), runtime_error("Expected canUse32BitIndexMath(input) to be true"))
    assert classify(Evidence(raised=chain_, phase=Phase.FORWARD, device="cuda"))[0] is Outcome.SIZE_LIMIT


def test_a_kernel_without_resources_is_the_users_unless_the_compiler_runs_it() -> None:
    frames = 'File "/x/torch/_inductor/runtime/triton_heuristics.py", line 1, in run'
    for traceback, expected in (("", Outcome.WORKLOAD_ERROR), (frames, Outcome.UNSUPPORTED)):
        evidence = Evidence(raised=(RESOURCES,), phase=Phase.FORWARD, device="cuda", traceback=traceback)
        assert classify(evidence)[0] is expected


def test_a_users_error_of_the_same_name_is_the_users() -> None:
    outcome, _ = classify(Evidence(raised=(raised("model.Unsupported", "not for this batch"),), phase=Phase.FORWARD))
    assert outcome is Outcome.WORKLOAD_ERROR


@pytest.mark.parametrize("phase", [Phase.BUILD, Phase.FORWARD, Phase.OPTIMIZER, Phase.DATA])
def test_settings_that_cannot_be_applied_are_unsupported_in_the_words_of_the_error(phase: Phase) -> None:
    try:
        try:
            raise RuntimeError("mat1 and mat2 must have the same dtype")
        except RuntimeError as error:
            raise Unsupported("an operation refuses what bf16 autocast hands it: out of memory or not") from error
    except Unsupported as error:
        links = tuple(Raised(**link) for link in chain(error))  # type: ignore[arg-type]
    outcome, failure = classify(Evidence(raised=links, phase=phase, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED, False)
    assert failure.message.startswith("an operation refuses what bf16 autocast hands it")
    assert failure.hint


def test_a_block_that_does_something_else_the_second_time_is_unsupported() -> None:
    text = (
        "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation."
    )
    form = raised("torch.utils.checkpoint.CheckpointError", text)
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.BACKWARD))
    assert (outcome, failure.cause) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED)
    assert "checkpointing" in failure.hint
