"""What a workload and a device are found to be: planted models, and devices that are not there."""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend

from autotune.model import Machine, Recognised, Traits
from autotune.probe.abilities import cores, with_abilities
from autotune.workload.parts import Parts
from autotune.workload.task import Workload
from autotune.workload.traits import optimizer_kinds, traits_of
from tests.unit import attention_functions
from tests.unit.attention_functions import fused_attention, plain_attention


def _workload(**parts: Any) -> Workload:
    lines = (Recognised(what="model", found="planted", why="for a test"),)
    return Workload("planted", Parts(make_model=nn.Module, **({"make_batch": torch.rand} | parts)), lines)


def found(model: nn.Module, device: str = "cpu", workload: Workload | None = None) -> Traits:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    return traits_of(model, optimizer, workload or _workload(), device)


class ConvBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.conv2(torch.relu(self.norm(self.conv1(x))))


class Attending(nn.Module):
    """A transformer's block; how it attends is given by a function."""

    def __init__(self, attention: Callable[..., Any] | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.drop = nn.Dropout(dropout)
        self.attention = attention

    def forward(self, x: torch.Tensor) -> Any:
        assert self.attention is not None
        return x + self.drop(self.out(self.attention(*self.qkv(x).chunk(3, dim=-1))))


class Direct(Attending):
    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v))


class Renamed(Attending):
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.out(attend(*self.qkv(x).chunk(3, dim=-1)))


class Inherited(Direct):
    pass


class InHelper(Attending):
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.out(fused_attention(*self.qkv(x).chunk(3, dim=-1)))


class InModule(Attending):
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.out(attention_functions.fused_attention(*self.qkv(x).chunk(3, dim=-1)))


class InMethod(Attending):
    @staticmethod
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.out(self.attend(*self.qkv(x).chunk(3, dim=-1)))


def _decorated(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    return inner


class Decorated(Attending):
    @_decorated
    def forward(self, x: torch.Tensor) -> Any:
        def inside(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        return x + self.out(inside(*self.qkv(x).chunk(3, dim=-1)))


class ByHand(Attending):
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.out(plain_attention(*self.qkv(x).chunk(3, dim=-1)))


class Functional(nn.Module):
    """Convolves without a layer for it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3, 3, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return F.conv2d(x, self.weight)


class Named(nn.Module):
    """Has a layer that is called as a convolution is, and none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2d = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.conv2d(x)


def test_a_convolutional_network_with_batch_norm() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *[ConvBlock() for _ in range(4)], nn.Flatten(), nn.Linear(8, 2))
    assert found(model) == Traits(
        blocks="ConvBlock",
        num_blocks=4,
        convolutions=True,
        batch_norm=True,
        batch_norm_in_blocks=True,
        optimizer_kinds=("for-loop", "foreach", "fused"),
        trained_tensors=len(list(model.parameters())),
    )


def test_a_transformer() -> None:
    model = nn.Sequential(nn.Embedding(10, 16), *[Direct(dropout=0.1) for _ in range(3)], nn.Linear(16, 10))
    assert found(model) == Traits(
        blocks="Direct",
        num_blocks=3,
        attention=True,
        dropout=True,
        optimizer_kinds=("for-loop", "foreach", "fused"),
        trained_tensors=len(list(model.parameters())),
    )


def test_a_frozen_body_with_small_trained_parts() -> None:
    model = nn.Sequential(*[Direct() for _ in range(3)])
    model.requires_grad_(False)
    for block in model:
        block.register_parameter("lora", nn.Parameter(torch.zeros(16, 2)))
    traits = found(model)
    assert traits.frozen
    assert not traits.lower_parameters
    assert (traits.blocks, traits.num_blocks) == ("Direct", 3)
    assert (traits.trained_tensors, traits.shard_trouble) == (3, "")


def test_what_stands_against_shards() -> None:
    assert "no repeated blocks" in found(nn.Linear(2, 2)).shard_trouble
    blocks, tied = [Direct() for _ in range(3)], nn.Parameter(torch.zeros(2))
    for block in blocks:
        block.register_parameter("tied", tied)
    assert "is shared between" in found(nn.Sequential(*blocks)).shard_trouble


def test_half_precision_counts_where_it_is_trained() -> None:
    model = nn.Sequential(nn.Linear(4, 4).to(torch.bfloat16), nn.Linear(4, 4))
    assert found(model).lower_parameters
    model[0].requires_grad_(False)
    assert not found(model).lower_parameters


def test_a_model_like_those_of_transformers() -> None:
    class Pretrained(nn.Module):
        supports_gradient_checkpointing = True

        def __init__(self, attention: str) -> None:
            super().__init__()
            self.config = SimpleNamespace(_attn_implementation=attention)
            self.layers = nn.ModuleList(ByHand() for _ in range(2))

        def gradient_checkpointing_enable(self) -> None: ...

    traits = found(Pretrained("sdpa"))
    assert traits.own_checkpointing == "transformers"
    assert traits.attention
    assert not found(Pretrained("eager")).attention


def test_a_model_like_those_of_timm() -> None:
    class Timm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(Direct(), Direct())

        def set_grad_checkpointing(self, enable: bool = True) -> None: ...

    traits = found(Timm())
    assert traits.own_checkpointing == "timm"
    assert (traits.blocks, traits.num_blocks) == ("Direct", 2)


@pytest.mark.parametrize("block", [Direct, Renamed, Inherited, InHelper, InModule, InMethod, Decorated])
def test_attention_is_seen_however_it_is_called(block: type[Attending]) -> None:
    assert found(block()).attention


def test_attention_of_pytorchs_own_layers_is_seen() -> None:
    assert found(nn.TransformerEncoderLayer(16, 2, dropout=0.0)).attention
    assert found(nn.MultiheadAttention(16, 2)).attention


def test_attention_in_a_replaced_forward_is_seen() -> None:
    model = ByHand()
    model.forward = fused_attention  # type: ignore[method-assign, assignment]
    assert found(model).attention
    other = ByHand()
    other.forward = Direct().forward  # type: ignore[method-assign]
    assert found(other).attention


def test_attention_by_hand_is_none_that_has_backends() -> None:
    assert not found(ByHand()).attention
    assert not found(nn.Sequential(nn.Linear(2, 2))).attention


def test_convolutions_in_the_code_are_seen_where_there_are_filters() -> None:
    assert found(Functional()).convolutions
    assert not found(Named()).convolutions
    assert not found(nn.Conv1d(3, 3, 3)).convolutions
    assert found(nn.ConvTranspose2d(3, 3, 3)).convolutions


def test_dropout_counts_where_it_drops() -> None:
    assert not found(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))).dropout
    assert found(nn.Sequential(nn.Linear(2, 2), nn.Dropout2d(0.2))).dropout
    assert found(nn.LSTM(4, 4, num_layers=2, dropout=0.5)).dropout
    assert not found(nn.LSTM(4, 4)).dropout


