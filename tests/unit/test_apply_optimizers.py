"""An optimizer in another implementation is the same optimizer: options of each group, classes, results."""

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.apply import Applied, Unsupported
from autotune.model import OptimizerKind, Settings

CPU = torch.device("cpu")
KINDS = [OptimizerKind.FOR_LOOP, OptimizerKind.FOREACH, OptimizerKind.FUSED]
FLAGS = {
    OptimizerKind.FOR_LOOP: (False, False),
    OptimizerKind.FOREACH: (True, False),
    OptimizerKind.FUSED: (False, True),
}
"""foreach, fused"""


def applied(kind: OptimizerKind) -> Applied:
    return Applied(Settings(optimizer=kind), CPU)


def weights() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3))]


def groups(params: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Two groups with options of their own, one of them unknown to the class, as users keep them there."""
    return [
        {"params": params[:1], "lr": 0.5, "weight_decay": 0.0, "name": "first"},
        {"params": params[1:], "betas": (0.5, 0.9)},
    ]


def take_steps(optimizer: torch.optim.Optimizer, steps: int = 3) -> list[torch.Tensor]:
    params = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for _ in range(steps):
        optimizer.zero_grad()
        sum((parameter**2).sum() for parameter in params).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in params]


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimizer_is_made_in_the_implementation_asked_for(kind: OptimizerKind) -> None:
    made = applied(kind).optimizer(torch.optim.AdamW, weights(), lr=0.25, fused=None)
    assert type(made) is torch.optim.AdamW
    assert (made.defaults["foreach"], made.defaults["fused"]) == FLAGS[kind]
    assert made.param_groups[0]["lr"] == 0.25


def test_an_optimizer_is_made_as_asked_for_by_default() -> None:
    made = applied(OptimizerKind.DEFAULT).optimizer(torch.optim.SGD, weights(), lr=0.25, foreach=True)
    assert made.defaults["foreach"] is True


def test_the_default_leaves_an_optimizer_alone() -> None:
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    assert applied(OptimizerKind.DEFAULT).reimplement(optimizer) is optimizer


@pytest.mark.parametrize("named", [False, True])
def test_shards_and_plain_tensors_go_into_groups_of_their_own_also_by_default(
    monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Left to itself PyTorch takes one kernel for a group on a device, and that takes no mixture."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    ids = {name: id(parameter) for name, parameter in model.named_parameters()}
    sharded = {ids["0.weight"], ids["1.weight"]}
    monkeypatch.setattr("autotune.apply.optimizers.is_sharded", lambda tensor: id(tensor) in sharded)
    optimizer = torch.optim.AdamW(model.named_parameters() if named else model.parameters(), lr=0.5)
    assert applied(OptimizerKind.DEFAULT).reimplement(optimizer) is optimizer
    shards, plain = optimizer.param_groups
    assert [id(one) for one in shards["params"]] == [ids["0.weight"], ids["1.weight"]]
    assert [id(one) for one in plain["params"]] == [ids["0.bias"], ids["1.bias"]]
    assert shards["lr"] == plain["lr"] == 0.5
    if named:
        assert (shards["param_names"], plain["param_names"]) == (["0.weight", "1.weight"], ["0.bias", "1.bias"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_another_implementation_takes_the_same_steps(kind: OptimizerKind, cls: type[torch.optim.Optimizer]) -> None:
    plain, other = (cls(weights(), lr=0.1, weight_decay=0.1) for _ in range(2))  # type: ignore[call-arg]
    remade = applied(kind).reimplement(other)
    assert type(remade) is cls and remade is not other
    for expected, now in zip(take_steps(plain), take_steps(remade), strict=True):
        torch.testing.assert_close(now, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_options_of_each_group_survive(kind: OptimizerKind) -> None:
    params = weights()
    old = torch.optim.AdamW(groups(params), lr=0.1, eps=1e-3, amsgrad=True, maximize=True)
    before = copy.deepcopy([{**group, "params": None} for group in old.param_groups])
    new = applied(kind).reimplement(old)
    foreach, fused = FLAGS[kind]
    assert [{**group, "params": None} for group in new.param_groups] == [
        {**group, "foreach": foreach, "fused": fused} for group in before
    ]
    assert [parameter for group in new.param_groups for parameter in group["params"]] == params
    assert {**new.defaults, "foreach": None, "fused": None} == {**old.defaults, "foreach": None, "fused": None}


def test_a_fused_optimizer_can_be_made_anew_in_another_implementation() -> None:
    new = applied(OptimizerKind.FOREACH).reimplement(torch.optim.AdamW(weights(), fused=True))
    assert (new.defaults["foreach"], new.defaults["fused"]) == (True, False)
    take_steps(new)


def test_names_of_parameters_survive() -> None:
    named = list(zip(("weight", "bias"), weights(), strict=True))
    old = torch.optim.SGD(named, lr=0.1)
    assert old.param_groups[0]["param_names"] == ["weight", "bias"]
    new = applied(OptimizerKind.FOREACH).reimplement(old)
    assert new.param_groups[0]["param_names"] == ["weight", "bias"]


def test_a_class_that_hands_its_arguments_on_can_be_made_anew() -> None:
    class Passing(torch.optim.AdamW):
        def __init__(self, params: Iterable[nn.Parameter], **options: Any) -> None:
            super().__init__(params, **options)

    new = applied(OptimizerKind.FOREACH).reimplement(Passing(weights(), lr=0.3))
    assert (type(new), new.defaults["lr"], new.defaults["foreach"]) == (Passing, 0.3, True)


class Clipping(torch.optim.SGD):
    """Keeps an argument to itself."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, clip: float, foreach: bool | None = None) -> None:
        super().__init__(params, lr=lr, foreach=foreach)
        self.clip = clip


def with_a_hook() -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def with_a_scheduler() -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    with warnings.catch_warnings(action="ignore"):
        torch.optim.lr_scheduler.ConstantLR(optimizer)
    return optimizer


def after_a_step() -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(weights(), lr=0.1)
    take_steps(optimizer, 1)
    return optimizer


REFUSED: dict[str, tuple[Callable[[], torch.optim.Optimizer], OptimizerKind, str]] = {
    "no fused one": (lambda: torch.optim.Adadelta(weights()), OptimizerKind.FUSED, "Adadelta has no choice of a fused"),
    "one only": (lambda: torch.optim.LBFGS(weights()), OptimizerKind.FOR_LOOP, "LBFGS has no choice of a for-loop"),
    "after a step": (after_a_step, OptimizerKind.FUSED, "the Adam has taken steps"),
    "a lost argument": (
        lambda: Clipping(weights(), 0.1, 1.0),
        OptimizerKind.FOREACH,
        "Clipping cannot be made anew: it does not tell what it was given for clip",
    ),
    "hooks": (with_a_hook, OptimizerKind.FOREACH, "SGD cannot be made anew: hooks"),
    "a scheduler": (with_a_scheduler, OptimizerKind.FOREACH, "SGD cannot be made anew: .*step.* was added to it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_made_anew_is_unsupported_with_the_reason(case: str) -> None:
    make, kind, message = REFUSED[case]
    with pytest.raises(Unsupported, match=message):
        applied(kind).reimplement(make())


def test_a_class_without_the_implementation_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="LBFGS has no choice of a fused implementation"):
        applied(OptimizerKind.FUSED).optimizer(torch.optim.LBFGS, weights())


def test_other_errors_of_the_constructor_pass() -> None:
    with pytest.raises(ValueError, match="Invalid learning rate"):
        applied(OptimizerKind.FUSED).optimizer(torch.optim.AdamW, weights(), lr=-1.0)


def test_parameters_that_the_fused_one_does_not_take_are_unsupported_at_the_latest_in_its_first_step() -> None:
    fused = applied(OptimizerKind.FUSED)
    parameter = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(Unsupported, match=r"the fused optimizer does not take these parameters: .*floating point"):
        optimizer = fused.optimizer(torch.optim.AdamW, [parameter])
        parameter.grad = torch.ones_like(parameter)
        fused.step(optimizer)


def test_an_implementation_that_takes_the_parameters_lets_other_errors_pass() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            raise RuntimeError("something else")

    fused = applied(OptimizerKind.FUSED)
    with pytest.raises(RuntimeError, match="something else") as caught:
        fused.step(fused.optimizer(Failing, weights()))
    assert type(caught.value) is RuntimeError
