"""The guard that watches a training's memory against what was certified for it."""

import warnings
from collections.abc import Callable

import pytest
import torch

from autotune.errors import MemoryWarning
from autotune.runtime.certified import MemoryGuard, device_guard
from autotune.units import GIB


def stats(reserved_gib: float, retries: int) -> dict[str, int]:
    return {"reserved_bytes.all.peak": int(reserved_gib * GIB), "num_alloc_retries": retries}


def look(guard: MemoryGuard, *steps: int) -> None:
    for step in steps:
        guard.look(step)


@pytest.fixture
def reading() -> tuple[dict[str, int], Callable[[], dict[str, int]]]:
    """Statistics to change, and what reads them."""
    now = stats(1, 7)
    return now, lambda: now


def test_nothing_is_said_while_memory_is_as_certified(
    reading: tuple[dict[str, int], Callable[[], dict[str, int]]],
) -> None:
    now, read = reading
    guard = MemoryGuard(2 * GIB, 3 * GIB, read)
    now.update(stats(2, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard.look(1)


def test_memory_above_what_was_certified_is_told_once_with_its_figures(
    reading: tuple[dict[str, int], Callable[[], dict[str, int]]],
) -> None:
    now, read = reading
    guard = MemoryGuard(2 * GIB, 3 * GIB, read)
    now.update(stats(2.5, 7))
    with pytest.warns(MemoryWarning) as caught:
        look(guard, 12, 13)
    (warning,) = caught
    first = str(warning.message).splitlines()[0]
    assert first == "step 12: the allocator holds 2.5 GiB, more than the 2 GiB that was certified (budget 3 GiB)"


def test_where_no_peak_was_certified_the_budget_counts(
    reading: tuple[dict[str, int], Callable[[], dict[str, int]]],
) -> None:
    now, read = reading
    guard = MemoryGuard(None, 2 * GIB, read)
    now.update(stats(2.5, 7))
    with pytest.warns(MemoryWarning, match=r"more than the 2 GiB that was allowed"):
        guard.look(1)


def test_retries_since_the_training_began_are_told_once(
    reading: tuple[dict[str, int], Callable[[], dict[str, int]]],
) -> None:
    now, read = reading
    guard = MemoryGuard(2 * GIB, 3 * GIB, read)
    now.update(stats(2, 9))
    with pytest.warns(MemoryWarning) as caught:
        look(guard, 5, 6)
    (warning,) = caught
    assert str(warning.message).startswith("step 5: 2 allocator retries since the training began, with 2 GiB held")


def test_a_device_without_counts_has_no_guard() -> None:
    assert device_guard(1, 1, torch.device("cpu")) is None
