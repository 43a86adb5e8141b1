"""What was alive at the peak: blocks matched by address and moment, on records small enough to count by hand."""

from autotune.diagnose.composition.blocks import AtPeak, Event, Sighting, Window, at_peak, pattern, with_rest
from autotune.model import KindBytes, MemoryKind, NamedBytes, Phase

WEIGHT, BATCH, SAVED, SCRATCH, RESULT, GRADIENT = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000
BEFORE = {WEIGHT: 1000}
EVENTS = [
    Event(BATCH, 512),  # 0: data
    Event(SAVED, 2048),  # 1: forward
    Event(SCRATCH, 4096),  # 2: backward, within one operator
    Event(RESULT, 700),  # 3: its result; here the peak
    Event(SCRATCH, 0),  # 4
    Event(GRADIENT, 1000),  # 5
    Event(SAVED, 0),  # 6
    Event(RESULT, 0),  # 7
]
WINDOWS = [
    Window(0, 1, "aten::_to_copy", Phase.DATA, frozenset({BATCH})),
    Window(1, 2, "aten::addmm", Phase.FORWARD, frozenset({SAVED})),
    Window(2, 5, "aten::convolution_backward", Phase.BACKWARD, frozenset({RESULT})),
    Window(5, 6, "aten::mm", Phase.BACKWARD, frozenset({GRADIENT})),
]
SIGHTINGS = [
    Sighting(0, WEIGHT, MemoryKind.WEIGHTS, "out.weight"),
    Sighting(2, SAVED, MemoryKind.ACTIVATIONS, "h.*.fc"),
    Sighting(2, WEIGHT, MemoryKind.ACTIVATIONS, "out"),
    Sighting(8, GRADIENT, MemoryKind.GRADIENTS, "out.weight"),
]


def kinds(found: AtPeak) -> dict[MemoryKind, int]:
    return {one.kind: one.size_bytes for one in found.kinds}


def test_each_block_alive_at_the_peak_is_told_once_by_what_it_is() -> None:
    found = at_peak(BEFORE, EVENTS, SIGHTINGS, WINDOWS)
    assert kinds(found) == {
        MemoryKind.WORKSPACE: 4096,
        MemoryKind.ACTIVATIONS: 2048,
        MemoryKind.WEIGHTS: 1000,
        MemoryKind.TEMPORARIES: 700,
        MemoryKind.BATCH: 512,
    }
    assert found.phase is Phase.BACKWARD
    assert found.requested_bytes == 4096 + 2048 + 1000 + 700 + 512
    assert found.rounded_bytes == 4096 + 2048 + 1024 + 1024 + 512
    assert found.modules == (NamedBytes(name="h.*.fc", size_bytes=2048, count=1),)
    assert [one.name for one in found.makers] == ["aten::convolution_backward"]
    assert found.makers[0].size_bytes == 4096 + 700


def test_an_address_used_twice_is_two_blocks() -> None:
    events = [Event(SAVED, 2048), Event(SAVED, 0), Event(SAVED, 4096)]
    seen = [Sighting(1, SAVED, MemoryKind.ACTIVATIONS, "first"), Sighting(3, SAVED, MemoryKind.GRADIENTS)]
    assert kinds(at_peak({}, events, seen, [])) == {MemoryKind.GRADIENTS: 4096}
    assert kinds(at_peak({}, events[:2], seen[:1], [])) == {MemoryKind.ACTIVATIONS: 2048}


def test_what_is_seen_only_after_the_peak_was_the_same_block_at_the_peak() -> None:
    events = [Event(GRADIENT, 1024), Event(SCRATCH, 8192), Event(SCRATCH, 0)]
    seen = [Sighting(3, GRADIENT, MemoryKind.GRADIENTS)]
    assert kinds(at_peak({}, events, seen, []))[MemoryKind.GRADIENTS] == 1024


def test_a_saved_weight_is_a_weight_and_a_saved_batch_is_the_batch() -> None:
    seen = [
        Sighting(0, WEIGHT, MemoryKind.ACTIVATIONS, "out"),
        Sighting(0, WEIGHT, MemoryKind.WEIGHTS, "out.weight"),
        Sighting(0, BATCH, MemoryKind.ACTIVATIONS, "embed"),
        Sighting(0, BATCH, MemoryKind.BATCH),
    ]
    found = at_peak({WEIGHT: 1000, BATCH: 512}, [], seen, [])
    assert kinds(found) == {MemoryKind.WEIGHTS: 1000, MemoryKind.BATCH: 512}


def test_what_nothing_known_explains_is_not_attributed() -> None:
    found = at_peak({0x9000: 3000}, [Event(0xA000, 100)], [], [])
    assert kinds(found) == {MemoryKind.UNKNOWN: 3100}


def test_without_events_the_peak_is_what_was_there() -> None:
    found = at_peak(BEFORE, [], SIGHTINGS[:1], [])
    assert kinds(found) == {MemoryKind.WEIGHTS: 1000} and found.phase is None


def test_kinds_sum_to_the_peak_with_slack_as_far_as_rounding_explains_it() -> None:
    found = at_peak(BEFORE, EVENTS, SIGHTINGS, WINDOWS)
    rounding = found.rounded_bytes - found.requested_bytes
    whole = with_rest(found, found.rounded_bytes + 5000)
    told = {one.kind: one.size_bytes for one in whole}
    assert told[MemoryKind.SLACK] == rounding and told[MemoryKind.UNKNOWN] == 5000
    assert sum(told.values()) == found.rounded_bytes + 5000


def test_a_large_block_may_keep_a_rest_of_up_to_a_mebibyte() -> None:
    found = at_peak({}, [Event(SAVED, 5 << 20)], [Sighting(1, SAVED, MemoryKind.ACTIVATIONS)], [])
    told = {one.kind: one.size_bytes for one in with_rest(found, (5 << 20) + 900_000)}
    assert told == {MemoryKind.ACTIVATIONS: 5 << 20, MemoryKind.SLACK: 900_000}


def test_a_negative_rest_is_shown_and_not_hidden() -> None:
    found = AtPeak(None, 1000, 1024, 0, (KindBytes(kind=MemoryKind.WEIGHTS, size_bytes=1000, count=1),), (), ())
    told = {one.kind: one.size_bytes for one in with_rest(found, 900)}
    assert told == {MemoryKind.WEIGHTS: 1000, MemoryKind.UNKNOWN: -100}


def test_on_the_cpu_the_process_comes_before_what_is_not_attributed() -> None:
    found = AtPeak(None, 1000, 1000, 0, (KindBytes(kind=MemoryKind.WEIGHTS, size_bytes=1000, count=1),), (), ())
    told = {one.kind: one.size_bytes for one in with_rest(found, 1700, process_bytes=500)}
    assert told == {MemoryKind.WEIGHTS: 1000, MemoryKind.PROCESS: 500, MemoryKind.UNKNOWN: 200}


def test_repeated_blocks_share_a_name() -> None:
    blocks = ("h.0", "h.1", "h.10")
    assert [pattern(name, blocks) for name in ("h.0", "h.1.attn", "h.10.attn", "h.2x", "ln", "")] == [
        "h.*",
        "h.*.attn",
        "h.*.attn",
        "h.2x",
        "ln",
        "",
    ]
    assert pattern("0.fc", ("0", "1")) == "*.fc"
