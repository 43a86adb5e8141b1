"""Where lengths vary, the long form trains on a mixture of them, and the short one does not."""

from collections.abc import Callable

import pytest

from autotune.errors import WorkloadError
from autotune.model import Budget, Cause, Form, Outcome, Phase, ProbeResult, Question, Reason
from autotune.units import GIB
from tests.process.conftest import Loaded, Search

CAPACITY = 26
LENGTH = 100
"""Of the samples in varying.py."""
SHARES = [share for sequence in Form.LONG.mixtures for share in sequence]
DEAR = SHARES[4]
BUDGET = Budget(limit_bytes=GIB, source="test", capacity_bytes=GIB, others_bytes=0, headroom_bytes=0)


Probe = Callable[..., ProbeResult]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def probe(loaded: Loaded) -> Probe:
    """``probe(KIND, form, batch_size)`` of varying.py."""

    def run(kind: str, form: Form, batch_size: int = 4) -> ProbeResult:
        launcher, workload = loaded("varying.py", kind)
        assert workload.varies
        return launcher.probe(Question(batch_size=batch_size, form=form, reason=Reason.CERTIFY), BUDGET, 0)

    return run


@pytest.mark.usefixtures("certified_in_forks")
def test_a_shorter_batch_that_takes_more_memory_is_what_limits(search: Search) -> None:
    result = search("dear", CAPACITY, round(LENGTH * DEAR), file="varying.py")
    assert (result.answer.max_batch, result.answer.refuted_at) == (CAPACITY // 2, CAPACITY // 2 + 1)
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.form is Form.LONG
    assert result.refutation.outcome is Outcome.OUT_OF_MEMORY
    assert SHARES.count(DEAR) == 1
    assert (result.refutation.failure.step, result.refutation.failure.phase) == (5, Phase.FORWARD)
    short = {p.batch_size: p.fits for p in result.probes if p.form is Form.SHORT}
    assert all(fits == (size <= CAPACITY) for size, fits in short.items())
    assert any(CAPACITY // 2 < size <= CAPACITY for size in short), "the short form is not aware of it"


@pytest.mark.usefixtures("certified_in_forks")
def test_a_long_probe_trains_on_the_mixture_before_its_eight_steps_and_keeps_what_those_showed(probe: Probe) -> None:
    seen = probe("plain", Form.LONG)
    assert seen.fits
    assert (seen.measurement.steps_executed, seen.measurement.observed_batch) == (8, 4)
    assert len(seen.measurement.step_seconds) == 7
    assert len(seen.measurement.retries_per_step) == len(seen.measurement.losses) == 8


@pytest.mark.usefixtures("certified_in_forks")
def test_a_short_probe_never_shortens_and_a_long_one_shows_the_users_traceback(probe: Probe) -> None:
    short = probe("raises", Form.SHORT)
    assert short.fits
    assert len(short.measurement.step_seconds) == 2
    long = probe("raises", Form.LONG)
    assert long.outcome is Outcome.WORKLOAD_ERROR and long.failure is not None
    assert (long.failure.phase, long.failure.step) == (Phase.DATA, 1)
    assert f"no texts of {SHARES[0]:g} of the length" in long.failure.message
    assert "in shorten" in long.failure.traceback and "varying.py" in long.failure.traceback


@pytest.mark.usefixtures("certified_in_forks")
def test_a_search_whose_shorten_raises_ends_with_its_traceback(search: Search) -> None:
    with pytest.raises(WorkloadError) as raised:
        search("raises", file="varying.py", max_batch=64)
    assert "in shorten" in raised.value.detail


@pytest.mark.usefixtures("certified_in_forks")
def test_fewer_samples_in_a_shorter_batch_are_an_error_of_the_workload(probe: Probe) -> None:
    assert probe("fewer", Form.SHORT, 10).fits
    with pytest.raises(
        WorkloadError, match=r"shorten\(batch, 0\.\d+\) made of a batch of 10 samples one of \d$"
    ) as raised:
        probe("fewer", Form.LONG, 10)
    assert "keep their number" in raised.value.hint


@pytest.mark.parametrize(("kind", "outcome"), [("steady", Outcome.FITS), ("leak", Outcome.UNSAFE)])
def test_memory_that_varies_with_the_length_is_no_leak_and_a_leak_is_still_seen(
    probe: Probe, kind: str, outcome: Outcome
) -> None:
    seen = probe(kind, Form.LONG)
    assert seen.outcome is outcome, seen.failure
    assert (seen.failure.cause if seen.failure else None) == (Cause.GROWTH if kind == "leak" else None)
