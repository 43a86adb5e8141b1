"""Small models for comparisons of a candidate with its reference, and the bench that they are compared on."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from autotune.model import Checkpointing, Comparison, Failure, Form, Measurement, Outcome, Precision, Settings, Source
from autotune.probe.compare import compare
from autotune.probe.equivalent import judge
from autotune.probe.meter import CpuMeter
from autotune.probe.order import Op, Order
from autotune.probe.recorder import Recorder
from autotune.probe.wire import Channel
from autotune.workload.parts import Parts
from autotune.workload.task import Workload

WIDTH = 8
CPU = torch.device("cpu")
OWN = Settings()
SWITCHED = Settings(checkpointing=Checkpointing.OWN)
BLOCKS = Settings(checkpointing=Checkpointing.BLOCKS)
BF16 = Settings(precision=Precision.BF16)
FP16 = Settings(precision=Precision.FP16)

Verdict = tuple[Outcome, Failure] | None


class Bench:
    """Compares settings on one workload."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def compare(
        self,
        make_model: Callable[[], object],
        candidate: Settings,
        reference: Settings = OWN,
        *,
        make_batch: Callable[[int], object] | None = None,
        loss: Callable[..., object] | None = None,
        batch_size: int = 4,
        lr: float = 0.05,
    ) -> tuple[Comparison, Verdict]:
        """What was seen, and what it means."""
        parts = Parts(
            make_model=make_model,
            make_batch=make_batch or pictures,
            loss=loss or squares,
            make_optimizer=lambda params: torch.optim.SGD(params, lr=lr, momentum=0.9),
        )
        order = Order(
            op=Op.PROBE,
            source=Source(ref="test"),
            settings=candidate,
            reference=reference,
            job_environment={},
            seed=3,
            batch_size=batch_size,
            form=Form.COMPARE,
        )
        compare(order, Workload("test", parts, ()), CPU, self.recorder)
        seen = self.recorder.facts["comparison"]
        assert isinstance(seen, Comparison)
        measurement = Measurement(steps_asked=3, steps_executed=self.recorder.executed, comparison=seen)
        return seen, judge(measurement, candidate=candidate, reference=reference, device="cpu")


@contextmanager
def bench_on_the_cpu() -> Iterator[Bench]:
    """In one thread, with nobody listening."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    state = torch.get_rng_state()
    yield Bench(Recorder(Channel(nowhere, "token"), CpuMeter()))
    torch.set_rng_state(state)
    torch.set_num_threads(threads)
    os.close(nowhere)


def pictures(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Small pictures, and a number to each."""
    x = torch.randn(size, 3, 8, 8)
    return x, x.mean((1, 2, 3)).sin().unsqueeze(1)


def vectors(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and a number to each."""
    x = torch.randn(size, WIDTH)
    return x, x.sum(1, keepdim=True).sin()


def squares(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean squared error."""
    return functional.mse_loss(model(batch[0]).float(), batch[1])


def changes(verdict: Verdict) -> Failure:
    """The failure of a candidate that changes the training."""
    assert verdict is not None
    assert verdict[0] is Outcome.CHANGES_TRAINING, verdict
    return verdict[1]


class Residual(nn.Module):
    """Convolution, batch norm, dropout and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.drop = nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.drop(torch.relu(self.norm(self.conv(x))))
        return result


class Switched(nn.Module):
    """With a switch of its own for checkpointing."""

    _checkpoints = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
        del gradient_checkpointing_kwargs  # it knows better
        self._checkpoints = True


class Network(Switched):
    """Three residual blocks, with a switch of its own for checkpointing them: a wrong one if ``reentrant``."""

    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(Residual() for _ in range(3))
        self.head = nn.Linear(WIDTH, 1)
        self._reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self._reentrant) if self._checkpoints else block(x)
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Raw(Switched):
    """A body on the raw data and a head that sees both: the switch checkpoints the body re-entrantly."""

    def __init__(self, *, skips: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 1) if skips else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.body, x, use_reentrant=True) if self._checkpoints else self.body(x)
        result: torch.Tensor = self.head(x)
        return result


class Adapted(Switched):
    """A frozen embedding and frozen blocks with small trained matrices beside them, as LoRA has; the head is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.down = nn.ModuleList(nn.Linear(WIDTH, 2, bias=False) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(2, WIDTH, bias=False) for _ in range(2))
        for matrix in self.up:
            nn.init.zeros_(matrix.get_parameter("weight"))
        self.head = nn.Linear(WIDTH, 1)

    def _block(self, number: int, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.tanh(self.blocks[number](x) + self.up[number](self.down[number](x)))
        return result

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for number in range(2):
            x = checkpoint(self._block, number, x, use_reentrant=True) if self._checkpoints else self._block(number, x)
        result: torch.Tensor = self.head(x.mean(1))
        return result


def tokens(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words, and a number to each text."""
    return torch.randint(11, (size, 5)), torch.randn(size, 1)
