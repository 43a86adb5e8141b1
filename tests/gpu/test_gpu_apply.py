"""Settings applied on a CUDA device, in the test process: which kernels run, what they need, and that the training stays
the same. Compiling is left to the probes' own tests."""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend

from autotune.apply import Applied, Unsupported, find_blocks
from autotune.model import Attention, Checkpointing, MemoryFormat, OptimizerKind, Precision, Settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what PyTorch and cuDNN say of their kernels is theirs
]

DEVICE = torch.device("cuda")
STRICT = Settings(precision=Precision.FP32)
WIDTH, HEAD, BLOCKS = 128, 64, 6
Gradients = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Switches of the process as they were; no memory is kept from the tests that look at the whole device."""
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn
    torch.backends.cudnn.benchmark = benchmark
    torch.cuda.empty_cache()


class Attending(nn.Module):
    """A block of a transformer, with dropout."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.norm1, self.norm2, self.drop = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.Dropout(drop)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, -1, HEAD).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH)))
        added: torch.Tensor = x + self.drop(self.mlp(self.norm2(x)))
        return added


class Residual(nn.Module):
    """Two convolutions with batch norms and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(32, 32, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(32), nn.BatchNorm2d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.norm1(self.conv1(x)))
        added: torch.Tensor = x + self.norm2(self.conv2(inner))
        return added.relu()


def transformer(drop: float = 0.0) -> tuple[nn.Module, torch.Tensor]:
    """A model and a batch for it, on the CPU."""
    torch.manual_seed(0)
    return nn.Sequential(*(Attending(drop) for _ in range(BLOCKS)), nn.Linear(WIDTH, 16)), torch.randn(16, 128, WIDTH)


def conv_net() -> tuple[nn.Module, torch.Tensor]:
    """A model and a batch for it, on the CPU."""
    torch.manual_seed(0)
    stem = nn.Conv2d(3, 32, 3, padding=1, bias=False)
    blocks = (Residual() for _ in range(3))
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 16)), torch.randn(
        16, 3, 32, 32
    )


Made = Callable[[], tuple[nn.Module, torch.Tensor]]
BOTH: list[Made] = [transformer, conv_net]


def with_dropout() -> tuple[nn.Module, torch.Tensor]:
    """The transformer, in which what a second run computes depends on the state of the random numbers."""
    return transformer(0.1)


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Distance of the outputs from fixed targets."""
    out = model(batch).float()
    targets = torch.linspace(-1, 1, out.shape[-1], device=out.device)
    return functional.mse_loss(out, targets.expand_as(out))


def train_pass(made: Made, settings: Settings) -> tuple[nn.Module, Gradients]:
    """Forward and backward once from the same weights and random numbers: the model, and its gradients unscaled."""
    model, batch = made()
    applied = Applied(settings, DEVICE)
    model = applied.prepare(model).train()
    torch.manual_seed(1)
    with applied.autocast():
        loss = loss_of(model, batch.to(DEVICE))
    applied.backward(loss)
    scale = 1.0 if applied.scaler is None else applied.scaler.get_scale()
    return model, {name: p.grad / scale for name, p in model.named_parameters() if p.grad is not None}


def flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """All of them as one vector in double precision."""
    return torch.cat([tensor.detach().double().flatten().cpu() for tensor in tensors])


def distance(found: Iterable[torch.Tensor], expected: Iterable[torch.Tensor]) -> float:
    """Norm of the difference by the norm of what is expected."""
    one, other = flat(found), flat(expected)
    return float((one - other).norm() / other.norm())


