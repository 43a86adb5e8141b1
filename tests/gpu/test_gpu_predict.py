"""What two devices would hold, predicted on one, and then run on two."""

from pathlib import Path

import pytest
import torch

from autotune import api
from autotune.front.communicators import UNMEASURED_BYTES, communicators
from autotune.model import Form, Outcome, Parallel, Plan, Predicted, PredictedWay, Question, Reason, Settings
from autotune.probe.launcher import Launcher
from autotune.report.predicted import NOT_RUN, prediction_report
from autotune.storage.store import Store
from autotune.units import GIB, MIB
from tests.gpu.conftest import ASSETS

pytestmark = pytest.mark.gpu

RANKS = 2
LIMIT = 12 * GIB
"""So that what is left to chance, NCCL's buffers and 160 MiB of old buckets of DDP, is less than the error allowed."""
ERROR = 0.03
two_devices = pytest.mark.skipif(torch.cuda.device_count() < RANKS, reason="needs two CUDA devices")


def planned(ranks: int = RANKS, limit: int = LIMIT, **options: object) -> Plan:
    """A search with so many ranks under a limit for each."""
    return api.plan(
        str(ASSETS / "small_gpt.py"),
        device="cuda",
        ranks=ranks,
        memory_limit=limit,
        recommend=False,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    """Of all ways with two ranks, by one process on one device."""
    return api.predict(planned(), storage=str(tmp_path_factory.mktemp("predicted") / "ledger.sqlite3"), verify=False)


def way(found: Predicted, parallel: Parallel) -> PredictedWay:
    return next(one for one in found.ways if one.parallel is parallel)


def batch(found: Predicted, parallel: Parallel) -> int:
    result = way(found, parallel).result
    assert result is not None, way(found, parallel).error
    return result.answer.max_batch


def test_one_device_says_what_each_way_leaves_on_it_and_what_it_adds_for_nccl(predicted: Predicted) -> None:
    print(prediction_report(predicted))
    assert predicted.communicators.size_bytes == UNMEASURED_BYTES
    assert batch(predicted, Parallel.DDP) < batch(predicted, Parallel.ZERO) < batch(predicted, Parallel.FSDP)
    whole = way(predicted, Parallel.DDP).certificate
    shared = way(predicted, Parallel.FSDP).certificate
    assert whole is not None and shared is not None
    parameters = whole.measurement.composition.parameters_bytes
    assert parameters == predicted.workload.parameters_bytes
    assert shared.measurement.composition.parameters_bytes == pytest.approx(parameters / RANKS, rel=0.01)
    for probe in (whole, shared):
        assert probe.ranks == () and probe.samples_per_second is None
        assert (probe.measurement.non_pytorch_bytes or 0) > UNMEASURED_BYTES + 256 * MIB  # the context as well
        assert (probe.measurement.peak_device_bytes or 0) <= LIMIT
    assert not any(one.verified for one in predicted.ways) and NOT_RUN in prediction_report(predicted)


def test_a_model_too_large_for_few_devices_is_told_how_many_would_do(tmp_path: Path) -> None:
    # 43 million parameters take 0.65 GiB with gradients and state, beside 1.6 GiB of context and NCCL
    found = api.predict(
        planned(limit=2 * GIB, parallel="fsdp", multiple_of=8), storage=str(tmp_path / "l.sqlite3"), verify=False
    )
    (one,) = found.ways
    if one.result is None:
        assert one.enough is not None and one.enough in (4, 8, 16, 32, 64)
    else:
        assert one.result.answer.max_batch < 64


@two_devices
@pytest.mark.parametrize("parallel", [Parallel.DDP, Parallel.FSDP])
def test_two_devices_hold_what_one_predicted_within_three_per_cent(predicted: Predicted, parallel: Parallel) -> None:
    size, certificate = batch(predicted, parallel), way(predicted, parallel).certificate
    assert certificate is not None
    # what is outside of the allocator grows during a probe, and a search knows it from the probes before
    reserve = certificate.measurement.non_pytorch_bytes or 0
    below, above = int(size * (1 - ERROR)), int(size * (1 + ERROR)) + 1
    assert above - below > 10
    budget = predicted.budget

    def asked(batch_size: int, reason: Reason) -> Question:
        return Question(batch_size=batch_size, form=Form.LONG, reason=reason, settings=Settings(parallel=parallel))

    with Launcher(planned().source, timeout_s=120, seed=0, ranks=RANKS) as launcher:
        launcher.describe("cuda", 1)
        fits = launcher.probe(asked(below, Reason.CERTIFY), budget, reserve)
        refuted = launcher.probe(asked(above, Reason.REFUTE), budget, reserve)
    outside = fits.measurement.non_pytorch_bytes or 0
    print(f"{parallel}: {size} predicted; {below}: {fits.outcome}, {above}: {refuted.outcome}")
    print(f"outside of PyTorch {outside / MIB:.0f} MiB with {RANKS} ranks, {reserve / MIB:.0f} MiB predicted")
    assert fits.fits, fits.failure
    assert refuted.outcome in (Outcome.OUT_OF_MEMORY, Outcome.UNSAFE), refuted.outcome


@two_devices
def test_where_the_devices_are_the_ranks_run_and_what_they_hold_is_known_from_then_on(tmp_path: Path) -> None:
    storage = str(tmp_path / "ledger.sqlite3")
    found = api.predict(planned(limit=4 * GIB, parallel="ddp", multiple_of=32), storage=storage)
    (one,) = found.ways  # verified, since there are as many devices as ranks
    assert one.verified and one.real is not None, one.real_error
    assert [each.rank for each in one.real.certificate.ranks] == [0, 1]
    assert f"verified on {RANKS} GPUs" in prediction_report(found)
    with Store.open(storage) as store:
        held = communicators(store, found.machine, RANKS)
    print(prediction_report(found), held)
    assert held.told_by == f"measured with {RANKS} ranks by search {one.real.search_id}"
    assert 0 < held.size_bytes < 2 * UNMEASURED_BYTES
