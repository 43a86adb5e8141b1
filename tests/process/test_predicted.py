"""One process stands in for the ranks of a job: what it holds is what a rank of the real job holds (CPU, gloo)."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune import api, load
from autotune.errors import UsageError
from autotune.model import Budget, Form, Parallel, ProbeResult, Question, Reason, Settings
from autotune.probe.launcher import Launcher
from autotune.report.document import to_text
from autotune.report.predicted import prediction_document, prediction_lines
from autotune.units import GIB, MIB
from tests.process.support import ASSETS

RANKS = 2
WIDTH = "320"
"""A model of 3.3 million parameters, 13 MiB."""
NOISE_BYTES = 3 * MIB
"""Of a peak of the process; what DDP, FSDP and ZeRO leave differs by twice as much or more."""


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Launcher, Launcher]]:
    """One that stands in for two ranks, and one that runs them."""
    plan = api.plan(str(ASSETS / "sharing.py"), script_args=[WIDTH], device="cpu", ranks=RANKS, memory_limit=GIB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(Launcher, "_certifies_afresh", False)
        with (
            Launcher(plan.source, timeout_s=60, seed=0, ranks=RANKS, stands_in=True) as alone,
            Launcher(plan.source, timeout_s=60, seed=0, ranks=RANKS) as together,
        ):
            for launcher in (alone, together):
                launcher.describe("cpu", 1)
            yield alone, together


def probe(launcher: Launcher, parallel: Parallel, form: Form) -> ProbeResult:
    budget = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0)
    settings = Settings(parallel=parallel)
    question = Question(batch_size=4, form=form, reason=Reason.GROW, settings=settings)
    result = launcher.probe(question, budget, 0)
    assert result.fits, result.failure
    return result


@pytest.mark.parametrize(
    ("parallel", "form"),
    [
        (Parallel.FSDP, Form.SHORT),
        (Parallel.ZERO, Form.LONG),  # DDP, and a checkpoint for which the state is gathered
    ],
)
def test_one_process_holds_what_the_fullest_rank_of_the_real_job_holds(
    both: tuple[Launcher, Launcher], parallel: Parallel, form: Form
) -> None:
    alone, together = (probe(launcher, parallel, form).measurement for launcher in both)
    assert alone.peak_allocated_bytes == pytest.approx(together.peak_allocated_bytes, abs=NOISE_BYTES)
    kinds, real = alone.composition, together.composition
    assert (kinds.parameters_bytes, kinds.gradients_bytes) == (real.parameters_bytes, real.gradients_bytes)
    assert kinds.optimizer_bytes is not None and kinds.optimizer_bytes >= (real.optimizer_bytes or 0)
    assert alone.losses == () and alone.step_seconds == ()  # nothing was exchanged
    assert alone.steps_executed == together.steps_executed == form.steps


def test_a_prediction_is_kept_as_one_and_no_file_of_it_is_taken_for_a_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Launcher, "_certifies_afresh", False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    storage = str(tmp_path / "ledger.sqlite3")
    plan = api.plan(
        str(ASSETS / "sharing.py"),
        script_args=["64"],
        device="cpu",
        ranks=RANKS,
        parallel="ddp",
        memory_limit=GIB,
        max_batch=1,
        recommend=False,
    )
    found = api.predict(plan, storage=storage)  # the host has no such devices
    assert prediction_lines(found) == ("ddp 1 predicted",)
    (way,) = found.ways
    assert way.result is not None and way.result.certificate.ranks == ()
    kept = {record.id: record.plan.predicted for record in api.searches(storage)}
    assert kept == {way.result.search_id: True}
    file = tmp_path / "autotune.json"
    file.write_text(to_text(prediction_document(found, datetime.now(UTC))))
    with pytest.raises(UsageError, match="a prediction for 2 ranks, which were not run"):
        api.check(file, storage=storage)
    with pytest.raises(UsageError, match="a prediction for 2 ranks, which were not run"):
        load(file)
