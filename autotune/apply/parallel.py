"""How the ranks of one training work together: one entry, used by probes of several ranks and by the user's training."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotune.apply import ranks, sharding, splitting
from autotune.apply.unsupported import Unsupported
from autotune.model import Parallel, Settings

_WITH_DDP = (Parallel.DDP, Parallel.ZERO)


def joins(settings: Settings) -> bool:
    """Whether these settings join ranks here: there are several, and autotune is to do it.

    Raises:
        UsageError: there are to be several, and ``torch.distributed`` does not know of them yet.
    """
    if settings.parallel is Parallel.DEFAULT:
        return False
    ranks.check_joined()
    return ranks.count() > 1


def as_trained(settings: Settings) -> Settings:
    """Settings that join ranks: where these leave it to the training, as a training does that says nothing more
    (``ddp`` with PyTorch's own options)."""
    return replace(settings, parallel=Parallel.DDP) if settings.parallel is Parallel.DEFAULT else settings


def shards(settings: Settings) -> bool:
    """Whether parameters are sharded as they are moved to the device, so that the model must wait on the host."""
    return settings.parallel is Parallel.FSDP and joins(settings)


def parallelise(
    model: nn.Module,
    settings: Settings | None = None,
    *,
    device: torch.device,
    plan: splitting.Plan | None = None,
) -> nn.Module:
    """The model as one of the ranks trains it. Without several ranks, or under ``default``: the model, moved to the device;
    one that was parallelised before comes back as it is.

    Args:
        model: complete but for this: checkpointing, compiling and memory format come before.
        settings: ``parallel`` and what belongs to it; None = ``ddp`` with PyTorch's own options.
        device: of this rank.
        plan: for ``tensor``: how to split the model; None = as its ``_tp_plan`` says.

    Returns:
        ``ddp`` and ``zero``: a DistributedDataParallel around the model. ``fsdp`` and ``tensor``: the model itself, with
        parameters that are ``DTensor`` shards.

    Raises:
        Unsupported: the settings do not apply to this model.
        UsageError: there are several ranks, and ``torch.distributed`` does not know of them yet.
    """
    chosen = Settings(parallel=Parallel.DDP) if settings is None else settings
    if is_parallel(model):
        return model
    # Without settings nobody says that there are others: a probe of one rank may run within a job of several.
    if ranks.count() == 1 if settings is None else not joins(chosen):
        return model.to(device)
    if chosen.parallel is Parallel.FSDP:
        sharding.check(model, chosen)
        sharding.apply(model, chosen, device)
        return model
    model.to(device)
    if chosen.parallel is Parallel.TENSOR:
        splitting.apply(model, plan, device)
        return model
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise Unsupported("no parameter of the model is trained, and DDP averages gradients")
    return DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [torch.cuda.current_device() if device.index is None else device],
        # Said, 25 is not what PyTorch does by itself: its first bucket is smaller.
        bucket_cap_mb=None if chosen.bucket_mb == Settings().bucket_mb else chosen.bucket_mb,
        gradient_as_bucket_view=chosen.bucket_view,
        static_graph=chosen.static_graph,
    )


def is_parallel(model: nn.Module) -> bool:
    """Whether the model is one that ``parallelise`` made for several ranks."""
    return isinstance(model, DistributedDataParallel) or any(map(ranks.is_sharded, model.parameters()))


def accumulating(model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """The context for forward and backward of one micro-batch: gradients are averaged in the ``last`` one only. ``Applied``
    enters it by itself, and once is enough: contexts that end in another order than they began leave them unaveraged.

    With a static graph they are averaged in each: ``no_sync`` fails then inside of DDP (seen in 2.13), and averaging what
    there is after each micro-batch comes to the same sum.
    """
    if last or not isinstance(model, DistributedDataParallel) or model.static_graph:
        return nullcontext()
    return model.no_sync()


class Turns:
    """Which micro-batches of a step end with the ranks exchanging gradients: the last one, and others where that saves
    memory. Told to the model before each forward pass, since DDP decides it there."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self._model = model
        self._settings = settings
        self._done = 0
        """Micro-batches of this step that are through."""
        self._apart = ExitStack()
        """Holds DDP's ``no_sync``."""
        self.begin()

    def begin(self) -> None:
        """Before the first micro-batch of a step."""
        self._done = 0
        self._tell()

    def next(self) -> None:
        """After the backward pass of a micro-batch."""
        self._done = (self._done + 1) % self._settings.accumulate
        self._tell()

    def _tell(self) -> None:
        last = self._done == self._settings.accumulate - 1
        self._apart.close()
        if self._settings.parallel is Parallel.FSDP:
            sharding.sync(self._model, self._settings, last=last)
        else:
            self._apart.enter_context(accumulating(self._model, last=last))


def optimizer_maker(settings: Settings) -> Callable[[type[Any], Iterable[Any], dict[str, Any]], Any] | None:
    """How an optimizer is made where its state is sharded by itself: ``maker(class, parameters, options)``.

    None = as everywhere. What it makes is a ``ZeroRedundancyOptimizer`` around an optimizer of the class.
    """
    if settings.parallel is not Parallel.ZERO or not joins(settings):
        return None
    return _zero


def _zero(cls: type[torch.optim.Optimizer], params: Iterable[Any], options: dict[str, Any]) -> torch.optim.Optimizer:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    held = list(params)
    tensors = [each for item in held for each in (item["params"] if isinstance(item, dict) else [item])]
    if len(tensors) < ranks.count():
        raise Unsupported(f"{len(tensors)} parameters cannot be shared out to the optimizers of {ranks.count()} ranks")
    return ZeroRedundancyOptimizer(held, optimizer_class=cls, **options)


def fullest_rank(groups: Iterable[dict[str, Any]], world_size: int) -> int:
    """The one of so many ranks that ``ZeroRedundancyOptimizer`` gives the most of these parameters to; the first of several.

    It goes through each group of parameters, the largest first, and gives each to the rank that has the least.
    """
    sizes = [0] * world_size
    for group in groups:
        for size in sorted((parameter.numel() for parameter in group["params"]), reverse=True):
            sizes[sizes.index(min(sizes))] += size
    return sizes.index(max(sizes))


def state_here(optimizer: torch.optim.Optimizer) -> Iterable[Any]:
    """The state of each parameter that this rank keeps any of."""
    inner = getattr(
        optimizer, "optim", None
    )  # of a ZeroRedundancyOptimizer, whose own state is not there before a checkpoint
    return (inner if isinstance(inner, torch.optim.Optimizer) else optimizer).state.values()


def gather_state(optimizer: torch.optim.Optimizer) -> bool:
    """Bring the state of a sharded optimizer together on rank 0, as its ``state_dict`` needs it; all ranks must call it.

    Returns:
        Whether this rank may ask for the ``state_dict`` now; always, where the state is not sharded by itself.
    """
    consolidate = getattr(optimizer, "consolidate_state_dict", None)
    if consolidate is None:
        return True
    consolidate(to=0)
    return torch.distributed.get_rank() == 0
