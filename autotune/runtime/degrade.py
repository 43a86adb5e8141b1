"""A micro-batch that does not fit is trained on in halves, so that the gradients come out as those of the whole.

What was tried and failed leaves nothing behind: gradients are as before, random numbers go on from where the attempt
began. With dropout the parts draw other masks than the whole would have: the gradient has the same distribution, and is
the same only without it.
"""

import gc
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from autotune.errors import UsageError
from autotune.runtime.exhausted import is_out_of_memory, release
from autotune.runtime.gradients import Gradients
from autotune.runtime.halves import NotCut, own
from autotune.runtime.parts import Parts
from autotune.runtime.plain import Applies
from autotune.runtime.randomness import Device, draw_on, drawn
from autotune.runtime.splittable import ShowsNothing, found_by_trying, obstacle
from autotune.workload.batch import tensors

LossFunction = Callable[[Any, Any], torch.Tensor]

_LOG = logging.getLogger("autotune.runtime")


@dataclass(slots=True)
class _Piece:
    """What is run in one forward and backward pass."""

    batch: Any
    loss: LossFunction
    call: int
    """Which micro-batch of the training it belongs to."""
    weight: float = 1.0
    """Of its loss in that of the micro-batch."""
    drawn: Device | None = None
    """Random numbers before it; None = not run yet."""
    value: torch.Tensor | None = None
    """Its weighted loss."""


@dataclass(slots=True)
class Failures:
    """What ran out of memory, and what went through instead."""

    out_of_memory: int = 0
    micro_batches_split: int = 0
    failed_at: int | None = None
    """Samples in the smallest piece that failed; None = none did, or they cannot be counted."""
    ran_at: int | None = None
    """Samples in the largest part that went through."""
    split_from: int | None = None
    """Samples of the largest micro-batch that was split: the last one of an epoch may be smaller."""
    last_message: str = ""
    """First line of the last error."""


