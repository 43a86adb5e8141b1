"""How long a probe trains: until retries have settled, the scaler has, or enough was seen of steps that differ in memory."""

import os
from collections.abc import Callable, Sequence

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from autotune.model import Form, Settings, Source
from autotune.probe.measure import run_probe
from autotune.probe.meter import CpuMeter, Peak
from autotune.probe.order import Op, Order
from autotune.probe.recorder import Recorder
from autotune.probe.settling import MOST_STEPS, differ, enough, outlined_after
from autotune.probe.wire import Channel
from autotune.units import GIB, KIB, MIB
from autotune.workload.parts import Parts
from autotune.workload.task import Workload
from tests.unit.compared import squares, vectors

LIKE: tuple[int | None, ...] = (GIB,) * 8
UNLIKE: tuple[int | None, ...] = (GIB,) * 6 + (GIB + 2 * MIB, GIB)


def ends(
    form: Form,
    number: int,
    *,
    executed: int | None = None,
    skipped: int = 0,
    retries: Sequence[int] = (0,) * 8,
    peaks: Sequence[int | None] = LIKE,
) -> bool:
    done = number - skipped if executed is None else executed
    return enough(form, number=number, executed=done, skipped=skipped, retries=retries, peaks=peaks)


@pytest.mark.parametrize("form", [Form.SHORT, Form.LONG, Form.TIMED, Form.EVALUATE])
def test_what_has_settled_ends_after_the_steps_of_its_form(form: Form) -> None:
    assert next(number for number in range(1, 12) if ends(form, number)) == form.steps


def test_a_short_probe_goes_on_while_retries_have_not_settled() -> None:
    assert not ends(Form.SHORT, 3, retries=(2, 1, 0))
    assert not ends(Form.SHORT, 5, retries=(2, 1, 0, 1, 0))
    assert ends(Form.SHORT, 5, retries=(2, 1, 1, 0, 0))
    assert ends(Form.SHORT, 6, retries=(2, 1, 1, 1, 1, 1))
    assert ends(Form.LONG, 8, retries=(1,) * 8), "its second half shows it"


def test_while_the_scaler_skips_a_probe_goes_on_for_thirty_steps() -> None:
    assert not ends(Form.LONG, 12, skipped=5)
    assert ends(Form.LONG, 13, skipped=5)
    assert not ends(Form.LONG, 29, skipped=22) and ends(Form.LONG, 30, skipped=23)


def test_a_long_probe_whose_steady_steps_differ_in_memory_goes_on_for_thirty() -> None:
    assert not ends(Form.LONG, 8, peaks=UNLIKE)
    assert not ends(Form.LONG, 29, peaks=UNLIKE + (GIB,) * 21) and ends(Form.LONG, 30, peaks=UNLIKE + (GIB,) * 22)
    assert ends(Form.TIMED, 10, peaks=UNLIKE), "certifies nothing"


def test_steps_before_the_scaler_let_one_through_are_no_steady_ones() -> None:
    assert not differ(UNLIKE[3:] + LIKE)
    assert ends(Form.LONG, 11, skipped=3, peaks=(*UNLIKE[5:], *LIKE))
    assert not ends(Form.LONG, 11, skipped=3, peaks=(*LIKE[:3], *UNLIKE))


@pytest.mark.parametrize(
    "last",
    [
        (GIB, GIB, GIB, GIB),
        (GIB, GIB + MIB, GIB, GIB),  # rounding
        (GIB, GIB + 4 * MIB, GIB + 8 * MIB, GIB + 12 * MIB),  # a leak
        (GIB, None, GIB + 4 * MIB, GIB),  # nobody counts
    ],
)
def test_the_same_memory_rounding_a_leak_and_what_nobody_counts_do_not_differ(last: tuple[int | None, ...]) -> None:
    assert not differ((3 * GIB, GIB, 2 * GIB, GIB, *last))


def test_a_ten_thousandth_of_a_large_peak_is_no_difference() -> None:
    peak = 100 * GIB
    allowed = int(0.0001 * peak)
    assert not differ((peak,) * 4 + (peak, peak - allowed + MIB, peak, peak))
    assert differ((peak,) * 4 + (peak, peak - allowed - MIB, peak, peak))
    assert not differ((100 * KIB,) * 4 + (100 * KIB, 0, MIB, 0)), "and a megabyte none of a small one"


class Planted(CpuMeter):
    """As if an allocator counted: at most so much in each step, the first being 1."""

    def __init__(self, height: Callable[[int], int]) -> None:
        super().__init__()
        self.step, self._height = 0, height

    def limit(self, limit_bytes: int, reserve_bytes: int) -> None:
        self.cap_bytes = limit_bytes

    def end(self) -> Peak:
        height = self._height(self.step)
        return Peak(height, height)


