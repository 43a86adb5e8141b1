"""The guard of a training: steps that survive a full device, a watch over memory, checkpoints in an emergency."""

import atexit
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch

from autotune.apply.optimizers import needs_closure
from autotune.errors import MemoryStop, UsageError
from autotune.runtime.checkpoint import Stateful, check_place, save_checkpoint
from autotune.runtime.degrade import Degrading, LossFunction
from autotune.runtime.exhausted import is_out_of_memory
from autotune.runtime.limits import Limit
from autotune.runtime.parts import Count, Halve, Parts
from autotune.runtime.plain import Applies, Plain
from autotune.runtime.readings import Meter
from autotune.runtime.summary import Summary, propose
from autotune.runtime.watch import OnLimit, Watch
from autotune.runtime.where import device_of, of_rank
from autotune.workload.seen import kind_of
from autotune.workload.source import INSIDE_VARIABLE

_LOSSES = 16
"""Earlier losses that are looked for when memory grows."""


class Guard:
    """Guards one training; ``autotune.guard(...)`` makes one. Three ways to use it, which do the same::

        with autotune.guard(model, optimizer, checkpoint="emergency.pt") as guard:
            for batch in loader:
                guard.train_step(loss_fn, [batch])  # loss_fn(model, batch); gradients, optimizer and all

        with autotune.guard(model, optimizer, checkpoint="emergency.pt") as guard:
            for batch in loader:
                optimizer.zero_grad()
                guard.backward(loss_fn, batch)  # in place of loss_fn(...).backward()
                optimizer.step()
                scheduler.step()
                guard.after_step()  # when all of the step is over

        @autotune.guard(model, optimizer, checkpoint="emergency.pt")
        def step(batch):
            return F.mse_loss(model(batch[0]), batch[1])

        for batch in loader:
            step(batch)  # a whole optimizer step

    Within autotune's own probes it does nothing, so that a search sees the training as it is.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        tuned: Applies | None = None,
        scaler: torch.amp.GradScaler | None = None,
        accumulate: int = 1,
        others: Mapping[str, Stateful] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        limit: Limit | None = None,
        on_limit: OnLimit = "continue",
        splittable: bool | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        count: Count | None = None,
        halve: Halve | None = None,
        log: str | os.PathLike[str] | None = None,
        every: int = 10,
        least_seconds: float = 0.5,
        start_step: int = 0,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            model: on its device, in whatever form it is trained.
            optimizer: of its parameters.
            tuned: what ``autotune.load`` returned; says how steps are run (autocast, scaler, accumulation).
            scaler: without ``tuned``: the loop's own.
            accumulate: without ``tuned``: micro-batches of an optimizer step; ``backward`` divides by it.
            others: name -> what else belongs in a checkpoint: learning rate schedulers, samplers.
            checkpoint: file for the emergency; None = none is written. Of several processes each writes its own, with its
                rank in the name.
            limit: of the device's use, at which the checkpoint is written: bytes, ``"70GiB"``, ``"95%"`` or a share;
                default: the capacity minus headroom (2 %, at least 256 MiB). On the CPU bytes are of this process, a
                share is of the cgroup, the limits of the process or the host, whichever is nearest.
            on_limit: ``"continue"`` (saved again every ten minutes while it lasts), or ``"stop"``: ``MemoryStop`` is
                raised after the step, once a checkpoint is written.
            splittable: whether a micro-batch that does not fit may be trained on in parts. None = only if a look at the
                model finds nothing against it and, tried on a few samples when it first happens, the gradients of parts
                add up to that of the whole. True = you know that they do. False = never.
            reduction: of the loss over a batch: ``"mean"`` over what ``count`` counts, or ``"sum"``.
            count: of a batch, what its mean is over, where that is not its samples:
                ``lambda batch: (batch["labels"] != -100).sum()`` (of ``labels[:, 1:]`` where the model shifts them).
            halve: cuts a batch in two, None where it has one sample; default: tensors by their first dimension.
            log: file of JSON lines to append to: memory, out-of-memory, checkpoints, leak, a summary at the end.
            every: steps between looks at the memory.
            least_seconds: and seconds between them, at least.
            start_step: optimizer steps that were taken before, as ``Checkpoint.restore`` returns them.
            meter, clock: for tests.

        Raises:
            UsageError: an argument makes no sense.
            EnvironmentTrouble: the log cannot be made, or no checkpoint be written at its place.
        """
        for name, thing in (others or {}).items():
            if not hasattr(thing, "state_dict"):
                raise UsageError(
                    f"others[{name!r}] is of {type(thing).__name__}, which has no state_dict()",
                    hint="give what has state_dict() and load_state_dict(), as learning rate schedulers do",
                )
        if tuned is not None and (scaler is not None or accumulate != 1):
            raise UsageError(
                "scaler= and accumulate= are given beside tuned=, which has its own",
                hint="leave them out, or leave tuned out",
            )
        if accumulate < 1:
            raise UsageError(f"accumulate={accumulate}", hint="1 is without accumulation")
        if reduction not in ("mean", "sum"):
            raise UsageError(
                f"reduction={reduction!r}",
                hint="give 'mean' or 'sum', as the loss function was given; else splittable=False",
            )
        self._inside = bool(os.environ.get(INSIDE_VARIABLE))
        self._model, self._optimizer, self._others = model, optimizer, others
        self._needs_closure = needs_closure(optimizer)
        self._applied: Applies = tuned if tuned is not None else Plain(accumulate, scaler)
        self._path = None if checkpoint is None or self._inside else of_rank(Path(checkpoint))
        if self._path is not None:
            check_place(self._path)
        device = self._device = device_of(optimizer)
        self.step = start_step
        """Optimizer steps that were taken."""
        self._degrading = Degrading(
            model,
            optimizer,
            self._applied,
            device,
            splittable=splittable,
            parts=Parts(mean=reduction == "mean", count=count, halve_by=halve),
        )
        self._watch = Watch(
            device,
            limit=limit,
            on_limit=on_limit,
            log=None if log is None or self._inside else of_rank(Path(log)),
            every=every,
            least_seconds=least_seconds,
            certified_bytes=self._applied.certified_bytes,
            failures=self._degrading.failures,
            accumulate=self._applied.accumulate,
            start_step=start_step,
            meter=meter,
            clock=clock,
        )
        self._losses: deque[weakref.ref[torch.Tensor]] = deque(maxlen=_LOSSES)
        self._told = 0
        """Failures that are in the log."""
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, loss: Callable[[Any], torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Decorate ``loss(batch)``: called with the micro-batches of a step it takes the whole optimizer step.

        ``step.guard`` is the guard. It is closed when the process ends, if nobody did before.
        """
        atexit.register(self.close)

        @wraps(loss)
        def step(*batches: Any) -> torch.Tensor:
            return self.train_step(lambda model, batch: loss(batch), batches)

        step.guard = self  # type: ignore[attr-defined]
        return step

    # --- steps ------------------------------------------------------------------------------------------------------

    def train_step(self, loss: LossFunction, batches: Iterable[Any]) -> torch.Tensor:
        """A whole optimizer step: gradients cleared, the micro-batches, the optimizer, a look if one is due.

        Args:
            loss: ``loss(model, batch)``, of the kind that ``reduction`` and ``count`` say.
            batches: the micro-batches, as many as are accumulated, on the device (or moved there by ``loss``).

        Returns:
            The mean of their losses, without a gradient.

        Raises:
            UsageError: there are more or fewer batches, the optimizer asks for a closure, or the loss is no tensor; no step
                was taken.
            MemoryStop: the step was taken, and the limit passed.
            torch.OutOfMemoryError or what else said so: no step was taken; a note says why the batch was not split.
        """
        if self._needs_closure:
            raise UsageError(
                f"{type(self._optimizer).__name__} takes a closure, which it calls several times in a step",
                hint="call optimizer.step(closure) yourself, with guard.backward(loss, batch) in the closure, and after it"
                " guard.after_step()",
            )
        asked, taken = self._applied.accumulate, 0
        total: torch.Tensor | None = None
        self._applied.zero_grad(self._optimizer)
        self._degrading.gradients.cleared()
        for batch in batches:
            taken += 1
            if taken > asked:
                break
            value = self.backward(loss, batch)
            total = value if total is None else total + value
        if total is None or taken != asked:
            given = f"more than {asked}" if taken > asked else str(taken)
            raise UsageError(
                f"a step takes {asked} micro-batches and was given {given}",
                hint="say accumulate=... to the guard, or give it itertools.islice(loader_iterator, accumulate)",
            )
        try:
            self._applied.step(self._optimizer)
        except Exception as error:
            if is_out_of_memory(error, self._device):
                error.add_note(
                    "autotune: in the optimizer's step; parameters may be updated in part, so nothing was saved or repeated"
                )
            raise
        self.after_step()
        return total if asked == 1 else total / asked

    def backward(self, loss: LossFunction, batch: Any) -> torch.Tensor:
        """Forward and backward pass of one micro-batch, in parts if it does not fit; returns its loss without a gradient.

        Batches of a step are kept until it is over: what an attempt that failed had spoilt is made anew from them.

        Raises:
            torch.OutOfMemoryError or what else said so: see ``train_step``; gradients are as before the step.
        """

        def noted(model: Any, part: Any) -> torch.Tensor:
            value = loss(model, part)
            if not isinstance(value, torch.Tensor):
                raise UsageError(
                    f"the loss function returned {kind_of(value)}",
                    hint="return the loss alone, a tensor of one element: model(**batch).loss",
                )
            self._losses.append(weakref.ref(value))
            return value

        if self._inside:
            with self._applied.autocast():
                value = noted(self._model, batch)
            self._applied.backward(value)
            return value.detach()
        try:
            return self._degrading.backward(noted, batch)
        except Exception as error:
            if is_out_of_memory(error, self._device):
                path = self._watch.emergency(self.step, "out of memory", self._write())
                if path is not None:
                    error.add_note(f"autotune: checkpoint {path}, of step {self.step}")
            raise
        finally:
            self._log_failures()

    def after_step(self, step: int | None = None) -> None:
        """The optimizer step is over, with all that belongs to it (learning rate, gradients cleared).

        Args:
            step: its number, from 1, where others count; None = one more than before.

        Raises:
            MemoryStop: the limit is passed, and ``on_limit`` is stop.
        """
        self.step = self.step + 1 if step is None else step
        self._degrading.finish()
        if self._inside:
            return
        self._watch.observe(self.step, self._write(), self._graphs_kept)
        if self._watch.should_stop:
            raise MemoryStop(
                f"training stops at its memory limit: {self._watch.stop_reason}",
                hint="go on from it with autotune.runtime.load_checkpoint, and a smaller batch",
            )

    def check(self, loss: LossFunction, batch: Any) -> None:
        """Find out before the training whether micro-batches may be split: parts of a few samples are tried.

        Raises:
            UsageError: they must not be; the message says why.
        """
        if not self._inside:
            self._degrading.check(loss, batch)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a checkpoint now, between steps.

        Raises:
            EnvironmentTrouble, UsageError: see ``save_checkpoint``.
        """
        scaler = self._applied.scaler
        return save_checkpoint(path, self._model, self._optimizer, step=self.step, scaler=scaler, others=self._others)

    # --- what was seen ----------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """The training so far."""
        return self._watch.summary(self.step)

    def close(self) -> None:
        """The training is over: the summary is logged, and the file closed. Called twice it does nothing."""
        if self._closed or self._inside:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._watch.close(self.step)

    def _write(self) -> Callable[[], Path] | None:
        path = self._path
        return None if path is None else lambda: self.save(path)

    def _graphs_kept(self) -> int:
        earlier = (kept() for kept in list(self._losses)[:-1])
        return sum(loss is not None and loss.grad_fn is not None for loss in earlier)

    def _log_failures(self) -> None:
        failures = self._degrading.failures
        if failures.out_of_memory == self._told:
            return
        self._told = failures.out_of_memory
        proposal = propose(failures, self._applied.accumulate)
        self._watch.record(
            "out_of_memory",
            self.step + 1,
            failures=failures.out_of_memory,
            failed_at=failures.failed_at,
            ran_at=failures.ran_at,
            proposed=None if proposal is None else asdict(proposal),
            message=failures.last_message,
        )