class Degrading:
    """Forward and backward passes of one training."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        applied: Applies,
        device: torch.device,
        *,
        splittable: bool | None,
        parts: Parts,
    ) -> None:
        """
        Args:
            splittable: None = find out, when memory first runs out; True = the caller knows; False = never.
            parts: cuts batches, and weighs what was cut.
        """
        self.failures = Failures()
        self.gradients = Gradients(model, optimizer, several=applied.accumulate > 1)
        self._model, self._applied, self._device = model, applied, device
        self._splittable, self._parts = splittable, parts
        self._done: list[_Piece] = []
        """Of this optimizer step, in order: an attempt that failed may have spoilt what they added."""
        self._calls = 0
        self._least_failed: int | None = None
        """Elements of the smallest piece that failed: what has as many is cut at once from then on."""

    def finish(self) -> None:
        """The optimizer step is over; batches are let go."""
        self._done = []
        self.gradients.finish()

    def backward(self, loss: LossFunction, batch: Any) -> torch.Tensor:
        """Add the gradients of one micro-batch; returns its loss.

        Raises:
            torch.OutOfMemoryError or what else said so: it must not be split, or one sample does not fit; a note says
                which. Gradients and random numbers are as before the first micro-batch of the step.
        """
        self._calls += 1
        if self.gradients.begin():
            self._done = []
        todo = [_Piece(batch, loss, self._calls)]
        split = False
        while todo:
            piece = todo.pop(0)
            error, halves = None, self._known_to_fail(piece)
            if halves is None:
                error = self._attempt(piece)
                if error is None:
                    self.gradients.end(more=bool(todo))
                    self._done.append(piece)
                    continue
                halves = self._halves(piece, error)
            split = True
            todo[:0] = halves
            if error is not None and self.gradients.touched():
                todo[:0] = self._done
                self._done = []
                self.gradients.restore()
        return self._sum_up(split, batch)

    def check(self, loss: LossFunction, batch: Any) -> None:
        """Find out now whether micro-batches may be split, on a few samples of this batch.

        Raises:
            UsageError: they must not be; the message says why.
        """
        if why := self._looked_and_tried(loss, batch):
            raise UsageError(f"micro-batches of this training cannot be split: {why}", hint=_FORCE)
        if self._splittable is None:
            self._splittable = True

    # --- one piece --------------------------------------------------------------------------------------------------

    def _attempt(self, piece: _Piece) -> BaseException | None:
        """Run it; returns the error of exhausted memory, relieved of what it held.

        Raises:
            BaseException: any other error of the user's code.
        """
        if piece.drawn is None:
            piece.drawn = drawn(self._device)
        else:
            draw_on(piece.drawn, self._device)
        try:
            self._run(piece)
            return None
        except Exception as error:
            if not is_out_of_memory(error, self._device):
                raise
            failed: BaseException = error
        try:
            release(failed)
            gc.collect()
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            self._note(piece, failed)
            return failed
        finally:
            del failed  # its traceback holds this frame, and with it the batch

    def _run(self, piece: _Piece) -> None:
        with self._applied.autocast():
            value = piece.loss(self._model, own(piece.batch))
        self._applied.backward(value if piece.weight == 1 else value * piece.weight)
        kept = value.detach()
        if piece.weight != 1:
            kept = kept * piece.weight
        elif self._applied.accumulate > 1:
            kept = kept.clone()  # a CUDA graph writes the next loss where this one was
        piece.value = kept

    def _note(self, piece: _Piece, error: BaseException) -> None:
        failures, samples = self.failures, self._parts.samples(piece.batch)
        failures.out_of_memory += 1
        failures.last_message = _first_line(error)
        if samples is not None:
            failures.failed_at = min(samples, failures.failed_at or samples)
        if elements := _elements(piece.batch):
            self._least_failed = min(elements, self._least_failed or elements)
        _LOG.warning("out of memory with %s samples in one pass: %s", samples or "some", failures.last_message)

    def _known_to_fail(self, piece: _Piece) -> list[_Piece] | None:
        """The parts of a piece that is as large as one that failed; None where it may fit, or cannot be cut."""
        if self._least_failed is None or not self._splittable or _elements(piece.batch) < self._least_failed:
            return None
        with suppress(NotCut):  # another form of batch; whether it fits is tried
            weighted = self._parts.weighted(piece.batch)
            return None if weighted is None else _pieces(piece, weighted)
        return None

    def _sum_up(self, split: bool, batch: Any) -> torch.Tensor:
        mine = [piece for piece in self._done if piece.call == self._calls]
        if split:
            self.failures.micro_batches_split += 1
            sizes = [size for piece in mine if (size := self._parts.samples(piece.batch)) is not None]
            self.failures.ran_at = max([*sizes, self.failures.ran_at or 0]) or None
            self.failures.split_from = max(self._parts.samples(batch) or 0, self.failures.split_from or 0) or None
        values = [piece.value for piece in mine if piece.value is not None]
        if not values:  # nothing counts in the whole batch, and a mean over nothing is this
            return torch.full((), math.nan, device=self._device)
        return values[0] if len(values) == 1 else torch.stack(values).sum()

    # --- its halves -------------------------------------------------------------------------------------------------

    def _halves(self, piece: _Piece, error: BaseException) -> list[_Piece]:
        """Two pieces that add up to one that failed, or fewer, where one of them counts for nothing.

        Raises:
            BaseException: ``error``, with a note that says why it is not split.
        """
        why = self._refusal(piece)
        try:
            weighted = None if why else self._parts.weighted(piece.batch)
            if weighted is not None:
                return _pieces(piece, weighted)
        except NotCut as reason:
            why = f"not split: {reason}; cut it yourself: halve=..., and count its samples: count=..."
        self._undo(piece)
        error.add_note(f"autotune: {why or 'a single sample does not fit; nothing is left to be split'}")
        raise error

    def _undo(self, piece: _Piece) -> None:
        """Gradients and random numbers as before the step that is under way."""
        if self.gradients.touched() or self._done:
            self.gradients.restore()
        first = self._done[0] if self._done else piece
        if first.drawn is not None:
            draw_on(first.drawn, self._device)
        self._done = []

    def _refusal(self, piece: _Piece) -> str:
        """Why it must not be split; empty where it may be."""
        if self._splittable:
            return ""
        if self._splittable is False:
            return "not split, as splittable=False asks"
        if why := self._looked_and_tried(piece.loss, piece.batch):
            return f"not split: {why}; {_FORCE}"
        self._splittable = True
        return ""

    def _looked_and_tried(self, loss: LossFunction, batch: Any) -> str:
        """What the model, or trying, says against parts of this batch; empty where they add up. First and last samples are
        tried, which are less alike than neighbours (all padding, of one class)."""
        if why := obstacle(self._model, self.gradients.parameters()):
            return why
        shown, said = False, _TOO_FEW
        try:
            for last in (False, True):
                for few in self._parts.few(batch, last=last):
                    try:
                        why = self._found_by_trying(loss, few)
                    except ShowsNothing as reason:
                        said = str(reason)
                        continue
                    except Exception as error:  # noqa: BLE001 - their code may not bear a batch as we have cut it
                        if not is_out_of_memory(error, self._device):
                            return f"trying it on a few samples ends with {type(error).__name__}: {_first_line(error)}"
                        release(error)
                        continue
                    if why:
                        return why
                    shown = True
                    break
        except NotCut as reason:
            return str(reason)
        return "" if shown else said

    def _found_by_trying(self, loss: LossFunction, few: Any) -> str:
        return found_by_trying(self._model, self.gradients.parameters(), self._applied, self._parts, loss, few)


_TOO_FEW = "of fewer samples than three, or of those that fit, nothing shows that parts add up to the whole"
_FORCE = "pass splittable=True if you know that they add up"


def _pieces(piece: _Piece, weighted: list[tuple[Any, float]]) -> list[_Piece]:
    """Its parts. The first goes on from the random numbers that it began with."""
    parts = [_Piece(part, piece.loss, piece.call, piece.weight * weight) for part, weight in weighted]
    if parts:
        parts[0].drawn = piece.drawn
    return parts


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def _elements(batch: Any) -> int:
    return sum(tensor.numel() for tensor in tensors(batch))
