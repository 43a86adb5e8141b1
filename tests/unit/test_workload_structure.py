"""The structural hash changes with what matters, and with nothing else."""

import enum
import functools
import importlib
import logging
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.workload.structure import structural_hash
from tests.unit.workload_files import run_python

BASE = """
import functools, enum, torch
from dataclasses import dataclass, field
from torch import nn

SIZE = 4
TABLE = {"a": [1, 2], "b": {3.5, "x"}}

class Color(enum.Enum):
    RED = 1

def inner(x):
    return x + SIZE

class Base:
    def go(self):
        return 1

class Thing(Base):
    kind = "thing"

    @property
    def size(self):
        return inner(2)

    @staticmethod
    def make():
        return Thing()

@dataclass
class Config:
    depth: int = 2
    names: list = field(default_factory=list)

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 2)
        self.rate = 0.5

    def forward(self, x):
        return self.first(x)

def closing(value):
    def use(x, y=7, *, z="z"):
        return Thing().size + value + x in {"p", "q", "r"} or TABLE or Config() or Color.RED
    return use

part = functools.partial(closing(3), 1)
module = Net(3)

def top(batch_size):
    def nested():
        return module(torch.ones(batch_size)), part
    return nested
"""

CHANGES = {
    "code": ("return x + SIZE", "return x - SIZE"),
    "constant in code": ("return inner(2)", "return inner(3)"),
    "global constant": ("SIZE = 4", "SIZE = 5"),
    "global container": ("[1, 2]", "[1, 3]"),
    "element of a set": ('{3.5, "x"}', '{3.5, "y"}'),
    "closure": ("closing(3)", "closing(4)"),
    "default": ("y=7", "y=8"),
    "keyword default": ('z="z"', 'z="q"'),
    "set in code": ('"p", "q"', '"p", "s"'),
    "argument of a partial": ("closing(3), 1", "closing(3), 2"),
    "class attribute": ('kind = "thing"', 'kind = "other"'),
    "base class": ("return 1", "return 2"),
    "static method": ("return Thing()", "return Thing"),
    "field default": ("depth: int = 2", "depth: int = 3"),
    "field factory": ("default_factory=list", "default_factory=dict"),
    "enum value": ("RED = 1", "RED = 2"),
    "parameter shape": ("nn.Linear(width, 2)", "nn.Linear(width, 3)"),
    "parameter dtype": ("nn.Linear(width, 2)", "nn.Linear(width, 2, dtype=torch.float16)"),
    "parameter name": ("self.first", "self.second"),
    "module attribute": ("self.rate = 0.5", "self.rate = 0.6"),
    "forward": ("return self.first(x)", "return self.first(x) * 2"),
    "library function": ("torch.ones", "torch.zeros"),
}


def run(text: str, name: str = "ground") -> dict[str, Any]:
    """Execute a module text under a name of its own, as a notebook would."""
    module = ModuleType(name)
    sys.modules[name] = module
    try:
        exec(text, module.__dict__)  # noqa: S102 - the texts above
    finally:
        del sys.modules[name]
    return module.__dict__


def hashed(text: str) -> str:
    return structural_hash({"make_batch": run(text)["top"]})


def test_the_same_text_hashes_alike() -> None:
    assert hashed(BASE) == hashed(BASE)


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_changes_the_hash(what: str) -> None:
    before, after = CHANGES[what]
    assert before in BASE
    assert hashed(BASE.replace(before, after)) != hashed(BASE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SIZE = 4", "\n\n# a comment\nSIZE = 4"),
        ("module = Net(3)", "torch.manual_seed(9); module = Net(3)"),
        ("module = Net(3)", "module = Net(3).eval()"),
        ('{"a": [1, 2], "b": {3.5, "x"}}', '{"b": {"x", 3.5}, "a": [1, 2]}'),
        ("def top(", "unused = 3\ndef top("),
    ],
    ids=["line numbers", "values of weights", "training mode", "order of dicts and sets", "unused names"],
)
def test_what_does_not_matter_does_not_change_it(before: str, after: str) -> None:
    assert hashed(BASE.replace(before, after)) == hashed(BASE)


