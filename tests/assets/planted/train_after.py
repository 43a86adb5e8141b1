"""`train_after.py LIMIT`: searches, then trains 50 steps at that size in this very process under the same limit.

`train_after.py LIMIT SIZE` only trains, as a script without autotune would.
"""

import ctypes
import resource
import sys

import torch
from torch import nn

LIMIT = int(sys.argv[1])
FLOATS = 1 << 20


def pin_heap() -> None:
    """Give every large tensor a mapping of its own, so that the heap does not fragment by chance."""
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)


class Model(nn.Module):
    """About 12 MiB a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FLOATS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.scale)


def make_model() -> nn.Module:
    pin_heap()
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, FLOATS)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01)


def train(batch_size: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    model = make_model()
    optimizer = make_optimizer(list(model.parameters()))
    for _ in range(50):
        batch = make_batch(batch_size)
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, batch))
        optimizer.step()
    print("trained at", batch_size)


pin_heap()
if len(sys.argv) > 2:
    train(int(sys.argv[2]))
else:
    from autotune import find_max_batch

    found = find_max_batch(
        make_model,
        make_batch,
        loss=loss,
        make_optimizer=make_optimizer,
        device="cpu",
        memory_limit=LIMIT,
        storage="ledger",
    )
    print("largest:", found.batch_size, flush=True)
    train(found.batch_size)
