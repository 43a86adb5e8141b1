"""One probe: build, a few real training steps, in the long form an evaluation and a checkpoint between, and readings.

A step is what a training loop does: a fresh batch while the former is still alive, gradients cleared, forward,
backward, optimizer. Nothing here decides whether the result is good (``judge``).
"""

import gc
import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch
from torch.nn.modules.module import register_module_forward_hook

from autotune.apply import Applied
from autotune.memory.ladder import next_size
from autotune.model import Composition, Form, Measurement, PassPeaks, Phase, PhaseMemory
from autotune.probe.history import History
from autotune.probe.meter import CudaMeter, Meter, Peak
from autotune.probe.order import Order
from autotune.probe.wire import Channel
from autotune.workload.batch import batch_bytes, observed_batch, tensors, to_device
from autotune.workload.task import Workload

SETTLE_STEPS = 6
"""A short probe goes on to this many steps while allocator retries have not settled; the long form has its second half
to show it."""
SCALER_STEPS = 30
"""... and to this many while the gradient scaler still skips: it halves from 65536 = 2**16 once a step."""
_WARM_UP = 1


class Recorder:
    """Collects what a probe sees; can be read at any moment, also after a failure."""

    def __init__(self, channel: Channel, meter: Meter) -> None:
        self.meter = meter
        self.history: History | None = None
        self.phase: Phase | None = None
        self.step: int | None = None
        self.batch_size: int | None = None
        """Of the pass that is running; None before the first."""
        self.facts: dict[str, object] = {}
        self.composition: dict[str, int] = {}
        self._channel = channel
        self._peaks: dict[Phase, Peak] = {}
        self._non_pytorch: int | None = None
        self._start_counting()

    def _start_counting(self) -> None:
        self.losses: torch.Tensor | None = None
        """Made once on the device, so that keeping losses does not look like a leak."""
        self.retries: list[int] = []
        self.allocated_after: list[int] = []
        """Less the batch itself, whose size may vary from step to step."""
        self.timed: list[bool] = []
        """For each step whether it counts: a skipped one is faster than training is, one on a shorter batch than others."""
        self.executed = 0
        self.skipped = 0
        self._last_step = 0
        """Evaluation belongs to the step before it."""

    def begin_pass(self, batch_size: int) -> None:
        """Steps at this size follow. What an earlier pass saw is forgotten, except for what building took."""
        self.batch_size = batch_size
        self._peaks = {phase: peak for phase, peak in self._peaks.items() if phase is Phase.BUILD}
        self._start_counting()

    def end_pass(self) -> None:
        """Note the peaks of a complete pass beside its trace; one in which steps were skipped is not like training."""
        assert self.history is not None and self.batch_size is not None
        self.history.mark(Phase.EXIT, self.executed, self.batch_size)
        if not self.skipped:
            peaks = self._peaks.values()
            allocated = max(peak.allocated_bytes for peak in peaks)
            reserved = max(peak.reserved_bytes or 0 for peak in peaks)
            self.history.add(PassPeaks(self.batch_size, self.executed, allocated, reserved))

    @contextmanager
    def during(self, phase: Phase, step: int | None = None) -> Iterator[None]:
        """Everything inside belongs to this phase."""
        self.phase, self.step = phase, step
        self._last_step = step or self._last_step
        self._channel.send("mark", phase=phase, step=step, batch_size=self.batch_size)
        if self.history is not None:
            self.history.mark(phase, step or self._last_step, self.batch_size or 0)
        self.meter.begin()
        try:
            yield
        finally:
            self._note(phase, self.meter.end())

    def _note(self, phase: Phase, peak: Peak) -> None:
        known = self._peaks.get(phase)
        if known is not None:
            reserved = None if peak.reserved_bytes is None else max(peak.reserved_bytes, known.reserved_bytes or 0)
            peak = Peak(max(peak.allocated_bytes, known.allocated_bytes), reserved)
        self._peaks[phase] = peak

    def read_device(self) -> None:
        """Note the non-PyTorch memory now; it only ever grows, as libraries load their kernels."""
        now = self.meter.non_pytorch()
        if now is not None:
            self._non_pytorch = max(now, self._non_pytorch or 0)

    def measurement(self, worker_seconds: float) -> dict[str, object]:
        """All of it as the fields of ``model.Measurement``, JSON-able."""
        peaks = list(self._peaks.values())
        allocated = max((p.allocated_bytes for p in peaks), default=None)
        reserved = max((p.reserved_bytes for p in peaks if p.reserved_bytes is not None), default=None)
        device = allocated if reserved is None else reserved + (self._non_pytorch or 0)
        return asdict(
            Measurement(
                steps_executed=self.executed,
                steps_skipped=self.skipped,
                step_seconds=tuple(self.facts.pop("step_seconds", ())),  # type: ignore[arg-type]
                losses=tuple(self.facts.pop("losses", ())),  # type: ignore[arg-type]
                phases=tuple(
                    PhaseMemory(phase=k, peak_allocated_bytes=p.allocated_bytes, peak_reserved_bytes=p.reserved_bytes)
                    for k, p in self._peaks.items()
                ),
                peak_allocated_bytes=allocated,
                peak_reserved_bytes=reserved,
                non_pytorch_bytes=self._non_pytorch,
                peak_device_bytes=device,
                others_bytes=self.meter.others_bytes,
                allocator_cap_bytes=self.meter.cap_bytes,
                retries_per_step=tuple(self.retries),
                allocated_after_step=tuple(self.allocated_after),
                composition=Composition(**self.composition),
                worker_seconds=worker_seconds,
                **self.facts,  # type: ignore[arg-type]
            )
        )


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
    recorder.composition["parameters_bytes"] = _storage_bytes(model.parameters())
    recorder.composition["buffers_bytes"] = _storage_bytes(model.buffers())
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