def test_other_processes_and_hash_seeds_agree(tmp_path: Path) -> None:
    (tmp_path / "ground.py").write_text(BASE)
    program = (
        "from autotune.workload.structure import structural_hash as h; import ground;"
        "print(h({'make_batch': ground.top, 'set': {ground.Thing, ground.Net, ground.inner, 1, 'a'}}))"
    )
    seen = {run_python(tmp_path, "-c", program, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(seen) == 1


def use(value: object) -> str:
    """Hash of a function that refers to the value."""
    return structural_hash({"f": lambda: value})


def with_hook(module: nn.Module, result: object = None) -> nn.Module:
    module.register_forward_hook(lambda *_: result)
    return module


class Plain:
    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)

    def method(self) -> object:
        return self


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int


DIFFERENT: list[tuple[object, object]] = [
    (1, 2),
    (1, 1.0),
    (True, 1),
    ("1", 1),
    (0.0, -0.0),
    (b"a", "a"),
    ([1, 2], (1, 2)),
    ([1, 2], [2, 1]),
    ([[1], 2], [[1, 2]]),
    ({1, 2}, {1, 3}),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"b": 1}),
    (Plain(x=1), Plain(x=2)),
    (Plain(x=Plain(y=1)), Plain(x=Plain(y=2))),
    (Plain(x=1).method, Plain(x=2).method),
    (Slotted(1), Slotted(2)),
    (Point(1), Point(2)),
    (SimpleNamespace(lr=1), SimpleNamespace(lr=2)),
    (Level.LOW, Level.HIGH),
    (functools.partial(print, 1), functools.partial(print, 2)),
    (functools.partial(print, end=""), functools.partial(print, end="-")),
    (range(3), range(4)),
    (Path("a"), Path("b")),
    (re.compile("a"), re.compile("b")),
    (logging.getLogger("a"), logging.getLogger("b")),
    (torch.float16, torch.float32),
    (torch.device("cpu"), torch.device("meta")),
    (torch.zeros(2), torch.zeros(3)),
    (torch.zeros(2), torch.zeros(2).half()),
    (torch.zeros(2), torch.zeros(2, requires_grad=True)),
    (nn.ReLU, nn.GELU),
    (nn.Dropout(0.1), nn.Dropout(0.2)),
    (nn.Linear(2, 2), nn.Linear(2, 2, bias=False)),
    (torch.relu, torch.sigmoid),
    (len, max),
    (str.upper, str.lower),
    (torch.nn.functional.relu, torch.nn.functional.gelu),
    (slice(1, 2), slice(1, 3)),
    (with_hook(nn.Linear(2, 2)), nn.Linear(2, 2)),
    (with_hook(nn.Linear(2, 2), 1), with_hook(nn.Linear(2, 2), 2)),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=[f"{a!r:.20} {b!r:.20}" for a, b in DIFFERENT])
def test_different_values_hash_differently(one: object, other: object) -> None:
    assert use(one) != use(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3),
        lambda: threading.Lock(),
        lambda: Plain(x=[1, {"a": Plain()}]),
        lambda: nn.TransformerEncoderLayer(8, 2),
        lambda: functools.lru_cache(len),
        lambda: nn.LazyLinear(3),
        lambda: with_hook(nn.Linear(2, 2)),
        lambda: list[int],
        lambda: iter([1]),
        lambda: object(),
    ],
)
def test_equal_values_made_twice_hash_alike(make: Callable[[], object]) -> None:
    assert use(make()) == use(make())


def test_tied_weights_are_not_equal_weights() -> None:
    tied, loose = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert use(tied) != use(loose)


def test_cycles_end() -> None:
    ring: list[object] = [1]
    ring.append({"ring": ring, "self": Plain(ring=ring)})
    assert use(ring) == use(ring)

    def calls_itself(depth: int) -> int:
        return calls_itself(depth - 1) if depth else 0

    assert len(use(calls_itself)) == 64


def test_long_chains_of_functions_end() -> None:
    lines = [f"def f{number}():\n    return f{number + 1}()" for number in range(2000)]
    text = "\n".join([*lines, "def f2000():\n    return {last}"])
    first, second = run(text.replace("{last}", "1")), run(text.replace("{last}", "2"))
    assert structural_hash({"f": first["f0"]}) != structural_hash({"f": second["f0"]})


def test_an_object_without_end_is_cut_off() -> None:
    item = Plain()
    for _ in range(5000):
        item = Plain(inner=item)
    assert len(use(item)) == 64


def test_decorated_functions_count_with_what_they_wrap() -> None:
    one = run("import torch\n@torch.no_grad()\ndef f():\n    return 1\n")["f"]
    other = run("import torch\n@torch.no_grad()\ndef f():\n    return 2\n")["f"]
    assert structural_hash({"f": one}) != structural_hash({"f": other})


def test_a_variable_that_has_no_value_yet_does_not_matter() -> None:
    def early() -> str:
        result = use(lambda: later)
        later: int = 1
        return result if later else ""

    assert len(early()) == 64


@pytest.fixture
def local_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def loaded(folder: Path, name: str, text: str) -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_a_local_module_counts_with_its_source_and_what_it_imports(local_module: Path) -> None:
    def hash_now() -> str:
        loaded(local_module, "local_far", far)
        near = loaded(local_module, "local_near", "from local_far import rate\ndef f():\n    return rate()\n" + more)
        try:
            return use(near)
        finally:
            del sys.modules["local_near"], sys.modules["local_far"]

    far, more = "def rate():\n    return 1\n", ""
    before = hash_now()
    assert hash_now() == before
    more = "x = 1\n"
    assert hash_now() != before
    far, more = "def rate():\n    return 2\n", ""
    assert hash_now() != before


def test_an_import_within_a_function_counts_with_its_source(local_module: Path) -> None:
    def late() -> object:
        import local_late  # type: ignore[import-not-found]

        return local_late

    file = local_module / "local_late.py"
    seen = []
    for text in ("x = 1\n", "x = 2\n"):
        file.write_text(text)
        importlib.invalidate_caches()
        seen.append(structural_hash({"f": late}))
    assert seen[0] != seen[1]
    assert "local_late" not in sys.modules
