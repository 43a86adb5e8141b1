"""Ways of sharing a training between two CUDA devices, with NCCL: the same training, and what each leaves on a device."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import start_processes

from autotune import api
from autotune.model import Budget, Form, Parallel, ProbeResult, Question, Reason, Settings
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from tests.process import parallel_ranks
from tests.process.parallel_ranks import COMPILED, OFFLOADED, RANKS, SHARINGS
from tests.process.support import ASSETS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < RANKS, reason="needs two CUDA devices"),
]

ROUNDING = 1e-5
"""Of fp32, after three steps whose sums run in another order on each device, and by atomics in an embedding."""
WIDTH = 2048
"""Of a model of 134 million parameters: 512 MiB in fp32."""


def started(directory: Path, *, compiled: bool) -> list[dict[str, Any]]:
    """What each rank saw, by the name of the check."""
    start_processes(  # type: ignore[no-untyped-call]
        parallel_ranks.run, args=(str(directory), "nccl", compiled), nprocs=RANKS, start_method="spawn"
    )
    return [json.loads((directory / f"found-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One start for all of them."""
    return started(tmp_path_factory.mktemp("ranks"), compiled=False)


@pytest.mark.parametrize("name", [*SHARINGS, *OFFLOADED])
def test_steps_of_two_devices_are_those_of_one_on_the_joined_batch(found: list[dict[str, Any]], name: str) -> None:
    for rank in found:
        assert isinstance(rank[name], float), rank[name]
        assert rank[name] < ROUNDING


def test_compiled_models_are_shared_as_well(tmp_path: Path) -> None:
    for rank in started(tmp_path, compiled=True):
        for name in COMPILED:
            assert isinstance(rank[name], float), rank[name]
            assert rank[name] < ROUNDING


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor"])
def test_devices_that_begin_apart_train_the_model_of_the_first(found: list[dict[str, Any]], kind: str) -> None:
    for rank in found:
        assert rank[f"unequal beginnings, {kind}"] < ROUNDING


def test_gradients_of_shards_are_compared_with_whole_ones(found: list[dict[str, Any]]) -> None:
    for rank in found:
        _, cosine, ratio, counted = rank["side by side"]
        assert cosine == pytest.approx(1, abs=ROUNDING)
        assert ratio == pytest.approx(1, abs=ROUNDING)
        assert counted


def peaks_bytes(launcher: Launcher, **settings: object) -> list[int]:
    """Allocated at most in each rank, at a batch that takes nearly nothing."""
    assert launcher.machine is not None
    capacity = launcher.machine.capacity_bytes
    budget = Budget(
        limit_bytes=24 * GIB, source="--memory-limit", capacity_bytes=capacity, others_bytes=0, headroom_bytes=0
    )
    asked = Settings(**settings)  # type: ignore[arg-type]
    question = Question(batch_size=4, form=Form.SHORT, reason=Reason.GROW, settings=asked)
    result: ProbeResult = launcher.probe(question, budget, 0)
    assert result.fits, result.failure
    peaks = [rank.peak_allocated_bytes for rank in result.ranks]
    assert len(peaks) == RANKS
    assert result.measurement.peak_allocated_bytes == max(peak or 0 for peak in peaks)
    return [peak or 0 for peak in peaks]


def test_what_each_way_of_sharing_leaves_on_a_device() -> None:
    """In units of the model: weights, gradients and two states of AdamW are 4. DDP has the buckets beside the gradients.

    DDP sorts its buckets anew before the second step. The old ones stay for as long as NCCL's watchdog has not looked at their
    exchange, a tenth of a second at most, so a rank of such short steps has one model more or not: plain DDP under
    torchrun has the same 6.13 or 5.13 (two H200, torch 2.11).
    """
    plan = api.plan(
        str(ASSETS / "sharing.py"),
        script_args=[str(WIDTH)],
        device="cuda",
        ranks=RANKS,
        parallel="fsdp",
        memory_limit=24 * GIB,
    )
    model = 4 * (4 * (2 * 4 * WIDTH * WIDTH + 5 * WIDTH) + 65 * WIDTH + 2 * WIDTH + 2)
    with Launcher(plan.source, timeout_s=120, seed=0, ranks=RANKS) as launcher:
        launcher.describe("cuda", 1)

        def models(**settings: object) -> list[float]:
            return [peak / model for peak in peaks_bytes(launcher, optimizer="fused", **settings)]

        ddp = models(parallel=Parallel.DDP)
        view = models(parallel=Parallel.DDP, bucket_view=True)
        zero = models(parallel=Parallel.ZERO)
        fsdp = models(parallel=Parallel.FSDP)
        kept = models(parallel=Parallel.FSDP, reshard=False)
    seen = (ddp, view, zero, fsdp, kept)
    assert all(with_or_without_old_buckets(peak, 5) for peak in ddp), seen
    assert all(with_or_without_old_buckets(peak, 4.125) for peak in view), (
        seen
    )  # a gradient beside its bucket, for a moment
    assert all(with_or_without_old_buckets(peak, 4) for peak in zero), seen
    assert all(2 < peak < 3.6 for peak in fsdp), seen  # shards, and two of four blocks with gradients and their buffers
    assert max(fsdp) < max(kept) < min(ddp), seen


def with_or_without_old_buckets(peak: float, models: float) -> bool:
    """Whether a peak, in models, is that many (and activations, workspaces), or one more."""
    return any(whole <= peak <= whole + 0.2 for whole in (models, models + 1))