def trained(
    form: Form,
    height: Callable[[int], int],
    make_model: Callable[[], torch.nn.Module] = lambda: torch.nn.Linear(8, 1),
) -> Recorder:
    """What is seen of a training that takes so much memory in each of its steps."""
    meter = Planted(height)

    def make_batch(size: int) -> object:
        meter.step += 1
        return vectors(size)

    parts = Parts(
        make_model=make_model,
        make_batch=make_batch,
        loss=squares,
        make_optimizer=lambda params: torch.optim.SGD(params, lr=0.01),
    )
    order = Order(
        op=Op.PROBE,
        source=Source(ref="test"),
        settings=Settings(),
        job_environment={},
        seed=3,
        batch_size=4,
        form=form,
        limit_bytes=GIB,
    )
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        recorder = Recorder(Channel(nowhere, "token"), meter)
        run_probe(order, Workload("test", parts, ()), torch.device("cpu"), recorder)
    finally:
        os.close(nowhere)
    return recorder


def test_a_training_whose_tensors_are_sized_by_data_is_certified_by_thirty_steps() -> None:
    seen = trained(Form.LONG, lambda step: (100 + step % 3) * 2 * MIB)
    assert seen.executed == MOST_STEPS
    assert seen.step_peaks == [(100 + step % 3) * 2 * MIB for step in range(1, MOST_STEPS + 1)]


@pytest.mark.parametrize(
    "height",
    [
        pytest.param(lambda step: 200 * MIB + (step < 5) * step * MIB, id="warms up"),
        pytest.param(lambda step: (200 + 3 * step) * MIB, id="leaks"),
    ],
)
def test_one_that_takes_the_same_in_each_step_or_more_and_more_by_eight(height: Callable[[int], int]) -> None:
    assert trained(Form.LONG, height).executed == Form.LONG.steps


def test_a_short_probe_of_it_stays_short() -> None:
    assert trained(Form.SHORT, lambda step: (100 + step % 3) * 2 * MIB).executed == Form.SHORT.steps


class Routed(torch.nn.Module):
    """Positive samples go through one layer, negative ones through another; together they are always as many."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positive = x[:, 0] > 0
        out = torch.zeros(len(x), 1)
        for layer, rows in zip(self.layers, (positive, ~positive), strict=True):
            out = out.masked_scatter(rows[:, None], layer(x[rows]))
        return out


class Packed(torch.nn.Module):
    """Takes sequences of random lengths, packed, and gives the last state of each."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(1, 1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(
            x[..., None], torch.randint(1, 9, (len(x),)), batch_first=True, enforce_sorted=False
        )
        return torch.as_tensor(self.layer(packed)[1][-1])


class Nested(torch.nn.Module):
    """A layer within gives a nested tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.cut = torch.nn.Linear(8, 1), Cut()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layer(x + self.cut(x).to_padded_tensor(0.0).sum()))


class Cut(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([row[: 1 + number] for number, row in enumerate(x.detach())])


@pytest.mark.parametrize(
    ("make_model", "steps"),
    [(Routed, MOST_STEPS), (Packed, MOST_STEPS), (lambda: torch.nn.Sequential(torch.nn.Linear(8, 1)), 8)],
    ids=["experts", "packed sequences", "none of it"],
)
def test_shapes_tell_it_where_no_peak_does(make_model: Callable[[], torch.nn.Module], steps: int) -> None:
    torch.manual_seed(0)
    seen = trained(Form.LONG, lambda step: 200 * MIB, make_model)
    assert seen.executed == steps
    assert len(seen.outlines) == 2, "of two steps; looking takes time, which is measured"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_a_shape_is_looked_at_as_well() -> None:
    assert trained(Form.LONG, lambda step: 200 * MIB, Nested).executed == Form.LONG.steps


def test_where_nobody_counts_memory_shapes_conclude_nothing() -> None:
    """On the CPU thirty steps may take minutes, and pages that a heap keeps are no peaks."""
    assert not differ((None,) * 8, (1, 2)) and differ(LIKE, (1, 2)) and not differ(LIKE, (1, 1))


def test_only_steady_steps_of_the_long_form_are_looked_at() -> None:
    assert outlined_after(Form.LONG) == (4, 5)
    assert [outlined_after(form) for form in (Form.SHORT, Form.TIMED, Form.EVALUATE)] == [(), (), ()]
