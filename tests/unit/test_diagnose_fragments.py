"""How memory is cut, and when that is to blame: synthetic snapshots and records."""

from typing import Any

import pytest

from autotune.diagnose.fragmentation.candidates import candidates
from autotune.diagnose.fragmentation.judge import judge_fragmentation, judge_remedy, ranked
from autotune.diagnose.fragmentation.pieces import failed_request, pieces_of, squeezes_of
from autotune.memory.allocator_config import AllocatorConfig, Unreplayable
from autotune.model import Cause, Failure, Fragmentation, FragmentEvidence, Outcome, Pieces, Remedy, Squeeze
from autotune.units import GIB, MIB

DIED = Failure(cause=Cause.DEVICE_MEMORY, message="CUDA out of memory", step=5)


def segment(kind: str, *blocks: tuple[str, int], device: int = 0) -> dict[str, Any]:
    return {
        "device": device,
        "segment_type": kind,
        "total_size": sum(size for _, size in blocks),
        "blocks": [{"state": state, "size": size} for state, size in blocks],
    }


def entry(action: str, size: int) -> dict[str, Any]:
    return {"action": action, "size": size}


SEGMENTS = [
    segment("large", ("active_allocated", 10 * MIB), ("inactive", 4 * MIB), ("active_allocated", 6 * MIB)),
    segment("large", ("inactive", 20 * MIB)),
    segment("small", ("active_allocated", MIB), ("inactive", MIB)),
    segment("large", ("inactive", 500 * MIB), device=1),
]


def test_pieces_are_counted_by_segment_and_device() -> None:
    assert pieces_of(SEGMENTS, 0) == Pieces(
        allocated_bytes=17 * MIB,
        reserved_bytes=42 * MIB,
        inactive_split_bytes=5 * MIB,
        largest_free_bytes=20 * MIB,
        free_blocks=3,
    )
    assert pieces_of(SEGMENTS, 0).unallocated_bytes == 25 * MIB


def test_the_last_refused_request_counts() -> None:
    record = [entry("oom", 7), entry("alloc", 5), entry("oom", 9), entry("free_completed", 5)]
    assert failed_request(record) == 9 and failed_request(record[1:2]) is None


def test_a_request_that_waited_for_the_cache_is_found_with_what_was_held_then() -> None:
    record = [
        entry("segment_alloc", 100),
        entry("alloc", 60),
        entry("free_completed", 60),
        entry("alloc", 30),
        entry("segment_free", 40),
        entry("segment_free", 20),
        entry("segment_alloc", 80),
        entry("alloc", 80),
    ]
    assert squeezes_of(record, 0, 0) == (Squeeze(requested_bytes=80, allocated_bytes=30, reserved_bytes=100),)


def test_a_cache_that_is_emptied_without_need_is_no_retry() -> None:
    assert squeezes_of([entry("segment_free", 40), entry("alloc", 5), entry("segment_alloc", 9)], 10, 90) == ()


def at_failure(held: int, asked: int, *, cap: int = 2 * GIB, largest: int = 10 * MIB) -> FragmentEvidence:
    cut = Pieces(
        allocated_bytes=cap - held,
        reserved_bytes=cap,
        inactive_split_bytes=held,
        largest_free_bytes=largest,
        free_blocks=9,
    )
    return FragmentEvidence(steps=4, cap_bytes=cap, at_failure=cut, requested_bytes=asked)


def test_c27_much_held_in_pieces_that_would_have_been_enough_is_fragmentation() -> None:
    found = judge_fragmentation(at_failure(700 * MIB, 500 * MIB), Outcome.OUT_OF_MEMORY, DIED)
    assert found.flagged and found.failed_at_step == 5
    assert "500 MiB were asked for" in found.why and "at most 10 MiB" in found.why


@pytest.mark.parametrize(
    ("held", "asked"),
    [(20 * MIB, 10 * MIB), (700 * MIB, 800 * MIB)],
    ids=["little is held without use", "all that is free is not enough"],
)
def test_c27_memory_that_is_used_up_is_no_fragmentation(held: int, asked: int) -> None:
    assert not judge_fragmentation(at_failure(held, asked), Outcome.OUT_OF_MEMORY, DIED).flagged


def test_what_may_still_be_reserved_counts_as_free() -> None:
    evidence = at_failure(700 * MIB, 800 * MIB)
    assert not judge_fragmentation(evidence, Outcome.OUT_OF_MEMORY, DIED).flagged
    roomy = FragmentEvidence(cap_bytes=3 * GIB, at_failure=evidence.at_failure, requested_bytes=800 * MIB)
    assert judge_fragmentation(roomy, Outcome.OUT_OF_MEMORY, DIED).flagged


