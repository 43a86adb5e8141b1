"""Batches of ``make_batch`` cut to a length by the user's ``shorten(batch, share)``: what length buckets are made of then.

How long a batch is, is taken from the batch itself: its length is the extent of the dimensions that ``shorten`` changes.
"""

from collections.abc import Callable

import torch

from autotune.errors import WorkloadError
from autotune.workload.batch import map_tensors, shapes

_ATTEMPTS = 8
"""Times that a smaller share is tried where the user's function leaves more than it was asked for."""
_ROUNDED_UP = 0.25
"""Added to the wanted length, so that functions that round to the nearest or down meet it in spite of binary fractions."""

Shapes = list[tuple[int, ...]]


class Cut:
    """Cuts batches to at most one length."""

    def __init__(self, length: int) -> None:
        """``length``: the bucket's."""
        self._length = length
        self._dimensions: list[tuple[int, int]] = []
        """(number of the tensor, number of its dimension) of those that ``shorten`` changes."""

    def length_of(self, batch: object) -> int:
        """How long a batch is that this has made."""
        return self._longest(shapes(batch))

    def made(
        self, make: Callable[[], object], shorten: Callable[[object, float], object], share: float = 1.0
    ) -> object:
        """A fresh batch of this share (0 < share <= 1) of the bucket's length, or of its own where that is less.

        Args:
            make: makes a batch of the full length.
            shorten: the user's function with its result checked; may change the batch itself.
            share: of the length.

        Raises:
            WorkloadError: ``shorten`` changes no dimension, or leaves more than it was asked for.
        """
        if not self._dimensions:
            self._learn(make(), shorten)
        batch = make()
        full = self._longest(shapes(batch))
        wanted = max(1, round(share * min(full, self._length)))
        if full <= wanted:
            return batch
        asked = wanted + _ROUNDED_UP
        left = full
        for _ in range(_ATTEMPTS):
            if not 0 < asked < full:
                break
            shorter = shorten(batch, asked / full)
            left = self._longest(shapes(shorter))
            if left <= wanted:
                return _compact(shorter)
            asked -= max(1, left - wanted)
            batch = make()
        raise WorkloadError(
            f"shorten(batch, share) leaves {left} of {full} where at most {wanted} are wanted",
            hint="cut to the share that is asked for: batch[:, : round(batch.shape[1] * share)]",
        )

    def _learn(self, batch: object, shorten: Callable[[object, float], object]) -> None:
        before = shapes(batch)
        after = shapes(shorten(batch, 0.5))
        if [len(shape) for shape in before] == [len(shape) for shape in after]:
            pairs = enumerate(zip(before, after, strict=True))
            self._dimensions = [
                (tensor, number)
                for tensor, (long, short) in pairs
                for number in range(len(long))
                if long[number] != short[number]
            ]
        if not self._dimensions:
            raise WorkloadError(
                f"shorten(batch, 0.5) makes of tensors with shapes {_in_words(before)} such with {_in_words(after)}, so that"
                " the length of a batch cannot be told",
                hint="cut the samples' length and keep all tensors: batch[:, : round(batch.shape[1] * share)]",
            )

    def _longest(self, shapes: Shapes) -> int:
        return max(shapes[tensor][number] for tensor, number in self._dimensions)


def _in_words(shapes: Shapes) -> str:
    return ", ".join(str(list(shape)) for shape in shapes) or "none"


def _compact(batch: object) -> object:
    """The same without the memory of what was cut off, which a slice holds on to and a bucket's own batch never had."""
    return map_tensors(batch, _own)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.untyped_storage().nbytes() <= tensor.numel() * tensor.element_size():
        return tensor
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
