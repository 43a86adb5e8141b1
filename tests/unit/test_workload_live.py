"""Live functions and modules cross into another process, and the caller's own stay untouched."""

import functools
import json
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autotune.errors import EnvironmentTrouble, UsageError, WorkloadError
from autotune.model import Source
from autotune.workload.live import pack
from autotune.workload.load import load
from autotune.workload.task import Workload
from tests.unit.workload_files import process_restored, run_python

SCRIPT = """
import torch
from torch import nn
from beside import make_optimizer
from autotune.workload.live import pack
from dataclasses import asdict
from pathlib import Path
import json

WIDTH = 4
lock = __import__("threading").Lock()  # cannot be pickled, and is not used

class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = helper(layer(x))
        return x

def helper(x):
    return x.relu()

def make(depth):
    return lambda: Net(depth)

scale = torch.tensor([2.0])

def make_batch(batch_size):
    return torch.ones(batch_size, WIDTH) * scale, torch.zeros(batch_size, WIDTH)

source = pack(make(3), make_batch, make_optimizer=make_optimizer, path=Path("live.pkl"))
print(json.dumps(asdict(source)))
"""

LOADER = """
import json, sys
from autotune.model import Source
from autotune.workload.load import load
fields = json.loads(sys.argv[1])
workload = load(Source(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}))
model = workload.make_model()
optimizer = workload.make_optimizer(model.parameters())
batch = workload.make_batch(5)
loss = workload.loss(model, batch)
loss.backward()
optimizer.step()
import torch
print(len(model.layers), type(optimizer).__name__, batch[0].shape[0], batch[0].max().item(), torch.cuda.is_initialized())
"""


def test_an_unguarded_script_with_closures_runs_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import torch\ndef make_optimizer(params):\n    return torch.optim.RMSprop(params)\n"
    )
    (tmp_path / "train.py").write_text(SCRIPT)
    first = run_python(tmp_path, "train.py", PYTHONHASHSEED="1")
    second = run_python(tmp_path, "train.py", PYTHONHASHSEED="2")
    source, again = json.loads(first), json.loads(second)
    assert source["fingerprint"] == again["fingerprint"]
    assert source["ref"] == "live:make.<locals>.<lambda>"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run_python(elsewhere, "-c", LOADER, first) == "3 RMSprop 5 2.0 False\n"


def packed(folder: Path, make_model: object, **parts: Any) -> Source:
    order = ("make_batch", "loss", "make_optimizer", "evaluate", "make_dataset", "collate", "shorten")
    if "make_loader" not in parts:
        parts.setdefault("make_batch", lambda batch_size: torch.zeros(batch_size, 4))
    named = {name: parts.get(name) for name in ("make_loader", "batch_dim")}
    return pack(make_model, *(parts.get(name) for name in order), **named, path=folder / "live.pkl")


def reloaded(source: Source) -> Workload:
    with process_restored():
        return load(source)


def test_no_tensor_means_no_torch_in_the_file(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from autotune.workload.live import pack\n"
        "pack(lambda: None, lambda n: n, path=Path('live.pkl')); print('torch' in sys.modules)"
    )
    assert run_python(tmp_path, "-c", program) == "False\n"


def test_a_function_that_makes_loaders_goes_along_and_counts_in_the_fingerprint(tmp_path: Path) -> None:
    rows = torch.zeros(9, 4)

    def make_loader(batch_size: int) -> list[torch.Tensor]:
        return list(torch.split(rows, batch_size))

    def other(batch_size: int) -> list[torch.Tensor]:
        return list(torch.split(rows, batch_size + 1))

    source = packed(tmp_path, nn.Linear(4, 2), make_loader=make_loader)
    assert packed(tmp_path, nn.Linear(4, 2), make_loader=other).fingerprint != source.fingerprint
    source = packed(tmp_path, nn.Linear(4, 2), make_loader=make_loader)
    assert tuple(reloaded(source).make_batch(4).shape) == (4, 4)  # type: ignore[attr-defined]


def test_the_dimension_of_the_samples_goes_along_and_counts_in_the_fingerprint(tmp_path: Path) -> None:
    def make_batch(batch_size: int) -> torch.Tensor:
        return torch.zeros(7, batch_size, 4)

    source = packed(tmp_path, nn.Linear(4, 2), make_batch=make_batch, batch_dim=1)
    assert reloaded(source).make_counted(7)[1] == 7
    assert packed(tmp_path, nn.Linear(4, 2), make_batch=make_batch).fingerprint != source.fingerprint
    with pytest.raises(UsageError, match="batch_dim is -1"):
        packed(tmp_path, nn.Linear(4, 2), batch_dim=-1)


