"""Candidates with one planted fault each: which gradients are lost, and what else differs."""

from typing import Any

import pytest
import torch
from torch import nn

from autotune.model import Cause, Checkpointing, Precision, Settings
from tests.unit.compared import (
    BF16,
    BLOCKS,
    OWN,
    SWITCHED,
    WIDTH,
    Adapted,
    Bench,
    Network,
    Raw,
    changes,
    tokens,
    vectors,
)

# --- gradients that are lost ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_c30_reentrant_checkpointing_on_raw_input_loses_the_gradients_of_the_body(bench: Bench) -> None:
    seen, verdict = bench.compare(Raw, SWITCHED, make_batch=vectors)
    failure = changes(verdict)
    assert failure.cause is Cause.GRADIENTS_LOST
    assert seen.lost == ("body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias")
    assert seen.loss_difference == 0
    assert "--allow checkpointing=blocks" in failure.hint


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_c30_a_loss_that_leads_to_no_parameter_any_more_lost_all_of_them(bench: Bench) -> None:
    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return torch.as_tensor(model(batch[0])).pow(2).mean()

    seen, verdict = bench.compare(lambda: Raw(skips=False), SWITCHED, make_batch=vectors, loss=loss)
    assert changes(verdict).cause is Cause.GRADIENTS_LOST
    assert len(seen.lost) == 4
    assert seen.losses == ()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_c30_adapters_beside_frozen_weights_lose_theirs_also_where_they_begin_at_zero(bench: Bench) -> None:
    seen, verdict = bench.compare(Adapted, SWITCHED, make_batch=tokens)
    assert changes(verdict).cause is Cause.GRADIENTS_LOST
    assert seen.lost == ("down.0.weight", "down.1.weight", "up.0.weight", "up.1.weight")
    assert bench.compare(Adapted, BF16, make_batch=tokens)[1] is None


def test_a_candidate_that_trains_more_parameters_is_told_as_well(bench: Bench) -> None:
    class Thawing(Adapted):
        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
            self.embedding.weight.requires_grad_(True)

    seen, verdict = bench.compare(Thawing, SWITCHED, make_batch=tokens)
    assert changes(verdict).cause is Cause.GRADIENTS_LOST
    assert (seen.lost, seen.gained) == ((), ("embedding.weight",))


def test_a_gradient_that_is_all_zero_is_lost_where_it_was_none_before(bench: Bench) -> None:
    class Cut(Raw):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.body(x)
            result: torch.Tensor = self.head(x.detach() + 0 * x if self._checkpoints else x)
            return result

    seen, verdict = bench.compare(Cut, SWITCHED, make_batch=vectors)
    assert changes(verdict).cause is Cause.GRADIENTS_LOST
    assert seen.lost == ("body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias")


# --- gradients, losses and buffers that differ ------------------------------------------------------------------------


def test_a_switch_that_turns_gradients_is_told_by_their_direction(bench: Bench) -> None:
    class Turning(Raw):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.body(x)
            if self._checkpoints:
                hidden = 2 * hidden - hidden.detach()  # the same value, with twice the gradient of the body
            result: torch.Tensor = self.head(hidden)
            return result

    seen, verdict = bench.compare(Turning, SWITCHED, make_batch=vectors)
    assert changes(verdict).cause is Cause.GRADIENTS_DIFFER
    assert seen.loss_difference == 0
    assert seen.cosine is not None
    assert seen.cosine < 0.99


def test_a_switch_that_doubles_the_whole_gradient_is_told_by_its_length(bench: Bench) -> None:
    class Doubling(Raw):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.body(x))
            return 2 * out - out.detach() if self._checkpoints else out

    seen, verdict = bench.compare(Doubling, SWITCHED, make_batch=vectors)
    assert changes(verdict).cause is Cause.GRADIENTS_DIFFER
    assert seen.cosine == pytest.approx(1)
    assert seen.norm_ratio == pytest.approx(2)


def test_a_switch_that_changes_the_result_is_told_by_the_loss(bench: Bench) -> None:
    class Other(Raw):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.body(x))
            return out + 0.1 if self._checkpoints else out

    failure = changes(bench.compare(Other, SWITCHED, make_batch=vectors)[1])
    assert (failure.cause, failure.step) == (Cause.LOSS_DIFFERS, 1)


def test_batch_norms_that_move_twice_a_step_under_the_models_own_switch_are_named(bench: Bench) -> None:
    seen, verdict = bench.compare(Network, SWITCHED)
    assert changes(verdict).cause is Cause.BUFFERS_DIFFER
    assert set(seen.buffers) == {
        f"blocks.{number}.norm.{name}"
        for number in range(3)
        for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert seen.cosine == 1.0
    assert bench.compare(Network, BLOCKS)[0].buffers == ()  # autotune's own keeps them from it


def test_batch_norms_that_move_twice_are_seen_through_the_rounding_of_bf16(bench: Bench) -> None:
    candidate = Settings(checkpointing=Checkpointing.OWN, precision=Precision.BF16)
    seen, verdict = bench.compare(Network, candidate)
    assert changes(verdict).cause is Cause.BUFFERS_DIFFER
    assert "blocks.0.norm.num_batches_tracked" in seen.buffers


def test_an_average_that_hardly_moves_is_compared_by_its_movement(bench: Bench) -> None:
    class Averaging(Raw):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.full((WIDTH,), 1000.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2 if self._checkpoints else 1):
                self.get_buffer("average").mul_(0.9999).add_(0.0001 * x.detach().mean(0))
            result: torch.Tensor = self.head(self.body(x))
            return result

    seen, verdict = bench.compare(Averaging, SWITCHED, make_batch=vectors)
    assert changes(verdict).cause is Cause.BUFFERS_DIFFER
    assert seen.buffers == ("average",)


def test_masks_with_infinities_are_equal_to_themselves(bench: Bench) -> None:
    class Masked(Raw):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

    assert bench.compare(Masked, OWN, make_batch=vectors)[1] is None
