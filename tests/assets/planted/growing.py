"""A training that keeps something of every step, or only seems to: `growing.py KIND`, or `growing.py @FILE`.

With `@FILE` each forked child reads its KIND from the file, so that one process which loaded this file serves them all.
Where a kind is a leak, ``KEPT_BYTES`` says how much it keeps of a step, but for what Python needs for the objects.
"""

import collections
import functools
import gc
import os
import sys
from typing import Any

import torch
from torch import nn

KIND = sys.argv[1] if len(sys.argv) > 1 else "plain"
WIDTH, ROWS = 256, 256
UNIT = 4 * WIDTH * ROWS
"""Bytes of one hidden activation: 256 KiB."""
MANY = ROWS
"""Rows of what is kept."""


def read_kind() -> None:
    """That of this process; with ``*4`` at its end it keeps four times as much."""
    global KIND, MANY
    with open(sys.argv[1].removeprefix("@")) as file:
        KIND, _, times = file.read().strip().partition("*")
    MANY = ROWS * int(times or 1)


if KIND.startswith("@"):
    os.register_at_fork(after_in_child=read_kind)

LIST: list[Any] = []
DICT: dict[Any, Any] = {}
RECENT: collections.deque[Any] = collections.deque(maxlen=50)
TOTAL: Any = 0.0
HISTORY: Any = None
CHAIN: Any = None
step = 0


class Record:
    """Belongs to a class of the user's own."""

    items: list[Any] = []  # noqa: RUF012 - shared on purpose, which is the leak

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value
        self.me: Any = None


