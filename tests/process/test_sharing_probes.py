"""Probes whose ranks share the model or the optimizer's state, in real processes on the CPU (gloo)."""

from collections.abc import Iterator

import pytest

from autotune import api
from autotune.model import Budget, Form, Parallel, ProbeResult, Question, Reason, Settings
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from tests.process.support import ASSETS

RANKS = 2


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """Loads the file once for all probes."""
    plan = api.plan(str(ASSETS / "sharing.py"), device="cpu", ranks=RANKS, parallel="fsdp", memory_limit=GIB)
    with Launcher(plan.source, timeout_s=60, seed=0, ranks=RANKS) as made:
        made.describe("cpu", 1)
        yield made


def probe(launcher: Launcher, **settings: object) -> ProbeResult:
    budget = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0)
    asked = Settings(**settings)  # type: ignore[arg-type]
    return launcher.probe(Question(batch_size=4, form=Form.SHORT, reason=Reason.GROW, settings=asked), budget, 0)


def held(launcher: Launcher, parallel: Parallel) -> tuple[int, int, int]:
    """Bytes of parameters, gradients and optimizer state on a rank."""
    result = probe(launcher, parallel=parallel, accumulate=2)
    assert result.fits, result.failure
    assert result.measurement.steps_executed == Form.SHORT.steps
    found = result.measurement.composition
    assert found.parameters_bytes and found.gradients_bytes and found.optimizer_bytes
    return found.parameters_bytes, found.gradients_bytes, found.optimizer_bytes


def test_each_rank_holds_what_its_way_of_sharing_leaves_it(launcher: Launcher) -> None:
    parameters, gradients, state = held(launcher, Parallel.DDP)
    assert held(launcher, Parallel.FSDP) == pytest.approx(
        [all_ / RANKS for all_ in (parameters, gradients, state)], rel=0.01
    )
    of_zero = held(launcher, Parallel.ZERO)
    assert of_zero[:2] == (parameters, gradients)
    assert of_zero[2] == pytest.approx(state / RANKS, rel=0.25)
