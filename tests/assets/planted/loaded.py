"""Batches of many forms out of real data loaders, of which more than 13 samples do not fit: `loaded.py FORM [ROWS]`."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

FORM = sys.argv[1]
ROWS = int(sys.argv[2]) if len(sys.argv) > 2 else 500
LIMIT = 64 if FORM.startswith("norm") else 13
TIME = 16


@dataclass
class Scene:
    """A batch of a class of the user's own."""

    points: torch.Tensor
    names: list[str]


class Samples(Dataset[Any]):
    """As many as asked for."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        if FORM == "texts":
            return {"name": f"text {index}", "x": torch.ones(4)}
        if FORM == "unequal":
            return torch.ones(1 + index % 7, 4)
        if FORM == "boxes":  # the largest pictures have few of them, and the most boxes come with small pictures
            large = index < 20
            return torch.ones(40 if large else 20), torch.full((1 if large else 9,), float(large))
        return torch.ones(4)


class Stream(IterableDataset[Any]):
    """Without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.ones(ROWS, 4))


def time_first(samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack(samples).expand(TIME, -1, -1).contiguous(), torch.zeros(TIME)


def scene(samples: list[torch.Tensor]) -> Scene:
    return Scene(torch.stack(samples), ["scene"] * len(samples))


def boxes(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([picture[:4] for picture, _ in samples]), torch.cat([each for _, each in samples])


COLLATE: dict[str, Callable[[list[Any]], Any]] = {
    "time": time_first,
    "scene": scene,
    "unequal": list,
    "boxes": boxes,
}


class Model(nn.Module):
    """A linear layer behind what a batch of one breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4) if FORM.startswith("norm") else nn.Identity()
        self.linear = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x))


def make_model() -> nn.Module:
    return Model()


def rows(batch: Any) -> tuple[torch.Tensor, int]:
    """The numbers in a batch as rows of 4, and how many samples they are of."""
    if FORM == "texts":
        assert isinstance(batch["name"][0], str)
        return batch["x"], len(batch["x"])
    if FORM.startswith("time"):
        return batch[0].flatten(0, 1), batch[0].shape[1]
    if FORM == "scene":
        return batch.points, len(batch.names)
    if FORM == "unequal":
        return torch.cat(batch), len(batch)
    if FORM == "packed":
        return batch, len(batch) // 9
    if FORM == "boxes":
        pictures, found = batch
        if not found.any():
            raise torch.OutOfMemoryError("CUDA out of memory: many boxes")
        return pictures, len(pictures)
    return batch, len(batch)


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    x, samples = rows(batch)
    if samples > LIMIT:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return model(x).mean()


if FORM.startswith("time made"):
    if FORM == "time made":
        batch_dim = 1

    def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return time_first([torch.ones(4)] * batch_size)

elif FORM == "packed":

    def make_batch(batch_size: int) -> torch.Tensor:
        return torch.ones(9 * batch_size + 1, 4)

elif FORM == "norm set":

    def make_dataset() -> DataLoader[Any]:
        return DataLoader(Samples(), batch_size=32)

else:

    def make_loader(batch_size: int) -> DataLoader[Any]:
        data: Any = Stream() if FORM == "stream" else Samples()
        return DataLoader(data, batch_size, collate_fn=COLLATE.get(FORM), drop_last=FORM in ("drop", "norm drop"))
