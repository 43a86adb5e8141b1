"""A micro-batch that does not fit is trained on in parts: the gradients are those of the whole, or it is refused."""

import dataclasses
import logging
import runpy
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autotune
from autotune.errors import UsageError
from autotune.model import Precision, Settings
from autotune.runtime import Guard, Proposal
from autotune.runtime.halves import halve
from autotune.tuned import Tuned
from autotune.workload.source import INSIDE_VARIABLE
from tests.unit.planted_trainings import (
    CLASSES,
    IGNORED,
    WIDTH,
    Failing,
    Loss,
    assert_same_gradients,
    contrastive,
    count_tokens,
    cross_entropy,
    gradients,
    make_batch,
    make_model,
    mean_square,
    noisy,
    of_tokens,
    out_of_memory,
    sum_of_squares,
    yes_or_no,
)

LOSSES: dict[str, tuple[Loss, dict[str, Any]]] = {
    "cross-entropy, mean": (cross_entropy, {}),
    "squared error, mean": (mean_square, {}),
    "squared error, sum": (sum_of_squares, {"reduction": "sum"}),
    "binary cross-entropy of logits, mean": (yes_or_no, {}),
    "cross-entropy of tokens, mean over those that count": (of_tokens, {"count": count_tokens}),
}
SAMPLES = 11
"""Cut into 6 and 5, those into 3 and 3, 3 and 2: parts are of different sizes."""
TRIAL = [3, 2, 1, 5, 2, 1, 1]
"""Whether parts add up: three samples at once, and in two parts; of the last ones five do not fit, and two do."""


def guarded(model: nn.Module, **options: Any) -> Guard:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return autotune.guard(model, optimizer, **options)


def reference(loss: Loss, *batches: Any) -> tuple[list[torch.Tensor], float]:
    """Gradients of the mean over the batches without a guard, and that mean."""
    model = make_model()
    value = sum((loss(model, batch) for batch in batches), torch.zeros(())) / len(batches)
    torch.autograd.backward(value)
    return gradients(model), value.item()


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("fails_in", ["forward", "backward"])
def test_gradients_and_loss_of_parts_are_those_of_the_whole(kind: str, fails_in: str) -> None:
    loss, options = LOSSES[kind]
    model = make_model()
    failing = Failing(loss, 3, at=model[1] if fails_in == "backward" else None)
    batch = make_batch(loss, SAMPLES)
    value = guarded(model, **options).backward(failing, batch)
    wanted, whole = reference(loss, batch)
    assert_same_gradients(gradients(model), wanted)
    assert value.item() == pytest.approx(whole, rel=1e-5)
    assert not value.requires_grad
    again = [3, 3] if fails_in == "backward" else []  # what the failed half had spoilt is made anew
    assert failing.tried == [SAMPLES, *TRIAL, 6, 3, 3, 5, *again, 3, 2]


def test_what_earlier_micro_batches_had_added_survives_a_failure_in_the_middle_of_a_backward_pass() -> None:
    model = make_model()
    batches = [make_batch(mean_square, size, seed) for seed, size in enumerate((3, 3, 8))]
    failing = Failing(mean_square, 4, at=model[1])
    guard = guarded(model, accumulate=3)
    for batch in batches:
        guard.backward(failing, batch)
    assert_same_gradients(gradients(model), reference(mean_square, *batches)[0])
    assert guard.summary().micro_batches_split == 1


@pytest.mark.parametrize("set_to_none", [True, False])
def test_every_micro_batch_of_a_step_may_fail_however_gradients_are_cleared(set_to_none: bool) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = autotune.guard(model, optimizer, accumulate=2)
    for step in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        batches = [make_batch(mean_square, 6, 2 * step + n) for n in range(2)]
        for batch in batches:
            guard.backward(Failing(mean_square, 2, at=model[1]), batch)
        found = gradients(model)
        optimizer.step()
        guard.after_step()
        alone = make_model()
        alone.load_state_dict(before)
        value = sum((mean_square(alone, batch) for batch in batches), torch.zeros(())) / 2
        torch.autograd.backward(value)
        assert_same_gradients(found, gradients(alone))


