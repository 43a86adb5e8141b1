"""Tensor parallel: layers split over ranks that all see the same batch, by a plan of the user's or of transformers'.

A plan maps names of modules (with ``*`` for any part of a name) to styles of ``torch.distributed.tensor.parallel``, or to
the words that transformers uses for them.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from autotune.apply import ranks
from autotune.apply.unsupported import Unsupported

Plan = Mapping[str, Any]


def plan_of(model: nn.Module) -> Plan | None:
    """The plan that a transformers model brings along (``_tp_plan``), over all its parts; None = it has none."""
    found = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    return found if isinstance(found, Mapping) and found else None


def apply(model: nn.Module, plan: Plan | None, device: torch.device) -> None:
    """Split the layers that the plan names, in place; the model lies on the device.

    Raises:
        Unsupported: there is no plan, it names what the model does not have, or styles that are not known here.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    chosen = plan or plan_of(model)
    if chosen is None:
        raise Unsupported("neither the model (_tp_plan) nor the workload (make_plan) says how to split it")
    styles = {name: _style(name, style) for name, style in chosen.items()}
    ranks.align(model, device)
    parallelize_module(model, init_device_mesh(device.type, (ranks.count(),)), styles)
    if not any(ranks.is_sharded(parameter) for parameter in model.parameters()):
        raise Unsupported(f"the plan splits nothing of this model: {', '.join(chosen)}")


def _style(name: str, style: object) -> Any:
    """A ParallelStyle; of transformers' words those that split a layer and say nothing of how its neighbours do."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    from torch.distributed.tensor.parallel.style import ParallelStyle

    if isinstance(style, ParallelStyle):
        return style
    match style:
        case "colwise":
            return ColwiseParallel()
        case "rowwise":
            return RowwiseParallel()
        case "colwise_rep" | "colwise_gather_output":
            return ColwiseParallel(output_layouts=Replicate())
        case "rowwise_rep" | "rowwise_split_input":
            return RowwiseParallel(input_layouts=Replicate())
    raise Unsupported(f"the plan asks for {style!r} at {name}, which autotune does not know how to do")
