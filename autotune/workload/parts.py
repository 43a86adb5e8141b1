"""The functions a workload consists of, checked for being callable the way they will be called."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from torch import nn

from autotune.errors import WorkloadError
from autotune.model import Settings
from autotune.workload.seen import kind_of

FORMS: dict[str, tuple[str, int]] = {
    "make_model": ("def make_model():", 0),
    "make_batch": ("def make_batch(batch_size):", 1),
    "loss": ("def loss(model, batch):", 2),
    "make_optimizer": ("def make_optimizer(params):", 1),
    "evaluate": ("def evaluate(model, batch):", 2),
    "make_loader": ("def make_loader(batch_size):", 1),
    "make_dataset": ("def make_dataset():", 0),
    "collate": ("def collate(samples):", 1),
    "shorten": ("def shorten(batch, share):", 2),
    "make_plan": ("def make_plan():", 0),
}
"""Name -> (how it is written, number of positional arguments)."""
BATCHES = ("make_batch", "make_loader", "make_dataset")
"""Where batches come from; the first that is there counts."""
RANKS = ("rank", "world_size")
"""What functions are told, where they take it: which of the processes that train together they run in, and of how many."""
BATCH_DIM = "batch_dim"
"""A constant beside the functions: which dimension of the batch's tensors counts its samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the user wrote; None = not there."""

    make_model: Callable[[], object]
    make_batch: Callable[[int], object] | None = None
    loss: Callable[..., object] | None = None
    make_optimizer: Callable[..., object] | None = None
    evaluate: Callable[..., object] | None = None
    make_loader: Callable[[int], object] | None = None
    make_dataset: Callable[[], object] | None = None
    collate: Callable[..., object] | None = None
    shorten: Callable[[Any, float], object] | None = None
    make_plan: Callable[[], object] | None = None
    batch_is_arguments: bool = False
    """The batch comes from ``example_inputs``: all of it goes to the model, none of it is a target."""
    batch_dim: int | None = None
    """Dimension of a batch's tensors that counts its samples; None = to be told from their shapes."""
    own: Settings = field(default_factory=Settings)
    """Settings that the workload trains with by itself, where it says so; nothing in the parts applies them."""


def checked(name: str, part: object, owner: str) -> Callable[..., Any]:
    """The part as a function that takes its arguments by position.

    Args:
        name: which part; a key of ``FORMS``.
        part: what was found under that name.
        owner: where it was found, for the message.

    Raises:
        WorkloadError: it cannot be called, or takes other arguments.
    """
    form, count = FORMS[name]
    if not callable(part):
        raise WorkloadError(f"{name} in {owner} is {kind_of(part)}, not a function", hint=f"write `{form}`")
    if isinstance(part, nn.Module) and name == "make_model":
        return lambda: part  # the one live object, which functions beside it may refer to; a probe has its own process
    if isinstance(part, nn.Module) or getattr(part, "__module__", "") == nn.functional.__name__:  # a criterion
        called = getattr(part, "__name__", type(part).__name__)
        raise WorkloadError(
            f"{name} in {owner} is {called}, not a function of the workload",
            hint=f"write `{form}`, and call the {called} in it",
        )
    ranks = dict.fromkeys(asked_of_ranks(part))
    if accepts(part, *[None] * count, **ranks):
        return part
    if name in ("make_batch", "make_loader") and accepts(part, batch_size=None, **ranks):
        return _by_keyword(part)
    raise WorkloadError(
        f"{name} in {owner} takes {inspect.signature(part)}",
        hint=f"write `{form}`; other arguments need default values",
    )


def _by_keyword(part: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, taking the batch size by position."""

    @wraps(part)  # which tells the part's own signature
    def called(batch_size: int, **told: int) -> object:
        return part(batch_size=batch_size, **told)

    return called


def asked_of_ranks(function: Callable[..., object]) -> tuple[str, ...]:
    """Which of ``rank`` and ``world_size`` a function takes. One that takes no ``world_size`` is not told a rank either:
    that may be the rank of a matrix."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some builtins have none
        return ()
    return tuple(name for name in RANKS if name in parameters) if RANKS[1] in parameters else ()


def checked_dim(value: object, owner: str) -> int | None:
    """The number of a dimension, from 0; None stays None.

    Raises:
        WorkloadError: it is something else.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise WorkloadError(
        f"{BATCH_DIM} in {owner} is {value!r}, not the number of a dimension",
        hint="0 is the first: for batches of (time, batch, feature) write `batch_dim = 1`",
    )


def accepts(function: Callable[..., object], *args: object, **kwargs: object) -> bool:
    """Whether the function can be called with such arguments; True where it does not tell its signature."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
