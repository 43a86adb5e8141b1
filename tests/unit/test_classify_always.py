"""Whatever the evidence: a verdict, never an exception, never ``fits``; and every verdict can be had."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.model import Cause, Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from autotune.probe.signatures import NATIVE, NEVER_MEMORY, SIZE_OR_MEMORY
from tests.unit.classify_samples import CPU_OOM, CUDA_OOM, raised, runtime_error

KNOWN = sorted({text for table in (NEVER_MEMORY, SIZE_OR_MEMORY, NATIVE) for row in table for text in row.texts})
PIECES = st.sampled_from(
    [
        *KNOWN,
        "Traceback (most recent call last):\n",
        '  File "a.py", line 1\n',
        "RuntimeError: ",
        "MemoryError\n",
        "terminate called after throwing an instance of 'x'",
        "  what():  ",
        "Root Cause",
        "Signal 9 (SIGFOO) received by PID 1",
        "terminated with signal SIGKILL",
        "Tried to allocate ",
        "9,9.9 EiB",
        "\n",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=8).map("".join))
TYPES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "builtins.RuntimeError",
            "torch.OutOfMemoryError",
            "builtins.MemoryError",
            "builtins.KeyboardInterrupt",
            "builtins.KeyError",
            "builtins.ExceptionGroup",
            "x.ChildFailedError",
            "x.ProcessExitedException",
            "builtins.EOFError",
        ]
    ),
)
NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63))
SMALL = st.one_of(st.none(), st.integers(-300, 300))
EXCEPTIONS = st.builds(
    lambda name, base, text, number: Raised(type=name, bases=(name, base), text=text, errno=number),
    TYPES,
    TYPES,
    TEXTS,
    st.one_of(st.none(), st.integers(0, 140)),
)
EVIDENCE = st.builds(
    Evidence,
    raised=st.lists(EXCEPTIONS, max_size=4).map(tuple),
    exit_code=SMALL,
    signal=SMALL,
    timed_out=st.booleans(),
    phase=st.one_of(st.none(), st.sampled_from(Phase)),
    step=SMALL,
    device=st.sampled_from(["cpu", "cuda", "mps"]),
    free_bytes=NUMBERS,
    capacity_bytes=NUMBERS,
    allocated_bytes=NUMBERS,
    cap_bytes=NUMBERS,
    host_oom_kills=st.integers(0, 3),
    stderr_tail=TEXTS,
    traceback=st.text(max_size=5),
)
# The machine may be slow and busy, and a failure must come back in the next run.
steadily = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
JUDGED_ELSEWHERE = {Outcome.FITS, Outcome.UNSAFE, Outcome.UNSTABLE}


@steadily
@given(EVIDENCE)
def test_any_evidence_has_a_verdict_that_explains_itself(evidence: Evidence) -> None:
    outcome, failure = classify(evidence)
    assert outcome not in JUDGED_ELSEWHERE
    assert failure.message
    assert failure.hint
    assert "\n" not in failure.hint
    assert (failure.phase, failure.step) == (evidence.phase, evidence.step)


@steadily
@given(TEXTS, st.sampled_from(["builtins.ValueError", "builtins.AssertionError", "model.Error"]))
def test_no_text_makes_memory_of_a_type_that_does_not_carry_it(text: str, name: str) -> None:
    form = raised(name, text.replace("Traceback", "trace"))
    outcome, _ = classify(Evidence(raised=(form,), phase=Phase.FORWARD, device="cuda"))
    assert outcome not in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


def test_every_cause_the_classifier_knows_can_be_had() -> None:
    had = {
        classify(evidence)[1].cause
        for evidence in (
            Evidence(raised=(runtime_error(CUDA_OOM),)),
            Evidence(raised=(runtime_error(CPU_OOM),)),
            Evidence(raised=(runtime_error("unable to allocate shared memory(shm)"),)),
            Evidence(raised=(runtime_error("CUDA driver error: device not ready"),)),
            Evidence(raised=(runtime_error("CUDNN_STATUS_INTERNAL_ERROR"),)),
            Evidence(raised=(runtime_error("integer out of range"),)),
            Evidence(raised=(runtime_error("unspecified launch failure"),)),
            Evidence(raised=(runtime_error("No CUDA GPUs are available"),)),
            Evidence(raised=(runtime_error("not implemented for 'Half'"),)),
            Evidence(raised=(runtime_error("shapes"),)),
            Evidence(raised=(raised("builtins.NameError"),)),
            Evidence(signal=11),
            Evidence(exit_code=0),
            Evidence(timed_out=True),
        )
    }
    judged_elsewhere = {
        Cause.DATA_SET,
        Cause.OTHERS,
        Cause.LOST,
        Cause.THRASHING,
        Cause.GROWTH,
        Cause.OVER_BUDGET,
        Cause.SPILLED,
        Cause.NON_FINITE,
        Cause.STEPS_SKIPPED,
        Cause.NO_STEPS,
        Cause.GRADIENTS_LOST,
        Cause.GRADIENTS_DIFFER,
        Cause.LOSS_DIFFERS,
        Cause.BUFFERS_DIFFER,
    }
    assert had == set(Cause) - judged_elsewhere


REAL = """
import json, resource, sys
import numpy, torch

def attempt(work):
    try:
        work()
    except BaseException as error:
        names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__ if kind is not object]
        return {"type": names[0], "bases": names, "text": str(error)}
    raise SystemExit("nothing was raised")

def mapped_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

half = torch.zeros(3, 3, dtype=torch.float16)
found = {
    "overflow": attempt(lambda: torch.empty(2**62, 8)),
    "half": attempt(lambda: torch.linalg.svd(half)),
    "shape": attempt(lambda: torch.zeros(4, 3) @ torch.zeros(4, 3)),
    "one_value": attempt(lambda: torch.nn.BatchNorm1d(8)(torch.zeros(1, 8))),
    "index": attempt(lambda: torch.nn.Embedding(4, 2)(torch.tensor([9]))),
    "frozen": attempt(lambda: torch.zeros(1).sum().backward()),
}
limit = mapped_bytes() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
found["torch"] = attempt(lambda: torch.empty(400 << 20, dtype=torch.uint8))
found["numpy"] = attempt(lambda: numpy.empty(400 << 20, dtype="uint8"))
found["python"] = attempt(lambda: bytearray(400 << 20))
print(json.dumps(found))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the limit is set from Linux's own figures")
def test_what_torch_numpy_and_python_really_raise_is_recognised() -> None:
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    verdicts = {}
    for name, form in found.items():
        real = Raised(type=form["type"], bases=tuple(form["bases"]), text=form["text"])
        outcome, failure = classify(Evidence(raised=(real,), phase=Phase.FORWARD))
        verdicts[name] = (outcome, failure.cause, failure.requested_bytes)
    assert verdicts == {
        "overflow": (Outcome.SIZE_LIMIT, Cause.SIZE_LIMIT, None),
        "half": (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED, None),
        "shape": (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, None),
        "one_value": (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, None),
        "index": (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, None),
        "frozen": (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, None),
        "torch": (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, 400 << 20),
        "numpy": (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, 400 << 20),
        "python": (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, None),
    }
