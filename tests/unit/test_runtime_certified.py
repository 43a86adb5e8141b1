"""The guard that watches a training's memory against what was certified for it."""

import warnings

import pytest
import torch

from autotune.errors import MemoryWarning
from autotune.runtime.certified import MemoryGuard
from autotune.runtime.readings import Allocator, read_allocator
from autotune.units import GIB

CPU = torch.device("cpu")


def look_twice(guard: MemoryGuard, reserved: int, retries: int) -> None:
    for step in (12, 13):
        guard.look(step, reserved, retries)


def test_nothing_is_said_while_memory_is_as_certified() -> None:
    guard = MemoryGuard(2 * GIB, 3 * GIB, retries=7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard.look(1, 2 * GIB, 7)


def test_memory_above_what_was_certified_is_told_once_with_its_figures() -> None:
    guard = MemoryGuard(2 * GIB, 3 * GIB, retries=7)
    with pytest.warns(MemoryWarning) as caught:
        look_twice(guard, 5 * GIB // 2, 7)
    (warning,) = caught
    first = str(warning.message).splitlines()[0]
    assert first == "step 12: the allocator holds 2.5 GiB, more than the 2 GiB that was certified (budget 3 GiB)"


def test_where_no_peak_was_certified_the_budget_counts() -> None:
    with pytest.warns(MemoryWarning, match=r"more than the 2 GiB that was allowed"):
        MemoryGuard(None, 2 * GIB, retries=7).look(1, 5 * GIB // 2, 7)


def test_retries_since_the_training_began_are_told_once() -> None:
    guard = MemoryGuard(2 * GIB, 3 * GIB, retries=7)
    with pytest.warns(MemoryWarning) as caught:
        look_twice(guard, 2 * GIB, 9)
    (warning,) = caught
    assert str(warning.message).startswith("step 12: 2 allocator retries since the training began, with 2 GiB held")


def test_the_allocator_is_read_as_pytorch_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {
        "allocated_bytes": {"all": {"current": 1, "peak": 9}},
        "reserved_bytes": {"all": {"current": 2, "peak": 3}},
        "num_alloc_retries": 4,
    }
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: kept)
    assert read_allocator(CPU) == Allocator(allocated_bytes=1, reserved_bytes=2, reserved_peak_bytes=3, retries=4)
    kept.clear()
    assert read_allocator(CPU) == Allocator(allocated_bytes=0, reserved_bytes=0, reserved_peak_bytes=0, retries=0)
