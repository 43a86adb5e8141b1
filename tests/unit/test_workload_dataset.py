"""The worst-case batch of a data set: its largest samples, or a plain word that they were not looked for."""

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from autotune.errors import WorkloadError
from autotune.workload.dataset import Counted
from autotune.workload.opening import open_data
from autotune.workload.sizes import elements
from tests.unit.workload_files import ASSETS, load_file


class Lengths(Dataset[torch.Tensor]):
    """Sequences of given lengths; remembers which were read."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < len(self.lengths):
            raise IndexError(index)
        self.read.append(index)
        return torch.full((self.lengths[index],), index)


class Spent(IterableDataset[int]):
    """Gives its samples once: what ``__iter__`` returns has been begun."""

    def __init__(self) -> None:
        self.samples = iter([3, 4, 5])

    def __iter__(self) -> Iterator[int]:
        return self.samples


class Stream(IterableDataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


def as_list(samples: list[object]) -> object:
    return samples


def numbers(made: Counted) -> list[int]:
    batch, samples = made
    assert isinstance(batch, list) and samples == len(batch)
    return [int(sample[0]) for sample in batch]


def test_c10_the_longest_sample_is_in_every_batch() -> None:
    workload = load_file(ASSETS / "ragged_data.py")
    for size in (1, 2, 50):
        batch = workload.make_batch(size)
        assert isinstance(batch, torch.Tensor)
        assert batch.shape == (size, 90)
    assert workload.notes == ()


def test_a_batch_holds_the_largest_samples_in_a_fixed_order() -> None:
    data = Lengths([5, 9, 9, 1, 7])
    source = open_data(lambda: data, as_list)
    assert numbers(source.batch(2)) == [1, 2]
    assert numbers(source.batch(4)) == [1, 2, 4, 0]


def test_samples_are_looked_at_once_and_read_anew_for_each_batch() -> None:
    data = Lengths([1, 2, 3, 4])
    source = open_data(lambda: data, as_list)
    assert sorted(data.read) == [0, 1, 2, 3]
    data.read.clear()
    source.batch(2)
    source.batch(2)
    assert data.read == [3, 2, 3, 2]


def test_a_shorter_batch_holds_the_samples_nearest_to_the_share_and_larger_ones_last() -> None:
    data = Lengths([5, 10, 9, 1, 7, 10, 6])
    source = open_data(lambda: data, as_list)
    assert source.varies
    assert numbers(source.shorter(2, 0.75)) == [4, 6]  # of 7 and 6 elements; the largest has 10
    assert numbers(source.shorter(2, 0.95)) == [2, 4]
    assert numbers(source.shorter(3, 0.5)) == [0, 3, 6]
    assert numbers(source.shorter(7, 0.5)) == [0, 3, 6, 4, 2, 1, 5]
    assert numbers(source.batch(2)) == [1, 5]


def test_one_long_sample_is_not_in_shorter_batches() -> None:
    data = Lengths([10, 20, 400, 30])
    source = open_data(lambda: data, as_list)
    assert numbers(source.shorter(2, 0.6)) == [3, 1]
    assert numbers(source.shorter(2, 0.95)) == [3, 1]


def test_samples_larger_than_any_share_vary_too() -> None:
    data = Lengths([100, 99, 98])
    source = open_data(lambda: data, as_list)
    assert source.varies
    assert numbers(source.shorter(2, 0.4)) == [2, 1]


def test_a_shorter_batch_has_as_many_samples_where_few_were_looked_at() -> None:
    data = Lengths([*range(1, 51)])
    ticks = count()
    source = open_data(lambda: data, as_list, clock=lambda: float(next(ticks)))
    assert sorted(numbers(source.shorter(50, 0.5))) == list(range(50))
    assert len(numbers(source.shorter(20, 0.5))) == 20


def test_samples_of_one_size_and_streams_do_not_vary() -> None:
    assert not open_data(lambda: Lengths([3, 3, 3]), as_list).varies
    assert not open_data(lambda: Stream(10), as_list).varies


def test_c02_a_data_set_smaller_than_the_batch_gives_what_there_is() -> None:
    source = open_data(lambda: TensorDataset(torch.zeros(100, 3), torch.zeros(100)), None)
    assert source.size == 100
    batch, samples = source.batch(128)
    assert isinstance(batch, list) and samples == 100
    assert [tuple(part.shape) for part in batch] == [(100, 3), (100,)]


def test_a_slow_data_set_is_only_sampled_and_says_so() -> None:
    data = Lengths([1] * 50)
    ticks = count()
    source = open_data(lambda: data, as_list, clock=lambda: float(next(ticks)))
    assert source.notes == ("looked at 11 of 50 samples for the largest ones; a larger sample may exist",)
    assert len(data.read) == 11
    assert len(set(numbers(source.batch(50)))) == 50


def test_rows_of_tensors_are_alike_also_those_that_were_not_looked_at() -> None:
    rows = TensorDataset(torch.zeros(50, 3))
    for data in (rows, Subset(Subset(rows, range(40)), range(30))):
        ticks = count()
        source = open_data(lambda data=data: data, as_list, clock=lambda ticks=ticks: float(next(ticks)))  # type: ignore[misc]
        assert source.notes == ()


def test_what_is_sampled_is_spread_over_the_data_set() -> None:
    data = Lengths([1] * 1000)
    ticks = count()
    open_data(lambda: data, as_list, clock=lambda: float(next(ticks)))
    gaps = [b - a for a, b in zip(sorted(data.read), [*sorted(data.read)[1:], 1000], strict=True)]
    assert max(gaps) < 250


def test_a_large_data_set_is_looked_at_in_part() -> None:
    data = Lengths([1] * 10_001)
    source = open_data(lambda: data, as_list, clock=lambda: 0.0)
    assert len(data.read) == 10_000
    assert source.notes[0].startswith("looked at 10,000 of 10,001 samples")


def test_a_stream_gives_its_first_samples_each_time_and_says_so() -> None:
    source = open_data(lambda: Stream(10_001), as_list)
    assert source.size is None
    assert source.batch(3) == ([0, 1, 2], 3)
    assert source.batch(4) == ([0, 1, 2, 3], 4)
    assert source.notes[0].startswith("the data set is a stream: batches are its first samples and the longest of the")
    assert source.notes[0].endswith("first 10,000; longer ones that come later were not probed")


def test_a_stream_that_ends_is_as_large_as_it_was_seen_to_be() -> None:
    source = open_data(lambda: Stream(10), as_list)
    assert (source.size, source.notes) == (10, ())
    assert source.batch(64) == (list(range(10)), 10)


class Says(Stream):
    """Gives ten samples."""

    def __init__(self, length: int) -> None:
        super().__init__(10)
        self._says = length

    def __len__(self) -> int:
        return self._says


@pytest.mark.parametrize("length", [4, 4000])
def test_a_stream_that_says_a_false_length_is_counted(length: int) -> None:
    source = open_data(lambda: Says(length), as_list)
    assert source.size == 10
    assert source.notes == (f"the data set says it has {length:,} samples and gives 10: the latter count",)
    honest = open_data(lambda: Says(10), as_list)
    assert (honest.size, honest.notes) == (10, ())


class Texts(IterableDataset[torch.Tensor]):
    """Texts of given lengths."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.full((length,), index) for index, length in enumerate(self.lengths))