def test_sparse_gradients_are_those_of_the_whole_as_well() -> None:
    def words() -> nn.Sequential:
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Embedding(20, WIDTH, sparse=True), nn.Tanh(), nn.Flatten(), nn.Linear(2 * WIDTH, CLASSES)
        )

    batch = (torch.arange(22).reshape(11, 2) % 20, torch.arange(11) % CLASSES)
    model, alone = words(), words()
    guarded(model).backward(Failing(cross_entropy, 4, at=model[1]), batch)
    torch.autograd.backward(cross_entropy(alone, batch))
    dense = [[gradient.to_dense() for gradient in gradients(one)] for one in (model, alone)]
    assert_same_gradients(*dense)


def test_gradients_that_were_there_before_the_step_are_still_in_the_sum() -> None:
    model = make_model()
    first, second = make_batch(mean_square, 3, 1), make_batch(mean_square, 8, 2)
    guard = guarded(model)
    torch.autograd.backward(mean_square(model, first))  # not by the guard
    guard.backward(Failing(mean_square, 4, at=model[1]), second)
    wanted = [2 * gradient for gradient in reference(mean_square, first, second)[0]]
    assert_same_gradients(gradients(model), wanted)


@pytest.mark.parametrize("mine", [0, 2])
def test_parameters_of_another_optimizer_have_the_gradients_of_the_whole_as_well(mine: int) -> None:
    model, batch = make_model(), make_batch(mean_square, 8)
    guard = autotune.guard(model, torch.optim.SGD(model[mine].parameters(), lr=0.1))
    guard.backward(Failing(mean_square, 4, at=model[1]), batch)
    assert_same_gradients(gradients(model), reference(mean_square, batch)[0])


def test_gradients_that_others_change_between_micro_batches_stay_changed() -> None:
    model = make_model()
    first, second = make_batch(mean_square, 3, 1), make_batch(mean_square, 8, 2)
    guard = guarded(model)
    guard.backward(mean_square, first)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(3)
    guard.backward(Failing(mean_square, 4, at=model[1]), second)
    pairs = zip(reference(mean_square, first)[0], reference(mean_square, second)[0], strict=True)
    assert_same_gradients(gradients(model), [3 * one + other for one, other in pairs])


def test_a_part_in_which_no_token_counts_adds_nothing() -> None:
    inputs, labels = make_batch(of_tokens, 8)
    labels[:4] = IGNORED
    model = make_model()
    value = guarded(model, count=count_tokens, splittable=True).backward(Failing(of_tokens, 4), (inputs, labels))
    wanted, whole = reference(of_tokens, (inputs, labels))
    assert_same_gradients(gradients(model), wanted)
    assert value.item() == pytest.approx(whole, rel=1e-5)


def test_a_batch_in_which_nothing_counts_has_no_loss_as_unsplit() -> None:
    inputs, labels = make_batch(of_tokens, 8)
    labels[:] = IGNORED
    value = guarded(make_model(), count=count_tokens, splittable=True).backward(Failing(of_tokens, 4), (inputs, labels))
    assert value.isnan()


def test_a_size_that_failed_is_not_tried_again_and_a_smaller_batch_is_not_cut() -> None:
    model = make_model()
    guard = guarded(model)
    failing = Failing(mean_square, 4)
    for samples in (8, 8, 5, 4):
        guard.train_step(failing, [make_batch(mean_square, samples)])
    trial = [4, 2, 2, 4, 2, 2]  # whether parts add up: the first four samples, and twice two; the last four
    assert failing.tried == [8, *trial, 4, 4, 4, 4, 5, 3, 2, 4]
    summary = guard.summary()
    assert (summary.out_of_memory, summary.micro_batches_split, summary.steps) == (2, 3, 4)
    assert (summary.failed_at, summary.ran_at) == (5, 4)


