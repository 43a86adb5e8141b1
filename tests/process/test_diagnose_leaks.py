"""Planted leaks are all found, called by their kind and name, with rate, place and end; what settles is left alone."""

import os
from collections.abc import Iterable

import pytest

from autotune.model import LeakKind, Outcome
from tests.process.growing import (
    CLEAN,
    LEAKS,
    UNIT,
    WORKERS,
    Growing,
    growing,
    growing_data,
    kind_of,
    line_of,
)

__all__ = ["growing", "growing_data"]

STEPS = 34
"""Enough where nothing is warm-up; the few tests of how many it takes by itself leave it to it."""
ALL = bool(os.environ.get("ALL_LEAKS"))
"""Set by `make leaks`; else one of three that are of a kind runs, since each takes a second."""


def some(kinds: Iterable[str]) -> list[str]:
    """All of them, or the first of each three."""
    return list(kinds) if ALL else list(kinds)[::3]


HOLDERS = {
    "graph: losses in a list": "list LIST of growing.py",
    "graph: outputs in a dict": "dict DICT of growing.py",
    "graph: a running total": "the graph behind TOTAL of growing.py",
    "tensors: one becomes larger": "tensor HISTORY of growing.py becomes larger",
    "tensors: views of large ones": "list LIST of growing.py: views of larger tensors, which .clone() would let go",
    "state: a buffer becomes larger": "buffer seen of the model",
    "state: a parameter a step": "parameter extra.",
    "hooks: forward": "forward hooks of model.second (Linear)",
    "hooks: on a gradient": "backward hooks of parameter second.weight",
    "hooks: before forward": "forward pre hooks of model (Body)",
    "cycles: collector too seldom": "Record in a reference cycle",
    "host: arrays in a list": "list LIST of growing.py",
    "host: numbers in a dict": "dict DICT of growing.py",
    "host: bytes of a class": "list Record.items of growing.py",
    "host: beside a small one": "list LIST of growing.py",
}
MADE = {
    "graph: a running total": "TOTAL = TOTAL + side_loss(model, x)",
    "tensors: in a list": "LIST.append(x.new_ones(MANY, WIDTH))",
    "tensors: in a dict": 'DICT[f"step {step}"] = model.first(x).detach()',
    "tensors: one becomes larger": "HISTORY = torch.cat([HISTORY",
    "state: a buffer becomes larger": "self.seen = torch.cat([self.seen,",
    "hooks: before forward": "kept: torch.Tensor = x.new_ones(ROWS, WIDTH)",
    "cycles: collector switched off": "record = Record(x.new_ones(ROWS, WIDTH))",
    "host: arrays in a list": "LIST.append(numpy.ones(UNIT // 8))",
    "host: numbers in a dict": "DICT[step] = [float(number) for number in range(2000)]",
}
KEPT = {
    "graph: losses in a list": "LIST.append(side_loss(model, x))",
    "graph: outputs in a dict": 'DICT[step] = {"hidden": hidden}',
    "state: a buffer a step": 'self.register_buffer(f"seen_{step}"',
    "hooks: forward": "    model.second.register_forward_hook(",
    "hooks: on a gradient": "model.second.weight.register_hook(lambda grad:",
    "host: bytes of a class": "Record.items.append(bytes(",
    "host: beside a small one": "LIST.append(bytes(UNIT))",
}


@pytest.mark.parametrize("kind", some(LEAKS))
def test_a_leak_is_called_by_its_kind_and_its_holder_with_its_rate_and_place(growing: Growing, kind: str) -> None:
    leaks = growing.leaks(kind, steps=STEPS)
    assert [one.kind for one in leaks.suspects] == [kind_of(kind)]
    assert leaks.device is not None and leaks.ends_at_step is not None
    assert leaks.device.bytes_per_step == pytest.approx(LEAKS[kind] * UNIT, rel=0.05)
    (one,) = leaks.suspects
    assert one.what.startswith(HOLDERS.get(kind, ""))
    assert one.bytes_per_step == pytest.approx(leaks.device.bytes_per_step, rel=0.05)
    if kind in MADE:
        assert one.made_at.endswith(line_of(MADE[kind]))
    if kind in KEPT:
        assert one.kept_at.endswith(line_of(KEPT[kind]))


@pytest.mark.parametrize("kind", some(WORKERS))
def test_what_worker_processes_keep_is_told_apart_from_the_training(growing_data: Growing, kind: str) -> None:
    leaks = growing_data.leaks(kind, steps=STEPS)
    assert (leaks.device, leaks.host) == (None, None)
    assert leaks.workers is not None
    assert leaks.workers.bytes_per_step == pytest.approx(2 * 64 * 1024, rel=0.05), "two samples a batch"
    (one,) = leaks.suspects
    assert one.kind is LeakKind.WORKERS and "growing_data.py:" in one.kept_at


@pytest.mark.parametrize("kind", CLEAN)
def test_what_settles_returns_or_is_bounded_is_no_leak(growing: Growing, kind: str) -> None:
    leaks = growing.leaks(kind)
    assert leaks.clean, leaks


def test_a_worker_s_cache_that_is_full_is_no_leak(growing_data: Growing) -> None:
    assert growing_data.leaks("a cache of the workers that is full").clean


def test_cycles_that_python_collects_in_time_are_a_note_with_the_line_that_makes_them(growing: Growing) -> None:
    (note,) = growing.leaks("cycles that are collected").notes
    assert "256" in note and line_of("record = Record(x.new_ones(ROWS, WIDTH))") in note


DEATHS = ["graph: outputs in a dict*8", "tensors: in a list*8", "host: bytes of a class*8", "hooks: forward*8"]


@pytest.mark.parametrize("kind", DEATHS if ALL else DEATHS[:2])
def test_the_step_of_death_is_foretold_within_five_percent(growing: Growing, kind: str) -> None:
    foretold = growing.leaks(kind, steps=STEPS).ends_at_step
    ended = growing.ended(kind, steps=100_000)
    assert ended.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) and ended.failure is not None
    died = ended.failure.step
    assert died is not None and died > 90
    assert foretold == pytest.approx(died, rel=0.05)


def test_c28_losses_kept_with_their_graph_are_named_with_the_line_that_keeps_them(growing: Growing) -> None:
    leaks = growing.leaks("losses")
    (one,) = leaks.suspects
    assert (one.kind, one.what) == (LeakKind.GRAPH, "list LIST of growing.py")
    assert one.kept_at.endswith(line_of("LIST.append(result)"))
    assert leaks.device is not None and leaks.device.fit > 0.99
    assert leaks.ends_at_step is not None


@pytest.mark.parametrize("kind", ["detached losses", "numbers of losses", "warm-up", "plain"])
def test_c28_losses_without_their_graph_and_the_warm_up_of_adam_are_no_leak(growing: Growing, kind: str) -> None:
    assert growing.leaks(kind, steps=STEPS).clean
