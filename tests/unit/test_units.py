"""Sizes and times as people write and read them."""

import pytest

from autotune.units import format_bytes, format_seconds, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MiB", 512 << 20),
        ("24GiB", 24 << 30),
        ("24g", 24 << 30),
        ("1.5 GiB", 3 << 29),
        ("40GB", 40_000_000_000),
        ("1000000", 1_000_000),
        ("7b", 7),
    ],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "lots", "12 parsecs", "-1GiB", "0", "0.0GiB", "1GiB2", "inf"])
def test_what_is_no_size_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_sizes_are_written() -> None:
    assert [format_bytes(n) for n in (None, 5, 2048, 512 << 20, 3 << 29)] == ["-", "5 B", "2 KiB", "512 MiB", "1.5 GiB"]


def test_seconds_are_written() -> None:
    assert [format_seconds(s) for s in (None, 0.34, 2.14, 185.0)] == ["-", "340 ms", "2.14 s", "3 min 5 s"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2_592_000), ("12h", 43_200), (" 1.5 H ", 5400), ("90m", 5400), ("45s", 45), ("2w", 1_209_600)],
)
def test_a_time_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d2h", "1e3s", "soon"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write for example 30d"):
        parse_duration(text)
