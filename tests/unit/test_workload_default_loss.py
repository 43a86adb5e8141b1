"""The loss of workloads that bring none."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from autotune.errors import WorkloadError
from autotune.workload.default_loss import default_loss, own_loss


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


class Returns(nn.Module):
    """A model that returns what it was made with, whatever it is given."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result
        self.given: object = None

    def forward(self, *args: object, **kwargs: object) -> Any:
        self.given = kwargs or args
        return self.result


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def classes(*shape: int, count: int = 5) -> torch.Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(2))


SCALAR = torch.tensor(2.5)


@pytest.mark.parametrize("result", [SCALAR, Output(SCALAR, draw(2, 3)), {"loss": SCALAR, "logits": draw(2, 3)}])
def test_a_mapping_is_the_models_arguments_and_the_model_returns_the_loss(result: object) -> None:
    model = Returns(result)
    assert default_loss(model, {"ids": 1, "labels": 2}) is SCALAR
    assert model.given == {"ids": 1, "labels": 2}


@pytest.mark.parametrize("result", [SCALAR, Output(SCALAR, draw(2, 3)), {"loss": SCALAR}])
def test_a_single_tensor_may_give_the_loss_as_well(result: object) -> None:
    assert default_loss(Returns(result), draw(2, 3)) is SCALAR


@pytest.mark.parametrize(
    ("logits", "target"),
    [((6, 5), (6,)), ((2, 5, 7), (2, 7)), ((2, 5, 4, 3), (2, 4, 3)), ((5, 5, 5, 5), (5, 5, 5))],
)
def test_classes_in_the_second_dimension(logits: tuple[int, ...], target: tuple[int, ...]) -> None:
    output, wanted = draw(*logits), classes(*target)
    loss = default_loss(Returns(output), (draw(1), wanted))
    assert torch.equal(loss, functional.cross_entropy(output, wanted))


@pytest.mark.parametrize("size", [(2, 7, 5), (2, 5, 5)])
def test_classes_in_the_last_dimension_as_language_models_have_them(size: tuple[int, int, int]) -> None:
    output, wanted = draw(*size), classes(*size[:2])
    loss = default_loss(Returns(output), [draw(1), wanted])
    assert torch.equal(loss, functional.cross_entropy(output.reshape(-1, size[-1]), wanted.reshape(-1)))


def test_float_targets_give_the_squared_error_without_broadcasting() -> None:
    output, wanted = draw(6, 1), draw(6)
    loss = default_loss(Returns(output), (draw(1), wanted))
    assert torch.equal(loss, functional.mse_loss(output[:, 0], wanted))


def test_half_precision_is_compared_in_full() -> None:
    output, wanted = draw(6, 5).bfloat16(), classes(6)
    assert default_loss(Returns(output), (draw(1), wanted)).dtype is torch.float32
    assert default_loss(Returns(output), (draw(1), draw(6, 5).half())).dtype is torch.float32


def test_small_integers_are_targets_too() -> None:
    assert default_loss(Returns(draw(6, 5)), (draw(1), classes(6).to(torch.uint8))).dim() == 0


@pytest.mark.parametrize(("logits", "target"), [((6, 5), (7,)), ((6, 5), (6, 5)), ((6,), (6,)), ((2, 3, 4), (2, 5))])
def test_integer_targets_that_do_not_fit_name_both_shapes(logits: tuple[int, ...], target: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cross-entropy") as raised:
        default_loss(Returns(draw(*logits)), (draw(1), classes(*target)))
    assert f"float32{list(logits)}" in str(raised.value)
    assert f"int64{list(target)}" in str(raised.value)
    assert "write loss(model, batch)" in str(raised.value)


def test_float_targets_that_do_not_fit_name_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"float32\[6, 2\] with a target float32\[6\]"):
        default_loss(Returns(draw(6, 2)), (draw(1), draw(6)))


@pytest.mark.parametrize(
    ("result", "batch", "message"),
    [
        (Output(None, draw(2, 3)), {"ids": 1}, "model(**batch) returned Output(loss: None, logits: float32[2, 3])"),
        (draw(2, 3), draw(2), "model(batch) returned float32[2, 3], which has no scalar loss"),
        (torch.tensor(3), draw(2), "model(batch) returned int64[]"),
        ((draw(2), draw(2)), (draw(1), classes(2)), "model(input) returned tuple(2 x float32[2]), not a tensor"),
        (draw(2, 3), (draw(1), torch.ones(2, dtype=torch.bool)), "no default loss for targets bool[2]"),
        (draw(2, 1), (draw(1), classes(2)), "float32[2, 1] has one class for integer targets int64[2]"),
        (SCALAR, (draw(1), draw(1), draw(1)), "no default loss for a batch tuple(3 x float32[1])"),
        (SCALAR, (draw(1), "label"), "no default loss for a batch tuple(float32[1], str)"),
        (SCALAR, "text", "no default loss for a batch str"),
    ],
)
def test_where_there_is_no_default_one_is_asked_for(result: object, batch: object, message: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        default_loss(Returns(result), batch)
    assert message in raised.value.message
    assert "write loss(model, batch)" in raised.value.hint


def test_example_inputs_all_go_to_the_model() -> None:
    model = Returns(SCALAR)
    for batch, given in (((1, 2), (1, 2)), ({"a": 1}, {"a": 1}), (7, (7,))):
        assert own_loss(model, batch) is SCALAR
        assert model.given == given