def test_batch_norm_that_keeps_no_statistics_stands_in_no_blocks_way() -> None:
    def block() -> nn.Module:
        made = ConvBlock()
        made.norm = nn.BatchNorm2d(8, track_running_stats=False)
        return made

    traits = found(nn.Sequential(block(), block(), block()))
    assert (traits.batch_norm, traits.batch_norm_in_blocks) == (True, False)


def test_a_model_without_values_will_do() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*[ConvBlock() for _ in range(3)])
    assert found(model).num_blocks == 3


def test_a_data_set_is_one_that_can_be_loaded_from() -> None:
    data = [(torch.zeros(2), torch.zeros(1))] * 4
    assert not found(nn.Linear(2, 1)).data_set
    for parts in ({"make_batch": None}, {}):
        workload = _workload(make_dataset=lambda: data, **parts)
        assert found(nn.Linear(2, 1), workload=workload).data_set
        assert workload.load(2, 1, 0, False) is not None


class Passing(torch.optim.AdamW):
    def __init__(self, params: Any, **kwargs: Any) -> None:
        super().__init__(params, **kwargs)


class Closed(torch.optim.AdamW):
    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        super().__init__(params, lr=lr)


class OwnSteps(torch.optim.Optimizer):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})


@pytest.mark.parametrize(
    ("cls", "kinds"),
    [
        (torch.optim.AdamW, ("for-loop", "foreach", "fused")),
        (torch.optim.Adam, ("for-loop", "foreach", "fused")),
        (torch.optim.SGD, ("for-loop", "foreach", "fused")),
        (torch.optim.Adagrad, ("for-loop", "foreach", "fused")),
        (torch.optim.RMSprop, ("for-loop", "foreach")),
        (torch.optim.NAdam, ("for-loop", "foreach")),
        (torch.optim.LBFGS, ()),
        (torch.optim.SparseAdam, ()),
        (Passing, ("for-loop", "foreach", "fused")),
        (Closed, ()),
        (OwnSteps, ()),
    ],
)
def test_implementations_are_those_that_the_class_takes(
    cls: type[torch.optim.Optimizer], kinds: tuple[str, ...]
) -> None:
    optimizer = cls([nn.Parameter(torch.zeros(2))])  # type: ignore[call-arg]
    assert optimizer_kinds(optimizer, "cpu") == kinds


