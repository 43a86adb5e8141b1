"""What a workload and the machine are, found out once in a process of its own, before any probe."""

import sys
from dataclasses import asdict
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autotune.apply.parallel import fullest_rank
from autotune.errors import AutotuneError
from autotune.model import LengthBucket, Phase, WorkloadInfo
from autotune.probe.abilities import with_abilities
from autotune.probe.devices import look_at_devices
from autotune.probe.host import own_data_bytes
from autotune.probe.measure import trainable
from autotune.probe.order import Order
from autotune.probe.others import with_others
from autotune.probe.recorder import Recorder
from autotune.workload.batch import describe as describe_batch
from autotune.workload.fingerprint import fingerprint, fingerprint_parts
from autotune.workload.task import Workload
from autotune.workload.traits import traits_of


def describe(order: Order, workload: Workload, recorder: Recorder, step_imports_bytes: int) -> dict[str, object]:
    """Compute, look at the device, build the model and a smallest batch on the CPU; run no step.

    The first mark comes between the second and the third: this is the first child to be forked, and what fails or hangs
    before the mark is not the user's code but a fork that does not work here.

    Returns:
        JSON-able ``{"workload": WorkloadInfo fields, "machine": Machine fields}``.

    Raises:
        EnvironmentTrouble: the device asked for is not there.
        UsageError: there are no lengths to make the buckets of that were asked for.
        BaseException: whatever the user's code raises while it makes the model or the batch.
    """
    process_bytes = own_data_bytes()
    ones = torch.ones(512, 512, device="cpu")
    torch.mm(ones, ones)  # in parallel: hangs in a child of a process whose thread pool was used
    machine = look_at_devices(order.device, 1 if order.stands_in else order.ranks)
    _leave_out_step_imports()
    with recorder.during(Phase.BUILD):
        model = _outline(workload)
        optimizer = workload.make_optimizer(trainable(model))
    shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in model.named_parameters()]
    batch = _batch_in_words(workload, order.batch_size)
    with recorder.during(Phase.DATA):
        buckets = tuple(_bucket(workload, length, order.batch_size) for length in order.length_buckets)
    info = WorkloadInfo(
        ref=order.source.ref,
        fingerprint=fingerprint(order.source, workload, shapes, batch),
        recognised=workload.recognised,
        parameters=sum(p.numel() for p in model.parameters()),
        trainable_parameters=sum(p.numel() for p in trainable(model)),
        parameters_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        trainable_bytes=sum(p.numel() * p.element_size() for p in trainable(model)),
        optimizer=type(optimizer).__name__,
        batch=batch,
        data_set_size=workload.data_set_size,
        evaluates=workload.evaluates,
        process_bytes=process_bytes,
        step_imports_bytes=step_imports_bytes,
        varies=workload.varies,
        loader=workload.loader,
        sized=workload.sized,
        traits=with_abilities(traits_of(model, optimizer, workload, machine.device), machine),
        own=workload.own,
        notes=workload.notes,
        parts=fingerprint_parts(order.source, workload, shapes, batch),
        buckets=buckets,
        fullest_rank=fullest_rank(optimizer.param_groups, order.ranks),
    )
    return {"workload": asdict(with_others(info, machine)), "machine": asdict(machine)}


def _leave_out_step_imports() -> None:
    """Spare this process what PyTorch imports when the first optimizer is made (4 s on an H200 host): none is used here.

    Done as PyTorch does it after that import, by a private attribute; where another version has another, it is imported.
    """
    wrapped = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", None)
    if wrapped is not None and "torch._dynamo" not in sys.modules:
        wrapped.__dict__["__dynamo_disable"] = wrapped


def _outline(workload: Workload) -> torch.nn.Module:
    """The model with its parameters left as they were allocated: drawing them takes most of the time to build it.

    A workload that cannot do without random parameters is built as it is.
    """
    try:
        with _NoRandomParameters():
            return workload.make_model()
    except Exception:  # noqa: BLE001 - if it is the workload's own error, it comes again below, without our doing
        return workload.make_model()


class _NoRandomParameters(TorchFunctionMode):
    """Leaves out in-place random filling."""

    _LEFT_OUT = frozenset(
        [
            *(getattr(torch.Tensor, name) for name in ("normal_", "uniform_", "random_", "exponential_", "cauchy_")),
            *(getattr(torch.nn.init, name) for name in ("normal_", "uniform_", "trunc_normal_", "orthogonal_")),
            *(getattr(torch.nn.init, f"{kind}_normal_") for kind in ("kaiming", "xavier")),
            *(getattr(torch.nn.init, f"{kind}_uniform_") for kind in ("kaiming", "xavier")),
        ]
    )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        filled = args[0] if args else kwargs.get("tensor")  # torch.nn.init hands it on by name
        return filled if filled is not None and func in self._LEFT_OUT else func(*args, **kwargs)


def _bucket(workload: Workload, length: int, batch_size: int) -> LengthBucket:
    """What the workload has for one length bucket."""
    found = workload.within(length)
    own, seen = found.workload, found.seen
    if own is None:
        assert seen is not None
        return LengthBucket(max_length=length, longest=0, samples=0, longer=seen.longer)
    batch = _batch_in_words(own, batch_size)
    return LengthBucket(
        max_length=length,
        longest=_longest(own, length, batch_size) if seen is None else seen.longest,
        samples=None if seen is None else seen.samples,
        longer=None if seen is None else seen.longer,
        batch=batch,
        data_set_size=own.data_set_size,
        varies=own.varies,
        sized=own.sized,
        loader=own.loader,
        notes=own.notes,
    )


def _longest(workload: Workload, length: int, batch_size: int) -> int:
    """Length of a batch that is cut to a bucket; the bucket's own where no batch of this size can be made."""
    try:
        return workload.longest(batch_size)
    except AutotuneError:  # it cannot be cut
        raise
    except Exception:  # noqa: BLE001 - as below
        return length


def _batch_in_words(workload: Workload, batch_size: int) -> str:
    """A batch's shapes; a size the batch maker refuses is no failure here, since the search asks for others."""
    try:
        return describe_batch(workload.make_batch(batch_size))
    except Exception as error:  # noqa: BLE001 - the first probe meets the same error and reports it with its traceback
        return f"making a batch of {batch_size} raised {type(error).__name__}"
