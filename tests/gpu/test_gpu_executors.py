"""Probes side by side on two devices: the answer of one device, in little more than half the time; what each holds is its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch

from autotune import api
from autotune.executors.worker import Worker
from autotune.executors.workers import Workers
from autotune.model import Budget, Form, Question, SearchResult, Settings
from tests.gpu.conftest import ASSETS

pytestmark = pytest.mark.gpu

CANDIDATES = 8
SHARE = 0.6
"""Of the time of one device that two may take."""
FORBIDDEN = ("compile", "allocator")
"""What is left are eight settings worth a try: the bundle that is known to pay, fp16, cuDNN's choice of kernels, two backends of
attention, two ways of checkpointing, and the usual order of dimensions. The same search without a device:
tests/unit/test_ahead_pace.py."""
SMALL = {"device": "cuda", "memory_limit": "4GiB", "recommend": False}


@dataclass(frozen=True)
class Span:
    """A probe on a worker."""

    question: Question
    worker: int
    began: datetime
    seconds: float


@dataclass
class Watched:
    """One search, looked at from outside."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    seconds: float = 0.0
    """From the call to its return."""
    spans: list[Span] = field(default_factory=list)
    """Of the workers; empty where there are none."""
    result: SearchResult | None = None

    @property
    def found(self) -> SearchResult:
        assert self.result is not None
        return self.result

    @property
    def probing_s(self) -> float:
        """Seconds from the first probe to the end."""
        return self.seconds - (self.found.probes[0].started_at - self.began).total_seconds()

    @property
    def tried(self) -> set[Settings]:
        """Candidates."""
        return {
            probe.settings for probe in self.found.probes if probe.form is Form.TIMED and probe.settings != Settings()
        }

    @property
    def timeline(self) -> str:
        """A line for each probe, those that ran in vain included where workers were watched."""
        spans = self.spans or [
            Span(
                Question(batch_size=p.batch_size, form=p.form, reason=p.reason, settings=p.settings),
                1,
                p.started_at,
                p.seconds,
            )
            for p in self.found.probes
        ]
        lines = [f"{self.seconds:.1f} s in all, {self.probing_s:.1f} s from the first probe on"]
        for span in sorted(spans, key=lambda span: span.began):
            asked, start_s = span.question, (span.began - self.began).total_seconds()
            changes = ", ".join(f"{name}={value}" for name, value in asked.settings.changes(Settings()).items())
            what = f"{asked.form} {asked.reason}"
            lines.append(
                f"{start_s:6.1f} s +{span.seconds:5.1f} s  worker {span.worker}  {what:18} batch {asked.batch_size:3}  {changes}"
            )
        return "\n".join(lines)


@contextmanager
def watched() -> Iterator[Watched]:
    """A search, with note of which worker runs what, and when."""
    seen, asked = Watched(), dict[int, Question]()
    begun: dict[int, datetime] = {}
    submit, hand_out, end = Workers.submit, Workers._hand_out, Workers._end

    def submitting(workers: Workers, question: Question, budget: Budget, reserve_bytes: int) -> int:
        asked[workers._tickets + 1] = question
        return submit(workers, question, budget, reserve_bytes)

    def handing_out(workers: Workers) -> None:
        hand_out(workers)
        for worker in workers._workers:
            if worker.ticket is not None:
                begun.setdefault(worker.ticket, datetime.now(UTC))

    def ending(workers: Workers, worker: Worker, how: object) -> None:
        if worker.ticket is not None:
            began = begun[worker.ticket]
            lasted = (datetime.now(UTC) - began).total_seconds()
            seen.spans.append(Span(asked[worker.ticket], worker.number, began, lasted))
        end(workers, worker, how)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "submit", submitting)
        patch.setattr(Workers, "_hand_out", handing_out)
        patch.setattr(Workers, "_end", ending)
        yield seen
    seen.seconds = (datetime.now(UTC) - seen.began).total_seconds()


def searched(folder: Path, workers: int | None) -> Watched:
    plan = api.plan(str(ASSETS / "paced.py"), forbid=FORBIDDEN, tune=True, **SMALL)  # type: ignore[arg-type]
    with watched() as seen:
        seen.result = api.search(plan, storage=str(folder / "ledger.sqlite3"), workers=workers)
    return seen


@pytest.fixture(scope="module")
def devices() -> int:
    """How many there are; skips below two."""
    number = torch.cuda.device_count()
    if number < 2:
        pytest.skip(f"two CUDA devices are needed, and there are {number}")
    return number


@pytest.fixture(scope="module")
def alone(devices: int, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """On one of them, as without --workers."""
    return searched(tmp_path_factory.mktemp("alone"), None)


@pytest.fixture(scope="module")
def together(devices: int, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """On two."""
    return searched(tmp_path_factory.mktemp("together"), 2)


def test_eight_candidates_take_two_devices_at_most_six_tenths_of_the_time_of_one(
    alone: Watched, together: Watched
) -> None:
    print("one device: " + alone.timeline, "two devices: " + together.timeline, sep="\n")
    print(
        f"{together.seconds / alone.seconds:.3f} in all, {together.probing_s / alone.probing_s:.3f} from the first probe on"
    )
    assert len(alone.tried) == CANDIDATES and together.tried == alone.tried
    one, two = alone.found, together.found
    assert two.settings == one.settings != Settings()
    assert (two.answer.max_batch, two.answer.refuted_at) == (one.answer.max_batch, one.answer.refuted_at)
    assert together.seconds <= SHARE * alone.seconds
    assert together.probing_s <= SHARE * alone.probing_s


def test_a_search_on_two_devices_holds_for_their_kind_and_each_probe_had_its_device_alone(
    alone: Watched, together: Watched
) -> None:
    one, two = alone.found, together.found
    assert one.machine.device_uuid and not two.machine.device_uuid
    assert two.machine.device_name == one.machine.device_name
    assert {span.worker for span in together.spans} == {1, 2}
    for number in (1, 2):
        spans = sorted((span for span in together.spans if span.worker == number), key=lambda span: span.began)
        ends = [span.began + timedelta(seconds=span.seconds) for span in spans]
        assert all(span.began >= end for span, end in zip(spans[1:], ends, strict=False))
    held = [probe.measurement.peak_device_bytes or 0 for probe in two.probes if probe.fits]
    assert max(held) <= two.budget.limit_bytes
    memory = {probe.measurement.others_bytes for probe in two.probes if probe.measurement.others_bytes is not None}
    assert not memory or max(memory) - min(memory) < 1 << 30  # no other probe stood on the same device


def test_one_named_device_is_the_one_that_is_used(devices: int, tmp_path: Path) -> None:
    plan = api.plan(str(ASSETS / "paced.py"), max_batch=2, **SMALL)  # type: ignore[arg-type]
    found = api.search(plan, storage=str(tmp_path / "ledger.sqlite3"), workers="cuda:1")
    assert found.machine.device_index == 1
    assert found.answer.max_batch == 2
