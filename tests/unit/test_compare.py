"""Candidate against reference in one process: what is seen, and what it means. Small models, one planted fault each."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from autotune.apply import Unsupported
from autotune.model import (
    Cause,
    Checkpointing,
    Comparison,
    Failure,
    Form,
    Measurement,
    MemoryFormat,
    OptimizerKind,
    Outcome,
    Precision,
    Settings,
    Source,
)
from autotune.probe.compare import compare
from autotune.probe.equivalent import judge
from autotune.probe.meter import CpuMeter
from autotune.probe.order import Op, Order
from autotune.probe.recorder import Recorder
from autotune.probe.wire import Channel
from autotune.workload.parts import Parts
from autotune.workload.task import Workload

WIDTH = 8
CPU = torch.device("cpu")
OWN = Settings()
SWITCHED = Settings(checkpointing=Checkpointing.OWN)
BLOCKS = Settings(checkpointing=Checkpointing.BLOCKS)
BF16 = Settings(precision=Precision.BF16)
FP16 = Settings(precision=Precision.FP16)

Verdict = tuple[Outcome, Failure] | None


class Bench:
    """Compares settings on one workload."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def compare(
        self,
        make_model: Callable[[], object],
        candidate: Settings,
        reference: Settings = OWN,
        *,
        make_batch: Callable[[int], object] | None = None,
        loss: Callable[..., object] | None = None,
        batch_size: int = 4,
        lr: float = 0.05,
    ) -> tuple[Comparison, Verdict]:
        """What was seen, and what it means."""
        parts = Parts(
            make_model=make_model,
            make_batch=make_batch or pictures,
            loss=loss or squares,
            make_optimizer=lambda params: torch.optim.SGD(params, lr=lr, momentum=0.9),
        )
        order = Order(
            op=Op.PROBE,
            source=Source(ref="test"),
            settings=candidate,
            reference=reference,
            job_environment={},
            seed=3,
            batch_size=batch_size,
            form=Form.COMPARE,
        )
        compare(order, Workload("test", parts, ()), CPU, self.recorder)
        seen = self.recorder.facts["comparison"]
        assert isinstance(seen, Comparison)
        measurement = Measurement(steps_asked=3, steps_executed=self.recorder.executed, comparison=seen)
        return seen, judge(measurement, candidate=candidate, reference=reference, device="cpu")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """On the CPU, with nobody listening."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    state = torch.get_rng_state()
    yield Bench(Recorder(Channel(nowhere, "token"), CpuMeter()))
    torch.set_rng_state(state)
    torch.set_num_threads(threads)
    os.close(nowhere)


def pictures(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Small pictures, and a number to each."""
    x = torch.randn(size, 3, 8, 8)
    return x, x.mean((1, 2, 3)).sin().unsqueeze(1)


