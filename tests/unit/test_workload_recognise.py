"""What is found in a model file, why, and what is said when nothing is."""

from pathlib import Path

import pytest
import torch
from torch import nn

from autotune.errors import UsageError, WorkloadError
from autotune.workload.task import Workload
from tests.unit.workload_files import ASSETS, load_file, load_text

BATCH = "def make_batch(batch_size):\n    return torch.zeros(batch_size, 4), torch.zeros(batch_size, 1)\n"
HEAD = "import torch\nfrom torch import nn\n"
NET = "class {name}(nn.Linear):\n    def __init__(self{more}):\n        super().__init__(4, 1)\n"


def net(name: str = "Net", more: str = "") -> str:
    return NET.format(name=name, more=more)


def found(workload: Workload) -> dict[str, tuple[str, str]]:
    return {line.what: (line.found, line.why) for line in workload.recognised}


def shapes(batch: object) -> list[tuple[int, ...]]:
    assert isinstance(batch, tuple)
    return [tuple(part.shape) for part in batch]


def width(workload: Workload) -> int:
    model = workload.make_model()
    assert isinstance(model, nn.Linear)
    return model.in_features


def test_functions_of_the_file_are_taken_one_by_one() -> None:
    workload = load_file(ASSETS / "all_parts.py")
    assert found(workload) == {
        "model": ("make_model()", "all_parts.py has make_model and make_batch"),
        "batch": ("make_batch(batch_size)", "a function of the file"),
        "loss": ("loss(model, batch)", "a function of the file"),
        "optimizer": ("make_optimizer(params)", "a function of the file"),
        "evaluate": ("evaluate(model, batch)", "a function of the file"),
        "data set": ("none", "no make_dataset"),
        "lengths": ("all the same", "no shorten"),
    }
    assert workload.evaluates
    assert not workload.varies
    assert workload.data_set_size is None
    assert isinstance(workload.make_optimizer(workload.make_model().parameters()), torch.optim.SGD)


def test_the_only_module_class_is_the_model() -> None:
    workload = load_file(ASSETS / "only_module.py")
    assert found(workload)["model"] == ("Net()", "the only nn.Module class")
    assert found(workload)["optimizer"] == ("torch.optim.AdamW", "no make_optimizer")
    assert found(workload)["loss"][1] == "no loss"
    assert type(workload.make_model()).__name__ == "Net"
    assert not workload.evaluates


def test_a_data_set_takes_the_place_of_make_batch() -> None:
    workload = load_file(ASSETS / "ragged_data.py")
    assert found(workload)["model"] == ("make_model()", "ragged_data.py has make_model and make_dataset")
    assert found(workload)["batch"] == ("the largest samples of make_dataset()", "no make_batch")
    assert workload.data_set_size == 200
    assert found(workload)["lengths"] == ("those in make_dataset()", "no shorten")
    assert workload.varies


@pytest.mark.parametrize(
    ("name", "model", "features"),
    [("Small", "Small().make_model()", 2), ("Large", "Large().make_model()", 5), ("huge", "huge().make_model()", 9)],
)
def test_a_name_may_be_a_class_or_a_factory(name: str, model: str, features: int) -> None:
    workload = load_file(ASSETS / "tasks.py", name)
    assert found(workload)["model"] == (model, f"tasks.py:{name}")
    assert width(workload) == features


def test_a_name_may_be_an_object() -> None:
    workload = load_file(ASSETS / "tasks.py", "ready")
    assert found(workload)["model"] == ("ready.make_model()", "tasks.py:ready")
    assert width(workload) == 9


def test_make_model_may_be_the_model_itself(tmp_path: Path) -> None:
    workload = load_text(tmp_path, HEAD + BATCH + "make_model = nn.Linear(7, 1)\n")
    assert width(workload) == 7 and workload.make_model() is workload.make_model()


def test_a_keyword_only_batch_size_is_understood() -> None:
    batch = load_file(ASSETS / "tasks.py", "Small").make_batch(6)
    assert isinstance(batch, tuple)
    assert batch[0].shape == (6, 2)


def test_a_dotted_name_reaches_into_an_object(tmp_path: Path) -> None:
    text = HEAD + BATCH + net() + "class box:\n    inner = Net\n"
    assert found(load_text(tmp_path, text, "box.inner"))["model"] == ("box.inner()", "model.py:box.inner")


def test_two_task_classes_are_ambiguous_without_a_name() -> None:
    with pytest.raises(WorkloadError) as raised:
        load_file(ASSETS / "tasks.py")
    assert "several classes with make_model and make_batch: Small, Large" in raised.value.message
    assert "tasks.py:Large" in raised.value.hint


