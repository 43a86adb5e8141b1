"""Which allocator options can be replayed, and what they say about sizes."""

import pytest

from autotune.memory.allocator_config import AllocatorConfig, Unreplayable
from autotune.units import GIB, KIB, MIB

parse = AllocatorConfig.parse


def test_no_options_are_pytorchs_defaults() -> None:
    assert parse("") == parse(" ") == parse("backend:native") == AllocatorConfig()


def test_every_option_is_read() -> None:
    assert parse(
        "expandable_segments:True,max_split_size_mb:128,max_non_split_rounding_mb:64,"
        "garbage_collection_threshold:0.8,roundup_power2_divisions:4,large_segment_size_mb:40"
    ) == AllocatorConfig(
        expandable_segments=True,
        max_split_bytes=128 * MIB,
        max_non_split_rounding_bytes=64 * MIB,
        garbage_collection_threshold=0.8,
        roundup_power2_divisions=(4,) * 16,
        large_segment_bytes=40 * MIB,
    )


def test_blanks_and_a_comma_at_the_end_mean_nothing() -> None:
    assert parse(" expandable_segments : True , max_split_size_mb : 40 ,") == parse(
        "expandable_segments:True,max_split_size_mb:40"
    )


def test_the_last_of_equal_options_holds() -> None:
    assert parse("max_split_size_mb:40,max_split_size_mb:50").max_split_bytes == 50 * MIB


@pytest.mark.parametrize(
    "text", ["pinned_use_background_threads:True", "release_lock_on_cudamalloc:True", "throw_on_cudamalloc_oom:False"]
)
def test_options_without_effect_on_device_memory_change_nothing(text: str) -> None:
    assert parse(text) == AllocatorConfig()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("backend:cudaMallocAsync", "cudaMallocAsync"),
        ("expandable_segments:True,backend:cudaMallocAsync", "cudaMallocAsync"),
        ("per_process_memory_fraction:0.5", "per_process_memory_fraction"),
        ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom"),
        ("a_new_option:1", "a_new_option"),
        ("expandable_segments:true", "expandable_segments"),
        ("expandable_segments", "expandable_segments"),
        ("max_split_size_mb", "max_split_size_mb"),
        ("max_split_size_mb:", "max_split_size_mb"),
        ("max_split_size_mb:many", "max_split_size_mb"),
        ("max_split_size_mb:-1", "max_split_size_mb"),
        ("max_split_size_mb:19", "max_split_size_mb"),
        ("max_split_size_mb:20,large_segment_size_mb:25", "max_split_size_mb"),
        ("max_non_split_rounding_mb:19", "max_non_split_rounding_mb"),
        ("large_segment_size_mb:10", "large_segment_size_mb"),
        ("garbage_collection_threshold:0", "garbage_collection_threshold"),
        ("garbage_collection_threshold:1.0", "garbage_collection_threshold"),
        ("garbage_collection_threshold:often", "garbage_collection_threshold"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions"),
        ("roundup_power2_divisions:[3:4]", "roundup_power2_divisions"),
        ("roundup_power2_divisions:[256:3]", "roundup_power2_divisions"),
        ("roundup_power2_divisions:[256:1", "roundup_power2_divisions"),
    ],
)
def test_what_cannot_be_replayed_is_named(text: str, named: str) -> None:
    with pytest.raises(Unreplayable, match=named):
        parse(text)


def test_it_is_a_value_error() -> None:
    assert issubclass(Unreplayable, ValueError)


@pytest.mark.parametrize(
    ("size", "rounded"), [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)]
)
def test_requests_are_rounded_up_to_512_bytes(size: int, rounded: int) -> None:
    assert AllocatorConfig().rounded(size) == rounded


@pytest.mark.parametrize(
    ("size", "rounded"),
    [
        (1000, 1024),  # not above 4 * 512: as ever
        (2048, 2048),
        (2049, 2560),  # steps of 512 between 2048 and 4096
        (1200 * KIB, 1280 * KIB),
        (1280 * KIB, 1280 * KIB),
        (1281 * KIB, 1536 * KIB),
        (1800 * KIB, 2048 * KIB),
        (1 * GIB, 1 * GIB),
        (1 * GIB + 1, 1 * GIB + 256 * MIB),
    ],
)
def test_four_divisions_round_to_quarters_between_powers_of_two(size: int, rounded: int) -> None:
    assert parse("roundup_power2_divisions:4").rounded(size) == rounded


def test_one_division_rounds_as_ever() -> None:
    assert parse("roundup_power2_divisions:1").rounded(2049) == 2560


def test_a_list_gives_each_power_of_two_its_own_divisions() -> None:
    config = parse("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
    assert config.roundup_power2_divisions == (8,) * 7 + (2, 4, 2, 4) + (1,) * 5
    assert config.rounded(130 * MIB) == 192 * MIB
    assert config.rounded(260 * MIB) == 320 * MIB
    assert config.rounded(2049 * MIB) == 2049 * MIB


def test_sizes_between_the_entries_of_a_list_are_rounded_as_ever() -> None:
    config = parse("roundup_power2_divisions:[128:8,256:0,512:1,2048:8]")
    assert config.roundup_power2_divisions == (8,) * 8 + (0, 1, 0, 8) + (0,) * 4


def test_sizes_beyond_the_list_belong_to_its_last_entry() -> None:
    config = parse("roundup_power2_divisions:[16384:1,32768:2]")
    assert config.rounded(200 * GIB) == 256 * GIB


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (19 * MIB, 20 * MIB),
    ],
)
def test_segments_are_sized_by_the_request(rounded: int, segment: int) -> None:
    assert AllocatorConfig().segment_bytes(rounded) == segment


def test_the_large_segment_can_be_set() -> None:
    assert parse("large_segment_size_mb:40").segment_bytes(5 * MIB) == 40 * MIB
    assert parse("large_segment_size_mb:40").segment_bytes(15 * MIB) == 16 * MIB