def error_of_products(settings: Settings) -> tuple[float, float]:
    """Relative errors of a matrix product and of a convolution in float32 under these settings."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 1024, 1024).double().unbind()
    image, kernel = torch.randn(16, 256, 28, 28).double(), torch.randn(256, 256, 1, 1).double()
    Applied(settings, DEVICE)
    product = a.float().to(DEVICE) @ b.float().to(DEVICE)
    convolved = functional.conv2d(image.float().to(DEVICE), kernel.float().to(DEVICE))
    return distance([product], [a @ b]), distance([convolved], [functional.conv2d(image, kernel)])


def test_strict_fp32_is_exact_to_its_last_digits_and_tf32_is_not() -> None:
    for error in error_of_products(STRICT):
        assert error < 2e-5
    for error in error_of_products(Settings(precision=Precision.TF32)):
        assert 1e-4 < error < 5e-3


@pytest.mark.parametrize("made", BOTH)
@pytest.mark.parametrize(
    ("precision", "most"), [(Precision.TF32, 0.01), (Precision.FP16, 0.01), (Precision.BF16, 0.04)]
)
def test_every_precision_has_nearly_the_gradients_of_strict_fp32(made: Made, precision: Precision, most: float) -> None:
    """On the CPU bf16 is 0.003 (transformer) and 0.007 (convolutions) away, fp16 0.0004 and 0.003."""
    _, exact = train_pass(made, STRICT)
    _, found = train_pass(made, Settings(precision=precision))
    assert found.keys() == exact.keys()
    assert {grad.dtype for grad in found.values()} == {torch.float32}
    assert 1e-6 < distance(found.values(), exact.values()) < most


@pytest.mark.parametrize("kind", [OptimizerKind.DEFAULT, OptimizerKind.FOR_LOOP, OptimizerKind.FUSED])
def test_c08_a_step_that_overflows_under_fp16_is_refused_and_changes_nothing(kind: OptimizerKind) -> None:
    applied = Applied(Settings(precision=Precision.FP16, optimizer=kind), DEVICE)
    model, batch = transformer()
    model, batch = applied.prepare(model), batch.to(DEVICE)
    optimizer = applied.optimizer(torch.optim.AdamW, model.parameters())
    assert applied.scaler is not None
    before, scale = copy.deepcopy(model.state_dict()), applied.scaler.get_scale()
    taken = []
    for factor in (1e12, 1.0):
        applied.zero_grad(optimizer)
        with applied.autocast():
            loss = factor * loss_of(model, batch)
        applied.backward(loss)
        taken.append(applied.step(optimizer))
        if not taken[-1]:
            assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
            assert applied.scaler.get_scale() == scale / 2
    assert taken == [False, True]
    assert not all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_c33_scaled_micro_batches_add_up_to_the_gradient_of_one_large_batch() -> None:
    model, batch = transformer()
    large = copy.deepcopy(model).to(DEVICE)
    batch = batch.to(DEVICE)
    Applied(STRICT, DEVICE)
    loss_of(large, batch).backward()  # type: ignore[no-untyped-call]
    applied = Applied(Settings(precision=Precision.FP16, accumulate=4), DEVICE)
    model = applied.prepare(model)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = applied.optimizer(torch.optim.SGD, model.parameters(), lr=1.0)
    loss = applied.train_step(model, optimizer, loss_of, batch.split(4))  # type: ignore[no-untyped-call]
    assert loss.isfinite()
    moved = [old - new.detach() for old, new in zip(start, model.parameters(), strict=True)]
    gradients = [parameter.grad for parameter in large.parameters() if parameter.grad is not None]
    assert distance(moved, gradients) < 0.01


def test_channels_last_reaches_the_convolutions_and_leaves_the_mathematics_alone() -> None:
    plain, exact = train_pass(conv_net, STRICT)
    seen: list[torch.Tensor] = []

    def watched() -> tuple[nn.Module, torch.Tensor]:
        model, batch = conv_net()
        for part in model.modules():
            if isinstance(part, nn.Conv2d):
                part.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        return model, batch

    settings = Settings(precision=Precision.FP32, memory_format=MemoryFormat.CHANNELS_LAST)
    model, found = train_pass(watched, settings)
    assert len(seen) == 7  # the stem's as well, whose batch was made in the usual order
    for tensor in (*seen, *(part.weight for part in model.modules() if isinstance(part, nn.Conv2d))):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert distance(found.values(), exact.values()) < 1e-3
    assert distance(model.buffers(), plain.buffers()) < 1e-4


@pytest.mark.parametrize("checkpointing", [Checkpointing.BLOCKS, Checkpointing.ALTERNATE])
@pytest.mark.parametrize("made", [with_dropout, conv_net])
def test_c30_checkpointed_blocks_have_the_same_gradients_and_their_norms_move_once(
    made: Made, checkpointing: Checkpointing
) -> None:
    plain, exact = train_pass(made, STRICT)
    model, found = train_pass(made, Settings(precision=Precision.FP32, checkpointing=checkpointing))
    assert found.keys() == exact.keys()
    assert distance(found.values(), exact.values()) < 1e-4
    kept = dict(plain.named_buffers())
    off = {name: distance([buffer], [kept[name]]) for name, buffer in model.named_buffers()}
    assert max(off.values(), default=0.0) < 1e-4, off


def test_blocks_are_computed_again_under_the_autocast_of_the_first_run() -> None:
    _, expected = train_pass(with_dropout, Settings(precision=Precision.BF16))
    settings = Settings(precision=Precision.BF16, checkpointing=Checkpointing.BLOCKS)
    _, found = train_pass(with_dropout, settings)
    assert distance(found.values(), expected.values()) < 1e-3


def peak_of_a_pass(checkpointing: Checkpointing) -> int:
    """Bytes that forward and backward need beyond weights and batch."""
    applied = Applied(Settings(checkpointing=checkpointing), DEVICE)
    model, batch = transformer()
    model = applied.prepare(model)
    batch = batch.repeat(4, 1, 1).to(DEVICE)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    applied.backward(loss_of(model, batch))
    return torch.cuda.max_memory_allocated() - before


def test_the_more_blocks_are_checkpointed_the_less_memory_a_pass_needs() -> None:
    peak_of_a_pass(Checkpointing.OFF)  # libraries take their workspace at first use
    peaks = {kind: peak_of_a_pass(kind) for kind in Checkpointing if kind is not Checkpointing.OWN}
    none, half, every = (peaks[kind] for kind in (Checkpointing.OFF, Checkpointing.ALTERNATE, Checkpointing.BLOCKS))
    assert every < 0.6 * none, peaks
    assert every < 0.85 * half < 0.85 * none, peaks


def steps_taken(kind: OptimizerKind, make: Callable[..., torch.optim.Optimizer], *, later: bool) -> list[torch.Tensor]:
    """Parameters after three steps on gradients that depend on nothing."""
    applied = Applied(Settings(optimizer=kind), DEVICE)
    chance = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(size, generator=chance).to(DEVICE)) for size in (1, 100, 10_000)]
    optimizer = applied.reimplement(make(parameters)) if later else make(parameters, applied)
    if kind is not OptimizerKind.DEFAULT:
        asked = (kind is OptimizerKind.FOREACH, kind is OptimizerKind.FUSED)
        assert (optimizer.defaults["foreach"], optimizer.defaults["fused"]) == asked
    for _ in range(3):
        applied.zero_grad(optimizer)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=chance).to(DEVICE)
        assert applied.step(optimizer)
    return [parameter.detach() for parameter in parameters]


def adamw(parameters: list[nn.Parameter], applied: Applied | None = None) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1}
    if applied is None:
        return torch.optim.AdamW(parameters, **options)
    return applied.optimizer(torch.optim.AdamW, parameters, **options)


def sgd(parameters: list[nn.Parameter], applied: Applied | None = None) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "nesterov": True}
    if applied is None:
        return torch.optim.SGD(parameters, **options)
    return applied.optimizer(torch.optim.SGD, parameters, **options)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("make", [adamw, sgd])
@pytest.mark.parametrize("kind", [OptimizerKind.FOR_LOOP, OptimizerKind.FOREACH, OptimizerKind.FUSED])
def test_all_implementations_of_an_optimizer_step_alike(
    kind: OptimizerKind, make: Callable[..., torch.optim.Optimizer], later: bool
) -> None:
    expected = steps_taken(OptimizerKind.DEFAULT, make, later=later)
    torch.testing.assert_close(steps_taken(kind, make, later=later), expected, rtol=1e-5, atol=1e-6)


BACKENDS = {
    Attention.MATH: SDPBackend.MATH,
    Attention.EFFICIENT: SDPBackend.EFFICIENT_ATTENTION,
    Attention.FLASH: SDPBackend.FLASH_ATTENTION,
    Attention.CUDNN: SDPBackend.CUDNN_ATTENTION,
}


@pytest.mark.parametrize("attention", BACKENDS)
def test_each_attention_backend_is_the_one_that_runs_and_attends_alike(attention: Attention) -> None:
    settings = Settings(precision=Precision.BF16, attention=attention)
    q = torch.zeros(2, 2, 128, HEAD, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    with Applied(settings, DEVICE).autocast():
        assert torch._fused_sdp_choice(q, q, q, is_causal=True) == BACKENDS[attention].value
    _, exact = train_pass(transformer, Settings(precision=Precision.FP32, attention=Attention.MATH))
    _, found = train_pass(transformer, settings)
    assert 1e-6 < distance(found.values(), exact.values()) < 0.04


@pytest.mark.filterwarnings("ignore")  # PyTorch tells for each backend why it is not the one
@pytest.mark.parametrize("attention", [Attention.FLASH, Attention.CUDNN])
def test_a_backend_without_a_kernel_for_float32_is_unsupported(attention: Attention) -> None:
    with pytest.raises(Unsupported, match=f"the {attention} backend does not take this attention"):
        train_pass(transformer, Settings(precision=Precision.FP32, attention=attention))


def test_cudnn_may_choose_other_algorithms_and_the_gradients_stay() -> None:
    _, exact = train_pass(conv_net, STRICT)
    _, found = train_pass(conv_net, Settings(precision=Precision.FP32, cudnn_benchmark=True))
    assert torch.backends.cudnn.benchmark
    assert distance(found.values(), exact.values()) < 1e-3


def test_the_blocks_are_those_that_repeat() -> None:
    assert find_blocks(transformer()[0]) == tuple(str(number) for number in range(BLOCKS))
    assert find_blocks(conv_net()[0]) == ("1", "2", "3")
