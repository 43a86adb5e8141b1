"""Hugging Face Trainers as workloads: what is called and what it trains with by itself. Without transformers."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.apply import Applied
from autotune.errors import WorkloadError
from autotune.model import Checkpointing, Compile, Plan, Precision, Settings, Source
from autotune.planning import make_plan, with_own_settings
from autotune.probe.answers import describe_result
from autotune.workload.adapters import trainer_evaluation
from autotune.workload.adapters.held_back import MODULE, asked, hold_back_trainers
from autotune.workload.task import Workload
from tests.cli.results import MACHINE, RESULT
from tests.unit.planted_frameworks import trainer
from tests.unit.workload_files import load_text

HEAD = """
import torch
from torch import nn
from transformers.trainer import Trainer
rows = [{"x": torch.full((4,), float(i)), "y": torch.zeros(1)} for i in range(40)]
"""
MADE = "def make_trainer():\n    return Trainer(nn.Linear(4, 1), {args}, rows{more})\n"


@pytest.fixture(autouse=True)
def planted() -> Iterator[None]:
    with trainer():
        yield


MINE = """
class Mine(Trainer):
    def compute_loss(self, *args, **more):
        return 2 * super().compute_loss(*args, **more)
"""


def written(folder: Path, text: str = "", name: str = "", args: str = "{}", more: str = "") -> Workload:
    return load_text(folder, HEAD + (text or MADE.format(args=args, more=more)), name)


def found(workload: Workload) -> dict[str, str]:
    return {line.what: line.found for line in workload.recognised}


def test_a_function_that_returns_a_trainer_is_found_without_a_name(tmp_path: Path) -> None:
    workload = written(tmp_path)
    assert found(workload) == {
        "model": "make_trainer().model, a Linear",
        "batch": "the largest samples of make_trainer().train_dataset",
        "train step": "Trainer.compute_loss",
        "optimizer": "make_trainer().create_optimizer()",
        "evaluate": "none",
        "data set": "make_trainer().train_dataset",
        "lengths": "those in make_dataset()",
    }
    assert workload.data_set_size == 40
    model = workload.make_model()
    optimizer = workload.make_optimizer(model.parameters())
    assert (type(optimizer), optimizer.defaults["lr"]) == (torch.optim.SGD, 0.1)
    batch: Any = workload.make_batch(3)
    loss = workload.loss(model, batch)
    assert sorted(batch) == ["x", "y"], "compute_loss takes labels out of a copy"
    assert float(loss.detach()) == pytest.approx(float((model(batch["x"]).detach() ** 2).mean()))  # by 3 items
    assert workload.make_model() is not model


@pytest.mark.parametrize(
    "text",
    [
        "trainer = Trainer(nn.Linear(4, 1), {}, rows)\n",
        "def fit() -> Trainer:\n    return Trainer(nn.Linear(4, 1), {}, rows)\n",
        f"{MINE}trainer = Mine(nn.Linear(4, 1), {{}}, rows)\n",
    ],
)
def test_an_object_an_annotated_function_and_a_subclass_are_found(tmp_path: Path, text: str) -> None:
    workload = written(tmp_path, text)
    assert found(workload)["train step"] == ("Mine.compute_loss" if "Mine" in text else "Trainer.compute_loss")
    assert workload.loss(workload.make_model(), workload.make_batch(2)).requires_grad


def test_batches_that_the_file_makes_come_first_and_are_counted_as_it_says(tmp_path: Path) -> None:
    batches = "def make_batch(batch_size):\n    return {'x': torch.zeros(4, batch_size)}\nbatch_dim = 1\n"
    workload = written(tmp_path, MADE.format(args="{}", more="") + batches)
    assert found(workload)["batch"] == "make_batch(batch_size)"
    assert workload.make_counted(3)[1] == 3
    assert found(workload)["samples"] == "counted by dimension 1 of each tensor"


def test_a_function_of_any_name_is_taken_by_name(tmp_path: Path) -> None:
    text = "def fit(width=4):\n    return Trainer(nn.Linear(width, 1), {}, rows)\n"
    assert found(written(tmp_path, text, "fit"))["model"] == "fit().model, a Linear"


def test_mixed_precision_is_in_the_models_forward_alone(tmp_path: Path) -> None:
    text = """
