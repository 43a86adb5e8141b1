"""A data loader where a data set is expected: its parts are used, its batch size is not."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import cast

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from autotune.model import LoaderInfo
from autotune.workload.dataset import BatchSource, Counted
from autotune.workload.opening import open_data, size_of
from tests.unit.loaders import Buckets, Stream, Texts, pad

LENGTHS = [5, 9, 3, 9, 4, 7, 2]


def opened(loader: object) -> BatchSource:
    return open_data(lambda: loader, None)


def tensor(made: Counted) -> torch.Tensor:
    batch = made[0]
    assert isinstance(batch, torch.Tensor)
    return batch


def test_its_data_set_and_collate_function_make_batches_of_any_size() -> None:
    source = opened(DataLoader(Texts(LENGTHS), batch_size=2, collate_fn=pad, num_workers=1, drop_last=True))
    assert source.size == 7
    assert source.varies
    assert source.loader == LoaderInfo(workers=1, pin_memory=False, drop_last=True)
    assert tensor(source.batch(4)).shape == (4, 9)
    assert sorted(tensor(source.batch(2))[:, 0].tolist()) == [1, 3]


def test_a_collate_function_of_the_users_own_goes_before_that_of_the_loader() -> None:
    loader = DataLoader(Texts(LENGTHS), batch_size=2, collate_fn=pad)
    batch, samples = open_data(lambda: loader, len).batch(4)
    assert (batch, samples) == (4, 4)


def test_c02_samples_that_its_sampler_leaves_out_are_in_no_batch() -> None:
    source = opened(DataLoader(Texts(LENGTHS), batch_size=2, collate_fn=pad, sampler=SubsetRandomSampler([0, 2, 4])))
    assert source.size == 3
    batch, samples = source.batch(64)
    assert samples == 3
    assert isinstance(batch, torch.Tensor) and set(batch[:, 0].tolist()) == {0, 2, 4}


@pytest.mark.parametrize(
    "sampler", [RandomSampler(range(7)), WeightedRandomSampler([1.0] * 7, 7), RandomSampler(range(7), num_samples=5)]
)
def test_samplers_that_reach_every_sample_leave_none_out(sampler: RandomSampler) -> None:
    source = opened(DataLoader(Texts(LENGTHS), batch_size=2, collate_fn=pad, sampler=sampler))
    assert source.size == len(sampler)
    assert tensor(source.batch(1)).shape == (1, 9)


class Endless(Sampler[int]):
    """Goes on after the last sample with the first."""

    def __iter__(self) -> Iterator[int]:
        return (number % 7 for number in count())


def test_a_sampler_without_end_leaves_no_sample_out() -> None:
    source = opened(DataLoader(Texts(LENGTHS), batch_size=2, collate_fn=pad, sampler=Endless()))
    assert source.size == 7
    assert tensor(source.batch(1)).shape == (1, 9)


def test_buckets_are_made_with_another_batch_size_and_only_whole_batches_are_candidates() -> None:
    lengths = [3] * 200 + [9] * 70 + [50]
    source = opened(DataLoader(Texts(lengths), batch_sampler=Buckets(lengths, 16), collate_fn=pad))
    assert source.loader is not None and source.sized
    batch, samples = source.batch(32)
    assert isinstance(batch, torch.Tensor) and batch.shape == (32, 9)
    assert samples == 32
    assert "token budget" not in " ".join(source.notes)


def test_buckets_end_where_their_batches_grow_no_more() -> None:
    lengths = [3] * 20 + [9] * 7
    source = opened(DataLoader(Texts(lengths), batch_sampler=Buckets(lengths, 4), collate_fn=pad))
    assert source.batch(64)[1] == 32, "of which 20 are the largest bucket"
    assert source.batch(16)[1] == 16


def test_a_stream_in_a_loader_is_read_from_its_start() -> None:
    source = opened(DataLoader(Stream(LENGTHS), batch_size=2, collate_fn=pad))
    assert source.size == 7
    batch, samples = source.batch(3)
    assert isinstance(batch, torch.Tensor) and (batch.shape, samples) == ((3, 9), 3)


def test_other_arguments_of_the_loader_are_taken_over_where_there_are_workers() -> None:
    loader = DataLoader(Texts(LENGTHS), batch_size=2, num_workers=1, prefetch_factor=5, collate_fn=pad)
    made = opened(loader).load(2, 3, workers=2, pin_memory=False)
    assert isinstance(made, DataLoader)
    assert (made.num_workers, made.prefetch_factor) == (2, 5)
    alone = opened(loader).load(2, 3, workers=0, pin_memory=False)
    assert isinstance(alone, DataLoader) and alone.num_workers == 0


def test_what_is_loaded_begins_with_the_worst_batch_of_each_worker() -> None:
    loader = DataLoader(Texts(LENGTHS), batch_size=2, num_workers=1, collate_fn=pad)
    made = opened(loader).load(2, 20, workers=2, pin_memory=False)
    assert isinstance(made, DataLoader)
    lists = list(cast(Iterable[list[int]], made.batch_sampler))
    assert len(lists) == 20
    assert [sorted(one) for one in lists[:2]] == [[1, 3]] * 2


def test_the_size_of_a_data_set_is_told_from_its_loader_and_never_from_a_stream() -> None:
    assert size_of(DataLoader(Texts(LENGTHS))) == 7
    assert size_of([1, 2]) == 2
    assert size_of(DataLoader(Stream(LENGTHS))) is None


def test_a_batch_sampler_of_the_usual_kind_is_no_sampler_of_the_users_own() -> None:
    sampler = BatchSampler(RandomSampler(range(7)), batch_size=3, drop_last=True)
    source = opened(DataLoader(Texts(LENGTHS), batch_sampler=sampler, collate_fn=pad))
    assert source.size == 7
    assert source.loader is not None and source.loader.drop_last