@pytest.mark.parametrize("cls", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, Passing])
def test_every_implementation_that_is_named_trains_here(cls: Any) -> None:
    for kind in optimizer_kinds(cls([nn.Parameter(torch.zeros(2))]), "cpu"):
        parameter = nn.Parameter(torch.zeros(2))
        optimizer = cls([parameter], lr=0.1, foreach=kind == "foreach", fused=kind == "fused")
        parameter.grad = torch.ones(2)
        optimizer.step()
        assert (parameter < 0).all()


def test_a_device_that_no_fused_kernel_is_built_for_has_none() -> None:
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(2))])
    assert optimizer_kinds(optimizer, "vulkan") == ("for-loop", "foreach")


CPU = Machine(
    device="cpu",
    device_name="any",
    device_uuid="",
    device_index=0,
    capacity_bytes=1 << 34,
    driver_version="",
    torch_version=torch.__version__,
    cuda_version="",
    python_version="3.11",
    platform="any",
)


def _on_path(monkeypatch: pytest.MonkeyPatch, *commands: str) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in commands else None)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


def _cpu_can(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    """As newer versions of PyTorch tell of the CPU."""
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)


def _older(monkeypatch: pytest.MonkeyPatch, machine: str, mkldnn: bool | None = None, **answers: bool) -> None:
    """A PyTorch without a table of capabilities: what it can be asked, and what it answers."""
    monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        monkeypatch.delattr(f"torch.cpu.{name}", raising=False)
    for name, answer in answers.items():
        monkeypatch.setattr(f"torch.cpu._is_{name}_supported", lambda answer=answer: answer, raising=False)
    monkeypatch.setattr("platform.machine", lambda: machine)
    said = SimpleNamespace() if mkldnn is None else SimpleNamespace(_is_mkldnn_bf16_supported=lambda: mkldnn)
    monkeypatch.setattr("torch.ops.mkldnn", said, raising=False)


SLOW = "this CPU calculates bf16 slowly"


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, SLOW),
        ({"avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, ""),
        ({"avx512_bf16": False, "amx_bf16": True}, ""),
        ({"neon": True, "bf16": False}, SLOW),
        ({"neon": True, "bf16": True, "sve_bf16": False}, ""),
        ({"vsx": True}, ""),
    ],
    ids=["no units", "avx512", "amx", "old arm", "arm", "cannot be told"],
)
def test_bf16_is_slow_on_a_cpu_that_is_known_to_have_no_units_for_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], said: str
) -> None:
    _cpu_can(monkeypatch, **capabilities)
    assert with_abilities(Traits(), CPU).slow_bf16 == said


@pytest.mark.parametrize(
    ("machine", "mkldnn", "answers", "said"),
    [
        ("x86_64", True, {"amx_tile": False, "avx512_bf16": False}, SLOW),
        ("AMD64", True, {"amx_tile": False, "avx512_bf16": True}, ""),
        ("x86_64", True, {"amx_tile": True}, ""),
        ("x86_64", True, {"amx_tile": False}, ""),
        ("x86_64", True, {}, ""),
        ("aarch64", False, {"amx_tile": False, "avx512_bf16": False}, SLOW),
        ("aarch64", True, {"amx_tile": False, "avx512_bf16": False}, ""),
        ("arm64", None, {"amx_tile": False, "avx512_bf16": False}, ""),
    ],
    ids=["no units", "avx512", "amx", "half told", "untold", "old arm", "arm", "without oneDNN"],
)
def test_an_older_pytorch_is_asked_of_bf16_in_other_ways(
    monkeypatch: pytest.MonkeyPatch, machine: str, mkldnn: bool | None, answers: dict[str, bool], said: str
) -> None:
    _older(monkeypatch, machine, mkldnn, **answers)
    assert with_abilities(Traits(), CPU).slow_bf16 == said


def test_a_cpu_with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    _on_path(monkeypatch, "g++")
    _cpu_can(monkeypatch, amx_bf16=True)
    before = Traits(attention=True, num_blocks=3)
    assert with_abilities(before, CPU) == replace(
        before,
        tf32_trouble="tf32 is of NVIDIA devices",
        attention_backends=("math", "flash"),
        cpu_cores=cores(),
    )


