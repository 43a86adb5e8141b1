"""What counts as the length of a sample: the extents that differ from sample to sample, the largest of them."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from autotune.errors import UsageError
from autotune.workload.lengths import IN_CHARACTERS, Lengths, keep
from autotune.workload.sizes import Sizes, look


def sizes(*samples: object) -> Sizes:
    return look(list(samples), range(len(samples)), lambda: 0.0)


def measured(*samples: object) -> list[int]:
    """Length of each sample; by its index and by itself are the same."""
    seen = sizes(*samples)
    lengths = Lengths(seen.spans)
    known = lengths.known(seen)
    found = [known[index] for index in range(len(samples))]
    assert [lengths.of(sample) for sample in samples] == found
    return found


class Picture:
    def __init__(self, *size: int) -> None:
        self.size = size


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([torch.ones(3), torch.ones(7)], [3, 7], id="tokens in a tensor"),
        pytest.param([{"ids": [1, 2, 3]}, {"ids": [1] * 9}], [3, 9], id="tokens in a list"),
        pytest.param([torch.ones(5, 80), torch.ones(2, 80)], [5, 2], id="frames of spectrograms"),
        pytest.param(
            [(torch.ones(4), torch.ones(9)), (torch.ones(6), torch.ones(2))], [9, 6], id="the larger of two lengths"
        ),
        pytest.param(
            [(torch.ones(3, 32, 32), torch.ones(0, 4)), (torch.ones(3, 32, 32), torch.ones(5, 4))],
            [0, 5],
            id="boxes beside pictures of one size",
        ),
        pytest.param([{"boxes": []}, {"boxes": [[0, 0, 1, 1]] * 3}], [0, 3], id="boxes in lists"),
        pytest.param([Picture(30, 20), Picture(30, 90)], [20, 90], id="only the side of a picture that differs"),
        pytest.param([{"a": [1, 2], "b": 1}, {"a": [1] * 5}], [2, 5], id="parts that some samples lack"),
        pytest.param(
            [{"text": "x" * 40, "ids": [1] * 9}, {"text": "y" * 11, "ids": [1] * 10}],
            [9, 10],
            id="tokens count, not the text beside them",
        ),
    ],
)
def test_the_length_is_the_extent_that_differs(samples: list[object], expected: list[int]) -> None:
    assert measured(*samples) == expected
    assert Lengths(sizes(*samples).spans).notes == ()


def test_where_there_are_only_texts_their_characters_count_and_it_is_said() -> None:
    assert measured("a text", "another text") == [6, 12]
    assert Lengths(sizes("a", "bc").spans).notes == (IN_CHARACTERS,)


@pytest.mark.parametrize(
    "samples", [[torch.ones(4), torch.ones(4)], [1, 2], [(torch.ones(3, 8, 8), 1), (torch.ones(3, 8, 8), 2)]]
)
def test_samples_of_one_shape_have_no_length_to_tell_them_by(samples: list[object]) -> None:
    with pytest.raises(
        UsageError, match="all samples of the data set that were looked at have the same shapes"
    ) as raised:
        Lengths(sizes(*samples).spans)
    assert "leave out --buckets" in raised.value.hint


def test_extents_that_are_the_same_everywhere_are_not_kept() -> None:
    pictures = sizes(*[(torch.ones(3, 8, 8), torch.ones(n)) for n in (1, 2, 3)])
    assert pictures.extents == {}
    assert sizes(torch.ones(5, 80), torch.ones(2, 80)).extents == {("", 0): {0: 5, 1: 2}}


def test_of_a_stream_the_largest_of_each_kind_and_other_lengths_are_kept() -> None:
    def sample(number: int) -> dict[str, Any]:
        return {"ids": [number] * (1 + number % 50), "labels": [0] * (40 if number == 7 else 1)}

    samples = [sample(number) for number in range(500)]
    lengths = Lengths(sizes(*samples).spans)
    found = keep(iter(samples), lengths, 45)
    assert (found.seen, found.longer, found.longest) == (450, 50, 45)
    assert any(len(kept["labels"]) == 40 for kept in found.samples if isinstance(kept, dict))
    kept = sorted({lengths.of(each) for each in found.samples})
    assert kept[-1] == 45
    assert max(b - a for a, b in pairwise(kept)) <= 5, "no gap between the lengths"
    assert sum(lengths.of(each) >= 40 for each in found.samples) >= 60, "those of a large batch"
    assert len(found.samples) <= 64 + 16 + 2