def test_the_proposal_keeps_the_samples_of_an_optimizer_step() -> None:
    guard = guarded(make_model(), accumulate=3)
    for seed in range(3):
        guard.backward(Failing(mean_square, 3), make_batch(mean_square, 10, seed))
    assert guard.summary().ran_at == 3
    assert guard.summary().proposal == Proposal(micro_batch=2, accumulate=15)  # 3 does not divide 10
    assert "proposed: micro-batch 2, accumulate 15" in str(guard.summary())


def test_a_failure_is_told_in_the_training_s_log_with_what_is_proposed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "autotune.runtime"), guarded(make_model()) as guard:
        guard.train_step(Failing(mean_square, 4), [make_batch(mean_square, 8)])
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("out of memory with 8 samples in one pass: CUDA out of memory")
    assert told[-1].startswith("guarded training: 1 steps")
    assert told[-1].endswith("proposed: micro-batch 4, accumulate 2")


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_an_attempt_that_failed_leaves_no_trace_in_the_random_numbers() -> None:
    """The parts draw as if the whole had never been tried; their masks are not those that the whole would have drawn."""
    batch = make_batch(mean_square, 8)
    inputs, targets = batch
    model = make_model(nn.Dropout(0.5))
    torch.manual_seed(11)
    guarded(model).backward(Failing(mean_square, 4, at=model[1]), batch)
    alone = make_model(nn.Dropout(0.5))
    torch.manual_seed(11)
    for rows in (slice(0, 4), slice(4, 8)):
        torch.autograd.backward(mean_square(alone, (inputs[rows], targets[rows])) / 2)
    assert_same_gradients(gradients(model), gradients(alone))


def test_earlier_micro_batches_that_are_made_anew_draw_what_they_had_drawn() -> None:
    model, alone = make_model(nn.Dropout(0.5)), make_model(nn.Dropout(0.5))
    small, large = make_batch(mean_square, 4, 1), make_batch(mean_square, 8, 2)
    guard = guarded(model, accumulate=2)
    torch.manual_seed(11)
    guard.backward(mean_square, small)
    torch.autograd.backward(torch.zeros((), requires_grad=True))
    guard.backward(Failing(mean_square, 4, at=model[1]), large)
    torch.manual_seed(11)
    torch.autograd.backward(mean_square(alone, small) / 2)
    for rows in (slice(0, 4), slice(4, 8)):
        torch.autograd.backward(mean_square(alone, (large[0][rows], large[1][rows])) / 4)
    assert_same_gradients(gradients(model), gradients(alone))


# --- refused ----------------------------------------------------------------------------------------------------------


def refusal(model: nn.Module, loss: Loss, batch: Any, **options: Any) -> str:
    """The note on the out-of-memory of a training that is not split; its gradients and random numbers are as before."""
    guard = guarded(model, **options)
    drawn = torch.get_rng_state()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guard.backward(Failing(loss, 4), batch)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(parameter.grad is None for parameter in model.parameters())
    (note,) = raised.value.__notes__
    return note


def test_batch_norm_in_training_mode_is_refused_by_name_and_frozen_is_not() -> None:
    model, batch = make_model(nn.BatchNorm1d(8)), make_batch(mean_square, 8)
    note = refusal(model, mean_square, batch)
    assert note.startswith(
        "autotune: not split: 2 is a BatchNorm1d in training mode, whose statistics are of the batch"
    )
    assert note.endswith("pass splittable=True if you know that they add up")
    model[2].eval()
    guarded(model).backward(Failing(mean_square, 4), batch)


def test_a_contrastive_loss_is_refused_by_trying() -> None:
    note = refusal(make_model(), contrastive, make_batch(contrastive, 8))
    assert "on 4 samples the gradient of two parts is" in note
    assert "the loss compares samples with each other" in note


