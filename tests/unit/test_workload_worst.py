"""Candidates for the worst batch: sets of samples, told from the sizes of their parts."""

from dataclasses import dataclass

import torch

from autotune.workload.sizes import Sizes, look, part_sizes
from autotune.workload.worst import MOST_CANDIDATES, LargestSamples, WorstLists


@dataclass
class Scene:
    image: torch.Tensor
    target: dict[str, torch.Tensor]


def sizes(*samples: tuple[int, ...]) -> Sizes:
    """Samples with parts of these sizes."""
    data = [tuple(torch.zeros(size) for size in parts) for parts in samples]
    return look(data, range(len(data)), lambda: 0.0)


def candidates(batch_size: int, *samples: tuple[int, ...]) -> list[list[int]]:
    return LargestSamples(sizes(*samples), range(len(samples))).candidates(batch_size)


def test_parts_of_a_sample_are_told_apart_by_name() -> None:
    scene = Scene(torch.zeros(3, 4), {"boxes": torch.zeros(5, 4), "labels": torch.zeros(5)})
    assert part_sizes(scene) == {"image": 12, "target.boxes": 20, "target.labels": 5}
    assert part_sizes((torch.zeros(2), 7)) == {"0": 2, "1": 1}
    assert part_sizes([1, 2, 3]) == {"": 3}
    assert part_sizes(tuple(torch.zeros(2) for _ in range(20))) == {**{str(n): 2 for n in range(15)}, "15": 10}


def test_samples_of_one_part_have_one_candidate() -> None:
    assert candidates(2, (5,), (9,), (7,)) == [[1, 2]]


def test_inputs_and_targets_of_the_same_length_are_one_part() -> None:
    assert candidates(2, (5, 5), (9, 9), (7, 7)) == [[1, 2]]


def test_the_longest_of_each_part_come_together_first_since_padding_makes_all_as_long() -> None:
    few_words, many_words = (10, 90), (80, 10)
    found = candidates(2, (50, 49), few_words, many_words, (60, 38), (1, 1))
    assert found[0] == [1, 2], "the longest question and the longest answer are in different samples"
    assert [set(one) for one in found[1:]] == [{1, 0}, {2, 3}]


def test_the_most_boxes_are_a_candidate_beside_the_largest_pictures() -> None:
    found = candidates(2, (1000, 1), (990, 2), (400, 50), (300, 40), (900, 3))
    assert [set(one) for one in found] == [{0, 2}, {0, 1}, {2, 3}]


def test_one_sample_is_the_largest_in_all() -> None:
    assert candidates(1, (10, 90), (80, 10), (60, 50)) == [[2], [1], [0]]


def test_a_batch_of_all_samples_is_one_candidate_and_no_more_than_four_are_kept() -> None:
    assert len(candidates(3, (10, 90), (80, 10), (60, 50))) == 1
    many = [tuple(100 if part == row else row + 1 for part in range(8)) for row in range(8)]
    assert len(candidates(1, *many)) == MOST_CANDIDATES


def test_samples_nobody_looked_at_come_last() -> None:
    data = [torch.zeros(3), torch.zeros(8), torch.zeros(5)]
    seen = Sizes()
    for index in (0, 2):
        seen.add(index, data[index])
    assert LargestSamples(seen, range(3)).candidates(3) == [[2, 0, 1]]


def test_c10_of_batches_under_a_budget_the_longest_sample_and_the_most_samples_are_candidates() -> None:
    worst = WorstLists(sizes((2000,), *[(10,)] * 50, *[(90,)] * 4))
    for batch in ([51, 52], [0], list(range(1, 41)), [41, 42], [53, 54]):
        worst.add(batch)
    assert worst.candidates() == [[0], list(range(1, 41))]


def test_a_shorter_batch_has_the_share_of_the_largest_one_and_not_more_if_it_can() -> None:
    worst = WorstLists(sizes((100,), (60,), (49,), (20,)))
    for index in range(4):
        worst.add([index])
    assert worst.shorter(0.5) == [2]
    assert worst.shorter(0.99) == [1]
    assert worst.shorter(0.1) == [3], "there is none so short"


def test_a_data_set_made_anew_is_the_same_if_a_few_samples_are() -> None:
    data = [torch.zeros(size) for size in (3, 9, 4)]
    seen = look(data, range(3), lambda: 0.0)
    assert seen.agrees([torch.zeros(size) for size in (3, 9, 4)], 3)
    assert not seen.agrees([torch.zeros(size) for size in (3, 8, 4)], 3)
    assert not seen.agrees(data, 2)