def test_c31_a_cpu_without_a_compiler_cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    _on_path(monkeypatch, "gcc")
    trouble = with_abilities(Traits(), CPU).compile_trouble
    assert trouble == "torch.compile needs a C++ compiler, and g++ is not on PATH"
    monkeypatch.setenv("CXX", "icpx -O2")
    trouble = with_abilities(Traits(), CPU).compile_trouble
    assert trouble == "torch.compile needs a C++ compiler, and CXX=icpx -O2 is not on PATH"
    _on_path(monkeypatch, "icpx")
    monkeypatch.setenv("CXX", "icpx -O2")
    assert with_abilities(Traits(), CPU).compile_trouble == ""


def _device(
    monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int], *, triton: bool = True
) -> Callable[[], Traits]:
    """The second CUDA device of a machine, as PyTorch would describe it; of the first it would say that it has nothing."""
    _on_path(monkeypatch, "gcc")
    native = capability >= (8, 0)
    current = [0]

    @contextmanager
    def at(index: int) -> Iterator[None]:
        current[0] = index
        yield
        current[0] = 0

    monkeypatch.setattr("torch.cuda.device", at)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda index: capability)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: name)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: current[0] == 1 and native)
    monkeypatch.setattr("torch.cuda.is_tf32_supported", lambda: current[0] == 1 and native, raising=False)
    monkeypatch.setattr("torch.backends.cuda.is_flash_attention_available", lambda: True)
    monkeypatch.setattr("torch.backends.cudnn.is_available", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda package: object() if triton else None)
    return lambda: with_abilities(Traits(), replace(CPU, device="cuda", device_name=name, device_index=1))


def test_a_new_cuda_device_can_do_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    look = _device(monkeypatch, "H200", (9, 0))
    assert look() == Traits(attention_backends=("math", "efficient", "flash", "cudnn"), cpu_cores=cores())


def test_c29_what_an_old_cuda_device_would_only_emulate_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    look = _device(monkeypatch, "T4", (7, 5))
    assert look() == Traits(
        tf32_trouble="T4 has no tf32",
        bf16_trouble="T4 has no bf16 and would emulate it",
        attention_backends=("math", "efficient"),
        cpu_cores=cores(),
    )
    ancient = _device(monkeypatch, "M40", (5, 2))()
    assert ancient.fp16_trouble == "M40 does not calculate in fp16"
    assert ancient.compile_trouble == "torch.compile needs compute capability 7.0, and M40 has 5.2"


def test_c31_compiling_for_a_cuda_device_needs_triton_and_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    look = _device(monkeypatch, "H200", (9, 0), triton=False)
    assert look().compile_trouble == "torch.compile needs Triton, which is not installed"
    look = _device(monkeypatch, "H200", (9, 0))
    _on_path(monkeypatch)
    needs = "torch.compile needs a C compiler, and there is neither gcc nor clang on PATH nor one in CC"
    assert look().compile_trouble == needs
    _on_path(monkeypatch, "tcc")
    monkeypatch.setenv("CC", "tcc")
    assert look().compile_trouble == ""


@pytest.mark.parametrize(
    ("text", "limit"), [("max 100000", None), ("150000 100000", 2), ("50000 100000", 1), ("garbage", None)]
)
def test_a_container_may_use_fewer_cores_than_there_are(
    text: str, limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)), raising=False)
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert cores(quota) == (limit or 8)
    assert cores(tmp_path / "not there") == 8


def test_looking_imports_nothing_of_the_compiler() -> None:
    """Its import takes seconds; every search begins with this."""
    code = (
        "import sys, torch\n"
        "import autotune.probe.describe as describe\n"
        "from autotune.probe.abilities import with_abilities\n"
        "from autotune.probe.devices import look_at_device\n"
        "from autotune.workload.traits import traits_of\n"
        "from tests.unit.test_traits import Direct, _workload\n"
        "describe._leave_out_step_imports()\n"
        "model = torch.nn.Sequential(*[Direct() for _ in range(3)])\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "traits = with_abilities(traits_of(model, optimizer, _workload(), 'cpu'), look_at_device('cpu'))\n"
        "assert traits.attention and traits.num_blocks == 3, traits\n"
        "heavy = ('torch._dynamo', 'torch._inductor', 'triton', 'sympy')\n"
        "print(sorted(name for name in heavy if name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
