"""A workload within one length bucket: only samples at most so long, from whatever the user has."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from autotune.errors import UsageError, WorkloadError
from autotune.workload import sizes as looking
from autotune.workload.parts import Parts
from autotune.workload.task import InBucket, Workload
from tests.unit.loaders import Buckets, Stream, Texts, TokenBudget, pad

LENGTHS = [10] * 300 + [60] * 30 + [90] * 20 + [2000]


def workload(**parts: object) -> Workload:
    return Workload("task.py", Parts(make_model=lambda: nn.Linear(1, 1), **parts), ())  # type: ignore[arg-type]


def within(length: int, **parts: object) -> Workload:
    found = workload(**parts).within(length).workload
    assert found is not None
    return found


def shape(made: object) -> tuple[int, ...]:
    assert isinstance(made, torch.Tensor)
    return tuple(made.shape)


def figures(found: InBucket) -> tuple[int, int, int]:
    assert found.seen is not None
    return found.seen.samples, found.seen.longer, found.seen.longest


SOURCES: dict[str, dict[str, Any]] = {
    "a data set": {"make_dataset": lambda: Texts(LENGTHS), "collate": pad},
    "a list": {"make_dataset": lambda: [torch.ones(length) for length in LENGTHS], "collate": pad},
    "a stream": {"make_dataset": lambda: Stream(LENGTHS), "collate": pad},
    "a loader": {"make_dataset": lambda: DataLoader(Texts(LENGTHS), batch_size=4, collate_fn=pad)},
    "a loader of buckets": {
        "make_dataset": lambda: DataLoader(Texts(LENGTHS), batch_sampler=Buckets(LENGTHS, 4), collate_fn=pad)
    },
    "a loader for each size": {"make_loader": lambda size: DataLoader(Texts(LENGTHS), batch_size=size, collate_fn=pad)},
    "a loader of a stream": {"make_loader": lambda size: DataLoader(Stream(LENGTHS), batch_size=size, collate_fn=pad)},
    "a token budget": {
        "make_loader": lambda size: DataLoader(
            Texts(LENGTHS), batch_sampler=TokenBudget(LENGTHS, size), collate_fn=pad, num_workers=2
        )
    },
}


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_have_the_longest_samples_of_the_bucket_and_none_longer(kind: str) -> None:
    whole = workload(**SOURCES[kind])
    found = whole.within(80)
    assert figures(found) == (330, 21, 60)
    own = found.workload
    assert own is not None
    assert own.data_set_size == 330
    assert own.varies and own.sized
    for size in (1, 30, 200):
        batch, samples = own.make_counted(size)
        assert (shape(batch), samples) == ((size, 60), size)
        for candidate in range(own.candidates(size)):
            assert shape(own.make_batch(size, candidate))[1] <= 80
    assert shape(own.make_shorter_batch(20, 0.2)) == (20, 10)
    assert shape(whole.make_batch(1)) == (1, 2000) if whole.sized else True, "the whole is as it was"


@pytest.mark.parametrize("kind", SOURCES)
def test_a_bucket_below_the_shortest_sample_is_empty(kind: str) -> None:
    found = workload(**SOURCES[kind]).within(9)
    assert found.workload is None
    assert figures(found) == (0, 351, 0)


def test_a_bucket_of_samples_of_one_length_does_not_vary() -> None:
    assert not within(10, **SOURCES["a data set"]).varies
    assert within(60, **SOURCES["a data set"]).varies


def test_a_token_budget_counts_samples_within_a_bucket() -> None:
    whole = workload(**SOURCES["a token budget"])
    assert not whole.sized and any("they count tokens" in note for note in whole.notes)
    own = within(80, **SOURCES["a token budget"])
    assert not any("they count tokens" in note for note in own.notes)
    assert own.loader is not None and own.loader.workers == 2


def test_loading_within_a_bucket_reads_none_of_the_longer_samples() -> None:
    loaded = within(80, **SOURCES["a data set"]).load(16, 6, 0, False)
    assert loaded is not None
    batches = [shape(batch) for batch in loaded]
    assert batches[0] == (16, 60)
    assert len(batches) == 6 and all(samples == 16 and length <= 60 for samples, length in batches)


def test_samples_that_were_not_looked_at_may_be_like_those_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MOST_SAMPLES", 100)
    found = workload(**SOURCES["a data set"]).within(80)
    samples, longer, longest = figures(found)
    assert samples + longer == 100 and longest == 60
    assert found.workload is not None
    assert found.workload.data_set_size == 351 - longer, "as many may be in it at most"
    assert shape(found.workload.make_batch(300)) == (300, 60), "those known are repeated"
    assert any("looked at 100 of 351 samples" in note for note in found.workload.notes)


class Endless(IterableDataset[torch.Tensor]):
    """Samples of 5 to 104 tokens for ever, and how many were read."""

    read = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        number = 0
        while True:
            self.read += 1
            yield torch.ones(5 + number % 100)
            number += 1


def test_of_a_stream_without_end_a_bounded_number_is_read_and_the_longest_are_repeated() -> None:
    data = Endless()
    own = within(50, make_dataset=lambda: data, collate=pad)
    read = data.read
    assert read <= 2 * (looking.MOST_SAMPLES + 1)
    assert own.data_set_size is None
    assert shape(own.make_batch(3000)) == (3000, 50)
    assert data.read == read, "no more is read for a batch"
    assert any("the longest of the first 10,000 samples" in note for note in own.notes)


@pytest.mark.parametrize(
    ("parts", "why", "hint"),
    [
        pytest.param(
            {"make_batch": lambda size: torch.ones(size, 8)},
            "nothing says how batches of make_batch.* are made shorter",
            "define shorten",
            id="make_batch alone",
        ),
        pytest.param(
            {"make_dataset": lambda: Texts([8] * 50), "collate": pad},
            "have the same shapes",
            "leave out --buckets",
            id="samples of one length",
        ),
        pytest.param(
            {"make_dataset": lambda: Stream([8] * 50), "collate": pad},
            "have the same shapes",
            "leave out --buckets",
            id="a stream of one length",
        ),
        pytest.param(
            {"make_loader": lambda size: [torch.ones(size, length) for length in (5, 9)]},
            "gives batches that are ready",
            "return the samples from make_dataset",
            id="ready batches",
        ),
        pytest.param(
            {"make_loader": lambda size: []},
            "gives no batch for the sizes",
            "make_dataset",
            id="a loader without batches",
        ),
    ],
)
def test_where_no_lengths_are_to_be_had_it_says_why_and_what_to_do(parts: dict[str, Any], why: str, hint: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        workload(**parts).within(6)
    assert hint in raised.value.hint


def ids(size: int) -> dict[str, torch.Tensor]:
    return {"ids": torch.ones(size, 100), "mask": torch.ones(size, 100, 100), "label": torch.ones(size)}


def cut_by(rounding: str) -> Any:
    def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
        wanted = 100 * share
        kept = {"nearest": round(wanted), "down": int(wanted), "up": -int(-wanted // 1), "by 8": -int(-wanted // 8) * 8}
        length = kept[rounding]
        return {"ids": batch["ids"][:, :length], "mask": batch["mask"][:, :length, :length], "label": batch["label"]}

    return shorten


@pytest.mark.parametrize(("rounding", "longest"), [("nearest", 70), ("down", 70), ("up", 70), ("by 8", 64)])
def test_a_batch_of_make_batch_is_cut_to_the_length_however_the_users_function_rounds(
    rounding: str, longest: int
) -> None:
    own = within(70, make_batch=ids, shorten=cut_by(rounding))
    batch, samples = own.make_counted(12)
    assert isinstance(batch, dict) and samples == 12
    assert {name: tuple(part.shape) for name, part in batch.items()} == {
        "ids": (12, longest),
        "mask": (12, longest, longest),
        "label": (12,),
    }
    assert own.longest(12) == longest
    assert own.varies


def test_every_length_up_to_the_full_one_is_met_exactly() -> None:
    for length in range(1, 101):
        own = within(length, make_batch=ids, shorten=cut_by("nearest"))
        assert own.longest(1) == length
    assert within(4000, make_batch=ids, shorten=cut_by("nearest")).longest(1) == 100


def test_what_is_cut_off_takes_no_memory() -> None:
    batch = within(10, make_batch=ids, shorten=cut_by("nearest")).make_batch(3)
    assert isinstance(batch, dict)
    assert batch["ids"].untyped_storage().nbytes() == 3 * 10 * 4
    assert batch["mask"].untyped_storage().nbytes() == 3 * 10 * 10 * 4


@pytest.mark.parametrize(("share", "length"), [(0.5, 35), (0.01, 1)])
def test_a_shorter_batch_is_a_share_of_the_bucket(share: float, length: int) -> None:
    batch = within(70, make_batch=ids, shorten=cut_by("nearest")).make_shorter_batch(12, share)
    assert isinstance(batch, dict) and shape(batch["ids"]) == (12, length)


def test_a_function_that_changes_the_batch_itself_cuts_a_fresh_one_each_time() -> None:
    def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
        batch["ids"] = batch["ids"][:, : int(batch["ids"].shape[1] * share) + 1]
        return batch

    own = within(70, make_batch=lambda size: {"ids": torch.ones(size, 100)}, shorten=shorten)
    for _ in range(2):
        assert own.longest(4) == 70


def test_batches_that_differ_in_length_are_each_cut_by_their_own() -> None:
    lengths = iter([100, 50, 100, 80, 60])
    own = within(
        70,
        make_batch=lambda size: torch.ones(size, next(lengths)),
        shorten=lambda batch, share: batch[:, : round(batch.shape[1] * share)],
    )
    assert [shape(own.make_batch(2)) for _ in range(4)] == [(2, 50), (2, 70), (2, 70), (2, 60)]


def test_a_data_set_of_one_length_is_cut_where_the_user_says_how() -> None:
    own = within(
        6,
        make_dataset=lambda: Texts([8] * 50),
        collate=pad,
        shorten=lambda batch, share: batch[:, : round(8 * share)],
    )
    batch, samples = own.make_counted(20)
    assert (shape(batch), samples) == ((20, 6), 20)
    assert own.data_set_size == 50


@pytest.mark.parametrize(
    ("shorten", "why"),
    [
        pytest.param(lambda batch, share: batch, r"shapes \[4, 100\] such with \[4, 100\]", id="the same"),
        pytest.param(lambda batch, share: batch[:, 0], "the length of a batch cannot be told", id="a dimension less"),
        pytest.param(
            lambda batch, share: batch[:, : max(90, round(100 * share))],
            "leaves 90 of 100 where at most 70",
            id="too long",
        ),
        pytest.param(lambda batch, share: batch[:2], "made of a batch of 4 samples one of 2", id="fewer samples"),
    ],
)
def test_a_function_that_does_not_cut_lengths_is_an_error_of_the_workload(shorten: Any, why: str) -> None:
    with pytest.raises(WorkloadError, match=why) as raised:
        within(70, make_batch=lambda size: torch.ones(size, 100), shorten=shorten).make_batch(4)
    assert "batch[:, : round(batch.shape[1] * share)]" in raised.value.hint
