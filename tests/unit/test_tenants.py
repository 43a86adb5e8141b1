"""When a change in other processes' use of the device makes a probe worthless."""

import pytest

from autotune.model import Budget, Cause
from autotune.probe.tenants import disturbance
from autotune.units import GIB, MIB

ROOMY = Budget(
    limit_bytes=2 * GIB, source="--memory-limit", capacity_bytes=100 * GIB, others_bytes=30 * GIB, headroom_bytes=0
)
TIGHT = Budget(
    limit_bytes=68 * GIB, source="device", capacity_bytes=100 * GIB, others_bytes=30 * GIB, headroom_bytes=2 * GIB
)


@pytest.mark.parametrize(
    ("budget", "before", "after", "disturbed"),
    [
        (ROOMY, 30 * GIB, 30 * GIB, False),
        (ROOMY, 30 * GIB, 31 * GIB, False),  # one per cent of the capacity
        (ROOMY, 30 * GIB, 31 * GIB + 1, True),
        (ROOMY, 31 * GIB + 1, 30 * GIB, True),
        (ROOMY, 90 * GIB, 90 * GIB, False),  # more than before, and there is room for all of the budget
        (ROOMY, 98 * GIB + 1, 98 * GIB + 1, True),
        (TIGHT, 32 * GIB, 32 * GIB, False),  # within the headroom
        (TIGHT, 32 * GIB + 1, 32 * GIB + 1, True),
        (TIGHT, 32 * GIB, 32 * GIB + 1, True),
        (TIGHT, 10 * GIB, 10 * GIB, False),
        (ROOMY, None, 30 * GIB, False),
        (ROOMY, 30 * GIB, None, False),
    ],
)
def test_a_change_beyond_the_tolerance_or_a_budget_without_room_disturbs(
    budget: Budget, before: int | None, after: int | None, disturbed: bool
) -> None:
    assert (disturbance(budget, before, after) is not None) is disturbed


def test_on_a_small_device_a_context_that_comes_or_goes_is_tolerated() -> None:
    small = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0)
    assert disturbance(small, 0, 256 * MIB) is None
    assert disturbance(small, 0, 257 * MIB) is not None


def test_the_failure_names_what_others_hold_and_what_is_missing() -> None:
    failure = disturbance(TIGHT, 31 * GIB, 40 * GIB)
    assert failure is not None and failure.cause is Cause.OTHERS
    assert "hold 40 GiB" in failure.message
    assert "31 GiB before it and 30 GiB when the search began" in failure.message
    assert "leaves 8 GiB less than the budget" in failure.message
    assert "run the same command again" in failure.hint
