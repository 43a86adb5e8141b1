"""Entry points of torch.hub: a function with an option ``pretrained`` that returns a module, beside ``make_batch``.

The weights are left as they are drawn: memory does not depend on them, and no probe downloads any.
"""

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, cast

from torch import nn

from autotune.errors import WorkloadError
from autotune.model import Recognised
from autotune.workload.adapters.adapter import Adapter, Subject
from autotune.workload.assemble import Found, assemble
from autotune.workload.examples import batch_maker, example_name
from autotune.workload.parts import accepts
from autotune.workload.seen import kind_of


def _takes(thing: object) -> bool:
    return isinstance(thing, FunctionType) and "pretrained" in inspect.signature(thing).parameters and accepts(thing)


def _adapt(subject: Subject) -> Found:
    function = cast(FunctionType, subject.thing)
    make_model: Callable[[], object] = partial(function, pretrained=False)
    members: dict[str, Any] = {**subject.members, "make_model": make_model}
    batch = None
    if not subject.has_batches and "make_loader" not in members:
        made = make_model()
        name = example_name(made) if isinstance(made, nn.Module) else ""
        if not name:
            raise WorkloadError(
                f"{subject.name} in {subject.target} returns {kind_of(made)}, with neither make_batch beside it nor"
                " example_inputs",
                hint="write make_batch(batch_size) in the file, as a batch of your training is",
            )
        members["make_batch"] = batch_maker(make_model, name)
        batch = Recognised(what="batch", found=f"{name} of the model", why="no make_batch in the file")
    model = Recognised(what="model", found=f"{subject.name}(pretrained=False)", why=subject.why)
    return assemble(members, subject.target, model=model, why="a function of the file", batch=batch)


ADAPTER = Adapter(what="functions with an option pretrained", brought=lambda: True, takes=_takes, adapt=_adapt)
