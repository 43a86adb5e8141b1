"""An optimizer for planted files: PyTorch's own import torch._dynamo, which takes each fresh process a second."""

from typing import Any

import torch


class Descent(torch.optim.Optimizer):
    """Gradient descent written out."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter -= 0.01 * parameter.grad

    def state_dict(self) -> dict[str, Any]:
        return {"state": {}}
