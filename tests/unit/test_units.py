"""Sizes and times as people write and read them."""

import pytest

from autotune.units import format_bytes, format_seconds, parse_bytes


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
