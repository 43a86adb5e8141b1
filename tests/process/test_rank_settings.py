"""Searches of settings in which two ranks train together, in real processes on the CPU (gloo)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import pytest

from autotune import api
from autotune.model import (
    Budget,
    Form,
    Machine,
    Outcome,
    Parallel,
    Plan,
    Precision,
    ProbeResult,
    Question,
    Reason,
    Settings,
    WorkloadInfo,
)
from autotune.probe import launcher as launching
from autotune.probe.launcher import Launcher
from autotune.report.document import document, read, to_text
from autotune.report.tuning import settings_rows
from autotune.units import GIB
from tests.process.support import ASSETS

RANKS = 2
FILE = str(ASSETS / "tuned_ranks.py")
DDP = Settings(parallel=Parallel.DDP)


def planned(allow: Sequence[str]) -> Plan:
    """A search of settings, at batch 1."""
    return api.plan(
        FILE, device="cpu", ranks=RANKS, tune=True, allow=allow, memory_limit=GIB, max_batch=1, effective_batch=4
    )


class Kept(Launcher):
    """Serves one search after another, and forks what certifies."""

    _certifies_afresh = False

    def preload(self, device: str) -> None:
        if self._guarded.process is None:
            super().preload(device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What a search does at its end; this one is closed by the fixture."""


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """Has the file loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        launcher = Kept(planned(()).source, timeout_s=60, seed=3, ranks=RANKS)
        yield launcher
        launcher.close()


@dataclass
class Interrupting:
    """An observer that remembers what was said, and stops the search after some probes."""

    probes: int
    said: list[str] = field(default_factory=list)

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None: ...

    def asked(self, question: Question, number: int) -> None: ...

    def answered(self, result: ProbeResult, number: int) -> None:
        if number == self.probes:
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.said.append(text)


def test_c34_a_search_of_settings_with_ranks_is_gone_on_with_and_names_what_is_slower_or_trains_something_else(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "Launcher", lambda *_, **__: kept)
    plan, storage = planned(("parallel=fsdp", "precision=bf16")), str(tmp_path / "ledger.sqlite3")
    with pytest.raises(KeyboardInterrupt):
        api.search(plan, storage=storage, observer=Interrupting(3))
    again = Interrupting(0)
    result = api.search(plan, storage=storage, observer=again)
    assert f"going on with search {result.search_id}: 3 finished probes are used again" in again.said
    assert result.plan.settings == DDP
    assert result.settings == Settings(parallel=Parallel.DDP, precision=Precision.BF16, accumulate=2)
    assert result.answer.recommended_batch == 1

    own, *others = settings_rows(result)
    assert own.settings == DDP
    verdicts = {row.words: row.verdict for row in others}
    assert verdicts["precision=bf16"] == "recommended; trains the same, certified"
    rejected = [row for row in others if not row.trains_same]
    assert [row.settings.parallel for row in rejected] == [Parallel.FSDP], verdicts
    assert rejected[0].verdict.startswith("rejected: trains something else: rank 0 of 2")
    assert rejected[0].rate and own.rate and rejected[0].rate > own.rate

    certificate = result.certificate
    assert certificate.settings == result.settings and certificate.form is Form.LONG
    assert len(certificate.ranks) == RANKS and all(one.steps_executed == 8 for one in certificate.ranks)
    step_s = certificate.measurement.median_step_seconds
    assert step_s and certificate.samples_per_second == pytest.approx(1 * 2 * RANKS / step_s)
    content = read(to_text(document(result)))
    assert (content.settings.parallel, content.settings.precision) == ("ddp", "bf16")
    assert content.batch.effective == 4 == content.batch.micro_batch * content.batch.accumulate * RANKS
    assert content.launch == f"torchrun --nproc-per-node={RANKS} train.py"


def compared(launcher: Launcher, settings: Settings) -> ProbeResult:
    """A probe that compares the settings with DDP."""
    if launcher.machine is None:
        launcher.describe("cpu", 1)
    budget = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0)
    question = Question(batch_size=1, form=Form.COMPARE, reason=Reason.COMPARE, settings=settings, reference=DDP)
    result = launcher.probe(question, budget, 0)
    assert result.measurement.comparison is not None and len(result.ranks) == RANKS
    return result


def test_another_way_of_sharing_is_found_to_train_the_same(kept: Kept) -> None:
    result = compared(kept, Settings(parallel=Parallel.ZERO, precision=Precision.FP16, accumulate=2))
    assert result.fits, result.failure


def test_each_rank_compares_samples_of_its_own_so_that_gradients_nobody_averages_are_found(kept: Kept) -> None:
    result = compared(kept, Settings(parallel=Parallel.DDP, bucket_view=True))  # tuned_ranks.py bypasses DDP then
    assert result.outcome is Outcome.CHANGES_TRAINING
    seen = result.measurement.comparison
    assert seen is not None and seen.cosine is not None and seen.cosine < 0.99
    assert seen.loss_difference == pytest.approx(0, abs=1e-6)
