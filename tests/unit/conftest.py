"""What several unit tests use. Nothing here imports torch before a test needs it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.compared import Bench


@pytest.fixture
def bench() -> "Iterator[Bench]":
    """Compares on the CPU."""
    from tests.unit.compared import bench_on_the_cpu

    with bench_on_the_cpu() as made:
        yield made
