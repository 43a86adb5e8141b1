"""A probe's course: build, train in the form asked for, or record passes at several sizes. The heart of a probe process.

Forms that do not train at one size (comparing, loading) have files of their own.
"""

import gc
import math
import time
from dataclasses import replace

import torch

from autotune.apply import Applied
from autotune.apply.parallel import as_trained
from autotune.memory.ladder import next_size
from autotune.model import Form, Phase
from autotune.probe.group import Alone, Group, join
from autotune.probe.history import History
from autotune.probe.loading import load_batches
from autotune.probe.meter import CudaMeter
from autotune.probe.order import Order
from autotune.probe.recorder import Recorder
from autotune.probe.settling import MOST_STEPS, outlined_after
from autotune.probe.steps import Steps, storage_bytes
from autotune.workload.task import Workload


def run_probe(
    order: Order, workload: Workload, device: torch.device, recorder: Recorder, made: torch.nn.Module | None = None
) -> Group:
    """Run the probe that ``order`` asks for; what it saw is in ``recorder``.

    ``made``: the workload's model as ``make_model`` left it; then building it is placing it.

    Returns:
        The ranks that trained together. Leave it last of all.

    Raises:
        Unsupported: the settings cannot be applied to this workload.
        BaseException: whatever the user's code raises.
    """
    if isinstance(recorder.meter, CudaMeter):
        recorder.meter.start(order.device_uuid)
        recorder.meter.missing_bytes = order.communicators_bytes
    group: Group = Alone()
    if order.ranks > 1:
        with recorder.during(Phase.DATA):
            workload = workload.of_rank(*order.seat)
        with recorder.during(Phase.BUILD):
            group = join(order, device)
        reference = None if order.reference is None else as_trained(order.reference)
        order = replace(order, settings=as_trained(order.settings), reference=reference)
    if order.length_bucket is not None:
        with recorder.during(Phase.DATA):
            found = workload.within(order.length_bucket).workload
        assert found is not None, "no probe is asked for where there are no samples"
        workload = found
    if order.form not in (Form.COMPARE, Form.LOADING):
        _train(order, workload, device, recorder, group, made)
        return group
    with recorder.during(Phase.BUILD):
        recorder.meter.limit(order.limit_bytes, order.reserve_bytes)
    if order.form is Form.LOADING:
        load_batches(order, workload, recorder)
    else:
        from autotune.probe.compare import compare

        compare(order, workload, device, recorder, group)
    return group


def _train(
    order: Order,
    workload: Workload,
    device: torch.device,
    recorder: Recorder,
    group: Group,
    made: torch.nn.Module | None,
) -> None:
    """The forms that train under one set of settings, and the recording."""
    meter = recorder.meter
    if order.trace_unit is not None:
        recorder.history = History.start(device)
    applied = Applied(order.settings, device)
    with recorder.during(Phase.BUILD):
        meter.limit(order.limit_bytes, order.reserve_bytes)
        began = time.perf_counter()
        model = place(workload.make_model() if made is None else made, applied.first_device)
        model = applied.prepare(model, workload.plan() if applied.splits else None)
        model.train()
        # One of its own for each pass of a recording, and nothing here may keep the first alive.
        optimizer = make_optimizer(workload, model, applied) if recorder.history is None else None
        recorder.facts["build_seconds"] = time.perf_counter() - began
    recorder.composition["parameters_bytes"] = storage_bytes(model.parameters())
    recorder.composition["buffers_bytes"] = storage_bytes(model.buffers())
    recorder.read_device()
    began = time.perf_counter()
    if optimizer is None:
        _run_passes(order, workload, model, applied, recorder, group)
    else:
        recorder.begin_pass(order.batch_size)
        steps = Steps(workload, model, optimizer, applied, recorder, order.batch_size, order.evaluate_at)
        if workload.varies:
            _run_mixtures(order.form.mixtures, steps)
        _run_pass(order, steps, group)
    recorder.facts["loop_seconds"] = time.perf_counter() - began


