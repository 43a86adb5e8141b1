"""1,000 texts of 10 to 100 words and one of 2,000: `texts.py KIND` is searched, `texts.py KIND LIMIT SIZE` trains an epoch.

``padded``: batches of any texts, padded to the longest, in self-attention. ``budget``: as many texts in random order as
stay within so many words, in self-attention, which the long one is the worst for. ``short``: as many of about the same
length, and a model that takes memory by the text, which many short ones are the worst for.
"""

import ctypes
import random
import resource
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
WIDTH = 8
LONG = 2000
MIB = 1 << 20
LENGTHS = [10 + 91 * index // 1000 for index in range(1000)]
random.Random(0).shuffle(LENGTHS)
LENGTHS.insert(567, LONG)

# Every large tensor gets a mapping of its own and gives it back, so that the heap does not fragment by chance.
if sys.platform == "linux":
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)


class Texts(Dataset[torch.Tensor]):
    """Words are numbers from 1 to 99."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(LENGTHS[index]) % 99 + 1


def pad(texts: list[torch.Tensor]) -> Any:
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)


class WordBudget:
    """As many texts as stay within so many words once padded; a longer one by itself."""

    def __init__(self, words: int) -> None:
        self.words = words

    def __iter__(self) -> Iterator[list[int]]:
        batches: list[list[int]] = [[]]
        order = random.sample(range(len(LENGTHS)), len(LENGTHS))
        if KIND == "short":
            order.sort(key=lambda index: LENGTHS[index])
        for index in order:
            together = [*batches[-1], index]
            if batches[-1] and len(together) * max(LENGTHS[each] for each in together) > self.words:
                batches.append([])
            batches[-1].append(index)
        random.shuffle(batches)
        yield from batches


class Attention(nn.Module):
    """Every word with every other: length squared."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, WIDTH)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        words = self.words(texts)
        return (words @ words.transpose(1, 2)).softmax(-1) @ words


class ByText(nn.Module):
    """About 4 MiB a text, however long it is."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(MIB // 4))

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return torch.tanh(texts.float().mean(1, keepdim=True) * self.scale)


def make_model() -> nn.Module:
    return ByText() if KIND == "short" else Attention()


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


def make_optimizer(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01)


if KIND == "padded":

    def make_dataset() -> DataLoader[Any]:
        return DataLoader(Texts(), batch_size=16, shuffle=True, collate_fn=pad)

else:

    def make_loader(batch_size: int) -> DataLoader[Any]:
        return DataLoader(Texts(), batch_sampler=WordBudget(batch_size), collate_fn=pad)


def train_epoch(limit: int, size: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    loader = (
        DataLoader(Texts(), size, shuffle=True, collate_fn=pad)
        if KIND == "padded"
        else DataLoader(Texts(), batch_sampler=WordBudget(size), collate_fn=pad)
    )
    seen = longest = 0
    for batch in loader:
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, batch))
        optimizer.step()
        seen, longest = seen + len(batch), max(longest, batch.shape[1])
    print(f"trained on {seen} texts, the longest of {longest} words")


if len(sys.argv) > 2:
    random.seed(1)
    torch.manual_seed(1)
    train_epoch(int(sys.argv[2]), int(sys.argv[3]))
