"""Candidates in other number formats: what is not finite, scaled, or only rounded."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from autotune.apply import Unsupported
from autotune.model import Cause, Comparison, Outcome, Precision, Settings
from tests.unit.compared import BF16, FP16, OWN, WIDTH, Bench, Network, Raw, squares, vectors


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
