"""A checkpointed model trains exactly as the plain one: gradients, dropout, running statistics, names."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.apply import Applied, Unsupported, find_blocks
from autotune.errors import UsageError
from autotune.model import Attention, Checkpointing, Compile, Precision, Settings

CPU = torch.device("cpu")


class Block(nn.Module):
    """With dropout and a keyword; counts how often it runs."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.drop = norm(8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.5)
        self.runs = 0

    def forward(self, x: torch.Tensor, *, debug: float = 1.0) -> tuple[torch.Tensor, float]:
        """Returns a tuple, as those of transformers do; the keyword is named as one of checkpoint's own."""
        self.runs += 1
        return x + self.drop(self.down(self.up(self.norm(x)).relu())) * debug, debug


class Net(nn.Module):
    def __init__(self, blocks: int = 3, norm: Callable[[int], nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(norm) for _ in range(blocks))
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x, _ = block(x, debug=0.5)
        return self.head(x)  # type: ignore[no-any-return]

    @property
    def runs(self) -> list[int]:
        return [block.runs for block in self.blocks]  # type: ignore[misc]


def pair(settings: Settings, **options: Any) -> tuple[Net, Net, Applied]:
    """The same model twice, plain and prepared."""
    torch.manual_seed(0)
    plain = Net(**options)
    applied = Applied(settings, CPU)
    return plain, applied.prepare(copy.deepcopy(plain)), applied


def train(model: nn.Module, applied: Applied) -> torch.Tensor:
    """One pass forward and backward on seeded inputs, dropout seeded as well."""
    torch.manual_seed(1)
    with applied.autocast():
        loss = model(torch.randn(6, 8)).square().mean()
    applied.backward(loss)
    return loss.detach()  # type: ignore[no-any-return]


@pytest.mark.parametrize("checkpointing", [Checkpointing.BLOCKS, Checkpointing.ALTERNATE])
@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.BF16])
def test_gradients_are_those_of_the_plain_model_with_dropout(
    checkpointing: Checkpointing, precision: Precision
) -> None:
    plain, model, applied = pair(Settings(checkpointing=checkpointing, precision=precision))
    assert torch.equal(train(model, applied), train(plain, applied))
    for expected, parameter in zip(plain.parameters(), model.parameters(), strict=True):
        assert expected.grad is not None and parameter.grad is not None
        assert torch.equal(parameter.grad, expected.grad)


@pytest.mark.parametrize(
    ("checkpointing", "runs"), [(Checkpointing.BLOCKS, [2, 2, 2]), (Checkpointing.ALTERNATE, [2, 1, 2])]
)
def test_all_blocks_or_every_second_one_run_again(checkpointing: Checkpointing, runs: list[int]) -> None:
    _, model, applied = pair(Settings(checkpointing=checkpointing))
    train(model, applied)
    assert model.runs == runs


def test_nothing_runs_again_without_training_or_without_gradients() -> None:
    _, model, applied = pair(Settings(checkpointing=Checkpointing.BLOCKS))
    with torch.no_grad():
        model(torch.ones(2, 8))
    train(model.eval(), applied)
    assert model.runs == [2, 2, 2]


def test_the_model_stays_the_same_object_with_the_same_names_and_classes() -> None:
    torch.manual_seed(0)
    plain = Net()
    names, kinds = list(plain.state_dict()), [type(module) for module in plain.modules()]
    parameters = list(plain.parameters())
    model = Applied(Settings(checkpointing=Checkpointing.BLOCKS), CPU).prepare(plain)
    assert model is plain
    assert list(model.state_dict()) == names
    assert [type(module) for module in model.modules()] == kinds
    assert all(now is before for now, before in zip(model.parameters(), parameters, strict=True))
    assert find_blocks(model) == ("blocks.0", "blocks.1", "blocks.2")


def test_hooks_of_a_block_fire_once_in_a_step() -> None:
    _, model, applied = pair(Settings(checkpointing=Checkpointing.BLOCKS))
    fired: list[int] = []
    for block in model.blocks:
        block.register_forward_hook(lambda *_: fired.append(1))
    train(model, applied)
    assert len(fired) == 3


@pytest.mark.parametrize("checkpointing", [Checkpointing.BLOCKS, Checkpointing.ALTERNATE])
def test_running_statistics_move_once_in_a_step(checkpointing: Checkpointing) -> None:
    plain, model, applied = pair(Settings(checkpointing=checkpointing), norm=nn.BatchNorm1d)
    train(plain, applied)
    train(model, applied)
    assert model.runs != plain.runs
    counted = 0
    for (name, expected), buffer in zip(plain.named_buffers(), model.buffers(), strict=True):
        assert torch.equal(buffer, expected), name
        if name.endswith("num_batches_tracked"):
            counted += 1
            assert buffer == 1
    assert counted == 3
    for expected, parameter in zip(plain.parameters(), model.parameters(), strict=True):
        assert parameter.grad is not None and expected.grad is not None
        assert torch.equal(parameter.grad, expected.grad)
    for block in model.blocks:
        assert block.norm.track_running_stats  # type: ignore[union-attr]