def test_an_out_of_memory_that_was_not_recorded_is_not_blamed_on_anything() -> None:
    found = judge_fragmentation(FragmentEvidence(), Outcome.OUT_OF_MEMORY, DIED)
    assert not found.flagged and "not recorded" in found.why


def retrying(*per_step: int, held: int = 600 * MIB, seconds: float = 0.1) -> FragmentEvidence:
    waited = Squeeze(requested_bytes=300 * MIB, allocated_bytes=GIB, reserved_bytes=GIB + held)
    return FragmentEvidence(
        steps=len(per_step),
        retries_per_step=per_step,
        step_seconds=(seconds,) * len(per_step),
        cap_bytes=2 * GIB,
        squeezes=(waited,) if any(per_step) else (),
    )


def test_c27_retries_of_the_warm_up_are_no_fragmentation_and_later_ones_are() -> None:
    assert not judge_fragmentation(retrying(3, 1, 0, 0), Outcome.FITS, None).flagged
    assert judge_fragmentation(retrying(3, 1, 2, 1), Outcome.FITS, None).flagged
    assert not judge_fragmentation(retrying(3, 1, 2, 1, held=20 * MIB), Outcome.FITS, None).flagged


def test_expandable_segments_come_first_and_nothing_is_proposed_that_is_set() -> None:
    assert candidates("", 512 * MIB) == (
        "expandable_segments:True",
        "max_split_size_mb:256",
        "garbage_collection_threshold:0.8",
        "roundup_power2_divisions:8",
    )
    assert candidates("expandable_segments:True", 512 * MIB) == ("expandable_segments:True,roundup_power2_divisions:8",)
    assert candidates("expandable_segments:True,roundup_power2_divisions:4", None) == ()
    assert candidates("max_split_size_mb:64", None)[1] == "max_split_size_mb:64,garbage_collection_threshold:0.8"
    assert "expandable_segments:True" not in candidates("expandable_segments:False", None)[0]
    assert candidates("backend:cudaMallocAsync", None) == ()
    with pytest.raises(Unreplayable):
        candidates("nonsense", None)


@pytest.mark.parametrize("asked", [None, 1, 3 * MIB, 100 * MIB, 50 * GIB])
def test_every_candidate_is_one_that_pytorch_takes(asked: int | None) -> None:
    for text in candidates("", asked):
        AllocatorConfig.parse(text)


def test_a_remedy_is_one_that_survives_or_retries_less_in_a_rerun() -> None:
    died = judge_fragmentation(at_failure(700 * MIB, 500 * MIB), Outcome.OUT_OF_MEMORY, DIED)
    thrashed = judge_fragmentation(retrying(1, 1, 2, 2), Outcome.FITS, None)
    assert judge_remedy("a:1", died, retrying(0, 0, 1, 1), Outcome.FITS).helps
    assert not judge_remedy("a:1", died, FragmentEvidence(), Outcome.OUT_OF_MEMORY).helps
    assert judge_remedy("a:1", thrashed, retrying(1, 1, 0, 1), Outcome.FITS).helps
    assert not judge_remedy("a:1", thrashed, retrying(1, 1, 2, 2), Outcome.FITS).helps
    assert not judge_remedy("a:1", thrashed, FragmentEvidence(), Outcome.OUT_OF_MEMORY).helps


def test_the_remedy_with_fewest_retries_comes_first_then_the_fastest() -> None:
    fits, gone = Outcome.FITS, Outcome.OUT_OF_MEMORY
    slow = Remedy(allocator="slow:1", helps=True, outcome=fits, steady_retries=0, step_seconds=0.3)
    fast = Remedy(allocator="fast:1", helps=True, outcome=fits, steady_retries=0, step_seconds=0.2)
    some = Remedy(allocator="some:1", helps=True, outcome=fits, steady_retries=2, step_seconds=0.1)
    none = Remedy(allocator="none:1", helps=False, outcome=gone)
    order = ranked([none, some, slow, fast])
    assert [one.allocator for one in order] == ["fast:1", "slow:1", "some:1", "none:1"]
    found = Fragmentation(
        flagged=True, why="", outcome=gone, failed_at_step=1, evidence=FragmentEvidence(), remedies=order
    )
    assert found.best == fast
