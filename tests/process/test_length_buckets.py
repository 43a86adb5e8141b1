"""Length buckets on real data: each answer against larger sizes, and an epoch by length at all of them."""

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import nn

from autotune import api, find_max_batch
from autotune.errors import UsageError
from autotune.model import Bucketed, BucketResult, Form, Question, Reason
from autotune.probe import linux
from autotune.probe.launcher import Launcher
from autotune.units import MIB
from tests.process.conftest import planned
from tests.process.support import ASSETS, clean_environment

LIMIT = 310 * MIB
"""Torch's own process takes 216 MiB of it, and 45 MiB more are mapped and never touched."""
STEP = 2

pytestmark = pytest.mark.usefixtures("one_thread")


def find(storage: str, *buckets: int) -> Bucketed:
    plan = planned("bucketed.py", memory_limit=LIMIT, multiple_of=STEP, start_batch=2 * STEP)
    return api.search_buckets(plan, buckets, storage=storage)


def epoch(sizes: dict[int, int]) -> subprocess.CompletedProcess[str]:
    """An epoch of bucketed.py by length, in a process of its own under the same limit."""
    batches = [f"{bound}:{size}" for bound, size in sizes.items()]
    argv = [sys.executable, str(ASSETS / "bucketed.py"), str(LIMIT), *batches]
    return subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=120, check=False)


def first_failure(found: Bucketed, row: BucketResult, monkeypatch: pytest.MonkeyPatch) -> int:
    """The smallest size above the answer that does not fit in the long form in this bucket."""
    plan, result = found.plan, row.result
    assert result is not None
    with monkeypatch.context() as patch, Launcher(plan.source, timeout_s=60, seed=plan.seed) as launcher:
        patch.setattr(linux, "IS_LINUX", False)  # long probes are spawned anyway: no zygote to fork from
        launcher.machine = result.machine
        for size in count(result.answer.max_batch + STEP, STEP):
            question = Question(
                batch_size=size,
                form=Form.LONG,
                reason=Reason.CERTIFY,
                settings=plan.settings,
                length_bucket=row.bucket.max_length,
            )
            if not launcher.probe(question, result.budget, 0).fits:
                return size
    raise AssertionError("unreachable: sizes have no end")


def test_each_bucket_has_the_limit_of_a_sweep_and_a_loader_by_length_survives_an_epoch_at_all_of_them(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find(storage, 4, 40, 160)
    empty, short, long = found.rows
    assert (empty.result, empty.error, empty.bucket.longest) == (None, None, 0)
    assert (short.bucket.samples, short.bucket.longest, long.bucket.samples) == (300, 40, 330)
    sizes = {}
    for row in (short, long):
        assert row.result is not None
        bound, size = row.bucket.max_length, row.result.answer.max_batch
        assert row.result.answer.refuted_at == size + STEP
        assert row.result.certificate.measurement.worst_batch == f"float32[{size}, {bound}]"
        assert first_failure(found, row, monkeypatch) in (size + STEP, size + 2 * STEP)
        sizes[bound] = size
    assert 3 * sizes[160] <= sizes[40] <= 6 * sizes[160], "memory is by the word"
    done = epoch(sizes)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "trained on 330 texts\n"


LENGTHS = [3, 4, 5, 6, 9, 9, 9, 20]


def make_model() -> nn.Module:
    return nn.Linear(1, 1)


def make_dataset() -> list[torch.Tensor]:
    return [torch.ones(length, 1) for length in LENGTHS]


def equal() -> list[torch.Tensor]:
    return [torch.ones(8, 1) for _ in range(9)]


def pad(samples: list[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(samples, batch_first=True)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).mean()
    return loss


@pytest.mark.usefixtures("certified_in_forks")
def test_python_gets_a_batch_for_each_bucket(storage: str) -> None:
    found = find_max_batch(
        make_model,
        make_dataset=make_dataset,
        collate=pad,
        loss=loss,
        device="cpu",
        memory_limit="1GiB",
        buckets=[2, 5, 10],
        storage=storage,
    )
    rows = {length: int(answer) if answer else None for length, answer in found.buckets.items()}
    assert rows == {2: None, 5: 3, 10: 7}, "as many as there are"
    assert int(found) == 7, "that of the longest"
    assert found.evidence.certificate.measurement.worst_batch == "float32[7, 9, 1]"


def test_samples_of_one_length_are_a_mistake_with_the_cure(storage: str) -> None:
    with pytest.raises(
        UsageError, match="all samples of the data set that were looked at have the same shapes"
    ) as raised:
        find_max_batch(
            make_model, make_dataset=equal, collate=pad, loss=loss, device="cpu", buckets=[5, 10], storage=storage
        )
    assert raised.value.hint == "leave out --buckets: one answer holds for all of them"
    assert not Path(storage).exists() or api.searches(storage) == ()