class Net(nn.Linear):
    def forward(self, x):
        output = super().forward(x)
        seen.append(output.dtype)
        return output
class Mine(Trainer):
    def compute_loss(self, model, inputs, **more):
        output = model(inputs["x"])
        seen.append((output @ output.T).dtype)
        return output.mean()
seen = []
trainer = Mine(Net(4, 1), {'bf16': True}, rows)
"""
    workload = written(tmp_path, text)
    model, applied = workload.make_model(), Applied(workload.own, torch.device("cpu"))
    with applied.autocast():
        workload.loss(model, workload.make_batch(2))
    workload.loss(model, workload.make_batch(2))
    seen = type(model).forward.__globals__["seen"]
    assert seen == [torch.bfloat16, torch.float32, torch.float32, torch.float32]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "one = Trainer(nn.Linear(4, 1))\ntwo = Trainer(nn.Linear(4, 1))\n",
            "several Trainer objects, or functions that make one",
        ),
        ("one = Trainer(nn.Linear(4, 1))\n", "one in model.py has no train_dataset"),
        ("one = Trainer(nn.Linear(4, 1), {'deepspeed': 'zero3.json'}, rows)\n", "one.args has deepspeed='zero3.json'"),
        ("def make_trainer():\n    pass\n", r"make_trainer\(\) in model.py returned a NoneType, not a Trainer"),
    ],
)
def test_what_cannot_be_probed_is_said(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(WorkloadError, match=told) as raised:
        written(tmp_path, text)
    assert raised.value.hint


def test_the_optimizer_given_to_a_trainer_begins_anew_each_time(tmp_path: Path) -> None:
    text = "net = nn.Linear(4, 1)\ntrainer = Trainer(net, {}, rows, optimizer=torch.optim.AdamW(net.parameters()))\n"
    workload = written(tmp_path, text)
    model = workload.make_model()
    assert workload.make_model() is model, "there is only this one"
    for _ in range(2):
        optimizer = workload.make_optimizer(model.parameters())
        assert (type(optimizer), len(optimizer.state)) == (torch.optim.AdamW, 0)
        workload.loss(model, workload.make_batch(2)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


SAID = {
    "{'bf16': True, 'gradient_accumulation_steps': 4}": Settings(precision=Precision.BF16, accumulate=4),
    "{'fp16': True, 'tf32': True}": Settings(precision=Precision.FP16),
    "{'tf32': False}": Settings(precision=Precision.FP32),
    "{'gradient_checkpointing': True}": Settings(checkpointing=Checkpointing.OWN),
    "{'torch_compile': True}": Settings(compile=Compile.DEFAULT),
    "{'torch_compile': True, 'torch_compile_mode': 'reduce-overhead'}": Settings(compile=Compile.REDUCE_OVERHEAD),
}


@pytest.mark.parametrize("args", SAID)
def test_the_arguments_become_the_users_own_settings(tmp_path: Path, args: str) -> None:
    workload = written(tmp_path, args=args)
    assert workload.own == SAID[args]
    assert "settings" in found(workload)
    assert workload.notes == ()


def test_what_no_probe_does_is_noted(tmp_path: Path) -> None:
    text = "class Mine(Trainer):\n    def training_step(self): ...\n"
    text += "trainer = Mine(nn.Linear(4, 1), {'torch_compile': True, 'torch_compile_backend': 'onnxrt'}, rows)\n"
    notes = written(tmp_path, text).notes
    assert [note.partition(" is ")[0] for note in notes] == ["torch_compile", "Mine.training_step"]


@pytest.mark.parametrize(
    ("args", "more", "kept"),
    [
        ("{}", "", None),
        ("{}", ", compute_metrics=print", 6),
        ("{'eval_accumulation_steps': 2}", ", compute_metrics=print", 2),
        ("{'batch_eval_metrics': True}", ", compute_metrics=print", 1),
        ("{'prediction_loss_only': True}", ", compute_metrics=print", None),
    ],
)
def test_c11_evaluation_keeps_what_the_trainer_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str, more: str, kept: int | None
) -> None:
    grown: list[int] = []
    make = trainer_evaluation._grown

    def seen(part: object, times: int) -> object:
        grown.append(times + 1)
        return make(part, times)

    monkeypatch.setattr(trainer_evaluation, "_grown", seen)
    workload = written(tmp_path, args=args, more=f", eval_dataset=rows[:30]{more}")
    workload.evaluate(workload.make_model(), workload.make_batch(5))  # 30 samples, 5 at a time
    assert found(workload)["evaluate"] == "Trainer.prediction_step"
    assert grown == ([] if kept in (None, 1) else [kept] * 2), "predictions and labels"


def test_each_of_several_evaluation_sets_is_evaluated(tmp_path: Path) -> None:
    text = "class Mine(Trainer):\n    def prediction_step(self, model, inputs, *args, **more):\n"
    text += "        sizes.append(len(inputs['x']))\n        return None, None, None\n"
    text += "sizes = []\ntrainer = Mine(nn.Linear(4, 1), {}, rows, {'a': rows[:3], 'b': rows})\n"
    workload = written(tmp_path, text)
    model = workload.make_model()
    workload.evaluate(model, workload.make_batch(5))
    assert workload._parts.evaluate.__self__._training.trainer.prediction_step.__globals__["sizes"] == [3, 5]  # type: ignore[union-attr]


ARGUMENTS = """
import os