def test_a_function_that_shortens_batches_goes_along(tmp_path: Path) -> None:
    cut = 4

    def shorten(batch: torch.Tensor, share: float) -> torch.Tensor:
        return batch[:, : int(cut * share)]

    workload = reloaded(packed(tmp_path, nn.Linear(4, 2), shorten=shorten))
    assert workload.varies
    assert tuple(workload.make_shorter_batch(3, 0.5).shape) == (3, 2)  # type: ignore[attr-defined]
    lengths = next(line for line in workload.recognised if line.what == "lengths")
    assert (lengths.found, lengths.why) == ("shorten(batch, share)", "passed by the caller")
    assert not reloaded(packed(tmp_path, nn.Linear(4, 2))).varies


def test_the_source_says_where_and_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/some/place", "/some/place"])
    source = packed(tmp_path, nn.Linear(4, 2))
    assert source.ref == "live:Linear"
    assert source.pickle_path == str(tmp_path / "live.pkl")
    assert source.directory == str(tmp_path)
    assert source.search_path == (str(tmp_path), "/some/place")
    assert len(source.fingerprint) == 64


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.low = nn.Linear(4, 4).bfloat16()
        self.low.weight.requires_grad_(False)
        self.register_buffer("steps", torch.arange(6))
        self.view = self.get_buffer("steps")[2:4]
        self.norm = nn.BatchNorm1d(4)
        self.low.bias.tag = "no decay"  # type: ignore[attr-defined]


def test_a_live_module_arrives_whole(tmp_path: Path) -> None:
    model = Tied()
    copy = reloaded(packed(tmp_path, model)).make_model()
    assert isinstance(copy, Tied)
    assert copy is not model
    for (name, mine), (other, theirs) in zip(
        model.named_parameters(remove_duplicate=False), copy.named_parameters(remove_duplicate=False), strict=True
    ):
        assert (name, type(theirs), theirs.dtype, theirs.requires_grad) == (
            other,
            nn.Parameter,
            mine.dtype,
            mine.requires_grad,
        )
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() != theirs.data_ptr()
    assert [name for name, _ in copy.named_buffers()] == [name for name, _ in model.named_buffers()]
    assert copy.low.bias.tag == "no decay"  # type: ignore[attr-defined]


def test_tied_weights_stay_tied_and_views_stay_views(tmp_path: Path) -> None:
    copy = reloaded(packed(tmp_path, Tied())).make_model()
    assert isinstance(copy, Tied)
    assert copy.head.weight is copy.embed.weight
    copy.get_buffer("steps")[2] = 99
    assert copy.view[0] == 99


