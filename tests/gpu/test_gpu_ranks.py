"""Ranks on several CUDA devices, with NCCL: one that runs out of memory, the limit of DDP, a training at it."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotune import api
from autotune.model import Budget, Cause, Form, Outcome, Plan, ProbeResult, Question, Reason, SearchResult
from autotune.probe import nvml
from autotune.probe.launcher import Launcher
from autotune.report.document import document
from autotune.units import GIB, MIB
from tests.gpu.conftest import ASSETS
from tests.process.support import ROOT, alive, clean_environment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

EXAMPLE = ROOT / "examples" / "tiny_gpt.py"
STEP = 8
"""Sizes are multiples of it."""
LIMIT = 4 * GIB
VERDICT_S = 10.0
STEPS = 200


def planned(file: Path, *args: object) -> Plan:
    """A search with two ranks under the limit."""
    return api.plan(
        str(file),
        script_args=[str(arg) for arg in args],
        device="cuda",
        ranks=2,
        memory_limit=LIMIT,
        multiple_of=STEP,
        recommend=False,
    )


def probe(launcher: Launcher, batch_size: int, form: Form = Form.SHORT, reserve_bytes: int = 0) -> ProbeResult:
    """One probe under the limit."""
    assert launcher.machine is not None
    capacity = launcher.machine.capacity_bytes
    budget = Budget(
        limit_bytes=LIMIT, source="--memory-limit", capacity_bytes=capacity, others_bytes=0, headroom_bytes=0
    )
    return launcher.probe(Question(batch_size=batch_size, form=form, reason=Reason.GROW), budget, reserve_bytes)


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_c34_one_device_out_of_memory_is_the_verdict_within_seconds_and_nothing_is_left(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instant, marker = tmp_path / "instant", f"ranked-{uuid.uuid4().hex}"
    monkeypatch.setenv("PLANTED_INSTANT", str(instant))
    monkeypatch.setenv("PLANTED_MARKER", marker)
    plan = planned(ASSETS / "ranked.py", phase, 8, 1)
    with Launcher(plan.source, timeout_s=120, seed=0, ranks=2) as launcher:
        _, machine = launcher.describe("cuda", STEP)
        assert len(machine.peers) == 1
        uuids = (machine.device_uuid, *machine.peers)
        before = [nvml.used_bytes(one) or 0 for one in uuids]
        assert probe(launcher, 8).fits
        serving = alive(marker).keys()  # guardian, zygote and its copy with the model
        result = probe(launcher, 16)
        seconds = time.monotonic() - float(instant.read_text())
        failure = result.failure
        assert failure is not None and result.outcome is Outcome.OUT_OF_MEMORY, failure
        assert (failure.cause, failure.phase, failure.step, failure.rank) == (Cause.DEVICE_MEMORY, phase, 2, 1)
        assert seconds < VERDICT_S
        assert result.ranks[0].outcome is None and result.ranks[1].outcome is Outcome.OUT_OF_MEMORY
        assert alive(marker).keys() <= serving, alive(marker)
        after = [nvml.used_bytes(one) or 0 for one in uuids]
        assert all(abs(now - then) < 256 * MIB for now, then in zip(after, before, strict=True))
        assert probe(launcher, 8).fits  # the devices are as good as before
    assert alive(marker) == {}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchResult]:
    """The DDP limit of the small GPT on two devices."""
    yield api.search(planned(EXAMPLE), storage=str(tmp_path_factory.mktemp("ranks") / "ledger.sqlite3"))


def test_the_limit_of_ddp_is_that_of_a_sweep(searched: SearchResult) -> None:
    largest = searched.answer.max_batch
    assert searched.answer.refuted_at == largest + STEP
    outside = max(one.measurement.non_pytorch_bytes or 0 for one in searched.probes)
    with Launcher(searched.plan.source, timeout_s=120, seed=0, ranks=2) as launcher:
        launcher.describe("cuda", STEP)
        sizes = [largest + offset * STEP for offset in (-1, 0, 1, 2)]
        fits = [size for size in sizes if probe(launcher, size, Form.LONG, outside).fits]
    assert fits == [largest - STEP, largest]


def test_each_rank_has_its_peak_and_nccl_counts_beside_the_allocator(searched: SearchResult) -> None:
    ranks = searched.certificate.ranks
    assert [one.rank for one in ranks] == [0, 1]
    assert all(one.outcome is Outcome.FITS and one.steps_executed >= 8 for one in ranks)
    peaks = [one.peak_device_bytes or 0 for one in ranks]
    assert searched.certificate.measurement.peak_device_bytes == max(peaks) <= LIMIT
    assert min(peaks) > LIMIT / 2
    assert all((one.non_pytorch_bytes or 0) > 256 * MIB for one in ranks)  # a context alone takes more
    content = document(searched)
    assert content.launch == "torchrun --nproc-per-node=2 train.py"
    assert (content.batch.world, content.batch.ranks) == (2, 2)
    assert len(content.machine.peers) == 1 and len(content.evidence.ranks) == 2


def test_a_training_by_torchrun_survives_at_the_recommendation(searched: SearchResult) -> None:
    micro_batch = document(searched).batch.micro_batch
    outside = max(one.non_pytorch_bytes or 0 for one in searched.certificate.ranks)
    script = [str(ASSETS / "ddp_train.py"), str(EXAMPLE), str(micro_batch), str(LIMIT - outside), str(STEPS)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *script],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"trained {STEPS} steps on 2 ranks" in done.stdout
