"""What the user's functions return is checked, and the message says what came and what to write."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from autotune.errors import WorkloadError
from autotune.workload.assemble import from_parts
from autotune.workload.task import Workload


def workload(**parts: object) -> Workload:
    """Parts given as None are left out."""
    members = {"make_model": lambda: nn.Linear(4, 3), "make_batch": lambda n: torch.zeros(n, 4), **parts}
    given = {name: part for name, part in members.items() if part is not None}
    return Workload("test", from_parts(given, "test").parts, ())


@pytest.mark.parametrize(
    ("make_model", "message", "hint"),
    [
        (lambda: None, "make_model() returned None, not an nn.Module", "return model"),
        (lambda: nn.Linear, "make_model() returned the class Linear", "Linear(), with brackets"),
        (lambda: (nn.Linear(1, 1), 2), "make_model() returned a tuple (Linear, int)", "nothing else"),
        (lambda: "gpt2", "make_model() returned a str", "nothing else"),
        (lambda: nn.LazyLinear(2), "the model has lazy parameters", "model(example_input)"),
    ],
)
def test_a_model_must_be_a_module(make_model: Callable[[], object], message: str, hint: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        workload(make_model=make_model).make_model()
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_live_module_is_handed_out_itself() -> None:
    model = nn.Linear(2, 2)
    assert workload(make_model=model).make_model() is model


def test_no_batch_is_an_error_that_names_the_size() -> None:
    with pytest.raises(WorkloadError, match=r"make_batch\(7\) returned None"):
        workload(make_batch=lambda n: None).make_batch(7)


@pytest.mark.parametrize(
    ("result", "message", "hint"),
    [
        (lambda x: x, "loss(model, batch) returned float32[2, 3], which is not a scalar", "loss.mean()"),
        (lambda x: x.sum().item(), "returned the float", ".item()"),
        (lambda x: (x.sum(), x), "returned a tuple (Tensor, Tensor)", "alone"),
        (lambda x: {"loss": x.sum()}, "returned a dict", "output['loss']"),
        (lambda x: None, "returned None", "return loss"),
        (lambda x: x.sum() * 1j, "returned complex64[], which cannot be minimised", ".real"),
        (lambda x: x.sum().detach(), "does not require a gradient", ".detach()"),
    ],
)
def test_a_loss_must_be_a_scalar_that_can_be_trained(result: Callable[[Any], object], message: str, hint: str) -> None:
    task = workload(loss=lambda model, batch: result(model(batch)))
    with pytest.raises(WorkloadError) as raised:
        task.loss(task.make_model(), task.make_batch(2))
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_loss_without_gradient_is_fine_where_none_are_recorded() -> None:
    task = workload(loss=lambda model, batch: model(batch).sum())
    with torch.no_grad():
        assert task.loss(task.make_model(), task.make_batch(2)).dim() == 0


def test_errors_of_the_users_own_code_pass_through() -> None:
    task = workload(loss=lambda model, batch: batch["missing"], make_model=lambda: 1 / 0)
    with pytest.raises(KeyError):
        task.loss(nn.Linear(1, 1), {})
    with pytest.raises(ZeroDivisionError):
        task.make_model()


@pytest.mark.parametrize(
    ("make_optimizer", "message", "hint"),
    [
        (lambda params: None, "make_optimizer(params) returned None", "torch.optim.AdamW(params)"),
        (lambda model: torch.optim.SGD(model.parameters()), "no parameters: it wants the model", "(params):"),
        (lambda params: (torch.optim.SGD(params), 1), "returned a tuple (SGD, int)", "without scheduler"),
        (
            lambda params: torch.optim.SGD(nn.Linear(1, 1).parameters()),
            "with none of the model's parameters",
            "the params it is called with",
        ),
        (torch.optim.LBFGS, "LBFGS calls the loss itself, several times a step", "as a command"),
    ],
)
def test_an_optimizer_must_be_one_of_the_models_parameters(
    make_optimizer: Callable[..., object], message: str, hint: str
) -> None:
    task = workload(make_optimizer=make_optimizer)
    with pytest.raises(WorkloadError) as raised:
        task.make_optimizer(task.make_model().parameters())
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_the_default_optimizer_is_adamw() -> None:
    task = workload()
    assert type(task.make_optimizer(task.make_model().parameters())) is torch.optim.AdamW


def test_parameters_may_be_read_twice_by_the_users_optimizer() -> None:
    def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": [p for p in params if p.dim() > 1]}, {"params": [p for p in params if p.dim() == 1]}]
        return torch.optim.SGD(groups)

    task = workload(make_optimizer=make_optimizer)
    optimizer = task.make_optimizer(iter(task.make_model().parameters()))
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]


def test_nothing_to_train_is_said_before_torch_does() -> None:
    with pytest.raises(WorkloadError, match="no parameter that requires a gradient") as raised:
        workload().make_optimizer([])
    assert "requires_grad_" in raised.value.hint


def test_evaluation_is_the_users_or_none() -> None:
    assert not workload().evaluates
    task = workload(evaluate=lambda model, batch: model(batch).shape)
    assert task.evaluates
    assert task.evaluate(task.make_model(), task.make_batch(2)) == (2, 3)


@pytest.mark.parametrize("plan", [None, ["colwise"], {0: "colwise"}])
def test_a_plan_is_a_dictionary_by_names(plan: object) -> None:
    with pytest.raises(WorkloadError, match="not a dictionary with names of modules"):
        workload(make_plan=lambda: plan).plan()


def by_columns(batch: torch.Tensor, share: float) -> torch.Tensor:
    return batch[:, : round(batch.shape[1] * share)]


def test_shorter_batches_are_made_by_the_users_function() -> None:
    task = workload(shorten=by_columns)
    assert task.varies
    assert tuple(task.make_shorter_batch(3, 0.5).shape) == (3, 2)  # type: ignore[attr-defined]
    assert not workload().varies


def test_the_users_function_goes_before_what_the_data_set_has() -> None:
    data = [torch.zeros(4), torch.zeros(4)]
    task = workload(make_batch=None, make_dataset=lambda: data, shorten=by_columns)
    assert task.varies
    assert tuple(task.make_shorter_batch(2, 0.25).shape) == (2, 1)  # type: ignore[attr-defined]


def test_shorter_batches_of_a_data_set_are_real_samples() -> None:
    data = [torch.zeros(length) for length in (8, 6, 4, 2, 4)]
    task = workload(make_batch=None, make_dataset=lambda: data, collate=torch.stack)
    assert task.varies
    assert tuple(task.make_shorter_batch(2, 0.5).shape) == (2, 4)  # type: ignore[attr-defined]
    same = workload(make_batch=None, make_dataset=lambda: [torch.zeros(4)] * 3)
    assert not same.varies


def test_a_data_set_that_makes_no_batches_does_not_make_lengths_vary() -> None:
    assert not workload(make_dataset=lambda: [[1], [1, 2]]).varies


@pytest.mark.parametrize(
    ("shorten", "message", "hint"),
    [
        (lambda batch, share: None, "shorten(batch, 0.5) returned None", "return batch"),
        (lambda batch, share: batch[: round(len(batch) * share)], "of a batch of 6 samples one of 3", "batch[:, :"),
        (
            lambda batch, share: share,
            "of a batch of 6 samples the float 0.5, which holds no tensor",
            "keep their number",
        ),
    ],
)
def test_a_shorter_batch_has_as_many_samples(shorten: Callable[..., object], message: str, hint: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        workload(shorten=shorten).make_shorter_batch(6, 0.5)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_batch_shortened_in_place_is_counted_before() -> None:
    def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
        batch["x"] = batch["x"][:2]
        return batch

    with pytest.raises(WorkloadError, match="of 6 samples one of 2"):
        workload(make_batch=lambda n: {"x": torch.zeros(n, 4)}, shorten=shorten).make_shorter_batch(6, 0.5)


def test_an_error_of_the_users_own_while_the_optimizer_is_made_stays_theirs() -> None:
    with pytest.raises(AttributeError, match="no_such_optimizer"):
        workload(make_optimizer=lambda params: torch.optim.no_such_optimizer(params)).make_optimizer([nn.Parameter()])  # type: ignore[attr-defined]


def test_a_data_set_beside_make_batch_only_bounds_the_size() -> None:
    task = workload(make_dataset=lambda: [1, 2, 3])
    assert task.data_set_size == 3
    assert task.make_batch(5).shape == (5, 4)  # type: ignore[attr-defined]
    assert any("make_dataset only bounds" in note for note in task.notes)


@pytest.mark.parametrize("batch", [np.zeros(2), {"x": [1, 2]}, (number for number in range(2))])
def test_a_batch_without_tensors_is_noted_once(batch: object) -> None:
    task = workload(make_batch=lambda n: batch)
    assert task.make_batch(2) is batch
    task.make_batch(2)
    assert task.notes == ("no tensors in the batch: nothing is moved to the device",)


def test_a_batch_with_something_to_move_is_not_noted() -> None:
    task = workload(make_batch=lambda n: {"x": [torch.zeros(n)], "names": ["a"]})
    task.make_batch(2)
    assert task.notes == ()
