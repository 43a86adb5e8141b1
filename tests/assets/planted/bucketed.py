"""Texts of 5 to 40 words, and a few of up to 160: `bucketed.py` is searched, `bucketed.py LIMIT BOUND:BATCH ...` trains an
epoch in batches by length, each bucket with a batch of its own, as people's samplers do."""

import ctypes
import random
import resource
import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 4096
LENGTHS = [5 + 36 * index // 300 for index in range(300)] + [41 + 12 * index for index in range(9)] + [160] * 21
random.Random(0).shuffle(LENGTHS)

# Every large tensor gets a mapping of its own and gives it back, so that the heap does not fragment by chance.
if sys.platform == "linux":
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)


class Texts(Dataset[torch.Tensor]):
    """Words are ones."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(LENGTHS[index])


def collate(texts: list[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)


class Model(nn.Module):
    """16 KiB a word, and as much again for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return torch.tanh(texts.unsqueeze(-1) * self.scale)


def make_model() -> nn.Module:
    return Model()


def make_dataset() -> Dataset[torch.Tensor]:
    return Texts()


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01)


class ByLength:
    """Shuffled batches of texts whose lengths are within the same bounds."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes

    def __iter__(self) -> Iterator[list[int]]:
        batches, below = [], 0
        for bound, size in sorted(self.sizes.items()):
            inside = [index for index, length in enumerate(LENGTHS) if below < length <= bound]
            random.shuffle(inside)
            batches += [inside[start : start + size] for start in range(0, len(inside), size)]
            below = bound
        random.shuffle(batches)
        return iter(batches)


def train_epoch(limit: int, sizes: dict[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    model = make_model()
    optimizer = make_optimizer(list(model.parameters()))
    seen = 0
    for batch in DataLoader(Texts(), batch_sampler=ByLength(sizes), collate_fn=collate):
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, batch))
        optimizer.step()
        seen += len(batch)
    print(f"trained on {seen} texts")


if len(sys.argv) > 1:
    random.seed(1)
    bounds = [argument.split(":") for argument in sys.argv[2:]]
    train_epoch(int(sys.argv[1]), {int(bound): int(size) for bound, size in bounds})
