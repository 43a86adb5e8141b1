"""What is compiled is the forward pass of the whole model: hooks stay outside, copies stay plain, graphs are counted.

With the compiler's first half alone (tracing), which needs no C++ compiler and no half minute.
"""

import copy
import functools
import inspect
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._functorch.config
from torch import nn

from autotune.apply import Applied, Unsupported, compiling
from autotune.errors import UsageError
from autotune.model import Checkpointing, Compile, Settings

CPU = torch.device("cpu")
COMPILED = Settings(compile=Compile.DEFAULT)


@pytest.fixture(autouse=True)
def tracing_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``torch.compile`` with another second half."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    budget = torch._functorch.config.activation_memory_budget
    yield
    torch._functorch.config.activation_memory_budget = budget
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)
        self.breaks = False

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        x = self.first(x) * scale
        if self.breaks:
            torch._dynamo.graph_break()
        return self.second(x)  # type: ignore[no-any-return]


def prepared(settings: Settings = COMPILED, **attributes: Any) -> tuple[Net, Applied]:
    torch.manual_seed(0)
    model = Net()
    for name, value in attributes.items():
        setattr(model, name, value)
    applied = Applied(settings, CPU)
    return applied.prepare(model), applied


def test_graphs_are_counted_and_made_once_for_a_shape() -> None:
    model, applied = prepared()
    assert applied.compile_counts() == (0, 0)
    for _ in range(3):
        model(torch.ones(2, 4))
    assert applied.compile_counts() == (1, 0)


def test_c31_every_new_shape_is_compiled_anew() -> None:
    model, applied = prepared()
    for length in (2, 3, 4, 3, 2):
        model(torch.ones(length, 4))
    assert applied.compile_counts() == (3, 0)


@pytest.mark.filterwarnings("default")  # PyTorch's own, while it traces what comes after the break
def test_graph_breaks_are_counted() -> None:
    model, applied = prepared(breaks=True)
    model(torch.ones(2, 4))
    assert applied.compile_counts() == (2, 1)


def test_counts_begin_with_the_model() -> None:
    model, _ = prepared()
    model(torch.ones(2, 4))
    other, applied = prepared()
    assert applied.compile_counts() == (0, 0)
    del other


def test_a_pytorch_that_does_not_count_has_no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, applied = prepared()
    monkeypatch.setattr(compiling, "counts", lambda: None)
    assert applied.compile_counts() is None


def test_hooks_of_the_model_that_count_do_not_make_it_compile_again() -> None:
    model, applied = prepared()
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(len(calls)))
    for _ in range(4):
        model(torch.ones(2, 4))
    assert calls == [0, 1, 2, 3]
    assert applied.compile_counts() == (1, 0)


def test_the_model_stays_the_same_object_with_the_same_names_and_arguments() -> None:
    plain = Net()
    names, signature = list(plain.state_dict()), inspect.signature(plain.forward)
    model = Applied(COMPILED, CPU).prepare(plain)
    assert model is plain
    assert list(model.state_dict()) == names
    assert inspect.signature(model.forward) == signature
    expected = copy.deepcopy(model)(torch.ones(2, 4), scale=2.0)
    torch.testing.assert_close(model(torch.ones(2, 4), scale=2.0), expected)


def test_a_deep_copy_computes_with_its_own_weights() -> None:
    model, applied = prepared()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(torch.ones(2, 4)).any()
    assert model(torch.ones(2, 4)).any()
    assert applied.compile_counts() == (1, 0)


def test_a_pickled_model_comes_back_plain() -> None:
    model, _ = prepared()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    back = torch.load(file, weights_only=False)
    assert back.forward.__func__ is Net.forward
    torch.testing.assert_close(back(torch.ones(2, 4)), model(torch.ones(2, 4)))


def test_preparing_a_model_twice_is_refused() -> None:
    model, applied = prepared()
    with pytest.raises(UsageError, match="compiled already"):
        applied.prepare(model)


def test_the_loss_is_copied_since_a_cuda_graph_would_overwrite_it() -> None:
    loss = torch.ones(1, requires_grad=True).sum()
    kept = Applied(COMPILED, CPU).keep(loss)
    assert not kept.requires_grad
    assert kept.data_ptr() != loss.data_ptr()
    assert Applied(Settings(), CPU).keep(loss).data_ptr() == loss.data_ptr()


def test_the_activation_budget_is_handed_to_the_compiler() -> None:
    prepared(Settings(compile=Compile.DEFAULT, activation_budget=0.5))
    assert torch._functorch.config.activation_memory_budget == 0.5
    prepared()
    assert torch._functorch.config.activation_memory_budget == 0.5  # nobody asked for another


def test_an_activation_budget_without_a_compiler_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="compile is off"):
        prepared(Settings(activation_budget=0.5))


def test_an_activation_budget_in_a_pytorch_without_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_functorch_config", object)
    with pytest.raises(Unsupported, match=r"PyTorch \d.* has no activation budget"):
        prepared(Settings(compile=Compile.DEFAULT, activation_budget=0.5))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, debug: float) -> tuple[torch.Tensor, float]:
        return x + self.down(self.up(x).relu()) * debug, debug


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x, _ = block(x, debug=0.5)
        return x


def test_checkpointed_blocks_are_compiled_without_a_break_and_train_as_the_plain_ones() -> None:
    torch.manual_seed(0)
    plain = Stack()
    applied = Applied(Settings(compile=Compile.DEFAULT, checkpointing=Checkpointing.BLOCKS), CPU)
    model = applied.prepare(copy.deepcopy(plain))
    x = torch.randn(3, 4)
    for net in (plain, model):
        net(x).square().mean().backward()
    assert applied.compile_counts() == (1, 0)
    for expected, parameter in zip(plain.parameters(), model.parameters(), strict=True):
        assert parameter.grad is not None and expected.grad is not None
        torch.testing.assert_close(parameter.grad, expected.grad)
