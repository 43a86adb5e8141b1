"""torchbench's model classes and torch.hub's entry points as workloads."""

from pathlib import Path

import pytest
import torch
from torch import nn

from autotune.errors import WorkloadError
from autotune.workload.adapters.kinds import LIGHTNING_MODULE, TRAINER, is_a, is_brought, is_whole
from autotune.workload.task import Workload
from tests.unit.workload_files import load_text

BENCH = """
import torch
from torch import nn

class Model:
    def __init__(self, test, device, batch_size=None, extra_args=[]):
        assert (test, device) == ("train", "cpu")
        self.device, self.batch_size = device, batch_size or 8
        self.model = nn.Linear(4, 2)
        self.example_inputs = (torch.randn(self.batch_size, 4),)
        self.example_target = torch.randint(2, (self.batch_size,))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.25)
        self.loss_fn = nn.CrossEntropyLoss()
    def get_module(self):
        return self.model, self.example_inputs
    def train(self):
        self.optimizer.zero_grad()
        STEP
        self.optimizer.step()
    def eval(self):
        return self.model(*self.example_inputs)
"""
STEP = "self.loss_fn(self.model(*self.example_inputs), self.example_target).backward()"


def found(workload: Workload) -> dict[str, str]:
    return {line.what: line.found for line in workload.recognised}


def test_a_torchbench_class_is_trained_by_its_own_train_up_to_backward(tmp_path: Path) -> None:
    workload = load_text(tmp_path, BENCH.replace("STEP", STEP))
    assert found(workload)["train step"] == "Model.train() up to backward()"
    assert found(workload)["model"] == "Model('train', 'cpu', 1).get_module()"
    model = workload.make_model()
    optimizer = workload.make_optimizer(model.parameters())
    assert optimizer.defaults["lr"] == 0.25
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loss = workload.loss(model, workload.make_batch(5))
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)), "no step was taken"
    plain = torch.Tensor.backward
    torch.autograd.backward(loss)
    assert torch.Tensor.backward is plain
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_its_batches_are_copies_of_the_tensors_it_makes_at_each_size(tmp_path: Path) -> None:
    workload = load_text(tmp_path, BENCH.replace("STEP", STEP))
    first, second = workload.make_batch(5), workload.make_batch(5)
    assert isinstance(first, dict) and isinstance(second, dict)
    assert sorted(first) == ["example_inputs", "example_target"]
    assert [tuple(t.shape) for t in (*first["example_inputs"], first["example_target"])] == [(5, 4), (5,)]
    assert first["example_target"].data_ptr() != second["example_target"].data_ptr()


def test_a_train_that_never_goes_backward_is_refused(tmp_path: Path) -> None:
    workload = load_text(tmp_path, BENCH.replace("STEP", "pass"))
    with pytest.raises(WorkloadError, match=r"Model.train\(\) never calls backward\(\)"):
        workload.loss(workload.make_model(), workload.make_batch(2))


def test_an_error_in_its_train_passes_through(tmp_path: Path) -> None:
    workload = load_text(tmp_path, BENCH.replace("STEP", "raise KeyError('mine')"))
    with pytest.raises(KeyError, match="mine"):
        workload.loss(workload.make_model(), workload.make_batch(2))


HUB = """
import torch
from torch import nn
def net(pretrained=True, width=4):
    assert not pretrained, "would download"
    return nn.Linear(width, 1)
"""
BATCH = "def make_batch(batch_size):\n    return torch.zeros(batch_size, 4), torch.zeros(batch_size, 1)\n"


@pytest.mark.parametrize("name", ["", "net"])
def test_a_hub_entry_point_is_made_without_its_pretrained_weights(tmp_path: Path, name: str) -> None:
    workload = load_text(tmp_path, HUB + BATCH, name)
    assert found(workload)["model"] == "net(pretrained=False)"
    assert isinstance(workload.make_model(), nn.Linear)
    assert found(workload)["batch"] == "make_batch(batch_size)"
    loader = "def make_loader(batch_size):\n    return list(torch.zeros(9, 4).split(batch_size))\n"
    assert found(load_text(tmp_path, HUB + loader, name))["batch"] == "the worst batches of make_loader(batch_size)"


def test_a_hub_entry_point_may_bring_example_inputs(tmp_path: Path) -> None:
    text = HUB.replace(
        "return nn.Linear(width, 1)",
        "net = nn.Linear(width, 1)\n    net.example_inputs = (torch.zeros(2, 4),)\n    return net",
    )
    workload = load_text(tmp_path, text, "net")
    assert found(workload)["batch"] == "example_inputs of the model"
    with pytest.raises(WorkloadError, match="with neither make_batch beside it nor example_inputs"):
        load_text(tmp_path, HUB, "net")


def test_a_helper_with_such_an_option_is_not_taken_for_the_model(tmp_path: Path) -> None:
    text = HUB + BATCH + "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 1)\n"
    assert found(load_text(tmp_path, text))["model"] == "Net()"


def test_kinds_are_told_by_qualified_names_alone() -> None:
    fake = type("LightningModule", (), {"__module__": "lightning.pytorch.core.module"})
    mine = type("Mine", (fake,), {"__module__": "my.code"})
    assert is_a(mine, LIGHTNING_MODULE) and is_a(mine(), LIGHTNING_MODULE) and is_whole(mine())
    assert not is_whole(mine)
    assert not is_a(type("LightningModule", (), {"__module__": "my.code"}), LIGHTNING_MODULE)
    assert not is_a(mine(), TRAINER)
    assert not is_brought(("no.such.module.Thing",))
