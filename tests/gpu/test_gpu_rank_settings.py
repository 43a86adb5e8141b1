"""Searches of settings in which two CUDA devices train together, with NCCL, and a training with what they recommend."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune import api
from autotune.model import Budget, Form, Parallel, Precision, ProbeResult, Question, Reason, SearchResult, Settings
from autotune.probe.launcher import Launcher
from autotune.report.document import document, to_text
from autotune.report.tuning import settings_rows
from autotune.units import GIB
from tests.process.support import ASSETS as PLANTED
from tests.process.support import ROOT, clean_environment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

EXAMPLE = ROOT / "examples" / "ddp.py"
RANKS = 2
BATCH = 64
"""The only size: what is searched are settings."""
EFFECTIVE = 2 * BATCH * RANKS


def searched(folder: Path, *, allow: Sequence[str], **options: Any) -> SearchResult:
    """A search of the small GPT of examples/ddp.py on two devices."""
    plan = api.plan(
        str(EXAMPLE),
        device="cuda",
        ranks=RANKS,
        tune=True,
        allow=allow,
        trials=0,
        memory_limit=4 * GIB,
        multiple_of=BATCH,
        max_batch=BATCH,
        effective_batch=EFFECTIVE,
        **options,
    )
    return api.search(plan, storage=str(folder / "ledger.sqlite3"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchResult]:
    """Two ways of sharing and one lower precision."""
    yield searched(tmp_path_factory.mktemp("ranks"), allow=("parallel=fsdp", "precision=bf16"))


def test_a_search_over_ways_of_sharing_ends_with_an_answer_that_is_no_slower_than_the_start(
    found: SearchResult,
) -> None:
    assert found.plan.settings.parallel is Parallel.DDP
    own, *others = settings_rows(found)
    assert own.settings.parallel is Parallel.DDP and own.rate
    print(*(f"{row.words}: {row.rate} {row.verdict}" for row in (own, *others)), sep="\n")
    assert all(row.rate or row.verdict for row in others)
    assert Parallel.FSDP in {row.settings.parallel for row in others}
    recommended = [row for row in (own, *others) if row.verdict.startswith("recommended")]
    assert len(recommended) == 1 and recommended[0].rate and recommended[0].rate >= 0.99 * own.rate
    assert "certified" in recommended[0].verdict
    if recommended[0] is not own:
        assert "trains the same" in recommended[0].verdict


def test_the_recommendation_is_of_all_ranks(found: SearchResult) -> None:
    certificate, content = found.certificate, document(found)
    assert certificate.form is Form.LONG and len(certificate.ranks) == RANKS
    assert all(one.steps_executed >= Form.LONG.steps for one in certificate.ranks)
    step_s = certificate.measurement.median_step_seconds
    assert step_s and certificate.samples_per_second == pytest.approx(EFFECTIVE / RANKS / step_s)
    assert content.batch.effective == EFFECTIVE
    assert content.settings.parallel == found.settings.parallel != "default"
    assert content.launch == "torchrun --nproc-per-node=2 train.py"


def test_a_training_by_torchrun_is_joined_as_the_file_says(found: SearchResult, tmp_path: Path) -> None:
    content = document(found)
    (tmp_path / "autotune.json").write_text(to_text(content))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(str(EXAMPLE), "--steps", "20"),
        ],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f": 2 ranks x {content.batch.micro_batch} x {content.batch.accumulate} samples" in done.stdout
    assert "StaleConfig" not in done.stderr


def test_shards_that_were_demanded_are_what_is_recommended(tmp_path: Path) -> None:
    result = searched(tmp_path, allow=("none",), fix=("parallel=fsdp",))
    assert result.plan.settings.parallel is Parallel.DDP
    assert result.settings.parallel is Parallel.FSDP
    own, *others = settings_rows(result)
    assert own.settings.parallel is Parallel.DDP and own.rate
    assert {row.settings.parallel for row in others} == {Parallel.FSDP}
    compared = [probe for probe in result.probes if probe.form is Form.COMPARE and probe.settings.parallel == "fsdp"]
    assert compared and all(probe.fits and len(probe.ranks) == RANKS for probe in compared)
    assert document(result).settings.parallel == "fsdp"


def test_two_devices_split_layers_and_train_on_one_batch_and_optimizer_state_in_shards_trains_the_same() -> None:
    plan = api.plan(
        str(PLANTED / "sharing.py"),
        script_args=["512"],
        device="cuda",
        ranks=RANKS,
        parallel="tensor",
        memory_limit=4 * GIB,
    )
    split, whole = Settings(parallel=Parallel.TENSOR), Settings(parallel=Parallel.DDP)
    with Launcher(plan.source, timeout_s=120, seed=0, ranks=RANKS) as launcher:
        workload, machine = launcher.describe("cuda", 1)
        assert workload.traits.tensor_plan
        budget = Budget(
            limit_bytes=4 * GIB,
            source="--memory-limit",
            capacity_bytes=machine.capacity_bytes,
            others_bytes=0,
            headroom_bytes=0,
        )

        def ask(form: Form, settings: Settings, reference: Settings | None = None) -> ProbeResult:
            question = Question(batch_size=BATCH, form=form, reason=Reason.GROW, settings=settings, reference=reference)
            result = launcher.probe(question, budget, 0)
            assert result.fits, result.failure
            return result

        here, all_ = (ask(Form.SHORT, replace(settings, accumulate=2)) for settings in (split, whole))
        compared = ask(Form.COMPARE, replace(split, precision=Precision.BF16), split)
        shared = Settings(parallel=Parallel.ZERO, bucket_view=True, precision=Precision.FP16, accumulate=2)
        state = ask(Form.COMPARE, shared, whole)
    assert (here.replicas, all_.replicas, len(here.ranks)) == (1, RANKS, RANKS)
    bytes_of = [one.measurement.composition.parameters_bytes or 0 for one in (here, all_)]
    assert bytes_of[1] / RANKS < bytes_of[0] < 0.6 * bytes_of[1]
    assert compared.measurement.comparison is not None and state.measurement.comparison is not None