def _run_pass(order: Order, steps: "Steps") -> None:
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


def _run_mixture(shares: tuple[float, ...], steps: "Steps") -> None:
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


class Steps:
    """The training loop of one probe."""

    def __init__(
        self,
        workload: Workload,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        applied: Applied,
        recorder: Recorder,
        batch_size: int,
    ) -> None:
        self._workload = workload
        self._model = model
        self._optimizer = optimizer
        self._applied = applied
        self.recorder = recorder
        self._batch_size = batch_size
        self._batch: object = None
        self._batch_on_device = 0
        self._reference: tuple[object, int] | None = None
        self._loss: torch.Tensor | None = None
        self.paused = False
        """Whether evaluation and checkpoint are behind us."""
        self._calls = 0
        self._calls_in_first: int | None = None
        self._taken = 0
        members = set(model.modules())
        self._hooks = (
            register_module_forward_hook(lambda module, args, output: self._count(module in members)),
            optimizer.register_step_post_hook(lambda *_: self._took()),
        )

    def close(self) -> None:
        """Let go of everything but the model."""
        for hook in self._hooks:
            hook.remove()

    def _count(self, ours: bool) -> None:
        self._calls += ours

    def _took(self) -> None:
        self._taken += 1

    def run(self, number: int, share: float = 1.0) -> None:
        """One optimizer step with all its micro-batches. Making batches is left out of its time: loaders do it ahead.

        ``share``: of the full length, in all samples of the step.
        """
        recorder, applied = self.recorder, self._applied
        calls, taken, retries = self._calls, self._taken, recorder.meter.retries()
        total = None
        for micro in range(applied.settings.accumulate):
            self.next_batch(number, share)
            recorder.meter.tick()
            if micro == 0:
                self._optimizer.zero_grad(set_to_none=True)
            with recorder.during(Phase.FORWARD, number), applied.autocast():
                self._loss = self._workload.loss(self._model, self._batch)
            with recorder.during(Phase.BACKWARD, number):
                applied.backward(self._loss)
            recorder.meter.tick()
            total = self._loss.detach() if total is None else total + self._loss.detach()
        if number == 1:
            grads = [p.grad for p in self._model.parameters() if p.grad is not None]
            recorder.composition["gradients_bytes"] = _storage_bytes(grads)
        recorder.meter.tick()
        with recorder.during(Phase.OPTIMIZER, number):
            took = applied.step(self._optimizer) and self._taken > taken
        recorder.meter.tick()
        assert total is not None
        loss = total / applied.settings.accumulate
        self._count_step(took, forward_calls=self._calls - calls, loss=loss, timed=share == 1)
        del total, loss
        recorder.retries.append(recorder.meter.retries() - retries)
        if took:
            recorder.allocated_after.append(recorder.meter.allocated() - self._batch_on_device)
            state = [t for s in self._optimizer.state.values() for t in tensors(s)]
            recorder.composition["optimizer_bytes"] = _storage_bytes(state)
        if number == 1:
            recorder.read_device()

    def next_batch(self, number: int | None, share: float = 1.0) -> None:
        """Make a batch and move it to the device; the former one is let go only when the new one is there."""
        with self.recorder.during(Phase.DATA, number):
            if share < 1:
                batch = self._workload.make_shorter_batch(self._batch_size, share)
            else:
                batch = self._workload.make_batch(self._batch_size)
            self.recorder.facts["observed_batch"] = self._observed(batch, whole=share == 1)
            self.recorder.composition["batch_bytes"] = batch_bytes(batch)
            self._batch = to_device(batch, self._applied.device)
            self._batch_on_device = _storage_bytes(tensors(self._batch))

    def _observed(self, batch: object, *, whole: bool) -> int | None:
        """Samples really in the batch; where no leading dimension says it, by comparing with a batch of another size.

        A shortened batch is not compared: the other one's samples are longer.
        """
        asked = self._batch_size
        seen = observed_batch(batch, asked)
        if not whole or seen != asked or any(t.dim() > 0 and t.shape[0] == asked for t in tensors(batch)):
            return seen
        if self._reference is None:
            size = asked // 2 or 2
            # on the meta device: only its shapes are of interest, not another batch's memory
            self._reference = to_device(self._workload.make_batch(size), torch.device("meta")), size
        return observed_batch(batch, asked, self._reference)

    def _count_step(self, took: bool, *, forward_calls: int, loss: torch.Tensor, timed: bool) -> None:
        """Count a step as executed only if model, gradients and optimizer all took part.

        A workload that never calls a module (it uses parameters directly) is recognised in its first step.
        """
        if self._calls_in_first is None:
            self._calls_in_first = forward_calls
        went_forward = forward_calls > 0 or self._calls_in_first == 0
        has_gradients = any(p.grad is not None for p in self._model.parameters())
        real = took and went_forward and has_gradients
        self.recorder.timed.append(real and timed)
        if not took:
            self.recorder.skipped += 1
        elif real:
            if self.recorder.losses is None:
                self.recorder.losses = torch.zeros(SCALER_STEPS + len(Form.LONG.mixture), device=loss.device)
            self.recorder.losses[self.recorder.executed] = loss
            self.recorder.executed += 1

    def enough(self, asked: int, number: int) -> bool:
        """Whether the probe may end after step ``number``."""
        recorder = self.recorder
        if number < asked:
            return False
        if recorder.skipped and recorder.executed < asked:
            return number >= SCALER_STEPS
        unsettled = any(recorder.retries[-Form.SHORT.steady_steps :])
        return not unsettled or number >= max(asked, SETTLE_STEPS)

    def pause(self) -> None:
        """What real training does between steps: evaluation and a checkpoint, once optimizer state is resident."""
        self.paused = True
        self.evaluate()
        with self.recorder.during(Phase.CHECKPOINT), open(os.devnull, "wb") as nowhere:
            torch.save({"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}, nowhere)

    def evaluate(self) -> None:
        """The workload's evaluation on a fresh batch of the same size, if it has one."""
        if not self._workload.evaluates:
            return
        self.next_batch(None)
        with self.recorder.during(Phase.EVALUATE), self._applied.autocast():
            self._model.eval()
            self._workload.evaluate(self._model, self._batch)
        self._model.train()
        self.recorder.facts["evaluated"] = True


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


def _storage_bytes(values: Iterable[torch.Tensor]) -> int:
    """Bytes behind tensors, views and tied ones counted once."""
    storages = {}
    for value in values:
        storage = value.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