class TrainingArguments:
    def __init__(self, output_dir, **more):
        self.output_dir, self.tf32, self.torch_compile, self.torch_compile_mode = output_dir, None, False, None
        self.use_cpu, self.report_to, self.push_to_hub = False, "all", True
        self.__dict__.update(more)
        self.__post_init__()
    def __post_init__(self):
        if not self.use_cpu or self.tf32 is not None or self.torch_compile or self.report_to != "none" or self.push_to_hub:
            raise RuntimeError("looked at the device, or reports")
        if self.should_save:
            os.makedirs(self.output_dir)
    @property
    def should_save(self): return True
"""


@pytest.mark.parametrize("first", [True, False], ids=["imported before", "imported after"])
def test_training_arguments_are_held_back_and_remember_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("")
    (tmp_path / "transformers" / "training_args.py").write_text(ARGUMENTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in [name for name in sys.modules if name.startswith("transformers")]:
        del sys.modules[name]  # the planted one; its fixture takes this one away again
    if first:
        importlib.import_module(MODULE)
        hold_back_trainers()
    else:
        hold_back_trainers()
        assert MODULE not in sys.modules
    made = importlib.import_module(MODULE).TrainingArguments(
        str(tmp_path / "out"), tf32=True, torch_compile=True, torch_compile_mode="max-autotune"
    )
    assert not (tmp_path / "out").exists()
    assert [asked(made, name) for name in ("tf32", "torch_compile", "torch_compile_mode")] == [
        True,
        True,
        "max-autotune",
    ]
    assert asked(made, "use_cpu") is True


def plan(**options: Any) -> Plan:
    return make_plan(Source(ref="model.py"), **options)


OWN = Settings(precision=Precision.BF16, accumulate=4)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, OWN),
        ({"precision": "fp16"}, replace(OWN, precision=Precision.FP16)),
        ({"accumulate": 2}, replace(OWN, accumulate=2)),
        ({"effective_batch": 64}, replace(OWN, accumulate=1)),
    ],
)
def test_own_settings_hold_where_nothing_else_was_asked_for(options: dict[str, Any], settings: Settings) -> None:
    assert with_own_settings(plan(**options), replace(RESULT.workload, own=OWN)).settings == settings


def test_own_settings_come_out_of_a_probe_process_as_they_went_in() -> None:
    workload = replace(RESULT.workload, own=OWN)
    assert describe_result({"workload": asdict(workload), "machine": asdict(MACHINE)})[0].own == OWN
