"""Steps in parts against steps of the whole, over forms of batches, sizes, scalers, accumulation and whatever else trains."""

import dataclasses
import itertools
from collections import OrderedDict, UserDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import autotune
from autotune.errors import UsageError
from autotune.runtime import Guard, Proposal
from autotune.workload.source import INSIDE_VARIABLE
from tests.unit.planted_trainings import (
    WIDTH,
    Failing,
    Loss,
    assert_same_gradients,
    contrastive,
    gradients,
    make_batch,
    make_model,
    mean_square,
    out_of_memory,
)


def guarded(model: nn.Module, **options: Any) -> Guard:
    return autotune.guard(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


def whole(batch: Any) -> list[torch.Tensor]:
    model = make_model()
    torch.autograd.backward(mean_square(model, batch))
    return gradients(model)


# --- the whole state of a training ------------------------------------------------------------------------------------


def training_state(
    sizes: tuple[int, ...], fails: tuple[int, str] | None, accumulate: int, scaled: bool, set_to_none: bool
) -> dict[str, Any]:
    """Parameters, moments of Adam, scaler and random numbers after three steps of ``sizes`` samples a micro-batch."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2) if scaled else None
    guard = autotune.guard(model, optimizer, scaler=scaler, accumulate=accumulate, splittable=True)
    loss: Loss = mean_square
    if fails is not None:
        loss = Failing(mean_square, fails[0], at=model[1] if fails[1] == "backward" else None)
    torch.manual_seed(1)
    batches = (make_batch(mean_square, size, seed) for seed, size in enumerate(itertools.cycle(sizes)))
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        for batch in itertools.islice(batches, accumulate):
            guard.backward(loss, batch)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        guard.after_step()
    moments = {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}
    scale = None if scaler is None else scaler.state_dict()
    return {"model": model.state_dict(), "moments": moments, "scale": scale, "drawn": torch.get_rng_state()}


@pytest.mark.parametrize("fails_in", ["forward", "backward"])
@pytest.mark.parametrize(("accumulate", "scaled", "set_to_none"), [(1, False, True), (2, True, False), (3, True, True)])
@pytest.mark.parametrize("sizes", [(7, 4, 1), (2, 2), (5, 8, 6)])
def test_parameters_optimizer_scaler_and_random_numbers_are_those_of_a_training_that_never_failed(
    sizes: tuple[int, ...], accumulate: int, scaled: bool, set_to_none: bool, fails_in: str
) -> None:
    found, wanted = (training_state(sizes, fails, accumulate, scaled, set_to_none) for fails in ((1, fails_in), None))
    assert found["scale"] == wanted["scale"]
    assert torch.equal(found["drawn"], wanted["drawn"])
    torch.testing.assert_close(found["model"], wanted["model"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["moments"], wanted["moments"], rtol=1e-4, atol=1e-6)


# --- gradients of others ----------------------------------------------------------------------------------------------


def test_gradients_that_nobody_clears_between_steps_stay_in_the_sum() -> None:
    model, batches = make_model(), [make_batch(mean_square, 8, seed) for seed in range(3)]
    guard = guarded(model, splittable=True)
    for batch, largest in zip(batches, (8, 8, 4), strict=True):
        guard.backward(Failing(mean_square, largest, at=model[1]), batch)
        guard.after_step()
    alone = make_model()
    torch.autograd.backward(sum((mean_square(alone, batch) for batch in batches), torch.zeros(())))
    assert_same_gradients(gradients(model), gradients(alone))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_whole_step_leaves_what_another_optimizer_s_gradients_had_gathered(
    set_to_none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gathered(largest: int) -> list[torch.Tensor]:
        model = make_model()
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
        clear = optimizer.zero_grad
        monkeypatch.setattr(optimizer, "zero_grad", lambda: clear(set_to_none=set_to_none))
        guard = autotune.guard(model, optimizer, splittable=True)
        for seed in range(2):
            guard.train_step(Failing(mean_square, largest, at=model[1]), [make_batch(mean_square, 8, seed)])
            largest = min(largest, 6)  # a size that is not known to fail
        return gradients(model)

    plain = make_model()
    own = torch.optim.SGD(plain[2].parameters(), lr=0.1)
    for seed in range(2):
        own.zero_grad()
        torch.autograd.backward(mean_square(plain, make_batch(mean_square, 8, seed)))
        own.step()
    assert_same_gradients(gathered(8), gradients(plain))


def test_a_hook_on_a_parameter_of_another_optimizer_forbids_parts_as_well() -> None:
    model = make_model()
    model.get_parameter("0.weight").register_post_accumulate_grad_hook(lambda parameter: None)  # type: ignore[no-untyped-call]
    guard = autotune.guard(model, torch.optim.SGD(model[2].parameters(), lr=0.1))
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guard.backward(Failing(mean_square, 4), make_batch(mean_square, 8))
    assert "a hook works on each gradient as soon as it is there" in raised.value.__notes__[0]


# --- forms of batches -------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    inputs: Any
    targets: Any


@dataclasses.dataclass
class Data:
    inputs: Any
    targets: Any


class ClosedMapping(OrderedDict[str, Any]):
    """Takes items one by one, as a ModelOutput of transformers does."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("update() is not for this")


Form = tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]
FORMS: dict[str, Form] = {
    "tuple with None": (lambda x, y: (x, None, y), lambda b: (b[0], b[2])),
    "tuple of tuples": (lambda x, y: ((x,), (y, None)), lambda b: (b[0][0], b[1][0])),
    "list": (lambda x, y: [x, y], tuple),
    "named tuple": (Named, tuple),
    "dataclass": (Data, lambda b: (b.inputs, b.targets)),
    "dict": (lambda x, y: {"x": x, "y": y, "epoch": 3}, lambda b: (b["x"], b["y"])),
    "dict, popped": (lambda x, y: {"x": x, "y": y}, lambda b: (b.pop("x"), b.pop("y"))),
    "dict in a dict, popped": (lambda x, y: {"a": {"x": x}, "y": y}, lambda b: (b["a"].pop("x"), b.pop("y"))),
    "dict in a list, popped": (lambda x, y: [{"x": x, "n": None}, y], lambda b: (b[0].pop("x"), b.pop())),
    "dict in a tuple, popped": (lambda x, y: ({"x": x, "n": None}, y), lambda b: (b[0].pop("x"), b[1])),
    "mapping of another's": (lambda x, y: UserDict(x=x, y=y), lambda b: (b.pop("x"), b.pop("y"))),
    "mapping without update": (lambda x, y: ClosedMapping(x=x, y=y), lambda b: (b["x"], b["y"])),
    "expanded row": (lambda x, y: {"x": x, "y": y, "w": torch.ones(1, 3)}, lambda b: (b["x"] * b["w"].mean(), b["y"])),
    "scalar tensor": (lambda x, y: (x, y, torch.tensor(2.0)), lambda b: (b[0] * b[2] / 2, b[1])),
}


