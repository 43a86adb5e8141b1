"""Data sets and samplers as people have them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset


class Texts(Dataset[torch.Tensor]):
    """Texts of given lengths; every word of a text is its number."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.lengths[index],), index)


class Stream(IterableDataset[torch.Tensor]):
    """The same, read from its start, without a length."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.full((length,), index) for index, length in enumerate(self.lengths))


class TokenBudget:
    """A batch sampler: texts by length, as many as stay within so many tokens once padded; a longer one by itself."""

    def __init__(self, lengths: list[int], budget: int) -> None:
        self.lengths = lengths
        self.budget = budget

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in sorted(range(len(self.lengths)), key=lambda index: self.lengths[index]):
            if batch and self.lengths[index] * (len(batch) + 1) > self.budget:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch


class Buckets:
    """A batch sampler: batches of texts of the same length; what is left of each bucket is a batch as well."""

    def __init__(self, lengths: list[int], batch_size: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for length in sorted(set(self.lengths)):
            members = [index for index, each in enumerate(self.lengths) if each == length]
            for start in range(0, len(members), self.batch_size):
                yield members[start : start + self.batch_size]


def pad(samples: list[torch.Tensor]) -> Any:
    """Padded to the longest: (batch, length)."""
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-1)
