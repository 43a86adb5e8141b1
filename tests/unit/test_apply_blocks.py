"""Repeated blocks are found in every usual build of a model, and so is its own switch for checkpointing."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autotune.apply import find_blocks, own_switch


class Block(nn.Module):
    """Several layers; nothing is ever run here."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())  # type: ignore[no-any-return]


class Stage(nn.Module):
    """Blocks one after the other, and a layer that changes the width; as in Swin."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
        self.reduction = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.reduction(self.blocks(x))  # type: ignore[no-any-return]


class Heads(nn.Module):
    """A block whose heads repeat inside of it, beside other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.project, self.gate = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.heads = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([head(self.norm(x)) for head in self.heads])


class Matrices(nn.Module):
    """A block without children: its weights are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.up).relu() @ self.down


class Holding(nn.Module):
    """Holds modules under names of its own."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def layers(count: int, make: Callable[[], nn.Module] = Block) -> nn.ModuleList:
    return nn.ModuleList(make() for _ in range(count))


def names(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(count))


FORMS: dict[str, tuple[nn.Module, tuple[str, ...]]] = {
    "a list of blocks": (Holding(layers=layers(3), head=nn.Linear(4, 2)), names("layers.", 3)),
    "a sequence of blocks": (nn.Sequential(Block(), Block(), nn.Linear(4, 2)), names("", 2)),
    "a dictionary of blocks": (
        Holding(steps=nn.ModuleDict({"a": Block(), "b": Block()})),
        ("steps.a", "steps.b"),
    ),
    "attributes": (Holding(down1=Block(), down2=Block(), middle=nn.Linear(4, 4)), ("down1", "down2")),
    "inside of what wraps the model": (
        Holding(model=Holding(backbone=Holding(h=layers(2)))),
        names("model.backbone.h.", 2),
    ),
    "PyTorch's own layers": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2),
        names("layers.", 2),
    ),
    "encoder and decoder": (
        Holding(encoder=layers(2), decoder=layers(2, Heads)),
        (*names("encoder.", 2), *names("decoder.", 2)),
    ),
    "stages as sequences": (
        Holding(layer1=nn.Sequential(Block(), Block()), layer2=nn.Sequential(Block(), Block(), Block())),
        (*names("layer1.", 2), *names("layer2.", 3)),
    ),
    "stages of their own class": (
        Holding(stages=nn.ModuleList([Stage(2), Stage(6)])),
        (*names("stages.0.blocks.", 2), *names("stages.1.blocks.", 6)),
    ),
    "a block alone in its stage": (
        Holding(stages=nn.Sequential(nn.Sequential(Block()), nn.Sequential(Block(), Block(), Block()))),
        ("stages.0.0", *names("stages.1.", 3)),
    ),
    "heads within blocks": (Holding(blocks=layers(4, Heads)), names("blocks.", 4)),
    "blocks without children": (Holding(blocks=layers(2, Matrices)), names("blocks.", 2)),
    "plain sequences side by side": (
        nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(3))),
        names("", 3),
    ),
    "single layers": (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), ()),
    "layers without parameters": (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.ReLU()), ()),
    "one block": (Holding(blocks=layers(1)), ()),
    "a layer alone": (nn.Linear(4, 4), ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_repeated_blocks_are_found(form: str) -> None:
    model, expected = FORMS[form]
    assert find_blocks(model) == expected


@pytest.mark.parametrize("form", FORMS)
def test_no_block_lies_in_another(form: str) -> None:
    found = find_blocks(FORMS[form][0])
    assert not [(inner, outer) for inner in found for outer in found if inner.startswith(f"{outer}.")]


def test_a_model_on_the_meta_device_will_do() -> None:
    with torch.device("meta"):
        model = Holding(layers=layers(3))
    assert find_blocks(model) == names("layers.", 3)


def test_a_block_used_in_two_places_is_found_once() -> None:
    shared = Block()
    assert find_blocks(Holding(first=nn.ModuleList([shared, Block()]), second=nn.ModuleList([shared, Block()]))) == (
        *names("first.", 2),
        "second.1",
    )


class Transformers(Holding):
    supports_gradient_checkpointing = True

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: object = None) -> None:
        raise AssertionError("only looked for")


class Without(Transformers):
    supports_gradient_checkpointing = False


class Timm(Holding):
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        raise AssertionError("only looked for")


SWITCHES: dict[str, tuple[nn.Module, str]] = {
    "transformers": (Transformers(), "transformers"),
    "transformers, not supported": (Without(), ""),
    "timm": (Timm(), "timm"),
    "wrapped": (Holding(head=nn.Linear(4, 2), backbone=Timm()), "timm"),
    "wrapped twice": (Holding(module=Holding(model=Transformers())), "transformers"),
    "neither": (Holding(blocks=layers(2)), ""),
}


@pytest.mark.parametrize("form", SWITCHES)
def test_the_models_own_switch_is_found(form: str) -> None:
    model, expected = SWITCHES[form]
    assert own_switch(model) == expected


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_scripted_model_is_looked_at_as_any_other() -> None:
    script: Callable[[nn.Module], nn.Module] = torch.jit.script
    blocks = nn.Sequential(Block(), Block())
    assert find_blocks(script(blocks)) == find_blocks(blocks) == ("0", "1")
