"""The replay against what PyTorch's own allocator counted on a real GPU."""

import pytest

from autotune.memory.allocator import Block, CachingAllocator, OutOfCap
from autotune.memory.allocator_config import AllocatorConfig
from autotune.memory.replay import replay
from autotune.units import GIB
from tests.recordings import AllocatorRun, LimitRun, Recording, load, load_allocator_runs, load_limit_runs

OPTIONS = {"native": "", "expandable_segments": "expandable_segments:True"}

# Which of two equal blocks is split depends on where the driver put their segments, and that on the gaps which the host's
# own mappings leave. Such a history does not repeat itself either: in a second process GPT-2 at batch 2 peaked 2,470,400
# bytes (0.05 %) lower, with every request the same. In these the places are not those of the recorded process.
ALLOCATED_OFF = {"bert-64-native": 655_360, "gpt2ckpt-4-native": 786_432, "vit-24-native": 2_314_240}
"""Bytes by which the allocated peak is off in the worst step."""
RESERVED_OFF = {"resnet50-480": 203_423_744}
"""Bytes by which the reserved peak is off, after segments were given back under pressure."""


@pytest.mark.parametrize("recording", load(), ids=lambda one: one.name)
def test_reserved_memory_is_exact_in_every_step(recording: Recording) -> None:
    trace = recording.trace
    replayed = replay(trace.sizes, trace.events, trace.marks, options(recording), 40 * GIB)
    assert [(one.reserved_bytes, one.retries) for one in replayed.steps[1:]] == [
        (one.reserved_bytes, one.retries) for one in recording.steps
    ]


@pytest.mark.parametrize("recording", load(), ids=lambda one: one.name)
def test_allocated_memory_is_exact_in_every_step_but_for_three_recordings(recording: Recording) -> None:
    trace = recording.trace
    replayed = replay(trace.sizes, trace.events, trace.marks, options(recording), 40 * GIB)
    off = [
        abs(mine.allocated_bytes - recorded.allocated_bytes)
        for mine, recorded in zip(replayed.steps[1:], recording.steps, strict=True)
    ]
    assert max(off) == ALLOCATED_OFF.get(recording.name, 0)
    assert max(off) < replayed.allocated_bytes / 1000


def options(recording: Recording) -> AllocatorConfig:
    return AllocatorConfig.parse(OPTIONS[recording.allocator])


@pytest.mark.parametrize("run", load_limit_runs(), ids=lambda one: f"{one.name}-{one.options or 'native'}")
def test_close_to_the_limit_it_retries_and_runs_out_as_often_and_where_it_really_did(run: LimitRun) -> None:
    replayed = replay(run.sizes, run.events, (), AllocatorConfig.parse(run.options), run.cap_bytes)
    assert (replayed.allocated_bytes, replayed.retries) == (run.allocated_bytes, run.retries)
    assert run.reserved_bytes - replayed.reserved_bytes == RESERVED_OFF.get(run.name, 0) < run.reserved_bytes / 200
    out = replayed.out_of_memory
    assert (out.event if out else None) == (len(run.events) - 1 if run.out_of_memory else None)


@pytest.mark.parametrize("run", load_allocator_runs(), ids=lambda one: one.options or "native")
def test_every_figure_after_every_operation_is_the_allocators_own(run: AllocatorRun) -> None:
    assert figures(run) == list(run.figures)


def figures(run: AllocatorRun) -> list[tuple[int, int, int] | None]:
    """After each operation, None after one whose outcome differs."""
    memory = CachingAllocator(AllocatorConfig.parse(run.options), run.cap_bytes, max(run.streams, default=0) + 1)
    streams = run.streams or (0,) * len(run.sizes)
    blocks: dict[int, Block] = {}
    said: list[tuple[int, int, int] | None] = []
    for event, number in enumerate(run.events):
        refused = False
        if number > 0:
            try:
                blocks[number] = memory.malloc(run.sizes[number - 1], streams[number - 1])
            except OutOfCap:
                refused = True
        else:
            memory.free(blocks.pop(-number))
        as_recorded = refused == (event in run.refused)
        said.append((memory.allocated_bytes, memory.reserved_bytes, memory.retries) if as_recorded else None)
    return said