def _run_passes(
    order: Order,
    workload: Workload,
    model: torch.nn.Module,
    applied: Applied,
    recorder: Recorder,
    group: Group,
) -> None:
    """Train at several small sizes one after the other, each with an optimizer of its own, for the allocator's record."""
    meter, history = recorder.meter, recorder.history
    assert history is not None and meter.cap_bytes is not None and order.trace_unit is not None
    tried: list[int] = []
    size: int | None = order.batch_size
    gc.freeze()  # what is there stays; the collections below look at what the passes leave
    while size is not None:
        recorder.begin_pass(size)
        tried.append(size)
        optimizer = make_optimizer(workload, model, applied)
        steps = Steps(workload, model, optimizer, applied, recorder, size, order.evaluate_at)
        _run_pass(order, steps, group)
        steps.close()
        recorder.end_pass()
        del steps, optimizer
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
    recorder.facts["step_seconds"], recorder.facts["first_step_seconds"] = (), None  # recording slows them


def _run_pass(order: Order, steps: Steps, group: Group) -> None:
    """All steps at one size; as many in every rank, or they would wait for each other in vain."""
    form, recorder = order.form, steps.recorder
    asked, before_pause = form.steps, form.steps_before_pause
    recorder.facts["steps_asked"] = asked
    # A recording is of one kind of batch: what follows the size is told by comparing passes.
    rotating = form.rotating_steps if recorder.history is None else 0
    for number in range(1, MOST_STEPS + 1):
        candidate = recorder.executed % steps.candidates if recorder.executed < rotating else 0
        steps.run(number, candidate=candidate, outlined=recorder.executed in outlined_after(form))
        if before_pause is not None and recorder.executed >= before_pause and not steps.paused:
            steps.pause(checkpoint=form is Form.LONG)
        if number >= asked and not group.any(not steps.enough(form, number)):
            break
    recorder.facts["candidates"] = min(steps.candidates, max(1, rotating))
    if form is Form.SHORT:
        steps.evaluate()
    elif before_pause is not None and not steps.paused:
        steps.pause(checkpoint=form is Form.LONG)
    recorder.read_device()
    recorder.facts["graphs_kept"] = steps.graphs_kept()
    losses = [] if recorder.losses is None else recorder.losses[: recorder.executed].tolist()
    recorder.facts["losses"] = [loss if math.isfinite(loss) else None for loss in losses]
    seconds = _step_seconds(recorder.meter.intervals(), order.settings.accumulate + 1)
    counted = zip(seconds, recorder.timed, strict=True)
    recorder.facts["first_step_seconds"] = seconds[0]
    timed = [each for each, counts in list(counted)[steps.before + form.warm_up :] if counts]
    recorder.facts["step_seconds"] = [] if form is Form.EVALUATE else timed  # too few, of a size of no interest
    if order.stands_in:  # nothing was exchanged: neither numbers nor times are those of the ranks
        recorder.facts["losses"], recorder.facts["step_seconds"], recorder.facts["first_step_seconds"] = [], [], None


def _run_mixtures(sequences: tuple[tuple[float, ...], ...], steps: Steps) -> None:
    """Train on varying lengths first of all, and leave nothing cached to what follows, as if it were on its own.

    Memory must suffice; retries, losses and times say nothing while each step differs from the one before, and are not
    kept. A size at which memory runs out in pieces shows it here, before the rest was worth its time.
    """
    recorder = steps.recorder
    for shares in sequences:
        for number, share in enumerate(shares, 1):
            steps.run(number, share)
        steps.before += len(shares)
        recorder.meter.drop_cache()
    recorder.read_device()
    recorder.begin_steps()
    recorder.timed = [False] * steps.before


def _step_seconds(intervals: list[float], parts: int) -> list[float]:
    """Seconds of each step; a step has ``parts`` intervals (micro-batches and optimizer)."""
    return [sum(intervals[i : i + parts]) for i in range(0, len(intervals), parts)]


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Parameters an optimizer should get."""
    return [p for p in model.parameters() if p.requires_grad]


def make_optimizer(workload: Workload, model: torch.nn.Module, applied: Applied) -> torch.optim.Optimizer:
    """The workload's optimizer in the implementation of the settings.

    Raises:
        Unsupported: it has no such implementation.
    """
    return applied.reimplement(workload.make_optimizer(trainable(model)))


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