def test_a_single_task_class_is_made_and_used(tmp_path: Path) -> None:
    methods = (
        "    def make_model(self):\n        return Net()\n    def make_batch(self, batch_size):\n        return 1\n"
    )
    workload = load_text(tmp_path, HEAD + net() + "class Task:\n" + methods)
    assert found(workload)["model"] == ("Task.make_model()", "the only class with make_model and make_batch")
    assert width(workload) == 4


def test_autotune_task_goes_before_everything_else(tmp_path: Path) -> None:
    text = HEAD + BATCH + net() + "def make_model():\n    return None\nautotune_task = Net\n"
    workload = load_text(tmp_path, text)
    assert found(workload)["model"] == ("autotune_task()", "model.py has autotune_task")
    assert width(workload) == 4


def test_functions_go_before_classes(tmp_path: Path) -> None:
    text = HEAD + BATCH + net() + "def make_model():\n    return nn.Linear(7, 1)\n"
    assert width(load_text(tmp_path, text)) == 7


def test_a_task_without_loss_uses_that_of_the_file(tmp_path: Path) -> None:
    methods = (
        "    def make_model(self):\n        return Net()\n    def make_batch(self, batch_size):\n        return 1\n"
    )
    loss = "def loss(model, batch):\n    return model.weight.sum()\n"
    workload = load_text(tmp_path, HEAD + net() + loss + "class Task:\n" + methods, "Task")
    assert found(workload)["loss"] == ("loss(model, batch)", "a method of Task(), or of the file")


SHORTEN = "def shorten(batch, share):\n    return batch[0][:, : int(4 * share)], batch[1]\n"


PLAN = 'def make_plan({}):\n    return {{"0": "colwise"}}\n'


def test_a_plan_for_tensor_parallel_may_stand_beside_the_model(tmp_path: Path) -> None:
    workload = load_text(tmp_path, HEAD + BATCH + net() + PLAN.format(""))
    assert found(workload)["plan"] == ("make_plan()", "a function of the file")
    assert workload.has_plan
    assert workload.plan() == {"0": "colwise"}


def test_plans_of_other_things_are_none_of_ours(tmp_path: Path) -> None:
    workload = load_text(tmp_path, HEAD + BATCH + net() + PLAN.format("days"))
    assert "plan" not in found(workload)
    assert workload.plan() is None


def test_shorten_means_that_lengths_vary(tmp_path: Path) -> None:
    workload = load_text(tmp_path, HEAD + BATCH + net() + SHORTEN)
    assert found(workload)["lengths"] == ("shorten(batch, share)", "a function of the file")
    assert workload.varies
    assert shapes(workload.make_shorter_batch(3, 0.5)) == [(3, 2), (3, 1)]
    assert shapes(workload.make_batch(3)) == [(3, 4), (3, 1)]


def test_a_task_without_shorten_uses_that_of_the_file(tmp_path: Path) -> None:
    task = "class Task:\n    def make_model(self):\n        return Net()\n    make_batch = staticmethod(make_batch)\n"
    workload = load_text(tmp_path, HEAD + BATCH + net() + SHORTEN + task, "Task")
    assert found(workload)["lengths"] == ("shorten(batch, share)", "a method of Task(), or of the file")
    assert workload.varies


def test_the_standard_librarys_shorten_is_not_taken_for_one(tmp_path: Path) -> None:
    workload = load_text(tmp_path, "from textwrap import shorten\n" + HEAD + BATCH + net())
    assert found(workload)["lengths"] == ("all the same", "no shorten")
    assert not workload.varies


def test_a_module_object_is_used_as_it_is(tmp_path: Path) -> None:
    workload = load_text(tmp_path, HEAD + BATCH + "model = nn.Linear(4, 1)\n", "model")
    assert found(workload)["model"][0] == "model, a Linear"
    assert workload.make_model() is workload.make_model()


def test_a_model_factory_is_not_called_while_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("autotune.workload.recognise.is_brought", lambda: False)  # whatever other tests have imported
    text = HEAD + BATCH + "def build():\n    print('building')\n    return nn.Linear(4, 1)\n"
    calls = text.replace("print('building')", "import pathlib; pathlib.Path('called').touch()")
    workload = load_text(tmp_path, calls, "build")
    assert not (tmp_path / "called").exists()
    assert found(workload)["model"] == ("build()", "model.py:build")
    assert width(workload) == 4
    assert (tmp_path / "called").exists()


