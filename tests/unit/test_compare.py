"""Candidate against reference in one process, where both train the same, however the model is made."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autotune.apply import Unsupported
from autotune.model import Checkpointing, Comparison, MemoryFormat, OptimizerKind, Precision, Settings
from tests.unit.compared import (
    BF16,
    BLOCKS,
    FP16,
    OWN,
    WIDTH,
    Adapted,
    Bench,
    Network,
    Raw,
    pictures,
    squares,
    tokens,
    vectors,
)


@pytest.mark.parametrize("make_model", [Network, Raw, Adapted])
def test_an_identical_candidate_is_exactly_the_same(bench: Bench, make_model: Callable[[], nn.Module]) -> None:
    batches = {Network: pictures, Raw: vectors, Adapted: tokens}
    seen, verdict = bench.compare(make_model, OWN, make_batch=batches[make_model])  # type: ignore[index]
    assert verdict is None
    assert (seen.cosine, seen.norm_ratio, seen.loss_difference) == (1.0, 1.0, 0.0)
    assert (seen.lost, seen.gained, seen.buffers, seen.skipped) == ((), (), (), 0)
    assert seen.losses == seen.reference_losses
    assert len(seen.losses) == 3
    assert bench.recorder.executed == 3


@pytest.mark.parametrize(
    "candidate",
    [
        BLOCKS,
        Settings(checkpointing=Checkpointing.ALTERNATE),
        Settings(memory_format=MemoryFormat.CHANNELS_LAST),
        Settings(optimizer=OptimizerKind.FUSED),
        Settings(optimizer=OptimizerKind.FOREACH),
        Settings(optimizer=OptimizerKind.FOR_LOOP),
        Settings(set_to_none=False),
        BF16,
        FP16,
        Settings(
            precision=Precision.BF16, checkpointing=Checkpointing.BLOCKS, memory_format=MemoryFormat.CHANNELS_LAST
        ),
    ],
    ids=lambda settings: ",".join(settings.changes(OWN)) + f" {settings.precision}",
)
def test_settings_that_train_the_same_pass_on_blocks_with_batch_norm_and_dropout(
    bench: Bench, candidate: Settings
) -> None:
    seen, verdict = bench.compare(Network, candidate)
    assert verdict is None, verdict
    assert seen.cosine is not None
    assert seen.norm_ratio is not None
    assert seen.loss_difference is not None


def test_weights_are_the_same_where_the_model_draws_them_without_a_seed(bench: Bench) -> None:
    made: list[torch.Generator] = []

    def unseeded() -> nn.Module:
        made.append(torch.Generator().manual_seed(len(made)))
        model = Network()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=made[-1]))
            model.register_buffer("shift", torch.randn(1, generator=made[-1]), persistent=False)
        return model

    seen, verdict = bench.compare(unseeded, OWN)
    assert verdict is None
    assert seen.losses == seen.reference_losses
    assert len(made) == 2


def test_one_live_object_begins_again_where_it_began(bench: Bench) -> None:
    model = Network()

    def loss(_: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return squares(model, batch)  # refers to the object itself, as functions of a notebook do

    seen, verdict = bench.compare(lambda: model, BLOCKS, loss=loss)
    assert verdict is None
    assert seen.losses == seen.reference_losses
    changed = Network()
    with pytest.raises(Unsupported, match="one live object"):
        bench.compare(lambda: changed, OWN, BLOCKS)


def test_weights_that_are_drawn_on_the_device_are_compared_as_well(bench: Bench) -> None:
    def on_meta() -> nn.Module:
        with torch.device("meta"):
            return Raw()

    seen, verdict = bench.compare(on_meta, OWN, make_batch=vectors)
    assert verdict is None
    assert (seen.cosine, seen.losses) == (1.0, seen.reference_losses)


def test_a_model_made_differently_each_time_cannot_be_compared(bench: Bench) -> None:
    widths = iter((4, 5))

    def another() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, width := next(widths)), nn.Linear(width, 1))

    with pytest.raises(Unsupported, match="makes another model each time"):
        bench.compare(another, OWN, make_batch=vectors)
    # the reference was through: whatever comes after it is the candidate's fault
    assert isinstance(bench.recorder.facts["comparison"], Comparison)


def test_what_a_loss_does_to_its_batch_is_not_seen_by_the_other_side(bench: Bench) -> None:
    def spoiling(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        weight = batch["weight"].clone()
        batch["weight"].zero_()
        return squares(model, (batch.pop("x"), batch.pop("y"))) * weight.mean()

    def make_batch(size: int) -> dict[str, torch.Tensor]:
        x, y = vectors(size)
        return {"x": x, "y": y, "weight": torch.ones(size)}

    seen, verdict = bench.compare(Raw, OWN, make_batch=make_batch, loss=spoiling)
    assert verdict is None
    assert seen.losses == seen.reference_losses


def test_random_numbers_of_the_loss_are_the_same_on_both_sides(bench: Bench) -> None:
    def noisy(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return squares(model, (batch[0] + torch.randn_like(batch[0]), batch[1]))

    seen, verdict = bench.compare(Network, BLOCKS, loss=noisy)
    assert verdict is None
    assert seen.losses == seen.reference_losses