class Body(nn.Module):
    """Two layers with state that may grow."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU())
        self.second = nn.Linear(WIDTH, 1)
        self.extra = nn.ParameterList()
        self.register_buffer("seen", torch.zeros(0, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.first(x)
        if KIND == "state: a buffer becomes larger":
            self.seen = torch.cat([self.seen, hidden.detach()])
        elif KIND == "state: a buffer a step":
            self.register_buffer(f"seen_{step}", x.new_ones(MANY, WIDTH))
        elif KIND == "state: a parameter a step":
            self.extra.append(nn.Parameter(hidden.detach().clone()))
        elif KIND == "lazy buffers" and step == 3:
            self.register_buffer("late", x.new_ones(8 * ROWS, WIDTH))
        return self.second(hidden)


def make_model() -> nn.Module:
    return Body()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.rand(batch_size, ROWS // 2, 64)  # so that two samples have ROWS rows


@functools.lru_cache(maxsize=16)
def table(number: int) -> torch.Tensor:
    return torch.full((ROWS, WIDTH), float(number))


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    global step
    step += 1
    assert isinstance(model, Body)
    keep = KEEPERS.get(KIND)
    x = batch.flatten(0, 1)
    output = model(x)
    result: torch.Tensor = output.pow(2).mean()
    if keep is not None:
        keep(model, x, result)
    return result


def side_loss(model: Body, x: torch.Tensor) -> torch.Tensor:
    """A second loss that nobody takes the gradient of, so that its graph stays whole."""
    return model(x).abs().mean()


def losses(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    LIST.append(side_loss(model, x))


def outputs(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    hidden = model.first(x.repeat(MANY // ROWS, 1))
    DICT[step] = {"hidden": hidden}


def total(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    global TOTAL
    TOTAL = TOTAL + side_loss(model, x)


def tensors(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    LIST.append(x.new_ones(MANY, WIDTH))


def views(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    large = model.first(x.new_ones(MANY, x.shape[1])).detach()
    LIST.append(large[:1])
    LIST.append(large[1:2])


def by_step(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    DICT[f"step {step}"] = model.first(x).detach()


def larger(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    global HISTORY
    HISTORY = torch.cat([HISTORY if HISTORY is not None else x.new_ones(0, WIDTH), x.new_ones(ROWS, WIDTH)])


def forward_hook(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    kept = x.new_ones(MANY, WIDTH)
    model.second.register_forward_hook(lambda module, args, output: None if kept is None else output)


def gradient_hook(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    kept = x.new_ones(ROWS, WIDTH)
    model.second.weight.register_hook(lambda grad: grad if kept is not None else None)


def pre_hook(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    def look(module: nn.Module, args: Any, kept: torch.Tensor = x.new_ones(ROWS, WIDTH)) -> None:  # noqa: B008
        assert kept is not None

    model.register_forward_pre_hook(look)


def itself(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    record = Record(x.new_ones(ROWS, WIDTH))
    record.me = record


def parent_and_child(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    parent = Record(x.new_ones(ROWS, WIDTH))
    parent.me = [Record(x.new_ones(1))]
    parent.me[0].me = parent


def huge(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    record = Record(x.new_ones(32 * ROWS, WIDTH))
    record.me = record


def locked_by_hook(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    hidden = (x @ model.first[0].weight.t()).tanh()
    end = hidden.sum()
    hidden.register_hook(lambda grad: None if end is None else grad)


def locked_by_node_hook(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    hidden = (x @ model.first[0].weight.t()).tanh()
    assert hidden.grad_fn is not None
    hidden.grad_fn.register_hook(lambda *grads, kept=hidden: None)


def locked_by_metadata(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    hidden = (x @ model.first[0].weight.t()).tanh()
    assert hidden.grad_fn is not None
    hidden.grad_fn.metadata["output"] = hidden


def arrays(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    import numpy

    LIST.append(numpy.ones(UNIT // 8))


def numbers(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    DICT[step] = [float(number) for number in range(2000)]


def texts(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    Record.items.append(bytes(4 * WIDTH * MANY))


def beside_a_small_one(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    DICT[step] = str(step)
    LIST.append(bytes(UNIT))


def warm_up(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    if step <= 4:
        LIST.append(x.new_ones(4 * ROWS, WIDTH))


def cyclic(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    DICT["scratch"] = x.new_ones((1 + step % 7) * ROWS, WIDTH)


def levels_off(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    DICT.setdefault(step % 40, x.new_ones(ROWS, WIDTH))


def last_ones(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    RECENT.append(model.first(x).detach())


def emptied(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    LIST.append(x.new_ones(ROWS, WIDTH))
    if len(LIST) >= 8:
        LIST.clear()


def items(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    LIST.append(result.item())


def detached(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    LIST.append(result.detach())


def average(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    DICT["average"] = 0.9 * DICT.get("average", x.new_zeros(ROWS, WIDTH)) + 0.1 * model.first(x).detach()


def removed(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    if "handle" in DICT:
        DICT["handle"].remove()
    kept = x.new_ones(ROWS, WIDTH)
    DICT["handle"] = model.second.register_forward_hook(lambda module, args, output: None if kept is None else output)


def looked_up(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    table(step)


def classical(model: Body, x: torch.Tensor, result: torch.Tensor) -> None:
    LIST.append(result)


KEEPERS = {
    "losses": classical,
    "graph: losses in a list": losses,
    "graph: outputs in a dict": outputs,
    "graph: a running total": total,
    "tensors: in a list": tensors,
    "tensors: in a dict": by_step,
    "tensors: views of large ones": views,
    "tensors: one becomes larger": larger,
    "hooks: forward": forward_hook,
    "hooks: on a gradient": gradient_hook,
    "hooks: before forward": pre_hook,
    "cycles: collector switched off": itself,
    "cycles: collector too seldom": parent_and_child,
    "cycles: memory ends before": huge,
    "locked_cycles: hook of a tensor": locked_by_hook,
    "locked_cycles: hook of a node": locked_by_node_hook,
    "locked_cycles: metadata of a node": locked_by_metadata,
    "host: arrays in a list": arrays,
    "host: numbers in a dict": numbers,
    "host: bytes of a class": texts,
    "host: beside a small one": beside_a_small_one,
    "warm-up": warm_up,
    "cyclic sizes": cyclic,
    "a cache that levels off": levels_off,
    "the last fifty": last_ones,
    "a list that is emptied": emptied,
    "numbers of losses": items,
    "detached losses": detached,
    "a running average": average,
    "a hook that is removed": removed,
    "a cache of sixteen": looked_up,
    "cycles that are collected": itself,
}


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    if KIND == "cycles: collector switched off":
        gc.disable()
    if KIND == "cycles: collector too seldom":
        gc.set_threshold(1_000_000)
    if KIND == "cycles: memory ends before":
        gc.set_threshold(7_000)
    return torch.optim.Adam(params)
