"""Leaks on a CUDA device: counted by the allocator, with the lines that make and keep what grows."""

from collections.abc import Iterator

import pytest

from autotune.diagnose.leaks.judge import judge_leaks
from autotune.model import LeakKind, Outcome
from autotune.units import GIB
from tests.process.growing import LEAKS, UNIT, Growing, kind_of, line_of

pytestmark = pytest.mark.gpu

STEPS = 34
PLANTED = [
    "graph: losses in a list",
    "graph: outputs in a dict",
    "graph: a running total",
    "tensors: in a list",
    "tensors: one becomes larger",
    "state: a buffer a step",
    "hooks: forward",
    "hooks: on a gradient",
    "cycles: collector switched off",
    "locked_cycles: hook of a node",
]
MADE = {
    "graph: a running total": "TOTAL = TOTAL + side_loss(model, x)",
    "tensors: in a list": "LIST.append(x.new_ones(MANY, WIDTH))",
    "cycles: collector switched off": "record = Record(x.new_ones(ROWS, WIDTH))",
}
KEPT = {
    "graph: losses in a list": "LIST.append(side_loss(model, x))",
    "graph: outputs in a dict": 'DICT[step] = {"hidden": hidden}',
    "state: a buffer a step": 'self.register_buffer(f"seen_{step}"',
    "hooks: forward": "    model.second.register_forward_hook(",
    "hooks: on a gradient": "model.second.weight.register_hook(lambda grad:",
}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Growing]:
    """growing.py, loaded once; probes may use 2 GiB."""
    found = Growing("growing.py", tmp_path_factory.mktemp("growing"), device="cuda", limit_bytes=2 * GIB)
    yield found
    found.close()


@pytest.mark.parametrize("kind", PLANTED)
def test_a_leak_on_the_device_is_called_by_its_kind_with_rate_and_place(growing: Growing, kind: str) -> None:
    leaks = growing.leaks(kind, steps=STEPS)
    assert [one.kind for one in leaks.suspects] == [kind_of(kind)]
    assert leaks.device is not None and leaks.ends_at_step is not None
    assert leaks.device.bytes_per_step == pytest.approx(LEAKS[kind] * UNIT, rel=0.05)
    (one,) = leaks.suspects
    assert "growing.py:" in one.made_at or "growing.py:" in one.kept_at
    if kind in MADE:
        assert one.made_at.endswith(line_of(MADE[kind]))
    if kind in KEPT:
        assert one.kept_at.endswith(line_of(KEPT[kind]))


@pytest.mark.parametrize("kind", ["plain", "warm-up", "cyclic sizes", "the last fifty", "cycles that are collected"])
def test_what_settles_on_the_device_is_no_leak(growing: Growing, kind: str) -> None:
    leaks = growing.leaks(kind)
    assert leaks.clean, leaks


def test_arrays_that_grow_on_the_host_are_no_memory_of_the_device(growing: Growing) -> None:
    leaks = growing.leaks("host: bytes of a class", steps=STEPS)
    assert leaks.device is None and leaks.host is not None
    assert leaks.host.bytes_per_step == pytest.approx(UNIT, rel=0.05)
    assert [one.kind for one in leaks.suspects] == [LeakKind.HOST]


def test_c28_losses_kept_with_their_graph_are_named_with_the_line_that_keeps_them(growing: Growing) -> None:
    leaks = growing.leaks("losses")
    (one,) = leaks.suspects
    assert (one.kind, one.what) == (LeakKind.GRAPH, "list LIST of growing.py")
    assert one.kept_at.endswith(line_of("LIST.append(result)"))


@pytest.mark.parametrize("kind", ["detached losses", "numbers of losses"])
def test_c28_losses_without_their_graph_are_no_leak_on_the_device(growing: Growing, kind: str) -> None:
    assert growing.leaks(kind).clean


def test_the_step_of_death_on_the_device_is_foretold_within_five_percent(growing: Growing) -> None:
    kind = "tensors: in a list*32"  # 8 MiB a step
    seen = growing.ended(kind, steps=STEPS).seen
    leaks = judge_leaks(seen, None)
    ended = growing.ended(kind, steps=100_000)
    assert ended.outcome is Outcome.OUT_OF_MEMORY and ended.failure is not None
    assert ended.failure.step is not None and ended.failure.step > 100
    grew = (leaks.device, seen.room_bytes, seen.held_bytes[-3:], seen.garbage_bytes[-3:], ended.failure.message)
    assert leaks.ends_at_step == pytest.approx(ended.failure.step, rel=0.05), grew
