"""Batches of every kind: moved, counted, described, and how many samples they are seen to hold."""

import gc
import weakref
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import pytest
import torch

from autotune.workload.batch import batch_bytes, describe, is_moved, observed_batch, tensors, to_device


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True, slots=True)
class Sample:
    x: torch.Tensor
    names: list[str]
    mask: torch.Tensor | None = None
    total: int = field(init=False, default=3)


class Encoding(UserDict[str, Any]):
    """A mapping that moves itself, as tokenizers return."""

    def to(self, device: object) -> Self:
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Graph:
    """An object that is no container and moves itself."""

    def __init__(self, nodes: torch.Tensor, edges: torch.Tensor) -> None:
        self.nodes = nodes
        self.edges = edges

    def to(self, device: object) -> "Graph":
        return Graph(self.nodes.to(device), self.edges.to(device))  # type: ignore[call-overload]


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


BATCHES: list[tuple[object, int, str]] = [
    (ones(8, 3), 1, "float32[8, 3]"),
    (torch.tensor(1.5), 1, "float32[]"),
    ((ones(8, 3), ones(8).long()), 2, "tuple(float32[8, 3], int64[8])"),
    ([ones(8, 3), ones(8).bool()], 2, "list(float32[8, 3], bool[8])"),
    (
        {"ids": ones(8, 16).long(), "labels": ones(8, 16).long()},
        2,
        "dict(ids: int64[8, 16], labels: int64[8, 16])",
    ),
    ({"text": ["a", "b"], "x": ones(2, 3), 7: None}, 1, "dict(text: list(2 x str), x: float32[2, 3], 7: None)"),
    (OrderedDict(x=ones(2)), 1, "OrderedDict(x: float32[2])"),
    (MappingProxyType({"x": ones(2)}), 1, "mappingproxy(x: float32[2])"),
    (Pair(ones(4, 2), ones(4)), 2, "Pair(x: float32[4, 2], y: float32[4])"),
    (Sample(ones(4, 2), ["a"]), 1, "Sample(x: float32[4, 2], names: list(str), mask: None, total: int)"),
    (Encoding(ids=ones(4, 5)), 1, "Encoding(ids: float32[4, 5])"),
    (Graph(ones(10, 3), ones(2, 20)), 2, "Graph(nodes: float32[10, 3], edges: float32[2, 20])"),
    ({"in": (ones(2), [ones(3).half(), {"deep": ones(4)}])}, 3, "dict(in: tuple(float32[2], list(float16[3], dict(deep: float32[4]))))"),
    ([ones(length) for length in range(1, 12)], 11, "list(" + ", ".join(f"float32[{n}]" for n in range(1, 9)) + ", 3 more)"),
    ("only text", 0, "str"),
    (None, 0, "None"),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "count", "text"), BATCHES, ids=[text[:30] for _, _, text in BATCHES])
def test_every_kind_is_counted_and_described(batch: object, count: int, text: str) -> None:
    assert len(tensors(batch)) == count
    assert describe(batch) == text


@pytest.mark.parametrize(("batch", "count", "text"), BATCHES, ids=[text[:30] for _, _, text in BATCHES])
def test_every_kind_moves_and_keeps_its_form(batch: object, count: int, text: str) -> None:
    moved = to_device(batch, "meta")
    assert all(tensor.is_meta for tensor in tensors(moved))
    assert describe(moved) == text.replace("mappingproxy", "dict")
    assert type(moved) is type(batch) or isinstance(batch, MappingProxyType)


def test_moving_leaves_the_original_containers_alone() -> None:
    inner = {"x": ones(2)}
    sample = Sample(ones(2), ["a"], mask=ones(1))
    to_device([inner, sample], torch.device("meta"))
    assert not inner["x"].is_meta
    assert not sample.x.is_meta


class Output(OrderedDict[str, Any]):
    """Refuses what ``ModelOutput`` of transformers refuses."""

    def update(self, *_: object, **__: object) -> None:
        raise AssertionError("You cannot use ``update`` on an Output instance.")


class Named(list[torch.Tensor]):
    """A list that is not made of its entries."""

    def __init__(self, name: str, *entries: torch.Tensor) -> None:
        super().__init__(entries)
        self.name = name


def test_containers_of_the_users_own_are_copied_not_made_anew() -> None:
    output, named = Output(x=ones(2)), Named("boxes", ones(3))
    moved, listed = to_device(output, "meta"), to_device(named, "meta")
    assert isinstance(moved, Output) and moved["x"].is_meta and not output["x"].is_meta
    assert isinstance(listed, Named) and listed.name == "boxes" and listed[0].is_meta and not named[0].is_meta