def test_c30_a_body_on_raw_inputs_with_frozen_layers_keeps_its_gradients() -> None:
    plain, model, applied = pair(Settings(checkpointing=Checkpointing.BLOCKS))
    for net in (plain, model):
        net.blocks[0].requires_grad_(False)
        train(net, applied)
    with_gradient = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert with_gradient == [name for name, parameter in plain.named_parameters() if parameter.grad is not None]
    assert not any(name.startswith("blocks.0.") for name in with_gradient)
    assert any(name.startswith("blocks.1.") for name in with_gradient)


def test_a_deep_copy_runs_its_own_blocks() -> None:
    _, model, applied = pair(Settings(checkpointing=Checkpointing.BLOCKS))
    twin = copy.deepcopy(model)
    train(twin, applied)
    assert (twin.runs, model.runs) == ([2, 2, 2], [0, 0, 0])


def test_a_pickled_model_comes_back_plain_and_can_be_prepared() -> None:
    _, model, applied = pair(Settings(checkpointing=Checkpointing.BLOCKS))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    back = torch.load(file, weights_only=False)
    train(back, applied)
    assert back.runs == [1, 1, 1]
    train(applied.prepare(back), applied)
    assert back.runs == [3, 3, 3]


def test_preparing_a_model_twice_is_refused() -> None:
    _, model, applied = pair(Settings(checkpointing=Checkpointing.BLOCKS))
    with pytest.raises(UsageError, match="checkpointed already"):
        applied.prepare(model)
    train(model, applied)
    assert model.runs == [2, 2, 2]


class Attending(nn.Module):
    """A block of attention alone."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(x).chunk(3, dim=-1)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v))  # type: ignore[no-any-return]


@pytest.mark.parametrize("attention", [Attention.MATH, Attention.FLASH])
def test_a_block_that_runs_again_attends_as_it_did_at_first(attention: Attention) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(Attending(), Attending())
    applied = Applied(Settings(checkpointing=Checkpointing.BLOCKS, attention=attention), CPU)
    model = applied.prepare(copy.deepcopy(plain))
    x = torch.randn(2, 4, 3, 8)  # the backends keep different numbers of tensors, which checkpoint compares
    for net in (plain, model):
        with applied.autocast():
            loss = net(x).square().mean()
        applied.backward(loss)
    for expected, parameter in zip(plain.parameters(), model.parameters(), strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, expected.grad)  # type: ignore[arg-type]


def test_a_model_without_repeated_blocks_is_unsupported() -> None:
    applied = Applied(Settings(checkpointing=Checkpointing.BLOCKS), CPU)
    with pytest.raises(Unsupported, match="no repeated blocks"):
        applied.prepare(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_batch_norms_in_checkpointed_blocks_that_are_compiled_are_unsupported() -> None:
    settings = Settings(checkpointing=Checkpointing.BLOCKS, compile=Compile.DEFAULT)
    with pytest.raises(Unsupported, match="batch norms"):
        Applied(settings, CPU).prepare(Net(norm=nn.BatchNorm1d))


class Transformers(nn.Module):
    """Has the switch of a transformers model."""

    supports_gradient_checkpointing = True

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.asked: list[object] = []

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: object = None) -> None:
        self.asked.append(gradient_checkpointing_kwargs)


class Refusing(Transformers):
    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: object = None) -> None:
        raise ValueError("Refusing does not support gradient checkpointing.")


class Timm(nn.Module):
    """Has the switch of a timm model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.asked: list[bool] = []

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.asked.append(enable)


OWN = Settings(checkpointing=Checkpointing.OWN)


def test_the_switch_of_transformers_is_set_without_reentrance() -> None:
    model = Applied(OWN, CPU).prepare(Transformers())
    assert model.asked == [{"use_reentrant": False}]


def test_the_switch_of_timm_is_set_on_the_model_that_a_wrapper_holds() -> None:
    timm = Timm()
    Applied(OWN, CPU).prepare(nn.Sequential(timm, nn.Linear(2, 2)))
    assert timm.asked == [True]


def test_a_switch_that_refuses_is_unsupported_in_its_own_words() -> None:
    with pytest.raises(Unsupported, match=r"Refusing refuses its switch for checkpointing: Refusing does not support"):
        Applied(OWN, CPU).prepare(Refusing())


def test_a_model_without_a_switch_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="no switch for activation checkpointing"):
        Applied(OWN, CPU).prepare(Net())
