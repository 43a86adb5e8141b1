"""What the peers' processes share: loading a workload file, the cap, a plain training step, counting trials, the answer.

No autotune in here: what the peers train does not depend on it, beyond the form of the workload file.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import torch

STEPS = 3
"""Training steps of a trial: Lightning's default, and the same for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The functions of a workload file."""

    make_model: Callable[[], torch.nn.Module]
    make_batch: Callable[[int], Any]
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]
    make_optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
    shorten: Callable[[Any, float], Any] | None
    """Cuts the length of a batch to a share; None where samples have one size."""


def load(file: str) -> Workload:
    """Run the workload file."""
    spec = spec_from_file_location("workload", file)
    assert spec is not None and spec.loader is not None, f"{file} is no Python file"
    module = module_from_spec(spec)
    sys.modules["workload"] = module
    spec.loader.exec_module(module)
    return Workload(
        make_model=module.make_model,
        make_batch=module.make_batch,
        loss=module.loss,
        make_optimizer=module.make_optimizer,
        shorten=getattr(module, "shorten", None),
    )


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options every child has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("workload", help="workload file")
    options.add_argument("--precision", choices=["default", "bf16"], required=True)
    options.add_argument("--cap-bytes", type=int, required=True, help="for PyTorch's allocator; CUDA only")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    return options


def prepare(device: str, cap_bytes: int) -> None:
    """Seed, and cap what PyTorch's allocator may reserve."""
    torch.manual_seed(0)
    if device == "cuda":
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total))


def to_device(batch: Any, device: str) -> Any:
    """The same batch with its tensors on the device."""
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(to_device(part, device) for part in batch)
    return batch.to(device)


class Training:
    """Model, optimizer and step of the training loop that PyTorch's tutorials show."""

    def __init__(self, workload: Workload, device: str, precision: str) -> None:
        self._workload = workload
        self._device = device
        self._precision = precision
        self.model = workload.make_model().to(device)
        self.model.train()
        self.optimizer = workload.make_optimizer(list(self.model.parameters()))

    def autocast(self) -> AbstractContextManager[object]:
        """Where forward pass and loss run."""
        if self._precision == "bf16":
            return torch.autocast(self._device, dtype=torch.bfloat16)
        return nullcontext()

    def step(self, batch: Any) -> None:
        """One optimizer step."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self._workload.loss(self.model, batch)
        loss.backward()
        self.optimizer.step()


@dataclass(slots=True)
class Trial:
    """One size a finder tried."""

    size: int
    outcome: str = "out_of_memory"
    """Until it ends well: a finder goes on after nothing else."""
    seconds: float | None = None
    """None while it runs."""


class Trials:
    """What a finder tried, in order."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._began = 0.0
        self._rows: list[Trial] = []

    def begin(self, size: int) -> None:
        """A trial starts."""
        self._close()
        self._began = time.perf_counter()
        self._rows.append(Trial(size))

    def end(self) -> None:
        """It ran to its end."""
        if self._device == "cuda":
            torch.cuda.synchronize()
        self._close()
        self._rows[-1].outcome = "fits"

    def answer(self, size: int | None) -> None:
        """Print the answer and the trials: the one line on stdout that is read."""
        self._close()
        say({"answer": size, "trials": [asdict(row) for row in self._rows]})

    def _close(self) -> None:
        if self._rows and self._rows[-1].seconds is None:
            self._rows[-1].seconds = round(time.perf_counter() - self._began, 3)


def say(fields: dict[str, object]) -> None:
    """Print one JSON line, after whatever libraries printed."""
    print(flush=True)
    print(json.dumps(fields), flush=True)
