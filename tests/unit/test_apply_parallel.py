"""Settings of several ranks where there is one; what they do with more is in ``tests/process/test_parallel.py``."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autotune.apply import Applied, parallelise
from autotune.apply.parallel import accumulating, is_parallel
from autotune.errors import UsageError
from autotune.model import Parallel, Settings

CPU = torch.device("cpu")
SHARED = [kind for kind in Parallel if kind is not Parallel.DEFAULT]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher has started this process."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.mark.parametrize("kind", SHARED)
def test_one_rank_trains_as_without_them(kind: Parallel) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    applied = Applied(Settings(parallel=kind, bucket_view=True, offload=True, accumulate=2), CPU)
    prepared = applied.prepare(model)
    optimizer = applied.optimizer(torch.optim.SGD, prepared.parameters(), lr=0.1)
    assert prepared is model and type(optimizer) is torch.optim.SGD
    applied.train_step(prepared, optimizer, lambda m, x: m(x).mean(), [torch.ones(3, 2)] * 2)
    assert applied.states(prepared, optimizer)["optimizer"] is not None
    assert not is_parallel(model)


def test_without_settings_or_ranks_the_model_is_moved_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a job of several processes that autotune is not one of."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    model = nn.Linear(2, 2)
    assert parallelise(model, device=CPU) is model
    assert Applied(Settings(), CPU).prepare(model) is model
    with accumulating(model, last=False):
        pass


@pytest.mark.parametrize("kind", SHARED)
def test_a_rank_that_has_not_met_the_others_is_told_how(kind: Parallel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for prepare in (Applied(Settings(parallel=kind), CPU).prepare, _with(Settings(parallel=kind))):
        with pytest.raises(UsageError, match="this process is one of 2 ranks") as refused:
            prepare(nn.Linear(2, 2))
        assert "init_process_group()" in refused.value.hint


def _with(settings: Settings) -> Callable[[nn.Module], nn.Module]:
    return lambda model: parallelise(model, settings, device=CPU)


def test_tensor_parallel_ranks_see_one_batch() -> None:
    assert {kind: kind.replicas(4) for kind in Parallel} == {
        Parallel.DEFAULT: 4,
        Parallel.DDP: 4,
        Parallel.FSDP: 4,
        Parallel.ZERO: 4,
        Parallel.TENSOR: 1,
    }