def test_an_annotated_factory_beside_make_batch_still_makes_a_task(tmp_path: Path) -> None:
    task = "class Task:\n    def make_model(self):\n        return nn.Linear(6, 1)\n    make_batch = print\n"
    text = HEAD + BATCH + task + "def small() -> Task:\n    return Task()\n"
    assert width(load_text(tmp_path, text, "small")) == 6


@pytest.mark.parametrize(
    "example",
    [
        "example_inputs = (torch.zeros(1, 4),)",
        "example_inputs = {'input': torch.zeros(2, 4)}",
        "example_input_array = torch.zeros(3, 4)",
        "@property\n    def example_inputs(self):\n        return (torch.zeros(1, 4),)",
        "def example_inputs(self):\n        return (torch.zeros(1, 4),)",
    ],
)
def test_example_inputs_stand_in_for_make_batch(tmp_path: Path, example: str) -> None:
    forward = "    def forward(self, input):\n        return super().forward(input).mean()\n"
    workload = load_text(tmp_path, HEAD + net() + forward + f"    {example}\n")
    assert found(workload)["batch"][1] == "no make_batch in the file"
    for size in (1, 5):
        batch = workload.make_batch(size)
        leaf = batch if isinstance(batch, torch.Tensor) else next(iter(batch.values() if isinstance(batch, dict) else batch))  # type: ignore[call-overload]  # fmt: skip
        assert leaf.shape == (size, 4)
        assert workload.loss(workload.make_model(), batch).requires_grad


def test_example_inputs_set_by_the_constructor_are_found(tmp_path: Path) -> None:
    text = HEAD + net() + "        self.example_inputs = (torch.zeros(1, 4),)\n"
    assert found(load_text(tmp_path, text))["batch"][0] == "example_inputs of the model"


def test_example_inputs_repeat_their_rows(tmp_path: Path) -> None:
    text = HEAD + net() + "    example_inputs = (torch.arange(3), torch.tensor(7))\n"
    batch = load_text(tmp_path, text).make_batch(5)
    assert isinstance(batch, tuple)
    assert batch[0].tolist() == [0, 1, 2, 0, 1]
    assert batch[1].item() == 7


TASK_WITHOUT_ARGUMENTS = "class Task:\n    def __init__(self, lr):\n        pass\n    def make_model(self):\n        pass\n    make_batch = print\n"  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name", "message", "hint"),
    [
        ("x = 1\n", "", "no workload was recognised; the file defines no function and no class", "autotune init"),
        ("x = 1\n", "", "no workload was recognised", "write make_model() and make_batch(batch_size); "),
        ("def main():\n    pass\n", "", "defines main", "autotune search -- python model.py --batch-size {batch}"),
        (
            "def build_model():\n    pass\ndef get_batch(n):\n    pass\n",
            "",
            "the file defines build_model, get_batch",
            "found `build_model`; rename it to make_model or pass model.py:build_model; found `get_batch`",
        ),
        ("def create_net():\n    pass\n", "", "defines create_net", "write make_model() and make_batch(batch_size)"),
        ("def make_model():\n    pass\n", "", "make_model has neither make_batch nor make_dataset", "write make_batch"),
        ("def make_model():\n    pass\nmake_batch = {}\n", "", "neither make_batch nor make_dataset", "autotune init"),
        (BATCH, "", "the file defines make_batch", "autotune init"),
        (net(), "", "Net() has neither make_batch or make_dataset beside it nor example_inputs", "write make_batch"),
        (BATCH + net("A") + net("B"), "", "several nn.Module classes: A, B", "model.py:B"),
        (BATCH + net(more=", size"), "", "Net in model.py cannot be made without arguments: it takes (size)", "make_model()"),
        (BATCH + net(), "Nett", "model.py has no Nett", "did you mean model.py:Net?"),
        (BATCH + net(), "zzz", "model.py has no zzz", "it defines make_batch, Net"),
        ("value = 3\n", "value", "value in model.py is an int, which is no workload", "model.py:NAME"),
        ("def f(x):\n    pass\n", "f", "f in model.py cannot be called without arguments: it takes (x)", "default values"),
        ("def f():\n    return 5\n", "f", "f() in model.py returned an int", "model.py:NAME"),
        (TASK_WITHOUT_ARGUMENTS, "", "Task cannot be made without arguments", "autotune init"),
        (BATCH + net() + "loss = nn.MSELoss()\n", "", "loss in model.py is MSELoss, not a function of", "call the MSELoss"),
        (
            BATCH + net() + "loss = nn.functional.cross_entropy\n",
            "",
            "loss in model.py is cross_entropy, not a function of",
            "call the cross_entropy in it",
        ),
        (BATCH + net() + "evaluate = True\n", "", "evaluate in model.py is a bool, not a function", "def evaluate("),
        (BATCH + net() + "def loss(batch):\n    pass\n", "", "loss in model.py takes (batch)", "def loss(model, batch):"),
        (
            net() + "def make_batch(size, device):\n    pass\n",
            "",
            "make_batch in model.py takes (size, device)",
            "def make_batch(batch_size):",
        ),
        (
            BATCH + net() + "def shorten(batch):\n    pass\n",
            "",
            "shorten in model.py takes (batch)",
            "def shorten(batch, share):",
        ),
        (
            "def make_model(config):\n    pass\n" + BATCH,
            "",
            "make_model in model.py takes (config)",
            "other arguments need default values",
        ),
    ],
)  # fmt: skip
def test_what_is_no_workload_is_explained(tmp_path: Path, text: str, name: str, message: str, hint: str) -> None:
    with pytest.raises((WorkloadError, UsageError)) as raised:
        load_text(tmp_path, HEAD + text, name)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_name_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load_text(tmp_path, "x = 1\n", "y")


