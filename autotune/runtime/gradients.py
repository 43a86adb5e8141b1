"""What a failed attempt has added to the gradients is taken away again, without a copy of them where none is needed.

Adding cannot be undone, so a step in which gradients were touched begins anew from what was there before its first
micro-batch: nothing (after ``zero_grad()``, the usual case), zeros, or a copy, which is made only where the gradients
come from elsewhere.
"""

from collections.abc import Sequence

import torch

_Mark = list[tuple[int, int] | None]
"""For each parameter which tensor its gradient is and how often it was changed in place; None = it has none."""


class Gradients:
    """The gradients of one training, as they were when the step began and as this room left them: of the optimizer's
    parameters, and of those of the model that another optimizer has, since a backward pass adds to these as well."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, several: bool) -> None:
        """``several``: more than one micro-batch adds to them in a step. Where that is so and nobody said it, the first
        step that shows it copies gradients once more often than need be."""
        self._optimizer = optimizer
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        self._others = [parameter for parameter in model.parameters() if id(parameter) not in mine]
        self._several = several
        self._before: list[torch.Tensor | None] | None = None
        """Copies of what was there before the step; None = nothing was, or zeros."""
        self._zeros = False
        """The caller has cleared them, and nothing was added since."""
        self._were_zeros = False
        """At the beginning of the step that is under way."""
        self._left: _Mark | None = None
        """As the last attempt left them; None = not looked at, since nothing was to follow in its step."""
        self.copies = 0
        """How many steps began with gradients of others, which were copied."""

    def cleared(self) -> None:
        """The caller has just cleared them: what is there, is zeros."""
        self._left, self._zeros = None, True

    def begin(self) -> bool:
        """Before a micro-batch. Returns whether it is the first one of a step: all gradients are gone, or were changed by
        others (cleared, clipped, added to) since ``end``."""
        present = any(parameter.grad is not None for parameter in self.parameters())
        mark = self._mark() if present else None
        if mark is not None and mark == self._left:
            return False
        self._before, self._were_zeros, self._zeros = None, self._zeros, False
        if present and not self._were_zeros:
            self._several = True
            self.copies += 1
            self._before = [None if p.grad is None else p.grad.detach().clone() for p in self.parameters()]
        self._left = mark
        return True

    def touched(self) -> bool:
        """Whether an attempt changed them since ``begin``, ``end`` or ``restore``."""
        if self._left is None:
            return any(parameter.grad is not None for parameter in self.parameters())
        return self._mark() != self._left

    def end(self, *, more: bool) -> None:
        """After a micro-batch, or a part of one, went through; ``more``: of its parts are to follow."""
        self._left = self._mark() if more or self._several else None

    def restore(self) -> None:
        """As before the first micro-batch of the step."""
        if self._before is not None:
            for parameter, before in zip(self.parameters(), self._before, strict=True):
                if before is None or parameter.grad is None:
                    parameter.grad = None if before is None else before.clone()
                else:
                    parameter.grad.copy_(before)
        else:
            for parameter in self.parameters():
                if self._were_zeros and parameter.grad is not None:
                    parameter.grad.zero_()
                else:
                    parameter.grad = None
        self._left = self._mark() if self._before is not None or self._were_zeros else None

    def parameters(self) -> Sequence[torch.Tensor]:
        """All whose gradients are kept; frozen ones as well, which may thaw."""
        groups = self._optimizer.param_groups
        if len(groups) == 1 and not self._others:
            only: list[torch.Tensor] = groups[0]["params"]
            return only
        return [*(parameter for group in groups for parameter in group["params"]), *self._others]

    def _mark(self) -> _Mark:
        grads = (parameter.grad for parameter in self.parameters())
        return [None if grad is None else (id(grad), grad._version) for grad in grads]