def test_a_loss_that_draws_random_numbers_is_not_called_contrastive_and_can_be_forced() -> None:
    batch = make_batch(mean_square, 8)
    assert "the loss draws random numbers of its own, so trying does not show" in refusal(make_model(), noisy, batch)
    model = make_model()
    torch.manual_seed(11)
    guarded(model, splittable=True).backward(Failing(noisy, 4, at=model[1]), batch)
    alone = make_model()
    torch.manual_seed(11)
    for rows in (slice(0, 4), slice(4, 8)):
        torch.autograd.backward(noisy(alone, (batch[0][rows], batch[1][rows])) / 2)
    assert_same_gradients(gradients(model), gradients(alone))


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}])
def test_a_mean_over_tokens_that_is_weighed_by_something_else_is_refused(options: dict[str, Any]) -> None:
    assert "something else than what count= counts" in refusal(
        make_model(), of_tokens, make_batch(of_tokens, 8), **options
    )


def test_a_contrastive_loss_that_takes_entries_out_of_its_batch_is_refused_as_any_other() -> None:
    def taking(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if len(batch["inputs"]) > 4:
            raise out_of_memory()
        return contrastive(model, (batch.pop("inputs"), batch.pop("targets")))

    inputs, targets = make_batch(contrastive, 8)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guarded(make_model(out=WIDTH)).backward(taking, {"inputs": inputs, "targets": targets})
    assert "the loss compares samples with each other" in raised.value.__notes__[0]


def test_first_samples_that_are_alike_do_not_hide_a_wrong_weight() -> None:
    inputs, labels = make_batch(of_tokens, 16)
    labels[:4] = labels[0]  # as many tokens count in each of them
    assert "something else than what count= counts" in refusal(make_model(), of_tokens, (inputs, labels))


@pytest.mark.parametrize(("factor", "word"), [(0.0, "zero"), (float("inf"), "not finite")])
def test_a_gradient_that_says_nothing_is_no_evidence_for_parts(factor: float, word: str) -> None:
    def spoilt(model: nn.Module, batch: Any) -> torch.Tensor:
        return mean_square(model, batch) * factor

    note = refusal(make_model(), spoilt, make_batch(mean_square, 8))
    assert f"the gradient of 2 samples is {word}, which does not show whether parts add up" in note


def test_a_loss_that_cannot_bear_few_samples_is_refused_and_out_of_memory_stays_what_ended_the_training() -> None:
    def needs_eight(model: nn.Module, batch: Any) -> torch.Tensor:
        return mean_square(model, (batch[0].reshape(8, -1, batch[0].shape[1])[:, 0], batch[1][:8]))

    note = refusal(make_model(), needs_eight, make_batch(mean_square, 8))
    assert "trying it on a few samples ends with RuntimeError: shape" in note


def test_what_is_refused_can_be_forced() -> None:
    model = make_model(nn.BatchNorm1d(8))
    guard = guarded(model, splittable=True)
    guard.train_step(Failing(contrastive, 4), [make_batch(contrastive, 8)])
    assert guard.summary().micro_batches_split == 1


def test_nothing_is_split_that_the_caller_forbids() -> None:
    note = refusal(make_model(), mean_square, make_batch(mean_square, 8), splittable=False)
    assert note == "autotune: not split, as splittable=False asks"


def test_a_hook_that_uses_each_gradient_at_once_forbids_parts() -> None:
    model = make_model()
    (weight, *_) = model.parameters()
    weight.register_post_accumulate_grad_hook(lambda parameter: None)  # type: ignore[no-untyped-call]
    assert "a hook works on each gradient as soon as it is there" in refusal(
        model, mean_square, make_batch(mean_square, 8)
    )


def test_a_single_sample_that_does_not_fit_is_told() -> None:
    model = make_model()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guarded(model, splittable=True).backward(Failing(mean_square, 0, at=model[1]), make_batch(mean_square, 4))
    assert raised.value.__notes__ == ["autotune: a single sample does not fit; nothing is left to be split"]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_two_samples_show_nothing_and_a_look_beforehand_helps() -> None:
    model = make_model()
    failing = Failing(mean_square, 1)
    guard = guarded(model)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guard.backward(failing, make_batch(mean_square, 2))
    assert "of fewer samples than three, or of those that fit, nothing shows" in raised.value.__notes__[0]
    guard.check(mean_square, make_batch(mean_square, 4))
    guard.backward(failing, make_batch(mean_square, 2))
    with pytest.raises(UsageError, match="cannot be split: on 4 samples the gradient"):
        guard.check(contrastive, make_batch(contrastive, 8))


def test_looking_leaves_gradients_and_random_numbers_alone() -> None:
    model = make_model(nn.Dropout(0.5))
    guard = guarded(model)
    guard.backward(mean_square, make_batch(mean_square, 4))
    before, drawn = gradients(model), torch.get_rng_state()
    guard.check(mean_square, make_batch(mean_square, 8))
    with pytest.raises(UsageError, match="draws random numbers"):
        guard.check(noisy, make_batch(mean_square, 8))
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(one, other) for one, other in zip(gradients(model), before, strict=True))


