"""Candidates that accumulate: where that is the same training, and where it is not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from autotune.apply import Unsupported
from autotune.model import Settings
from tests.unit.compared import WIDTH, Bench, Network, Raw, changes, squares, vectors

ACCUMULATED = Settings(accumulate=4)


def test_c33_accumulation_is_the_same_for_a_mean_over_samples(bench: Bench) -> None:
    seen, verdict = bench.compare(Raw, ACCUMULATED, make_batch=vectors)
    assert verdict is None, verdict
    assert seen.cosine == pytest.approx(1, abs=1e-6)


def test_c33_batch_norm_is_not_equivalent_under_accumulation(bench: Bench) -> None:
    seen, verdict = bench.compare(Network, ACCUMULATED)
    assert changes(verdict).message.startswith("accumulation is not equivalent here")
    assert "blocks.0.norm.num_batches_tracked" in seen.buffers


def test_c33_a_contrastive_loss_is_not_equivalent_under_accumulation(bench: Bench) -> None:
    def contrastive(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        hidden: torch.Tensor = model.get_submodule("body")(batch[0])
        alike = 4 * hidden @ hidden.T
        return functional.cross_entropy(alike, torch.arange(len(alike)))

    failure = changes(bench.compare(Raw, ACCUMULATED, make_batch=vectors, loss=contrastive)[1])
    assert failure.message.startswith("accumulation is not equivalent here")


def test_c33_a_mean_over_words_of_texts_that_differ_in_length_is_not_equivalent(bench: Bench) -> None:
    def ragged(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randint(11, (size, 5))
        y = torch.randint(WIDTH, (size, 5))
        lengths = torch.arange(size) % 5 + 1
        return x, torch.where(torch.arange(5) < lengths.unsqueeze(1), y, -100)

    def word_mean(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def words() -> nn.Module:
        return nn.Sequential(nn.Embedding(11, WIDTH), nn.Linear(WIDTH, WIDTH))

    failure = changes(bench.compare(words, ACCUMULATED, make_batch=ragged, loss=word_mean, batch_size=2)[1])
    assert failure.message.startswith("accumulation is not equivalent here")

    def same_length(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randint(11, (size, 5)), torch.randint(WIDTH, (size, 5))

    assert bench.compare(words, ACCUMULATED, make_batch=same_length, loss=word_mean, batch_size=2)[1] is None


def test_random_numbers_drawn_for_each_sample_are_no_difference_of_accumulation(bench: Bench) -> None:
    """As a diffusion model's loss draws noise: other numbers for the whole batch than for its parts, and no fault."""

    def noisy(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return squares(model, (batch[0] + 2 * torch.randn_like(batch[0]), batch[1]))

    seen, verdict = bench.compare(Raw, ACCUMULATED, make_batch=vectors, loss=noisy)
    assert verdict is None, verdict
    assert (seen.cosine, seen.loss_difference) == (None, None)


def test_equal_accumulation_on_both_sides_needs_no_cutting(bench: Bench) -> None:
    def packed(size: int) -> torch.Tensor:
        return torch.randn(3 * size + 1, WIDTH)  # which rows belong to which sample nobody can tell

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(model(batch)).pow(2).mean()

    assert bench.compare(Raw, ACCUMULATED, ACCUMULATED, make_batch=packed, loss=loss)[1] is None
    with pytest.raises(Unsupported, match="which rows belong to which sample"):
        bench.compare(Raw, ACCUMULATED, make_batch=packed, loss=loss)
