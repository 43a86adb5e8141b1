"""A probe's course: build, train in the form asked for, or record passes at several sizes. The heart of a probe process."""

import gc
import math
import time

import torch

from autotune.apply import Applied
from autotune.memory.ladder import next_size
from autotune.model import Form, Phase
from autotune.probe.history import History
from autotune.probe.meter import CudaMeter
from autotune.probe.order import Order
from autotune.probe.recorder import Recorder
from autotune.probe.steps import SCALER_STEPS, Steps, storage_bytes
from autotune.workload.task import Workload

_WARM_UP = 1


def run_probe(
    order: Order, workload: Workload, device: torch.device, recorder: Recorder, made: torch.nn.Module | None = None
) -> None:
    """Run the probe that ``order`` asks for; what it saw is in ``recorder``.

    ``made``: the workload's model as ``make_model`` left it; then building it is placing it.

    Raises:
        BaseException: whatever the user's code raises.
    """
    meter = recorder.meter
    if isinstance(meter, CudaMeter):
        meter.start(order.device_uuid)
    if order.trace_unit is not None:
        recorder.history = History.start(device)
    applied = Applied(order.settings, device)
    with recorder.during(Phase.BUILD):
        meter.limit(order.limit_bytes, order.reserve_bytes)
        began = time.perf_counter()
        model = place(workload.make_model() if made is None else made, device)
        model.train()
        # One of its own for each pass of a recording, and nothing here may keep the first alive.
        optimizer = workload.make_optimizer(trainable(model)) if recorder.history is None else None
        recorder.facts["build_seconds"] = time.perf_counter() - began
    recorder.composition["parameters_bytes"] = storage_bytes(model.parameters())
    recorder.composition["buffers_bytes"] = storage_bytes(model.buffers())
    recorder.read_device()
    began = time.perf_counter()
    if optimizer is None:
        _run_passes(order, workload, model, applied, recorder)
    else:
        recorder.begin_pass(order.batch_size)
        steps = Steps(workload, model, optimizer, applied, recorder, order.batch_size)
        _run_pass(order, steps)
        if workload.varies:
            _run_mixture(order.form.mixture, steps)
    recorder.facts["loop_seconds"] = time.perf_counter() - began


def _run_passes(order: Order, workload: Workload, model: torch.nn.Module, applied: Applied, recorder: Recorder) -> None:
    """Train at several small sizes one after the other, each with an optimizer of its own, for the allocator's record."""
    meter, history = recorder.meter, recorder.history
    assert history is not None and meter.cap_bytes is not None and order.trace_unit is not None
    tried: list[int] = []
    size: int | None = order.batch_size
    gc.freeze()  # what is there stays; the collections below look at what the passes leave
    while size is not None:
        recorder.begin_pass(size)
        tried.append(size)
        steps = Steps(workload, model, workload.make_optimizer(trainable(model)), applied, recorder, size)
        _run_pass(order, steps)
        steps.close()
        recorder.end_pass()
        del steps
        model.zero_grad(set_to_none=True)
        gc.collect()
        meter.drop_cache()
        kept = recorder.composition
        size = next_size(
            history.passes,
            tried,
            unit=order.trace_unit,
            cap_bytes=meter.cap_bytes,
            held_bytes=kept["parameters_bytes"] + kept["buffers_bytes"] + kept.get("optimizer_bytes", 0),
            largest=order.trace_largest,
        )
    recorder.facts["step_seconds"] = ()  # recording slows them


def _run_pass(order: Order, steps: Steps) -> None:
    """All steps at one size."""
    form, recorder = order.form, steps.recorder
    asked = form.steps
    recorder.facts["steps_asked"] = asked
    for number in range(1, SCALER_STEPS + 1):
        steps.run(number)
        if form is Form.LONG and recorder.executed >= asked // 2 and not steps.paused:
            steps.pause()
        if steps.enough(asked, number):
            break
    if form is Form.SHORT:
        steps.evaluate()
    elif not steps.paused:
        steps.pause()
    recorder.read_device()
    losses = [] if recorder.losses is None else recorder.losses[: recorder.executed].tolist()
    recorder.facts["losses"] = [loss if math.isfinite(loss) else None for loss in losses]
    seconds = _step_seconds(recorder.meter.intervals(), recorder.timed, order.settings.accumulate + 1)
    recorder.facts["step_seconds"] = seconds


def _run_mixture(shares: tuple[float, ...], steps: Steps) -> None:
    """Train on varying lengths, beginning as a training of its own would, with nothing cached.

    Memory must suffice; retries and times say nothing while each step differs from the one before, and are not kept.
    """
    recorder = steps.recorder
    kept = recorder.retries[:], recorder.allocated_after[:], recorder.timed[:], recorder.executed, recorder.skipped
    recorder.meter.drop_cache()
    for number, share in enumerate(shares, len(recorder.timed) + 1):
        steps.run(number, share)
    recorder.retries, recorder.allocated_after, recorder.timed, recorder.executed, recorder.skipped = kept
    recorder.read_device()


def _step_seconds(intervals: list[float], counts: list[bool], parts: int) -> list[float]:
    """Seconds of each counted step after the first; a step has ``parts`` intervals (micro-batches and optimizer)."""
    seconds = [sum(intervals[i : i + parts]) for i in range(0, len(intervals), parts)]
    return [s for s, counted in list(zip(seconds, counts, strict=True))[_WARM_UP:] if counted]


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Parameters an optimizer should get."""
    return [p for p in model.parameters() if p.requires_grad]


def place(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Move a model made on the CPU or on the meta device; meta parameters get each module's own initialisation."""
    if not any(p.is_meta for p in model.parameters()):
        return model.to(device)
    model = model.to_empty(device=device)
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            for parameter in module.parameters(recurse=False):
                torch.nn.init.normal_(parameter.detach(), std=0.02)
    return model