@pytest.mark.parametrize(
    "error", [ValueError("out of memory, says the user"), RuntimeError("CUDA error: device-side assert triggered")]
)
def test_other_errors_are_the_user_s(error: Exception) -> None:
    def broken(model: nn.Module, batch: Any) -> torch.Tensor:
        raise error

    guard = guarded(make_model())
    with pytest.raises(type(error)) as raised:
        guard.backward(broken, make_batch(mean_square, 8))
    assert raised.value is error and not hasattr(error, "__notes__")
    assert guard.summary().out_of_memory == 0


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pair:
    inputs: torch.Tensor
    targets: torch.Tensor
    names: list[str]
    weight: torch.Tensor


def test_batches_are_cut_in_their_own_form() -> None:
    inputs, targets = make_batch(mean_square, 7)
    seen = []

    def loss(model: nn.Module, batch: Pair) -> torch.Tensor:
        seen.append((len(batch.inputs), batch.names, tuple(batch.weight.shape)))
        if len(batch.inputs) > 4:
            raise out_of_memory()
        return mean_square(model, (batch.inputs, batch.targets)) * batch.weight.sum()

    batch = Pair(inputs, targets, list("abcdefg"), torch.full((1, 2), 0.5))
    guarded(make_model(), splittable=True).backward(loss, batch)
    assert seen == [(7, list("abcdefg"), (1, 2)), (4, list("abcd"), (1, 2)), (3, list("efg"), (1, 2))]


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_a_list_of_as_many_tensors_as_there_are_samples_is_cut_by_samples(samples: int) -> None:
    """As PyTorch's loader makes lists of what a data set returns."""
    batch = [*make_batch(mean_square, samples), torch.ones(samples, 1), torch.tensor(2.0)][:samples]
    model = make_model()
    guarded(model, splittable=True).backward(Failing(mean_square, 1), batch)
    assert_same_gradients(gradients(model), reference(mean_square, make_batch(mean_square, samples))[0])


def test_a_list_with_a_tensor_of_its_own_for_each_sample_is_cut_between_them() -> None:
    boxes = [torch.zeros(2, 4), torch.ones(1, 4)]  # as many rows as there are samples, or one, by chance
    halves = halve({"images": torch.zeros(2, 3), "boxes": boxes})
    assert halves is not None
    assert [half["boxes"] for half in halves] == [boxes[:1], boxes[1:]]  # type: ignore[index]