def ragged(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([ones(3, 4), ones(5, 4)], layout=layout)


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta", "ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize(
    ("make", "size", "text", "bytes_"),
    [
        (lambda: ones(4, 4).tril(-2).to_sparse(), 4, "float32[4, 4]", 3 * (2 * 8 + 4)),
        (lambda: ones(4, 4).tril(-2).to_sparse_csr(), 4, "float32[4, 4]", (5 + 3) * 8 + 3 * 4),
        (lambda: ones(4, 4).tril(-2).to_sparse_csc(), 4, "float32[4, 4]", (5 + 3) * 8 + 3 * 4),
        (lambda: ragged(torch.jagged), 2, "float32[2, …]", 3 * 8 + 8 * 4 * 4),
        (lambda: ragged(torch.strided), 2, "float32[2, …]", 8 * 4 * 4),
    ],
    ids=["coo", "csr", "csc", "jagged", "nested"],
)
def test_sparse_and_nested_tensors_are_measured_by_what_they_hold(
    make: Callable[[], torch.Tensor], size: int, text: str, bytes_: int
) -> None:
    batch = make()
    assert (observed_batch({"x": batch}, size), observed_batch(batch, 9, dim=0)) == (size, size)
    assert (describe(batch), batch_bytes((batch,))) == (text, bytes_)


def test_a_default_dict_keeps_its_factory() -> None:
    batch: defaultdict[str, list[int]] = defaultdict(list, x=[1])
    moved = to_device(batch, "meta")
    assert isinstance(moved, defaultdict)
    assert moved["new"] == []


def test_a_packed_sequence_moves_itself() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([ones(3), ones(2)])
    moved = to_device(packed, "cpu")
    assert isinstance(moved, torch.nn.utils.rnn.PackedSequence)


def test_bytes_are_those_of_all_tensors() -> None:
    batch = {"x": ones(8, 4), "y": (ones(8).long(), ones(2).half()), "text": ["a" * 99]}
    assert batch_bytes(batch) == 8 * 4 * 4 + 8 * 8 + 2 * 2
    assert batch_bytes("text") == 0


@pytest.mark.parametrize(
    ("batch", "asked", "seen"),
    [
        (ones(8, 3), 8, 8),
        (ones(5, 3), 8, 5),
        ({"x": ones(5, 8), "y": ones(5)}, 8, 5),
        ({"text": ["a"] * 8, "ids": ones(3, 4)}, 8, 8),
        ([ones(length) for length in (3, 9, 4)], 3, 3),
        ([ones(5, 2), ones(5).long()], 2, 5),
        ((ones(30, 8, 16), ones(30, 8)), 8, 8),
        (Sample(ones(8, 2), ["a"]), 8, 8),
        (ones(8 * 7, 3), 8, 8),
        (ones(9, 3), 2, 9),
        (Graph(ones(8, 3), ones(2, 20)), 8, 8),
        (torch.nn.utils.rnn.pack_sequence([ones(9, 6), ones(8, 6)]), 2, 2),
        ({"scale": torch.tensor(1.0)}, 8, None),
        ({"text": ["a", "b"]}, 2, None),
        (None, 4, None),
    ],
    ids=[
        "leading",
        "fewer",
        "features that happen to be as many",
        "texts",
        "list of unequal tensors",
        "list of inputs and labels",
        "time first",
        "dataclass",
        "packed",
        "more",
        "object",
        "packed sequence",
        "scalars only",
        "no tensor",
        "nothing",
    ],
)
def test_c36_the_number_of_samples_is_seen(batch: object, asked: int, seen: int | None) -> None:
    assert observed_batch(batch, asked) == seen


def test_c02_a_second_size_tells_samples_from_equal_feature_sizes() -> None:
    short = {"ids": ones(100, 128), "labels": ones(100, 128)}
    assert observed_batch(short, 128) == 128, "128 columns look like 128 samples"
    assert observed_batch(short, 128, reference=({"ids": ones(2, 128), "labels": ones(2, 128)}, 2)) == 100


def test_a_second_size_recognises_time_first_and_packed_batches() -> None:
    assert observed_batch(ones(35, 100), 128, reference=(ones(35, 2), 2)) == 100
    assert observed_batch(ones(500, 3), 128, reference=(ones(10, 3), 2)) == 100
    assert observed_batch([ones(3)] * 5, 8, reference=([ones(3)] * 2, 2)) == 5


def test_a_second_batch_that_does_not_differ_says_nothing() -> None:
    assert observed_batch(ones(64, 3), 128, reference=(ones(64, 3), 2)) == 64


@pytest.mark.parametrize("look", [is_moved, tensors, describe, batch_bytes, lambda batch: to_device(batch, "meta")])
def test_looking_at_a_batch_does_not_keep_it_alive(look: Callable[[object], object]) -> None:
    """A kept batch is a leak of one batch a step until the garbage collector runs, and a probe would blame the user."""
    tensor = torch.ones(4)
    gone = weakref.ref(tensor)
    gc.disable()
    try:
        look({"a": [tensor], "b": (tensor, "text")})
        del tensor
        assert gone() is None
    finally:
        gc.enable()
