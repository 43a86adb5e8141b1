"""The lines that people are told to write, run."""

import ast
import inspect
import re

import pytest
import torch

from autotune.export.by_hand import by_hand
from autotune.model import Attention, Checkpointing, Compile, OptimizerKind, Precision, Settings
from tests.unit.export_samples import CHANGES, named, recommend


@pytest.mark.parametrize("settings", CHANGES, ids=named)
def test_every_change_has_advice(settings: Settings) -> None:
    for name in settings.changes(Settings()):
        advice = by_hand(name, recommend(settings))
        assert advice
        assert "no counterpart" not in advice


@pytest.mark.parametrize("attention", [kind for kind in Attention if kind is not Attention.DEFAULT])
def test_attention_backends_are_named_as_pytorch_names_them(attention: Attention) -> None:
    advice = by_hand("attention", recommend(Settings(attention=attention)))
    name = re.search(r"SDPBackend\.(\w+)", advice)
    assert name is not None
    assert hasattr(torch.nn.attention.SDPBackend, name[1])


@pytest.mark.parametrize("kind", [kind for kind in OptimizerKind if kind is not OptimizerKind.DEFAULT])
def test_optimizers_take_the_arguments(kind: OptimizerKind) -> None:
    advice = by_hand("optimizer", recommend(Settings(optimizer=kind)))
    arguments = eval(f"dict({advice.removeprefix('give the optimizer ')})")
    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], **arguments)
    assert {name: optimizer.defaults[name] for name in arguments} == arguments


def test_the_scaler_begins_where_it_is_told_to() -> None:
    settings = Settings(precision=Precision.FP16, init_scale=1024.0)
    scaler = eval(by_hand("init_scale", recommend(settings, device="cpu")))
    assert scaler.get_scale() == 1024.0


@pytest.mark.parametrize("mode", [mode for mode in Compile if mode is not Compile.OFF])
def test_compiling_is_one_statement(mode: Compile) -> None:
    advice = by_hand("compile", recommend(Settings(compile=mode)))
    statement = ast.parse(advice.partition(", after")[0]).body[0]
    assert isinstance(statement, ast.Assign)
    assert ast.unparse(statement.targets[0]) == "model.forward"
    call = statement.value
    assert isinstance(call, ast.Call)
    assert ast.unparse(call.func) == "torch.compile"
    options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert options == {"mode": mode.value, "dynamic": False}
    inspect.signature(torch.compile).bind(torch.nn.Linear(1, 1).forward, **options)


def test_pytorch_has_an_activation_budget_under_that_name() -> None:
    import torch._functorch.config

    advice = by_hand("activation_budget", recommend(Settings(compile=Compile.DEFAULT, activation_budget=0.5)))
    assert advice.startswith("torch._functorch.config.activation_memory_budget = 0.5")
    assert hasattr(torch._functorch.config, "activation_memory_budget")


@pytest.mark.parametrize(
    ("settings", "name"),
    [(Settings(init_scale=4.0), "init_scale"), (Settings(activation_budget=0.5), "activation_budget")],
)
def test_settings_that_do_nothing_are_called_so(settings: Settings, name: str) -> None:
    assert by_hand(name, recommend(settings)).startswith("without effect")


def test_blocks_and_every_second_block_are_told_apart() -> None:
    every, second = (
        by_hand("checkpointing", recommend(Settings(checkpointing=kind)))
        for kind in (Checkpointing.BLOCKS, Checkpointing.ALTERNATE)
    )
    assert "each repeated block" in every
    assert "every second repeated block" in second
