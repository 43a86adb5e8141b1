"""Memory that grows from step to step is no safe batch, and what grows is said; what settles is left alone."""

import pytest

from autotune import api
from autotune.model import Budget, Cause, Form, Outcome, ProbeResult, Question, Reason
from autotune.probe import linux
from autotune.probe.devices import look_at_device
from autotune.probe.launcher import Launcher
from autotune.units import GIB, MIB
from tests.process.support import ASSETS

BUDGET = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=GIB, others_bytes=0, headroom_bytes=0)


def certifying(kind: str) -> ProbeResult:
    """The long form of leaking.py at a batch whose activations take 4 MiB and whose inputs take 2 MiB."""
    plan = api.plan(str(ASSETS / "leaking.py"), script_args=[kind], device="cpu")
    with Launcher(plan.source, timeout_s=60, seed=0) as launcher:
        launcher.machine = look_at_device("cpu")
        return launcher.probe(Question(batch_size=1024, form=Form.LONG, reason=Reason.CERTIFY), BUDGET, 0)


@pytest.fixture(autouse=True)
def steady_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large tensors are mapped one by one, so that what a step leaves is what it keeps."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    monkeypatch.setattr(linux, "IS_LINUX", False)  # long probes are spawned anyway: no zygote to fork from


def test_c28_outputs_kept_with_their_graph_are_a_leak_of_so_much_a_step_that_ends_at_a_step() -> None:
    probe = certifying("output")
    assert probe.outcome is Outcome.UNSAFE and probe.failure is not None
    assert probe.failure.cause is Cause.GROWTH
    assert "grows by 4" in probe.failure.message and "a line explains" in probe.failure.message
    assert "run out at about step" in probe.failure.message
    held = probe.measurement.allocated_after_step
    assert 3.5 * MIB < (held[-1] - held[1]) / 6 < 4.5 * MIB, "one activation of 4 MiB"


def test_c28_losses_that_are_kept_are_a_leak_although_backward_has_freed_most_of_their_graphs() -> None:
    probe = certifying("loss")
    assert probe.outcome is Outcome.UNSAFE and probe.failure is not None
    assert probe.failure.cause is Cause.GROWTH
    assert "7 losses of earlier steps are still there, each with its autograd graph" in probe.failure.message
    assert "losses.append(loss.item())" in probe.failure.hint


@pytest.mark.parametrize("kind", ["detached", "items", "warm-up"])
def test_c28_what_is_kept_without_its_graph_or_only_at_first_is_no_leak(kind: str) -> None:
    assert certifying(kind).fits