def test_a_bad_example_says_what_it_should_be(tmp_path: Path) -> None:
    workload = load_text(tmp_path, HEAD + net() + "    example_inputs = 3\n")
    with pytest.raises(WorkloadError, match="example_inputs is int, without a tensor") as raised:
        workload.make_batch(2)
    assert "first dimension" in raised.value.hint


LOADER = "def make_loader(batch_size):\n    return list(torch.zeros(9, 4).split(batch_size))\n"


def test_make_loader_does_in_place_of_make_batch(tmp_path: Path) -> None:
    workload = load_text(tmp_path, f"{HEAD}{LOADER}def make_model():\n    return nn.Linear(4, 1)\n")
    assert found(workload)["model"] == ("make_model()", "model.py has make_model and make_loader")
    assert found(workload)["batch"] == ("the worst batches of make_loader(batch_size)", "no make_batch")
    assert found(workload)["loader"] == ("make_loader(batch_size)", "a function of the file")
    assert found(workload)["lengths"] == ("those in make_loader(batch_size)", "no shorten")
    assert not workload.sized
    assert tuple(workload.make_batch(4).shape) == (4, 4)  # type: ignore[attr-defined]


def test_a_loader_that_make_batch_keeps_from_being_used_is_said_to_the_user(tmp_path: Path) -> None:
    workload = load_text(tmp_path, f"{HEAD}{BATCH}{LOADER}{net()}")
    assert workload.loader is None
    (note,) = workload.notes
    assert note == "batches come from make_batch; make_loader is not used: leave one out to probe the other"


def test_make_loader_of_other_arguments_is_left_alone_beside_make_batch(tmp_path: Path) -> None:
    other = "def make_loader(split, shuffle):\n    return []\n"
    workload = load_text(tmp_path, f"{HEAD}{BATCH}{other}{net()}")
    assert found(workload)["loader"] == ("make_loader is not used", "batches come from make_batch")
    assert workload.notes == ()
    assert workload.loader is None and not workload.has_data_set
    with pytest.raises(WorkloadError, match=r"make_loader in model.py takes \(split, shuffle\)"):
        load_text(tmp_path, f"{HEAD}{other}{net()}")


def test_the_file_says_which_dimension_counts_samples(tmp_path: Path) -> None:
    batch = "def make_batch(batch_size):\n    return torch.zeros(7, batch_size, 4), torch.zeros(7)\n"
    workload = load_text(tmp_path, f"{HEAD}{batch}{net()}batch_dim = 1\n")
    assert found(workload)["samples"] == ("counted by dimension 1 of each tensor", "batch_dim")
    assert workload.make_counted(5)[1] == 5
    assert load_text(tmp_path, f"{HEAD}{batch}{net()}").make_counted(5)[1] == 7, (
        "labels of time look like those of samples"
    )


@pytest.mark.parametrize("value", ["-1", "True", "'first'", "1.0"])
def test_what_is_no_dimension_is_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(WorkloadError, match=r"batch_dim in model.py is .*, not the number of a dimension") as raised:
        load_text(tmp_path, f"{HEAD}{BATCH}{net()}batch_dim = {value}\n")
    assert "`batch_dim = 1`" in raised.value.hint
