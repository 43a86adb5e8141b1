"""Planted workloads to search for the limit of, and the search itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.model import Answer, Form, Phase, ProbeResult, Reason, Settings
from autotune.search.batch import BatchFinder
from autotune.units import KIB, MIB
from tests.fakes import drive
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_workloads import Request, Workload, network, with_more

EXPANDABLE = "expandable_segments:True"
WIDTHS = (5, 3, 7, 2, 6, 4, 8, 3, 5, 2, 6, 4)


def twelve_layers(
    width: int, *, weight: int = MIB, states: int = 2, pair: int = 0, evaluates: bool = False
) -> Workload:
    return network(
        *(width * share for share in WIDTHS), weight=weight, batch=width, states=states, pair=pair, evaluates=evaluates
    )


NET = twelve_layers(192 * KIB)
WIDE = twelve_layers(3 * MIB)
"""One sample takes a quarter of a GiB: for limits of a few samples."""
NARROW = twelve_layers(64 * KIB)
"""For limits of more than a hundred samples, of which one is less than 1 %."""
RECORDED = [Reason.TRACE, Reason.PREDICTED, Reason.REFUTE]


def finder_for(
    device: PlantedDevice, *, unit: int = 1, max_batch: int | None = None, data: int | None = None
) -> BatchFinder:
    return BatchFinder(
        trace=True,
        recommend=False,
        settings=Settings(allocator=device.allocator),
        multiple_of=unit,
        max_batch=max_batch,
        data_set_size=data,
    )


def found(device: PlantedDevice, finder: BatchFinder | None = None) -> tuple[Answer, list[ProbeResult]]:
    """Search to the end, and check what has to hold for every answer."""
    stop, history = drive(finder or finder_for(device), device, device.budget, at_most=40)
    assert stop.answer is not None, stop.reason
    refuted_at = stop.answer.refuted_at
    assert device.safe(stop.answer.max_batch)
    assert refuted_at is None or not device.safe(refuted_at)
    assert stop.answer.max_batch in {probe.batch_size for probe in history if probe.form is Form.LONG and probe.fits}
    return stop.answer, history


def asked(history: Sequence[ProbeResult]) -> list[tuple[int, Reason]]:
    return [(probe.batch_size, probe.reason) for probe in history]


def sizes_recorded(history: Sequence[ProbeResult]) -> list[list[int]]:
    """Of each recording."""
    return [[one.batch_size for one in probe.trace.passes] for probe in history if probe.trace is not None]


def failed(history: Sequence[ProbeResult]) -> int:
    return sum(not probe.fits for probe in history)


def each_sample_alone(width: int) -> Workload:
    """A loop over the samples, as detection models have: the larger the batch, the more requests."""
    alone = [Request(born=Phase.FORWARD, ended=Phase.BACKWARD, constant=width * n, each_sample=True) for n in (3, 2)]
    return with_more(twelve_layers(width), *alone)


def kept(*, constant: int = 0, per_sample: int = 0, at_most: int | None = None, from_size: int = 1) -> Request:
    return Request(
        born=Phase.FORWARD,
        ended=Phase.BACKWARD,
        constant=constant,
        per_sample=per_sample,
        at_most=at_most,
        from_size=from_size,
    )


@dataclass(frozen=True)
class Case:
    name: str
    workload: Workload
    limit_mib: int
    limit: int
    allocator: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.limit}-{self.allocator or 'native'}"

    @property
    def device(self) -> PlantedDevice:
        return PlantedDevice(workload=self.workload, allocator=self.allocator, limit_bytes=self.limit_mib * MIB)
