"""The same samples for both sides of a comparison."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from autotune.apply import Unsupported
from autotune.probe.pieces import Samples, cut, fresh, pieces
from autotune.workload.parts import Parts
from autotune.workload.task import Workload

LENGTH = 3


class Named(NamedTuple):
    """A batch with names."""

    x: torch.Tensor
    y: torch.Tensor


@dataclass(frozen=True)
class Record:
    """A frozen batch."""

    x: torch.Tensor
    size: int


def rows(size: int) -> torch.Tensor:
    """Whose first column says which sample it is."""
    return torch.arange(size).float().unsqueeze(1).repeat(1, LENGTH)


FORMS: dict[str, tuple[Callable[[int], Any], Callable[[Any], list[float]]]] = {
    "tensor": (rows, lambda b: b[:, 0].tolist()),
    "pair": (lambda n: (rows(n), torch.arange(n)), lambda b: b[1].tolist()),
    "named tuple": (lambda n: Named(rows(n), torch.arange(n)), lambda b: b.y.tolist()),
    "mapping": (lambda n: {"x": rows(n), "size": n, "kind": "train"}, lambda b: b["x"][:, 0].tolist()),
    "data class": (lambda n: Record(rows(n), n), lambda b: b.x[:, 0].tolist()),
    "list of samples": (lambda n: list(rows(n)), lambda b: [float(sample[0]) for sample in b]),
    "images and targets": (lambda n: (list(rows(n)), [{"box": r} for r in rows(n)]), lambda b: [float(t["box"][0]) for t in b[1]]),
    "with a mask": (lambda n: {"x": rows(n), "mask": torch.ones(LENGTH, LENGTH)}, lambda b: b["x"][:, 0].tolist()),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_batch_is_cut_into_equal_parts_that_are_the_whole_together(name: str) -> None:
    make, samples = FORMS[name]
    whole = make(6)
    parts = cut(whole, make(2), 6, 3)
    assert [samples(part) for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert all(type(part) is type(whole) for part in parts)
    if name == "with a mask":
        assert all(torch.equal(part["mask"], whole["mask"]) for part in parts if isinstance(part, dict))
    if name == "mapping":
        assert [(part["size"], part["kind"]) for part in parts if isinstance(part, dict)] == [(2, "train")] * 3


def test_a_square_mask_as_long_as_the_batch_is_not_cut() -> None:
    def make(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return rows(size), torch.ones(6, 6)

    assert [part[1].shape for part in cut(make(6), make(3), 6, 2) if isinstance(part, tuple)] == [(6, 6)] * 2


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda n: torch.zeros(5 * n + 1, 2), "31 rows, and one of 2 has 11"),  # nodes of several graphs
        (lambda n: (rows(n), object()), "type object"),
        (lambda n: {f"sample{i}": torch.zeros(2) for i in range(n)}, "type dict"),
    ],
)
def test_what_cannot_be_cut_is_unsupported(make: Callable[[int], Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        cut(make(6), make(2), 6, 3)


def test_a_copy_shares_nothing_with_the_batch() -> None:
    inner = [torch.zeros(2)]
    batch = {"x": rows(2), "inner": inner}
    copied: Any = fresh(batch, torch.device("cpu"))
    copied["x"].zero_()
    copied["inner"].pop()
    del copied["x"]
    assert isinstance(batch["x"], torch.Tensor)
    assert torch.equal(batch["x"], rows(2))
    assert len(inner) == 1


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [(1, 1, (1, 1)), (1, 2, (1, 2)), (1, 3, (1, 3)), (1, 32, (1, 4)), (8, 1, (4, 1)), (8, 8, (2, 2)), (2, 3, (1, 2))],
)
def test_few_pieces_show_what_many_would(reference: int, candidate: int, expected: tuple[int, int]) -> None:
    assert pieces(reference, candidate) == expected


def workload(make_batch: Callable[[int], object]) -> Workload:
    """That only makes batches."""
    return Workload("test", Parts(make_model=lambda: nn.Linear(1, 1), make_batch=make_batch), ())


def test_both_sides_get_the_same_samples_whole_and_in_parts() -> None:
    whole, parts = Samples(workload(rows), 2, (1, 3)).step()
    assert [len(batch) for batch in whole if isinstance(batch, torch.Tensor)] == [6]
    assert torch.equal(torch.cat([part for part in parts if isinstance(part, torch.Tensor)]), rows(6))
    same = Samples(workload(rows), 2, (2, 2)).step()
    assert same[0] is same[1]
    assert len(same[0]) == 2


def test_data_with_too_few_samples_for_the_whole_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="one batch of 8 samples, and the data has 5"):
        Samples(workload(lambda size: rows(min(size, 5))), 2, (1, 4)).step()
