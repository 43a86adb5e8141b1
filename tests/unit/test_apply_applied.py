"""Settings as a training loop sees them: precision, gradients, micro-batches, formats, attention, process-wide switches."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import islice

import pytest
import torch
from torch import nn

from autotune.apply import Applied, Unsupported
from autotune.errors import UsageError
from autotune.model import Attention, MemoryFormat, OptimizerKind, Precision, Settings

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def switches_as_they_were() -> Iterator[None]:
    """Some settings hold for the whole process."""
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn
    torch.backends.cudnn.benchmark = benchmark


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def mean_square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()  # type: ignore[no-any-return]


def test_default_settings_change_nothing() -> None:
    switches = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    applied, model = Applied(Settings(), CPU), net()
    before = {name: list(vars(part)) for name, part in model.named_modules()}
    assert applied.prepare(model) is model
    assert {name: list(vars(part)) for name, part in model.named_modules()} == before
    assert all(not part._forward_pre_hooks for part in model.modules())
    assert applied.scaler is None
    with applied.autocast():
        assert not torch.is_autocast_enabled("cpu")
    assert applied.compile_counts() is None
    assert switches == (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
    )


def test_default_settings_change_nothing_in_a_model_that_is_prepared_again() -> None:
    applied = Applied(Settings(), CPU)
    model = applied.prepare(applied.prepare(net()))
    assert "forward" not in vars(model)


@pytest.mark.parametrize(
    ("precision", "allowed"),
    [(Precision.FP32, False), (Precision.TF32, True), (Precision.BF16, True), (Precision.FP16, True)],
)
def test_tf32_is_forbidden_for_strict_fp32_alone(precision: Precision, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not allowed
    Applied(Settings(precision=precision), CPU)
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (allowed, allowed)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (Precision.DEFAULT, torch.float32),
        (Precision.FP32, torch.float32),
        (Precision.TF32, torch.float32),
        (Precision.BF16, torch.bfloat16),
        (Precision.FP16, torch.float16),
    ],
)
def test_the_forward_pass_runs_in_the_format_and_parameters_stay(precision: Precision, dtype: torch.dtype) -> None:
    applied = Applied(Settings(precision=precision), CPU)
    model = applied.prepare(net())
    with applied.autocast():
        assert model(torch.ones(2, 4)).dtype is dtype
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_layer_that_the_user_keeps_in_fp32_stays_there() -> None:
    class Strict(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(x.device.type, enabled=False):
                return super().forward(x.float())

    applied = Applied(Settings(precision=Precision.BF16), CPU)
    model = applied.prepare(nn.Sequential(nn.Linear(4, 4), Strict(4, 1)))
    with applied.autocast():
        assert model(torch.ones(2, 4)).dtype is torch.float32


def test_the_scaler_begins_at_the_scale_of_the_settings() -> None:
    applied = Applied(Settings(precision=Precision.FP16, init_scale=1024.0), CPU)
    assert applied.scaler is not None
    assert applied.scaler.get_scale() == 1024.0


def test_c08_a_step_with_an_overflow_is_refused_and_told() -> None:
    applied = Applied(Settings(precision=Precision.FP16), CPU)
    model = applied.prepare(net())
    optimizer = applied.optimizer(torch.optim.Adam, model.parameters())
    before = copy.deepcopy(model.state_dict())
    took = []
    for factor in (float("inf"), 1.0):
        applied.zero_grad(optimizer)
        with applied.autocast():
            loss = mean_square(model, torch.ones(2, 4)) * factor
        applied.backward(loss)
        took.append(applied.step(optimizer))
        changed = any(not torch.equal(now, before[name]) for name, now in model.state_dict().items())
        assert changed is took[-1]
    assert took == [False, True]
    assert len(optimizer.state) == 4


def test_of_two_optimizers_one_that_is_refused_does_not_change_the_step_of_the_other() -> None:
    applied = Applied(Settings(precision=Precision.FP16), CPU)
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizers = [applied.optimizer(torch.optim.SGD, [each], lr=0.125) for each in (first, second)]
    applied.backward((first * float("inf") + second).sum())
    assert not applied.step(*optimizers)
    assert (first.item(), second.item()) == (1.0, 0.875)


def test_without_a_scaler_two_optimizers_step_as_well() -> None:
    applied = Applied(Settings(), CPU)
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    applied.backward((first + second).sum())
    assert applied.step(*(torch.optim.SGD([each], lr=0.125) for each in (first, second)))
    assert (first.item(), second.item()) == (0.875, 0.875)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_c29_parameters_in_half_precision_are_unsupported_under_a_scaler(dtype: torch.dtype) -> None:
    model = net()
    model[2].to(dtype)
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(Unsupported, match=rf"parameter 2\.weight would be {kind}"):
        Applied(Settings(precision=Precision.FP16), CPU).prepare(model)


def test_frozen_parameters_in_half_precision_do_not_stand_in_the_way_of_a_scaler() -> None:
    model = net()
    model[2].to(torch.float16).requires_grad_(False)
    Applied(Settings(precision=Precision.FP16), CPU).prepare(model)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_let_go_or_filled_with_zeros(set_to_none: bool) -> None:
    applied = Applied(Settings(set_to_none=set_to_none), CPU)
    model = applied.prepare(net())
    optimizer = applied.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    applied.backward(mean_square(model, torch.ones(2, 4)))
    applied.zero_grad(optimizer)
    for parameter in model.parameters():
        assert (parameter.grad is None) is set_to_none
        assert parameter.grad is None or not parameter.grad.any()


@pytest.mark.parametrize("make", [list, iter])
def test_c33_accumulated_micro_batches_train_as_one_large_batch(
    make: Callable[[list[torch.Tensor]], list[torch.Tensor]],
) -> None:
    plain, model = net(), net()
    batch = torch.randn(12, 4)
    applied = Applied(Settings(accumulate=3), CPU)
    applied.prepare(model)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.5) for each in (plain, model)]
    expected = mean_square(plain, batch)
    expected.backward()  # type: ignore[no-untyped-call]
    optimizers[0].step()
    loss = applied.train_step(model, optimizers[1], mean_square, make(list(batch.split(4))))  # type: ignore[no-untyped-call]
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected.detach())
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(other, one)


def test_a_step_takes_its_micro_batches_from_a_loader_and_leaves_the_rest() -> None:
    model, loader = net(), iter(torch.randn(5, 2, 4))
    applied = Applied(Settings(accumulate=2), CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        applied.train_step(model, optimizer, mean_square, islice(loader, 2))
    assert len(list(loader)) == 1


@pytest.mark.parametrize(("given", "told"), [(0, "0"), (1, "1"), (3, "more than 2")])
def test_another_number_of_micro_batches_is_refused_without_a_step(given: int, told: str) -> None:
    model = net()
    before = copy.deepcopy(model.state_dict())
    applied = Applied(Settings(accumulate=2), CPU)
    with pytest.raises(UsageError, match=f"takes 2 micro-batches and was given {told}$"):
        applied.train_step(model, torch.optim.SGD(model.parameters(), lr=0.5), mean_square, [torch.ones(2, 4)] * given)
    for name, now in model.state_dict().items():
        assert torch.equal(now, before[name])


class Pictures(nn.Module):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, *args: object, **kwargs: object) -> None:
        self.args, self.kwargs = args, kwargs


def last(value: object) -> bool:
    assert isinstance(value, torch.Tensor)
    return value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()


def test_channels_last_converts_the_weights_and_what_the_model_is_called_with() -> None:
    model = Applied(Settings(memory_format=MemoryFormat.CHANNELS_LAST), CPU).prepare(Pictures())
    image, mask = torch.randn(2, 3, 5, 5), torch.ones(2, 3, 5, 5, dtype=torch.int64)
    model(image, [image, "name"], mask, pixels=image, both={"image": image, "mask": mask}, size=5)
    assert last(model.conv.weight)
    first, listed, same = model.args
    assert last(first) and same is mask
    assert isinstance(listed, list) and last(listed[0]) and listed[1] == "name"
    both = model.kwargs["both"]
    assert isinstance(both, dict) and last(both["image"]) and both["mask"] is mask
    assert last(model.kwargs["pixels"]) and model.kwargs["size"] == 5
    assert torch.equal(first, image)  # type: ignore[arg-type]


def test_channels_last_of_volumes_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"parameter 0\.weight has five dimensions"):
        Applied(Settings(memory_format=MemoryFormat.CHANNELS_LAST), CPU).prepare(nn.Sequential(nn.Conv3d(1, 1, 1)))


def test_cudnn_benchmark_is_a_switch_of_the_process() -> None:
    Applied(Settings(cudnn_benchmark=True), CPU)
    assert torch.backends.cudnn.benchmark
    Applied(Settings(), CPU)
    assert torch.backends.cudnn.benchmark


@pytest.mark.parametrize("attention", [Attention.MATH, Attention.FLASH])
def test_the_attention_backend_is_chosen_for_forward_and_backward_alone(attention: Attention) -> None:
    def chosen() -> tuple[bool, bool]:
        return torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]

    before, only = chosen(), (attention is Attention.MATH, attention is Attention.FLASH)
    applied = Applied(Settings(attention=attention), CPU)
    seen = []
    x = torch.ones(1, requires_grad=True)
    x.register_hook(lambda _: seen.append(chosen()))  # type: ignore[no-untyped-call]
    with applied.autocast():
        seen.append(chosen())
        loss = x.sum()
    applied.backward(loss)
    assert seen == [only, only]
    assert chosen() == before


def in_mixed_types(model: nn.Module) -> torch.Tensor:
    half = model(torch.ones(2, 4))
    return torch.zeros(2, 1).index_put((torch.tensor([0, 1]),), half).sum()


def in_an_unsafe_operation(model: nn.Module) -> torch.Tensor:
    raise RuntimeError("nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.")  # on CUDA


def in_a_view(model: nn.Module) -> torch.Tensor:
    image = torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    return image.view(2, -1).sum()


def in_an_attention(model: nn.Module) -> torch.Tensor:
    q = torch.ones(1, 1, 2, 4)
    return nn.functional.scaled_dot_product_attention(q, q, q).sum()


REFUSED: dict[str, tuple[Settings, Callable[[nn.Module], torch.Tensor], str]] = {
    "types": (Settings(precision=Precision.BF16), in_mixed_types, "bf16 autocast hands it: .*dtypes match"),
    "fp16": (Settings(precision=Precision.FP16), in_mixed_types, "fp16 autocast hands it: .*dtypes match"),
    "unsafe": (Settings(precision=Precision.BF16), in_an_unsafe_operation, "bf16 autocast .*unsafe to autocast"),
    "view": (Settings(memory_format=MemoryFormat.CHANNELS_LAST), in_a_view, r"channels_last has another: view size"),
    "attention": (Settings(attention=Attention.EFFICIENT), in_an_attention, "efficient backend does not take this"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_operation_that_refuses_what_a_setting_makes_of_its_inputs_is_unsupported(case: str) -> None:
    settings, run, message = REFUSED[case]
    applied = Applied(settings, CPU)
    with pytest.raises(Unsupported, match=message) as caught, applied.autocast():
        run(net())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_errors_that_a_setting_is_not_the_reason_of_pass_as_they_are() -> None:
    applied = Applied(Settings(precision=Precision.BF16), CPU)
    with pytest.raises(RuntimeError, match="view size") as caught, applied.autocast():
        in_a_view(net())
    assert type(caught.value) is RuntimeError
    with pytest.raises(torch.OutOfMemoryError), applied.autocast():
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_every_setting_is_applied_here_or_elsewhere() -> None:
    """A new field must be applied: the test fails until somebody has thought of it."""
    here = {
        *("precision", "init_scale", "checkpointing", "compile", "activation_budget", "optimizer", "memory_format"),
        *("attention", "cudnn_benchmark", "set_to_none", "accumulate"),
    }
    here |= {"parallel", "bucket_mb", "bucket_view", "static_graph", "reshard", "offload"}  # with several ranks
    elsewhere = {"allocator", "loader_workers", "pin_memory"}  # environment; the data loader, which is the user's
    assert {field.name for field in fields(Settings)} == here | elsewhere
    assert OptimizerKind.DEFAULT is Settings().optimizer
