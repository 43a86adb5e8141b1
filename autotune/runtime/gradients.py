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
        self._before: dict[int, torch.Tensor] = {}
        """Place among the parameters -> copy of what was there before the step. Without one it was nothing, or zeros."""
        self._cleared = 0
        """First parameters, those of the optimizer, whose gradients the caller has cleared; nothing was added since."""
        self._zeros = 0
        """As many of them may have begun the step that is under way with zeros."""
        self._left: _Mark | None = None
        """As the last attempt left them; None = not looked at, since nothing was to follow in its step."""

    def cleared(self) -> None:
        """The caller has just cleared those of the optimizer: where there still is one, it is zeros."""
        self._left, self._cleared = None, sum(len(group["params"]) for group in self._optimizer.param_groups)

    def finish(self) -> None:
        """The step is over: what is there when the next one begins was there before it."""
        self._left = None

    def begin(self) -> bool:
        """Before a micro-batch. Returns whether it is the first one of a step: all gradients are gone, or were changed by
        others (cleared, clipped, added to) since ``end``."""
        parameters = self.parameters()
        mark = _mark(parameters) if _any(parameters) else None
        if mark is not None and mark == self._left:
            return False
        self._zeros, self._cleared = self._cleared, 0
        self._left = mark
        self._before = {}
        if mark is not None:
            for place, parameter in enumerate(parameters):
                if place >= self._zeros and parameter.grad is not None:
                    self._before[place] = parameter.grad.detach().clone()
            self._several = self._several or bool(self._before)
        return True

    def touched(self) -> bool:
        """Whether an attempt changed them since ``begin``, ``end`` or ``restore``."""
        parameters = self.parameters()
        return _any(parameters) if self._left is None else _mark(parameters) != self._left

    def end(self, *, more: bool) -> None:
        """After a micro-batch, or a part of one, went through; ``more``: of its parts are to follow."""
        self._left = _mark(self.parameters()) if more or self._several else None

    def restore(self) -> None:
        """As before the first micro-batch of the step."""
        parameters = self.parameters()
        for place, parameter in enumerate(parameters):
            before = self._before.get(place)
            if parameter.grad is None:
                parameter.grad = None if before is None else before.clone()
            elif before is not None:
                parameter.grad.copy_(before)
            elif place < self._zeros:
                parameter.grad.zero_()
            else:
                parameter.grad = None
        self._left = _mark(parameters) if _any(parameters) else None

    def parameters(self) -> Sequence[torch.Tensor]:
        """All whose gradients are kept; frozen ones as well, which may thaw."""
        groups = self._optimizer.param_groups
        if len(groups) == 1 and not self._others:
            only: list[torch.Tensor] = groups[0]["params"]
            return only
        return [*(parameter for group in groups for parameter in group["params"]), *self._others]


def _any(parameters: Sequence[torch.Tensor]) -> bool:
    for parameter in parameters:  # noqa: SIM110 - in every step, and a generator takes half as long again
        if parameter.grad is not None:
            return True
    return False


def _mark(parameters: Sequence[torch.Tensor]) -> _Mark:
    grads = [parameter.grad for parameter in parameters]
    return [None if grad is None else (id(grad), grad._version) for grad in grads]
