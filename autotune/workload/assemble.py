"""Parts that were found -> a workload's functions, with a line on each for ``autotune inspect``."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from autotune.model import Recognised, Settings
from autotune.workload.parts import BATCH_DIM, FORMS, Parts, accepts, checked, checked_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The workload's functions, and how they were recognised."""

    parts: Parts
    recognised: tuple[Recognised, ...]
    notes: tuple[str, ...] = ()
    """What the user should know."""


def from_parts(members: dict[str, object], origin: str, why: str = "passed by the caller") -> Found:
    """A workload of functions (or a live module) that were handed over one by one, in ``origin``.

    Raises:
        WorkloadError: one of them takes other arguments than it should.
    """
    model = members["make_model"]
    shown = f"a live {type(model).__name__}" if isinstance(model, nn.Module) else signature("make_model", model)
    return assemble(members, origin, model=Recognised(what="model", found=shown, why=why), why=why)


def assemble(
    members: dict[str, object],
    origin: str,
    *,
    model: Recognised,
    why: str,
    batch: Recognised | None = None,
    told: Mapping[str, Recognised] | None = None,
    own: Settings | None = None,
    notes: tuple[str, ...] = (),
) -> Found:
    """Check the parts and say for each what it is, defaults included.

    Args:
        members: the parts, by name.
        origin: where they are from.
        model: what the model is.
        why: of the other parts.
        batch: where batches come from, if they are the model's own arguments; None = what ``members`` say.
        told: what is to be said of a part in place of its signature; by its name.
        own: the settings it is trained with by itself, where it says so.
        notes: what the user should know.
    """
    told = told or {}
    unused = "make_batch" in members and "make_loader" in members  # and may be called otherwise than a workload's is
    if unused and accepts(members["make_loader"], None):  # type: ignore[arg-type]  # callable or not
        notes += ("batches come from make_batch; make_loader is not used: leave one out to probe the other",)
    members = {name: part for name, part in members.items() if name != "make_loader" or not unused}
    functions = {name: checked(name, part, origin) for name, part in members.items() if name != BATCH_DIM}
    dim = checked_dim(members.get(BATCH_DIM), origin)
    parts = Parts(**functions, batch_is_arguments=batch is not None, batch_dim=dim, own=own or Settings())
    batch = batch or told.get("make_batch")
    if batch is None and parts.make_batch is not None:
        batch = Recognised(what="batch", found=signature("make_batch", members["make_batch"]), why=why)
    elif batch is None and parts.make_loader is not None:
        batch = Recognised(what="batch", found="the worst batches of make_loader(batch_size)", why="no make_batch")
    elif batch is None:
        batch = Recognised(what="batch", found="the largest samples of make_dataset()", why="no make_batch")
    lines = [model, batch]
    for name, what, default in (
        ("loss", "loss", _default_loss(parts)),
        ("make_optimizer", "optimizer", "torch.optim.AdamW"),
        ("evaluate", "evaluate", "none"),
        ("make_dataset", "data set", "none"),
        ("shorten", "lengths", _default_lengths(parts)),
    ):
        if name in told:
            lines.append(told[name])
        elif name in members:
            lines.append(Recognised(what=what, found=signature(name, members[name]), why=why))
        else:
            lines.append(Recognised(what=what, found=default, why=f"no {name}"))
    lines += [line for name, line in told.items() if name not in FORMS]
    if parts.make_loader is not None:
        lines.append(Recognised(what="loader", found=signature("make_loader", members["make_loader"]), why=why))
    if parts.make_plan is not None:
        lines.append(Recognised(what="plan", found=signature("make_plan", members["make_plan"]), why=why))
    if unused:
        lines.append(Recognised(what="loader", found="make_loader is not used", why="batches come from make_batch"))
    if dim is not None:
        lines.append(Recognised(what="samples", found=f"counted by dimension {dim} of each tensor", why=BATCH_DIM))
    return Found(parts=parts, recognised=tuple(lines), notes=notes)


def _default_lengths(parts: Parts) -> str:
    if parts.make_batch is not None:
        return "all the same"
    return "those in make_dataset()" if parts.make_loader is None else "those in make_loader(batch_size)"


def _default_loss(parts: Parts) -> str:
    if parts.batch_is_arguments:
        return "the loss that the model returns"
    return "the loss that the model returns, or cross-entropy or MSE for an (input, target) pair"


def signature(name: str, part: object) -> str:
    """The part's own name with the arguments it is called with: ``build(batch_size)``."""
    shown = getattr(part, "__name__", type(part).__name__)
    arguments = FORMS[name][0].removeprefix(f"def {name}").removesuffix(":")
    return f"{shown}{arguments}"
