"""Whatever the workload, a search with a recording ends at a true limit; and where it is one of lines, after three probes."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.model import Phase, ProbeResult, Reason, Stop
from autotune.units import KIB, MIB
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_searches import EXPANDABLE, RECORDED, finder_for
from tests.unit.planted_workloads import Request, Workload, network, with_more

FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD
allocators = st.sampled_from(["", EXPANDABLE])


@st.composite
def networks(draw: st.DrawFn) -> Workload:
    widths = draw(st.lists(st.integers(1, 16), min_size=3, max_size=8))
    return network(
        *(width * 256 * KIB for width in widths),
        weight=draw(st.integers(1, 8)) * MIB,
        batch=draw(st.integers(1, 8)) * 128 * KIB,
        states=draw(st.integers(0, 2)),
    )


@st.composite
def surprises(draw: st.DrawFn) -> Request:
    """Something that need not show at the small sizes that are recorded."""
    born = draw(st.sampled_from([FORWARD, BACKWARD]))
    kind = draw(st.sampled_from(["appears", "grows", "saturates", "vanishes", "by pairs", "each sample"]))
    at = draw(st.integers(2, 40))
    size = draw(st.integers(64, 4096)) * KIB
    return Request(
        born=born,
        ended=draw(st.sampled_from([born, BACKWARD])),
        constant=8 * size if kind == "appears" else size // 64 if kind == "each sample" else 0,
        per_sample=size // 4 if kind in ("grows", "saturates", "vanishes") else 0,
        per_pair=size // 64 if kind == "by pairs" else 0,
        at_most=size // 4 * at if kind == "saturates" else None,
        from_size=at if kind in ("appears", "grows") else 1,
        below=at if kind == "vanishes" else None,
        each_sample=kind == "each sample",
    )


def smallest_mib(workload: Workload) -> int:
    """About what one sample takes."""
    return sum(sum(request.sizes(1)) for request in workload) // MIB + 64


def search(device: PlantedDevice, unit: int, at_most: int) -> tuple[int, list[ProbeResult]]:
    """The answer, 0 for none, and the way to it."""
    history: list[ProbeResult] = []
    finder = finder_for(device, unit=unit)
    while not isinstance(reply := finder.ask(tuple(history)), Stop):
        assert len(history) < at_most, [(probe.batch_size, str(probe.reason)) for probe in history]
        history.append(device.probe(reply, device.budget, 0))
    if reply.answer is None:
        return 0, history
    assert reply.answer.refuted_at == reply.answer.max_batch + unit
    return reply.answer.max_batch, history


@settings(deadline=None, derandomize=True, max_examples=40)
@given(workload=networks(), more_mib=st.integers(0, 600), allocator=allocators, unit=st.sampled_from([1, 1, 2, 8]))
def test_a_workload_of_lines_takes_three_probes_to_a_true_limit(
    workload: Workload, more_mib: int, allocator: str, unit: int
) -> None:
    limit_bytes = (smallest_mib(workload) + more_mib) * MIB
    device = PlantedDevice(workload=workload, limit_bytes=limit_bytes, allocator=allocator)
    answer, history = search(device, unit, at_most=6)
    limits = device.limits(answer * 5 // 4 + 4 * unit, unit)
    assert answer in (limits or [0])
    assert answer <= max(limits, default=0)
    if len(limits) == 1:
        assert answer == limits[0], "no holes: there is one answer"
    if answer > 3 * unit:
        assert [probe.reason for probe in history][:2] == RECORDED[:2]
        assert history[1].batch_size == answer, "foretold exactly"
        assert len(history) <= 4


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    workload=networks(),
    more=st.lists(surprises(), min_size=1, max_size=2),
    more_mib=st.integers(0, 600),
    allocator=allocators,
)
def test_a_workload_full_of_surprises_is_searched_to_a_true_limit(
    workload: Workload, more: Sequence[Request], more_mib: int, allocator: str
) -> None:
    limit_bytes = (smallest_mib(workload) + more_mib) * MIB
    device = PlantedDevice(workload=with_more(workload, *more), limit_bytes=limit_bytes, allocator=allocator)
    answer, history = search(device, 1, at_most=30)
    assert device.safe(answer) if answer else not device.safe(1)
    assert not device.safe(answer + 1)
    assert sum(probe.reason is Reason.TRACE for probe in history) == 1
