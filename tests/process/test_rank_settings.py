"""Searches of settings in which two ranks train together, in real processes on the CPU (gloo)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from autotune.report.document import document, read, to_text
from autotune.report.tuning import settings_rows
from autotune.units import GIB
from tests.process.support import ASSETS, Staying

RANKS = 2
FILE = str(ASSETS / "tuned_ranks.py")
DDP = Settings(parallel=Parallel.DDP)
BUDGET = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0)


def planned(kind: Path, allow: Sequence[str] = ()) -> Plan:
    """A search of settings of ``tuned_ranks.py @KIND``, at batch 1."""
    return api.plan(
        FILE,
        script_args=[f"@{kind}"],
        device="cpu",
        ranks=RANKS,
        tune=True,
        allow=allow,
        memory_limit=GIB,
        max_batch=1,
        effective_batch=4,
    )


class Kept(Staying):
    """Serves one search after another."""

    def __init__(self, kind: Path) -> None:
        self.kind = kind
        self.use("slow")
        super().__init__(planned(kind).source, timeout_s=60, seed=3, ranks=RANKS)

    def use(self, kind: str) -> None:
        """What later children do."""
        self.kind.write_text(kind)

    def ask(self, form: Form, settings: Settings, reference: Settings | None = None) -> ProbeResult:
        """One probe."""
        if self.machine is None:
            self.describe("cpu", 1)
        reason = Reason.COMPARE if reference else Reason.GROW
        question = Question(batch_size=1, form=form, reason=reason, settings=settings, reference=reference)
        result = self.probe(question, BUDGET, 0)
        assert len(result.ranks) == RANKS
        return result


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Has the file loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        launcher = Kept(tmp_path_factory.mktemp("ranks") / "kind")
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


def test_a_search_of_settings_with_ranks_is_gone_on_with_and_names_what_is_slower_or_trains_something_else(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "Launcher", lambda *_, **__: kept)
    kept.use("slow")
    plan, storage = planned(kept.kind, ("parallel=fsdp", "precision=bf16,fp16")), str(tmp_path / "ledger.sqlite3")
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
    assert [row.settings.precision for row in rejected] == [Precision.FP16], verdicts
    assert rejected[0].verdict.startswith("rejected: trains something else: rank 0 of 2")
    assert rejected[0].rate and own.rate and rejected[0].rate > own.rate
    assert any(row.settings.parallel is Parallel.FSDP and row.rate for row in others), verdicts

    certificate = result.certificate
    assert certificate.settings == result.settings and certificate.form is Form.LONG
    assert len(certificate.ranks) == RANKS and all(one.steps_executed == 8 for one in certificate.ranks)
    step_s = certificate.measurement.median_step_seconds
    assert step_s and certificate.samples_per_second == pytest.approx(1 * 2 / step_s)
    content = read(to_text(document(result)))
    assert (content.settings.parallel, content.settings.precision) == ("ddp", "bf16")
    assert content.batch.effective == 4 == content.batch.micro_batch * content.batch.accumulate * RANKS
    assert content.launch == f"torchrun --nproc-per-node={RANKS} train.py"


def test_another_way_of_sharing_is_found_to_train_the_same(kept: Kept) -> None:
    kept.use("slow")
    other = Settings(parallel=Parallel.ZERO, precision=Precision.BF16, accumulate=2)
    result = kept.ask(Form.COMPARE, other, DDP)
    assert result.fits, result.failure


def test_each_rank_compares_samples_of_its_own_so_that_gradients_nobody_averages_are_found(kept: Kept) -> None:
    kept.use("slow")
    result = kept.ask(Form.COMPARE, Settings(parallel=Parallel.DDP, bucket_view=True), DDP)
    assert result.outcome is Outcome.CHANGES_TRAINING
    seen = result.measurement.comparison
    assert seen is not None and seen.cosine is not None and seen.cosine < 0.99
    assert seen.loss_difference == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("parallel", [Parallel.DEFAULT, Parallel.DDP])
def test_several_micro_batches_end_with_gradients_that_all_ranks_have(kept: Kept, parallel: Parallel) -> None:
    kept.use("averaged")
    result = kept.ask(Form.SHORT, Settings(parallel=parallel, accumulate=2))
    assert result.fits, result.failure


def test_ranks_of_tensor_parallel_train_on_one_batch_and_their_loss_may_call_parts(kept: Kept) -> None:
    kept.use("parts")
    split = Settings(parallel=Parallel.TENSOR, accumulate=2)
    result = kept.ask(Form.SHORT, split)
    assert result.fits, result.failure
    step_s = result.measurement.median_step_seconds
    assert step_s and result.samples_per_second == pytest.approx(2 / step_s)
    compared = kept.ask(Form.COMPARE, replace(split, precision=Precision.BF16), split)
    assert compared.fits, compared.failure
