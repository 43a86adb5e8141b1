"""Watching a training that somebody else wrote: its optimizer steps are counted, its phases measured, and it is ended.

An optimizer step is that of the first optimizer that steps; where there are several (two networks against each other), each
of its steps stands for one of all. Nothing here may raise into the user's code, but for what ends it on purpose.
"""

import contextlib
import multiprocessing
import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

import torch

from autotune.model import Form, Phase
from autotune.probe.command.batches import Batches
from autotune.probe.command.orders import HookOrder
from autotune.probe.host import available_bytes
from autotune.probe.meter import CudaMeter, make_meter
from autotune.probe.raised import told
from autotune.probe.recorder import Recorder
from autotune.probe.settling import SETTLE_STEPS
from autotune.probe.steps import storage_bytes
from autotune.probe.wire import Channel
from autotune.workload.batch import tensors

_NO_MEMORY = ("DefaultCPUAllocator", "not enough memory")
"""In the text of what PyTorch raises where the host's memory ran out; it has no type of its own."""


class CaughtOutOfMemory(RuntimeError):
    """Memory ran out, and the command went on as if it had not."""


class Watch:
    """One process of the command. Those that a launcher starts beside the first rank only count, and tell failures."""

    def __init__(self, order: HookOrder, channel: Channel) -> None:
        self._order = order
        self._channel = channel
        self._forked = False
        self._start()

    def _start(self) -> None:
        """Nothing has been seen yet in this process."""
        self._process = os.getpid()
        self._first_rank = os.environ.get("RANK", "0") == "0"
        self._began = time.perf_counter()
        known = None if self._order.known_batch is None else (self._order.known_batch, self._order.known_extents)
        self._batches = Batches(self._order.batch_size, known, self._calling, self.note)
        self._recorder: Recorder | None = None
        self._inside: AbstractContextManager[None] | None = None
        """The phase that goes on."""
        self._optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        self._depth = 0
        self._backwards = 0
        self._loss: torch.Tensor | None = None
        self._taken: list[int] = []
        """Batches of each step."""
        self._retries = 0
        self._exhausted = 0
        """How often memory had run out when the last batch came, or the last backward pass began."""
        self._evaluated = False
        """Whether an evaluation has run since the last step: the time to the next is not that of a step."""
        self._training = False
        """Whether the first batch, or backward pass, has come."""
        self._done = False
        self._caught: dict[str, object] | None = None
        """An exhausted memory that passed through here, as it is told; the command may catch it."""

    def begin(self) -> None:
        """Set the limit, or see to it that it is set as soon as the device starts."""
        if not _is_worker():
            self._channel.send("mark", phase=Phase.LOAD, step=None)
        kind = self._order.device.partition(":")[0]
        if kind == "cpu":
            self._record(torch.device("cpu"))
        elif kind == "cuda":
            torch.cuda._lazy_call(lambda: self._record(torch.device(self._order.device)))  # type: ignore[no-untyped-call]

    def forked(self) -> None:
        """This is a new process, of a data loader or one that trains: what its parent has seen is not its own."""
        self._forked = True
        self._channel = self._channel.of_writer(f"{os.getpid()}-")
        self._start()

    def _record(self, device: torch.device) -> None:
        meter = make_meter(device)
        if isinstance(meter, CudaMeter):
            meter.leave_out(self._order.others_bytes, available_bytes())
        if self._order.limit_bytes is not None:
            try:
                meter.limit(self._order.limit_bytes, self._order.reserve_bytes)
            except MemoryError as error:  # what was imported before torch does not fit by itself
                self.failed(error)
                os._exit(1)
        self._recorder = Recorder(self._channel, meter)
        self._recorder.batch_size = self._order.batch_size
        if not _is_worker():
            self._enter(Phase.BUILD)

    def _here(self) -> bool:
        """Whether this is still the process that was attached to, and there is something left to see."""
        return os.getpid() == self._process and not self._done

    def _enter(self, phase: Phase) -> None:
        """Another phase begins."""
        recorder = self._recorder
        if recorder is None or not self._here():
            return
        self._go_on()
        self._leave()
        if phase is not Phase.BUILD and not self._training:
            self._training = True
            recorder.meter.tick()  # the first step begins
        self._inside = recorder.during(phase, recorder.executed + 1 if self._training else None)
        self._inside.__enter__()

    def _go_on(self) -> None:
        """The training goes on. Where memory has run out before and somebody caught that, it is over: too large is too large."""
        if self._caught is not None and self._here():
            self._tell_failure(self._caught)
            self._end(1)

    def _leave(self) -> None:
        inside, self._inside = self._inside, None
        if inside is not None:
            inside.__exit__(None, None, None)

    def before_batch(self) -> None:
        """A data loader is about to give a batch."""
        if torch.is_grad_enabled():
            self._look_back(given_up=self._batches.untrained)
        self._enter(Phase.DATA if torch.is_grad_enabled() else Phase.EVALUATE)

    def after_batch(self, batches: Any, batch: object | None) -> None:
        """It has given one, or has none left (None)."""
        if not self._here():
            return
        self._batches.fetched(batches, batch)
        if torch.is_grad_enabled():
            self._enter(Phase.FORWARD)
        else:
            self._evaluates()

    def _calling(self, model: torch.nn.Module) -> None:
        """A model is about to be called; in its evaluation mode and without gradients, that is an evaluation."""
        self._go_on()
        if self._recorder is None or not self._here():
            return
        if not torch.is_grad_enabled() and not model.training:
            if self._recorder.phase is not Phase.EVALUATE:
                self._enter(Phase.EVALUATE)
            self._evaluates()
        elif torch.is_grad_enabled() and self._recorder.phase is Phase.EVALUATE:
            self._enter(Phase.FORWARD)

    def _evaluates(self) -> None:
        if self._recorder is not None:
            self._recorder.facts["evaluated"] = self._evaluated = True

    @contextmanager
    def backward(self, roots: Any) -> Iterator[None]:
        """A backward pass goes on inside; one within another belongs to it."""
        self._depth += 1
        try:
            if self._depth == 1 and self._here():
                self._before_backward(roots)
            yield
            if self._depth == 1 and self._here():
                self._after_backward()
        except (RuntimeError, MemoryError) as error:
            self.note(error)
            raise
        finally:
            self._depth -= 1

    def _look_back(self, *, given_up: bool = False) -> None:
        """Whether memory ran out in a step that was given up then: somebody caught that where nothing here sees it."""
        recorder = self._recorder
        if recorder is None or not self._here():
            return
        exhausted = recorder.meter.exhausted()
        if exhausted > self._exhausted and (given_up or recorder.phase is Phase.OPTIMIZER):
            self.note(
                CaughtOutOfMemory("CUDA out of memory: the command caught the error and went on with something else")
            )
        self._exhausted = exhausted

    def note(self, error: BaseException) -> None:
        """The user's code is raised this, and may catch it."""
        told_by_text = isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
        exhausted = told_by_text or isinstance(error, MemoryError | torch.OutOfMemoryError | CaughtOutOfMemory)
        if exhausted and self._recorder is not None and self._here():
            self._caught = {**told(error), "phase": self._recorder.phase, "step": self._recorder.step}

    def _before_backward(self, roots: Any) -> None:
        root = next(iter(tensors(roots)), None)
        device = torch.device("cpu") if root is None else root.device
        if self._recorder is None and (self._order.device == "auto" or self._forked):
            self._record(device)
        asked = torch.device(self._order.device).type if self._order.device != "auto" else device.type
        if device.type != asked:
            self._refuse(
                f"the command trains on {device.type}, and {self._order.device} was asked for",
                f"give --device {device.type}, or have the command train on {asked}",
            )
        if root is not None and root.numel() == 1:
            loss = root.detach()
            self._loss = loss if self._loss is None else self._loss + loss
        self._batches.trained()
        self._look_back()
        self._enter(Phase.BACKWARD)

    def _after_backward(self) -> None:
        self._backwards += 1
        self._enter(Phase.FORWARD)

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer was made: there is a model, and what follows belongs to the training."""
        if self._here() and self._recorder is not None and self._recorder.phase is Phase.BUILD:
            self._enter(Phase.FORWARD)
        parameters = _parameters(optimizer)
        if self._here() and not self._batches.knows(parameters):
            self._batches.look_at_models(parameters)

    def scripted(self, model: object) -> None:
        """A model is about to be translated into TorchScript, which would try to translate what looks at it, too."""
        self._batches.look_away(model)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        if not self._here() or self._recorder is None:
            return
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
            self._batches.look_at_models(_parameters(optimizer))
            self._note_composition(optimizer)
        self._batches.in_step = True
        self._enter(Phase.OPTIMIZER)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """It has stepped; with the last step asked for, the run ends here."""
        recorder = self._recorder
        if not self._here() or recorder is None:
            return
        self._batches.in_step = False
        if self._optimizer is None or self._optimizer() is not optimizer:
            self._enter(Phase.FORWARD)
            return
        self._leave()
        if not self._backwards:
            return  # nothing was trained: it does not count
        meter = recorder.meter
        meter.tick()
        self._count(recorder)
        if recorder.executed == 1:
            self._note_composition(optimizer)
            recorder.read_device()
        self._enter(Phase.FORWARD)  # of whatever comes before the next batch
        meter.tick()
        if self._enough(recorder):
            self._finish(recorder, optimizer)

    def _count(self, recorder: Recorder) -> None:
        """One more step."""
        if recorder.losses is None and self._loss is not None:
            recorder.losses = torch.zeros(max(self._order.steps, SETTLE_STEPS) + 1, device=self._loss.device)
        if recorder.losses is not None and self._loss is not None:
            recorder.losses[recorder.executed] = self._loss.to(recorder.losses.device)
        retries = recorder.meter.retries()
        recorder.retries.append(retries - self._retries)
        recorder.allocated_after.append(recorder.meter.allocated() - self._batches.bytes)
        recorder.timed.append(not self._evaluated)
        recorder.executed += 1
        self._taken.append(self._batches.take())
        self._retries, self._backwards, self._loss, self._evaluated = retries, 0, None, False

    def _note_composition(self, optimizer: torch.optim.Optimizer) -> None:
        assert self._recorder is not None
        parameters = _parameters(optimizer)
        state = [t for each in optimizer.state.values() for t in tensors(each)]
        self._recorder.composition.update(
            parameters_bytes=storage_bytes(parameters),
            gradients_bytes=storage_bytes([p.grad for p in parameters if p.grad is not None]),
            optimizer_bytes=storage_bytes(state),
            batch_bytes=self._batches.bytes,
        )

    def _enough(self, recorder: Recorder) -> bool:
        """As a probe of a workload file: a short one goes on while the allocator's retries have not settled."""
        if recorder.executed < self._order.steps:
            return False
        unsettled = any(recorder.retries[-Form.SHORT.steady_steps :])
        return not unsettled or recorder.executed >= max(self._order.steps, SETTLE_STEPS)

    def _finish(self, recorder: Recorder, optimizer: torch.optim.Optimizer) -> NoReturn:
        """Say what was seen, and end this process: the rest of the training is not wanted."""
        self._leave()
        recorder.read_device()
        if self._first_rank and self._order.rehearsal:
            from autotune.probe.command.described import describe

            self._answer(described=describe(self._order, recorder, optimizer, self._batches))
        elif self._first_rank:
            self._tell(recorder)
        self._end(0)

    def _end(self, code: int) -> NoReturn:
        """Without exit handlers, which may save a model or report a success."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed by the user's code
                stream.flush()
        os._exit(code)

    def _measurement(self, recorder: Recorder, *, failed: bool = False) -> dict[str, object]:
        """What was seen; after a failure without what must be read from the device, which may be lost."""
        facts = recorder.facts
        facts["steps_asked"] = self._order.steps
        facts["observed_batch"] = self._batches.observed
        facts["data_set_size"] = self._batches.data_set_size
        counted = sorted(self._taken[1:] or self._taken)
        facts["micro_batches"] = max(1, counted[len(counted) // 2]) if counted else 1
        if not failed:
            seconds = recorder.meter.intervals()[: recorder.executed]
            facts["first_step_seconds"] = seconds[0] if seconds else None
            later = list(zip(seconds, recorder.timed, strict=False))[self._order.form.warm_up :]
            # of a training that evaluates after every step there are no others
            facts["step_seconds"] = [each for each, counts in later if counts] or [each for each, _ in later]
            losses = [] if recorder.losses is None else recorder.losses[: recorder.executed].tolist()
            facts["losses"] = [loss if abs(loss) < float("inf") else None for loss in losses]
        return recorder.measurement(time.perf_counter() - self._began)

    def _tell(self, recorder: Recorder, **fields: object) -> None:
        """Answer what was seen."""
        measurement, state = self._measurement(recorder), recorder.meter.state()
        self._answer(measurement=measurement, memory=state, batch_size=self._order.batch_size, **fields)

    def _answer(self, **fields: object) -> None:
        self._done = True
        self._channel.send("answer", **fields)

    def _refuse(self, message: str, hint: str) -> NoReturn:
        self._answer(refused={"kind": "usage", "message": message, "hint": hint, "detail": ""})
        os._exit(1)

    def failed(self, error: BaseException) -> None:
        """The process ends with this exception."""
        if not self._here():
            return
        if self._recorder is not None:
            self._recorder.meter.lift_limit()  # telling needs memory too
            if self._batches.too_few and isinstance(error, Exception):  # such as a mean over no batches
                self._answer(measurement=self._measurement(self._recorder), batch_size=self._order.batch_size)
                return
        self._tell_failure(told(error))

    def _tell_failure(self, fields: dict[str, object]) -> None:
        recorder = self._recorder
        if recorder is not None:
            recorder.meter.lift_limit()
            fields = {"phase": recorder.phase, "step": recorder.step, "memory": recorder.meter.state(), **fields}
            self._leave()
            fields["measurement"] = self._measurement(recorder, failed=True)
        self._answer(batch_size=self._order.batch_size, ending=True, **fields)

    def at_exit(self) -> None:
        """The process ends by itself before the last step that was asked for; one that trained nothing says nothing."""
        recorder = self._recorder
        error = getattr(sys, "last_value", None)  # set where nothing caught it, whoever has put another hook there
        if isinstance(error, BaseException):
            self.failed(error)
        elif self._caught is not None and self._here():
            self._tell_failure(self._caught)
        seen = recorder is not None and (
            recorder.executed or self._backwards or self._batches.data_set_size is not None
        )
        if recorder is not None and seen and self._here() and self._first_rank:
            self._leave()
            self._tell(recorder, ending=True)


def _is_worker() -> bool:
    """Whether ``multiprocessing`` started this interpreter for a process of its own, mostly of a data loader."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