def test_c10_the_longest_sample_of_a_stream_is_in_every_batch() -> None:
    source = open_data(lambda: Texts([5, 3, 4, 90, 6]), as_list)
    assert source.varies
    assert numbers(source.batch(1)) == [3]
    assert numbers(source.batch(3)) == [3, 0, 1]
    assert numbers(source.shorter(2, 0.06)) == [0, 2]
    assert numbers(source.batch(9)) == [3, 0, 1, 2, 3], "as many as there are"


def test_a_plain_list_is_a_data_set() -> None:
    batch, _ = open_data(lambda: [(torch.zeros(2), 1), (torch.zeros(2), 0)], None).batch(2)
    assert isinstance(batch, list)
    assert batch[0].shape == (2, 2)
    assert batch[1].tolist() == [1, 0]


@dataclass
class Scene:
    points: torch.Tensor
    name: str


class Array:
    size = 12
    shape = (3, 4)


class Picture:
    size = (20, 30)


Named = namedtuple("Named", "x y")


@pytest.mark.parametrize(
    ("sample", "number"),
    [
        (torch.zeros(3, 4), 12),
        (Array(), 12),
        ("hello", 5),
        (b"abc", 3),
        ([1, 2, 3], 3),
        ({"ids": [1, 2], "text": "abcd"}, 6),
        ((torch.zeros(5), 1), 6),
        (Scene(torch.zeros(7), "ab"), 9),
        (Named("ab", [1]), 3),
        (Picture(), 600),
        (3.5, 1),
        (None, 1),
    ],
)
def test_the_size_of_a_sample_is_what_it_holds(sample: object, number: int) -> None:
    assert elements(sample) == number


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (
            DataLoader([1, 2], batch_size=None),  # type: ignore[arg-type]
            "a DataLoader with batch_size=None: the items of its data set are batches already",
            "make_loader(batch_size)",
        ),
        (
            DataLoader([1, 2], batch_sampler=[[0, 1], [1]]),  # type: ignore[arg-type]
            "a DataLoader with a list, which has no batch_size to change",
            "token budget",
        ),
        ({"train": [1], "test": [2]}, "returned a dict of 2 parts", "the one to train on"),
        ((Lengths([1]), Lengths([1])), "returned a tuple of 2 parts", "the one to train on"),
        (iter([1, 2]), "returned a list_iterator, which can be read only once", "__iter__ starts anew"),
        (Spent(), "returned a Spent, which can be read only once", "__iter__ starts anew"),
        (5, "returned an int, which has neither __getitem__ nor __iter__", "torch Dataset"),
        ([], "returned an empty data set", "check the path"),
    ],
)
def test_what_is_no_data_set_is_named(data: object, message: str, hint: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        open_data(lambda: data, None)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_an_empty_stream_is_named_when_it_is_read() -> None:
    with pytest.raises(WorkloadError, match="empty data set"):
        open_data(lambda: Stream(0), None).batch(4)