def test_the_callers_module_and_random_state_are_untouched(tmp_path: Path) -> None:
    model = Tied().eval()
    model.embed.weight.grad = torch.ones(10, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    attributes = set(vars(model))
    state = torch.get_rng_state()
    packed(tmp_path, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses
    assert model.embed.weight.grad is not None
    assert set(vars(model)) == attributes
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def test_gradients_and_graphs_stay_behind(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    model.weight.grad = torch.ones(4, 4)
    inner = model(torch.ones(1, 4))
    workload = reloaded(packed(tmp_path, model, evaluate=lambda model, batch: inner))
    copy = workload.make_model()
    assert isinstance(copy, nn.Linear)
    assert copy.weight.grad is None
    carried = workload.evaluate(copy, None)
    assert isinstance(carried, torch.Tensor)
    assert carried.is_leaf
    assert carried.requires_grad


def test_a_function_that_refers_to_the_live_module_gets_the_same_one(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    workload = reloaded(packed(tmp_path, model, make_optimizer=lambda params: torch.optim.SGD(model.parameters())))
    copy = workload.make_model()
    optimizer = workload.make_optimizer(copy.parameters())
    assert optimizer.param_groups[0]["params"][0] is next(iter(copy.parameters()))


def test_meta_parameters_are_carried_and_lazy_ones_told(tmp_path: Path) -> None:
    meta = nn.Linear(4, 4, device="meta")
    assert all(parameter.is_meta for parameter in reloaded(packed(tmp_path, meta)).make_model().parameters())
    with pytest.raises(WorkloadError, match=r"lazy parameters, .*: 1\.weight, 1\.bias$"):
        reloaded(packed(tmp_path, nn.Sequential(meta, nn.LazyLinear(3)))).make_model()


def test_a_module_that_no_path_leads_to_goes_by_value(tmp_path: Path) -> None:
    made = types.ModuleType("made_at_run_time")
    sys.modules["made_at_run_time"] = made
    try:
        exec(  # noqa: S102 - this is how modules are made at run time
            "import torch\nclass Net(torch.nn.Linear):\n    pass\ndef make_model():\n    return Net(4, 2)\n",
            made.__dict__,
        )
        source = packed(tmp_path, made.make_model)
    finally:
        del sys.modules["made_at_run_time"]
    assert type(reloaded(source).make_model()).__name__ == "Net"
    import cloudpickle

    assert "made_at_run_time" not in cloudpickle.list_registry_pickle_by_value()


def test_an_importable_module_goes_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importable_parts.py").write_text("import torch\ndef make_model():\n    return torch.nn.Linear(4, 2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    module = importlib.import_module("importable_parts")
    source = packed(tmp_path, module.make_model)
    assert b"importable_parts" in Path(source.pickle_path).read_bytes()
    (tmp_path / "importable_parts.py").unlink()
    del sys.modules["importable_parts"]
    with pytest.raises(WorkloadError, match="raised ModuleNotFoundError"):
        reloaded(source)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Any]:
    with (tmp_path / "log.txt").open("w+") as file:
        yield file


class Holder:
    def __init__(self, handle: object) -> None:
        self.handle = handle

    def make_batch(self, batch_size: int) -> object:
        return self.handle


def test_an_open_file_is_named_with_the_function_that_holds_it(tmp_path: Path, log: Any) -> None:
    def make_batch(batch_size: int) -> object:
        return log.write(str(batch_size))

    with pytest.raises(UsageError) as raised:
        packed(tmp_path, lambda: nn.Linear(4, 4), make_batch=make_batch)
    assert "make_batch cannot be sent to a probe process: it holds `log`, an open file" in raised.value.message
    assert "create it inside make_batch()" in raised.value.hint
    assert "find_max_batch('model.py')" in raised.value.hint
    assert not (tmp_path / "live.pkl").exists()


def test_a_file_open_for_reading_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("a b c")
    with (tmp_path / "words.txt").open() as words, pytest.raises(UsageError, match="`words`, an open file"):
        packed(tmp_path, lambda: nn.Linear(4, 4), make_batch=lambda n: words.read())


def calling(inner: Callable[[object], object]) -> Callable[[object, object], object]:
    return lambda model, batch: inner(batch)


def made(kind: str) -> object:
    return {"lock": threading.Lock(), "generator": (n for n in range(3))}[kind]


@pytest.mark.parametrize(
    ("hold", "where", "what"),
    [
        (lambda x: lambda model, batch: x, "`x`", "lock"),
        (lambda x: lambda model, batch, y=x: y, "`default 0`", "lock"),
        (lambda x: Holder(x).make_batch, "`self.handle`", "lock"),
        (lambda x: lambda model, batch, box={"a": [1, x]}: box, "`default 0['a'][1]`", "lock"),
        (lambda x: functools.partial(print, x), "`argument 1`", "generator"),
        (lambda x: calling(lambda batch: x), "`x`", "generator"),
    ],
)  # fmt: skip
def test_the_path_to_what_cannot_leave_is_shown(
    tmp_path: Path, hold: Callable[[object], object], where: str, what: str
) -> None:
    with pytest.raises(UsageError) as raised:
        packed(tmp_path, lambda: nn.Linear(4, 4), loss=hold(made(what)))
    assert f"loss cannot be sent to a probe process: it holds {where}, a {what}" in raised.value.message
    assert "create it inside loss()" in raised.value.hint


def test_a_module_with_a_lock_inside_names_the_place(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[1].guard = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(UsageError) as raised:
        packed(tmp_path, model)
    assert "the model cannot be sent to a probe process: it holds `model.1.guard`, a lock" in raised.value.message
    assert "make_model() that builds it" in raised.value.hint


@pytest.mark.parametrize(
    ("make_model", "parts", "message", "hint"),
    [
        (None, {}, "no model was given", "make_model() -> nn.Module"),
        (5, {}, "make_model is an int, which cannot be called", "make_model() -> nn.Module"),
        (nn.ReLU, {"loss": "mse"}, "loss is a str, which cannot be called", "loss(model, batch) -> scalar tensor"),
        (nn.ReLU, {"make_batch": None}, "neither make_batch nor make_dataset was given", "make_dataset() -> data set"),
    ],
)
def test_parts_that_cannot_work_are_refused_at_once(
    tmp_path: Path, make_model: object, parts: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        packed(tmp_path, make_model, **parts)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_place_that_cannot_be_written_is_the_machines_trouble(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentTrouble, match="cannot write") as raised:
        packed(tmp_path / "missing", nn.Linear(4, 4))
    assert "TMPDIR" in raised.value.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("model", [nn.Linear(64, 64), nn.ReLU()])
def test_a_full_disk_is_the_machines_trouble(tmp_path: Path, model: nn.Module) -> None:
    with pytest.raises(EnvironmentTrouble, match="No space left on device"):
        pack(model, lambda n: n, path=Path("/dev/full"))


def test_live_functions_are_checked_like_those_of_a_file(tmp_path: Path) -> None:
    source = packed(tmp_path, lambda: nn.Linear(4, 4), loss=lambda batch: batch)
    with pytest.raises(WorkloadError, match=r"loss in the call takes \(batch\)"):
        reloaded(source)


def test_what_was_recognised_names_the_live_objects(tmp_path: Path) -> None:
    workload = reloaded(packed(tmp_path, nn.Linear(4, 4)))
    assert workload.recognised[0].found == "a live Linear"
    assert workload.recognised[0].why == "passed by the caller"
    assert asdict(workload.recognised[2])["found"].startswith("the loss that the model returns")