def test_a_batch_that_cannot_be_cut_says_why_and_a_way_to_cut_it_is_taken() -> None:
    inputs, targets = make_batch(mean_square, 8)
    odd = {"inputs": inputs, "targets": targets, "edges": torch.zeros(13)}

    def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if len(batch["inputs"]) > 4:
            raise out_of_memory()
        return mean_square(model, (batch["inputs"], batch["targets"]))

    with pytest.raises(torch.OutOfMemoryError) as raised:
        guarded(make_model(), splittable=True).backward(loss, odd)
    assert "a tensor with 13 rows" in raised.value.__notes__[0] and "halve=..." in raised.value.__notes__[0]

    def halve(batch: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] | None:
        middle = len(batch["inputs"]) // 2
        if not middle:
            return None
        return (
            {name: value[:middle] if name != "edges" else value for name, value in batch.items()},
            {name: value[middle:] if name != "edges" else value for name, value in batch.items()},
        )

    model = make_model()
    guarded(model, halve=halve).backward(loss, odd)
    assert_same_gradients(gradients(model), reference(mean_square, (inputs, targets))[0])


@pytest.mark.parametrize("fails_in", ["forward", "backward"])
def test_a_loss_that_takes_entries_out_of_its_batch_finds_them_again_in_the_next_attempt(fails_in: str) -> None:
    model = make_model()
    inputs, targets = make_batch(mean_square, 8)
    failing = Failing(mean_square, 4, at=model[1] if fails_in == "backward" else None)

    def taking(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return failing(model, (batch.pop("inputs"), batch.pop("targets")))

    guarded(model).backward(taking, {"inputs": inputs, "targets": targets})
    assert_same_gradients(gradients(model), reference(mean_square, (inputs, targets))[0])


def test_what_a_failed_attempt_held_is_gone_before_anything_else_is_tried() -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    alive = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        hidden = model(batch[0])
        if len(hidden) > 4:
            held.append(weakref.ref(hidden))
            raise out_of_memory()
        alive.append(held[0]() is not None)
        return torch.nn.functional.mse_loss(hidden, batch[1])

    guarded(make_model()).backward(loss, make_batch(mean_square, 8))
    assert alive == [False] * 8  # six of the trial


def test_the_batches_of_a_step_are_let_go_when_it_is_over() -> None:
    guard = guarded(make_model())
    batch = make_batch(mean_square, 8)
    held = [weakref.ref(tensor) for tensor in batch]
    guard.train_step(Failing(mean_square, 4), [batch])
    del batch
    assert [tensor() for tensor in held] == [None, None]


# --- ways to train ----------------------------------------------------------------------------------------------------


def trained(model: nn.Module, loss: Loss, steps: int = 3) -> dict[str, torch.Tensor]:
    """Parameters after plain steps of one micro-batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(loss(model, make_batch(loss, 8, step)))
        optimizer.step()
    return model.state_dict()


def assert_same_state(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], rtol: float = 1e-5) -> None:
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=rtol, atol=rtol)


def test_a_decorated_loss_takes_whole_steps() -> None:
    model = make_model()
    failing = Failing(mean_square, 4)

    @autotune.guard(model, torch.optim.SGD(model.parameters(), lr=0.1))
    def step(batch: Any) -> torch.Tensor:
        """A loss."""
        return failing(model, batch)

    for number in range(3):
        step(make_batch(mean_square, 8, number))
    guard: Guard = step.guard  # type: ignore[attr-defined]
    guard.close()
    assert step.__doc__ == "A loss."
    assert guard.summary().micro_batches_split == 3
    assert_same_state(model.state_dict(), trained(make_model(), mean_square))


def test_settings_that_autotune_recommends_are_trained_with(tmp_path: Any) -> None:
    document_free = Tuned(None, tmp_path / "none.json", torch.device("cpu"))
    model = document_free.prepare(make_model())
    optimizer = document_free.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    guard = autotune.guard(model, optimizer, tuned=document_free)
    for number in range(3):
        guard.train_step(Failing(mean_square, 4), [make_batch(mean_square, 8, number)])
    assert_same_state(model.state_dict(), trained(make_model(), mean_square))


def test_accumulation_and_precision_of_a_recommendation_hold_for_parts(tmp_path: Any) -> None:
    def made(largest: int) -> dict[str, torch.Tensor]:
        tuned = Tuned(None, tmp_path / "none.json", torch.device("cpu"))
        tuned.settings = Settings(accumulate=2, precision=Precision.BF16)
        tuned._applied = type(tuned._applied)(tuned.settings, tuned.device)
        model = tuned.prepare(make_model())
        optimizer = tuned.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
        guard = autotune.guard(model, optimizer, tuned=tuned)
        failing = Failing(mean_square, largest, at=model[1])
        value = guard.train_step(failing, (make_batch(mean_square, 8, n) for n in range(2)))
        assert value.dtype is torch.float32
        return model.state_dict()

    assert_same_state(made(4), made(8), rtol=1e-3)  # parts round otherwise


def test_a_gradient_scaler_scales_parts_as_it_scales_the_whole() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    guard = autotune.guard(model, optimizer, scaler=scaler)
    for number in range(3):
        guard.train_step(Failing(mean_square, 4, at=model[1]), [make_batch(mean_square, 8, number)])
    assert_same_state(model.state_dict(), trained(make_model(), mean_square))


def test_a_step_of_the_wrong_number_of_micro_batches_is_refused() -> None:
    guard = guarded(make_model(), accumulate=2)
    for given, told in (([], "was given 0"), ([1], "was given 1"), ([1, 2, 3], "was given more than 2")):
        batches = [make_batch(mean_square, 2) for _ in given]
        with pytest.raises(UsageError, match=told):
            guard.train_step(mean_square, batches)


def test_an_optimizer_that_asks_for_a_closure_is_stepped_by_its_user() -> None:
    def trained(guard_it: bool) -> list[torch.Tensor]:
        model, batch = make_model(), make_batch(mean_square, 8)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        guard = autotune.guard(model, optimizer)
        loss: Loss = Failing(mean_square, 4, at=model[1]) if guard_it else mean_square

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            return guard.backward(loss, batch)

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        guard.after_step()
        with pytest.raises(UsageError, match="LBFGS takes a closure") as raised:
            guard.train_step(loss, [batch])
        assert "guard.backward(loss, batch) in the closure" in raised.value.hint
        return list(model.parameters())

    for one, wanted in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)


def test_exhausted_memory_in_the_optimizer_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = guarded(make_model())

    def fails() -> None:
        raise out_of_memory()

    monkeypatch.setattr(guard._optimizer, "step", fails)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guard.train_step(mean_square, [make_batch(mean_square, 2)])
    assert "in the optimizer's step; parameters may be updated in part" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"accumulate": 0}, "accumulate=0"),
        ({"reduction": "none"}, "reduction='none'"),
        ({"limit": "much"}, "limit='much' is no limit"),
        ({"limit": 1.5}, r"limit=1\.5 is no limit"),
        ({"limit": "101%"}, "limit='101%' is no limit"),
        ({"on_limit": "pause"}, "on_limit='pause'"),
        ({"every": 0}, "every=0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        guarded(make_model(), **options)


def test_within_a_probe_nothing_is_split_so_that_a_search_sees_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv(INSIDE_VARIABLE, "1")
    log = tmp_path / "log.jsonl"
    guard = guarded(make_model(), log=log, checkpoint=tmp_path / "emergency.pt")
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guard.train_step(Failing(mean_square, 4), [make_batch(mean_square, 8)])
    assert not hasattr(raised.value, "__notes__")
    guard.train_step(mean_square, [make_batch(mean_square, 8)])
    guard.close()
    assert list(tmp_path.iterdir()) == []


def test_the_classes_of_a_planted_batch_are_those_of_the_model() -> None:
    assert make_model()(make_batch(cross_entropy, 2)[0]).shape == (2, CLASSES)


def test_the_training_in_the_docs_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "guard.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("training.py").write_text(text.split("```python\n")[1].split("```")[0])
    runpy.run_path("training.py")
    assert capsys.readouterr().out.startswith("4 steps; at most ")
    assert (tmp_path / "memory.jsonl").exists() and not (tmp_path / "emergency.pt").exists()