@pytest.mark.parametrize("fails_in", ["forward", "backward"])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_whole_in_every_form_of_batch(form: str, fails_in: str) -> None:
    make, read = FORMS[form]
    model, pairs = make_model(), [make_batch(mean_square, size, size) for size in (3, 7)]
    failing = Failing(mean_square, 3, at=model[1] if fails_in == "backward" else None)
    guard = guarded(model, accumulate=2)
    for pair in pairs:
        guard.backward(lambda model, batch: failing(model, read(batch)), make(*pair))
    wanted = [(one + other) / 2 for one, other in zip(*map(whole, pairs), strict=True)]
    assert_same_gradients(gradients(model), wanted)
    assert guard.summary().micro_batches_split == 1


def test_batches_that_a_generator_makes_are_taken_one_after_the_other_and_kept_for_their_step() -> None:
    model = make_model()
    guard = guarded(model, accumulate=2, splittable=True)
    source = (make_batch(mean_square, size, size) for size in (3, 7, 9))
    guard.train_step(Failing(mean_square, 3, at=model[1]), itertools.islice(source, 2))
    wanted = [
        (one + other) / 2 for one, other in zip(*(whole(make_batch(mean_square, n, n)) for n in (3, 7)), strict=True)
    ]
    assert_same_gradients(gradients(model), wanted)
    assert next(source)[0].shape[0] == 9


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda x, y: iter([x, y]), "in which samples cannot be counted"),
        (lambda x, y: (x, y, object()), "a part of type object, which cannot be cut"),
        (lambda x, y: (x.to_sparse(), y), "of layout torch.sparse_coo, of which PyTorch gives no part"),
        (
            lambda x, y: (torch.nested.nested_tensor([x, x]), y[:2]),
            "of layout torch.strided, of which PyTorch gives no",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_cannot_be_cut_leaves_the_out_of_memory_as_it_is_with_the_reason(
    spoil: Callable[[Any, Any], Any], told: str
) -> None:
    def fails(model: Any, batch: Any) -> torch.Tensor:
        raise out_of_memory()

    with pytest.raises(torch.OutOfMemoryError) as raised:
        guarded(make_model(), splittable=True).backward(fails, spoil(*make_batch(mean_square, 8)))
    (note,) = raised.value.__notes__
    assert told in note and "halve=..." in note


def test_a_loss_that_changes_its_batch_in_place_is_refused() -> None:
    def normalising(model: Any, batch: Any) -> torch.Tensor:
        batch[0].mul_(0.5)
        return Failing(mean_square, 4)(model, batch)

    model = make_model()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guarded(model).backward(normalising, make_batch(mean_square, 8))
    assert "the loss changes the tensors of its batch in place" in raised.value.__notes__[0]
    assert gradients(model) == []


def test_batches_of_texts_are_not_cut_for_ever_after_one_that_failed() -> None:
    tried = []

    def loss(model: nn.Module, texts: list[str]) -> torch.Tensor:
        tried.append(len(texts))
        if len(texts) > 4:
            raise out_of_memory()
        return mean_square(model, make_batch(mean_square, len(texts)))

    def halve(texts: list[str]) -> tuple[list[str], list[str]] | None:
        return (texts[: len(texts) // 2], texts[len(texts) // 2 :]) if len(texts) > 1 else None

    guard = guarded(make_model(), halve=halve, count=len, splittable=True)
    for size in (8, 4, 3):
        guard.train_step(loss, [["text"] * size])
    assert tried == [8, 4, 4, 4, 3]


# --- what is said, and asked ------------------------------------------------------------------------------------------


def test_a_last_batch_that_is_smaller_does_not_change_what_is_proposed() -> None:
    guard = guarded(make_model(), splittable=True)
    for samples in (8, 8, 5):
        guard.train_step(Failing(mean_square, 4), [make_batch(mean_square, samples)])
    assert guard.summary().proposal == Proposal(micro_batch=4, accumulate=2)


def test_no_size_is_proposed_that_has_failed() -> None:
    """Sequences differ in length: eight short ones went through, eight long ones did not."""
    guard = guarded(make_model(), splittable=True)
    for samples, largest in ((16, 8), (8, 4)):
        guard.train_step(Failing(mean_square, largest), [make_batch(mean_square, samples)])
        guard._degrading._least_failed = None
    assert guard.summary().proposal == Proposal(micro_batch=4, accumulate=4)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda value: (value, 1), "a tuple"),
        (lambda value: value.item(), "a float"),
        (lambda value: None, "a NoneType"),
    ],
)
def test_a_loss_function_that_returns_something_else_is_told(
    given: Callable[[torch.Tensor], Any], told: str, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if inside:
        monkeypatch.setenv(INSIDE_VARIABLE, "1")
    with pytest.raises(UsageError, match=f"the loss function returned {told}"):
        guarded(make_model()).train_step(
            lambda model, batch: given(mean_square(model, batch)), [make_batch(mean_square, 4)]
        )


def test_a_look_beforehand_does_not_allow_what_was_forbidden_and_is_none_of_a_probe_s_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = guarded(make_model(), splittable=False)
    guard.check(mean_square, make_batch(mean_square, 8))
    with pytest.raises(torch.OutOfMemoryError):
        guard.backward(Failing(mean_square, 4), make_batch(mean_square, 8))
    monkeypatch.setenv(INSIDE_VARIABLE, "1")
    guarded(make_model(out=WIDTH)).check(contrastive, make_batch(contrastive, 8))
