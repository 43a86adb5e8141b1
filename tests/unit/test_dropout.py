"""Dropout is off inside, and everything is as it was afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from autotune.probe.dropout import switched_off


@dataclass(frozen=True, slots=True)
class Frozen:
    """A configuration that cannot be changed the usual way."""

    resid_dropout: float = 0.5
    width: int = 4


class Config:
    """As those of transformers: an object with attributes."""

    def __init__(self) -> None:
        self.attention_dropout = 0.5
        self.learning_rate = 0.5


class DropPath(nn.Module):
    """Drops whole samples, as in timm."""

    def __init__(self) -> None:
        super().__init__()
        self.drop_prob = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = 1 - self.drop_prob
        return x * torch.empty(len(x), 1).bernoulli_(kept) / kept


class StochasticDepth(nn.Module):
    """As in torchvision, whose probability is called p."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.empty(len(x), 1).bernoulli_(1 - self.p) / (1 - self.p)


class Reads(nn.Module):
    """Looks its probability up where models do."""

    def __init__(self, config: Any, name: str) -> None:
        super().__init__()
        self.config = config
        self._name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.config[self._name] if isinstance(self.config, dict) else getattr(self.config, self._name)
        return functional.dropout(x, share, training=self.training)


class Calls(nn.Module):
    """Calls one of PyTorch's functions with a number of its own."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._call == "default":
            return functional.dropout(x)
        if self._call == "alpha":
            return functional.alpha_dropout(x, 0.5, True)
        if self._call == "keyword":
            return functional.dropout(x, p=0.5, training=True)
        heads = x.view(1, 1, *x.shape)
        if self._call == "attention":
            return functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.5)[0, 0]
        return functional.scaled_dot_product_attention(heads, heads, heads, None, 0.5)[0, 0]


def recurrent() -> nn.Module:
    """Drops between its two layers."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(4, 4, num_layers=2, dropout=0.5, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.gru(x)[0]
            return result

    return Last()


def attention() -> nn.Module:
    """Drops attention weights."""

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.MultiheadAttention(4, 2, dropout=0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.heads(x, x, x)[0]
            return result

    return Heads()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "module": lambda: nn.Sequential(nn.Dropout(0.5)),
    "alpha": lambda: nn.AlphaDropout(0.5),
    "drop path": DropPath,
    "stochastic depth": StochasticDepth,
    "configuration": lambda: Reads(Config(), "attention_dropout"),
    "dictionary": lambda: Reads({"dropout": 0.5}, "dropout"),
    "frozen data class": lambda: Reads(Frozen(), "resid_dropout"),
    "recurrent": recurrent,
    "attention": attention,
    "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True),
    "default of a function": lambda: Calls("default"),
    "function": lambda: Calls("alpha"),
    "keyword of a function": lambda: Calls("keyword"),
    "attention function": lambda: Calls("attention"),
    "attention function by place": lambda: Calls("by place"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_same_result_twice_inside_and_not_outside(name: str) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().train()
    x = torch.randn(64, 4)

    def differs() -> bool:
        return not torch.equal(model(x), model(x))

    assert differs()
    with switched_off(model):
        assert not differs()
        assert model.training
    assert differs()


def test_what_is_no_probability_of_dropping_is_left_alone() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Config()
            self.drop_last = True
            self.lr_drop_epochs = 200.0
            self.p = 0.5

    other = Other()
    with switched_off(other):
        assert (other.config.learning_rate, other.p, other.lr_drop_epochs, other.drop_last) == (0.5, 0.5, 200.0, True)
        assert other.config.attention_dropout == 0


def test_a_shared_configuration_comes_back_also_after_an_error() -> None:
    config = Config()
    model = nn.Sequential(Reads(config, "attention_dropout"), Reads(config, "attention_dropout"))
    plain = functional.dropout
    with pytest.raises(ValueError, match="of the model"), switched_off(model):
        raise ValueError("of the model")
    assert config.attention_dropout == 0.5
    assert functional.dropout is plain