def vectors(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and a number to each."""
    x = torch.randn(size, WIDTH)
    return x, x.sum(1, keepdim=True).sin()


def squares(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean squared error."""
    return functional.mse_loss(model(batch[0]).float(), batch[1])


def changes(verdict: Verdict) -> Failure:
    """The failure of a candidate that changes the training."""
    assert verdict is not None
    assert verdict[0] is Outcome.CHANGES_TRAINING, verdict
    return verdict[1]


class Residual(nn.Module):
    """Convolution, batch norm, dropout and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.drop = nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.drop(torch.relu(self.norm(self.conv(x))))
        return result


class Network(nn.Module):
    """Three residual blocks, with a switch of its own for checkpointing them: a wrong one if ``reentrant``."""

    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(Residual() for _ in range(3))
        self.head = nn.Linear(WIDTH, 1)
        self._reentrant = reentrant
        self._checkpoints = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
        del gradient_checkpointing_kwargs  # it knows better
        self._checkpoints = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self._reentrant) if self._checkpoints else block(x)
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Raw(nn.Module):
    """A body on the raw data and a head that sees both: the switch checkpoints the body re-entrantly."""

    def __init__(self, *, skips: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 1) if skips else nn.Identity()
        self._checkpoints = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
        del gradient_checkpointing_kwargs
        self._checkpoints = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.body, x, use_reentrant=True) if self._checkpoints else self.body(x)
        result: torch.Tensor = self.head(x)
        return result


class Adapted(nn.Module):
    """A frozen embedding and frozen blocks with small trained matrices beside them, as LoRA has; the head is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.down = nn.ModuleList(nn.Linear(WIDTH, 2, bias=False) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(2, WIDTH, bias=False) for _ in range(2))
        for matrix in self.up:
            nn.init.zeros_(matrix.get_parameter("weight"))
        self.head = nn.Linear(WIDTH, 1)
        self._checkpoints = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None) -> None:
        del gradient_checkpointing_kwargs
        self._checkpoints = True

    def _block(self, number: int, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.tanh(self.blocks[number](x) + self.up[number](self.down[number](x)))
        return result

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for number in range(2):
            x = checkpoint(self._block, number, x, use_reentrant=True) if self._checkpoints else self._block(number, x)
        result: torch.Tensor = self.head(x.mean(1))
        return result


def tokens(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words, and a number to each text."""
    return torch.randint(11, (size, 5)), torch.randn(size, 1)


# --- the same training ------------------------------------------------------------------------------------------------


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


def test_weights_that_are_made_on_the_way_are_compared_as_well(bench: Bench) -> None:
    def on_meta() -> nn.Module:
        with torch.device("meta"):
            return Raw()

    def lazy() -> nn.Module:
        return nn.Sequential(nn.LazyLinear(WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))

    for make_model in (on_meta, lazy):
        seen, verdict = bench.compare(make_model, OWN, make_batch=vectors)
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


# --- number formats ---------------------------------------------------------------------------------------------------


def saturating(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """1 - sigmoid of 10 is 4.5e-5; rounded to 8 or 11 bits the sigmoid is 1, and the logarithm infinite."""
    out: torch.Tensor = model(batch[0])
    return -torch.log(1 - torch.sigmoid(out + 10 - out.detach())).mean()


@pytest.mark.parametrize("candidate", [FP16, BF16], ids=lambda settings: str(settings.precision))
def test_c29_the_logarithm_of_a_saturating_sigmoid_is_unstable_in_half_precision(
    bench: Bench, candidate: Settings
) -> None:
    seen, verdict = bench.compare(Raw, candidate, make_batch=vectors, loss=saturating)
    assert verdict is not None
    outcome, failure = verdict
    assert (outcome, failure.cause, failure.step) == (Outcome.UNSTABLE, Cause.NON_FINITE, 1)
    assert (seen.losses, len(seen.reference_losses), seen.lost) == ((None,), 3, ())
    assert bench.compare(Raw, OWN, make_batch=vectors, loss=saturating)[1] is None


def test_c29_weights_in_half_precision_are_unsupported_under_the_gradient_scaler(bench: Bench) -> None:
    def half() -> nn.Module:
        return nn.Linear(WIDTH, 1).half()

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return functional.mse_loss(model(batch[0].half()).float(), batch[1])

    with pytest.raises(Unsupported, match="float16"):
        bench.compare(half, FP16, make_batch=vectors, loss=loss)
    assert bench.compare(half, OWN, make_batch=vectors, loss=loss)[1] is None


def too_large(shift: int) -> Callable[..., torch.Tensor]:
    """A loss whose gradient overflows fp16 until the scale has fallen far enough."""

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return squares(model, batch) * 2.0**shift

    return loss


def test_c08_a_gradient_is_taken_once_the_scaler_has_settled_and_from_the_same_weights(bench: Bench) -> None:
    seen, verdict = bench.compare(Network, FP16, loss=too_large(8), lr=1e-4)
    assert verdict is None, verdict
    assert seen.skipped >= 3
    assert seen.norm_ratio == pytest.approx(1, abs=0.02)
    assert seen.buffers == ()  # though more batches went by
    assert (len(seen.losses), bench.recorder.executed, bench.recorder.skipped) == (3, 3, seen.skipped)


def test_random_numbers_of_a_step_are_those_of_the_reference_however_often_it_is_repeated(bench: Bench) -> None:
    def noisy(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return too_large(8)(model, (batch[0] + torch.randn_like(batch[0]), batch[1]))

    seen, verdict = bench.compare(Raw, FP16, make_batch=vectors, loss=noisy, lr=1e-4)
    assert verdict is None, verdict
    assert seen.skipped > 0
    assert seen.losses == pytest.approx(seen.reference_losses, rel=0.01)


def test_c08_a_scaler_that_refuses_every_step_is_unstable(bench: Bench) -> None:
    class Hopeless(Raw):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            if torch.is_autocast_enabled("cpu"):
                out.register_hook(lambda grad: grad * float("inf"))  # type: ignore[no-untyped-call]
            return out

    seen, verdict = bench.compare(Hopeless, FP16, make_batch=vectors)
    assert verdict is not None
    assert (verdict[0], verdict[1].cause) == (Outcome.UNSTABLE, Cause.STEPS_SKIPPED)
    assert (seen.skipped, seen.losses, bench.recorder.executed) == (30, (), 0)


def test_a_gradient_that_is_not_finite_without_a_scaler_is_unstable(bench: Bench) -> None:
    class Rooted(Raw):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            return out + torch.sqrt(0 * out) if torch.is_autocast_enabled("cpu") else out

    seen, verdict = bench.compare(Rooted, BF16, make_batch=vectors)
    assert verdict is not None
    assert (verdict[0], verdict[1].cause) == (Outcome.UNSTABLE, Cause.NON_FINITE)
    assert (seen.losses, seen.lost) == ((None,), ())


def test_a_reference_that_is_not_finite_stops_the_comparison(bench: Bench) -> None:
    def never(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return squares(model, batch) / 0

    seen, verdict = bench.compare(Raw, OWN, make_batch=vectors, loss=never)
    assert verdict is not None
    assert (verdict[0], verdict[1].cause) == (Outcome.WORKLOAD_ERROR, Cause.NON_FINITE)
    assert (seen.reference_losses, seen.losses) == ((None,), ())


def test_what_only_the_candidate_raises_comes_after_the_reference_was_seen(bench: Bench) -> None:
    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        sums = torch.zeros(2, 1).index_add(0, torch.arange(len(batch[0])) % 2, model(batch[0]))
        return sums.pow(2).mean()

    assert bench.compare(Raw, OWN, make_batch=vectors, loss=loss)[1] is None
    with pytest.raises(RuntimeError, match="same scalar type"):
        bench.compare(Raw, BF16, make_batch=vectors, loss=loss)
    seen = bench.recorder.facts["comparison"]
    assert isinstance(seen, Comparison)
    assert (len(seen.reference_losses), seen.losses) == (3, ())


def test_bf16_is_not_blamed_where_rounding_alone_turns_the_gradient(bench: Bench) -> None:
    """Batch norms one upon another without skips: the smallest change grows from layer to layer."""

    def deep() -> nn.Module:
        layers: list[nn.Module] = []
        for _ in range(16):
            layers += [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(WIDTH, 1))

    _, verdict = bench.compare(deep, BF16, make_batch=vectors, batch_size=8)
    assert verdict is None, verdict


def test_process_wide_switches_of_the_reference_do_not_reach_a_candidate_that_leaves_them_alone(bench: Bench) -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    bench.compare(Raw, OWN, Settings(precision=Precision.TF32, cudnn_benchmark=True), make_batch=vectors)
    after = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    assert after == before


# --- accumulation -----------------------------------------------------------------------------------------------------

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
