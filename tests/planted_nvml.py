"""A stand-in for NVML's library: two cards, and a slice of a third."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from autotune.units import GIB

LARGE, SMALL, DIVIDED, SLICE = "GPU-aaaa-24", "GPU-bbbb-8", "GPU-cccc-80", "MIG-cccc-10"
USED = {LARGE: 20 * GIB, SMALL: 3 * GIB, SLICE: 1 * GIB, DIVIDED: 2 * GIB}
TOTAL = {LARGE: 24 * GIB, SMALL: 8 * GIB, SLICE: 10 * GIB, DIVIDED: 80 * GIB}
LISTED = (LARGE, SMALL, DIVIDED)
"""In the order of their buses."""


class Refused(Exception):
    """What the planted library raises."""


@dataclass
class Planted:
    """A library with two cards and a slice of another; it numbers them as it likes."""

    refuse: str = ""
    """Function that raises."""
    version: Any = "580.1"
    text: Callable[[str], Any] = str
    """How texts come: old libraries answer in bytes."""
    used: dict[str, int] = field(default_factory=lambda: dict(USED))
    total: dict[str, int] = field(default_factory=lambda: dict(TOTAL))
    without: str = ""
    """A name that this version of the library lacks."""
    raises: type[Exception] = Refused
    percent: int = 87
    """That the cards are busy."""
    open: int = 0
    pids: tuple[int, int] = (7, 8)
    """Of the two processes on each card; the second one's memory is not told."""

    def module(self) -> Any:
        def call(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **kwargs: Any) -> Any:
                if name == self.refuse:
                    raise self.raises(f"{name} refused")
                return answer(*args, **kwargs)

            return called

        def count(by: int) -> Callable[[], None]:
            def counted() -> None:
                self.open += by

            return counted

        def handle(uuid: str) -> str:
            if uuid not in USED:
                raise Refused("not found")
            return uuid

        def mode(uuid: str) -> list[int]:
            if uuid == SMALL:
                raise Refused("not supported")
            return [1, 1] if uuid == DIVIDED else [0, 0]

        def slice_of(uuid: str, index: int) -> str:
            if index > 0:
                raise Refused("not found")
            return SLICE

        def running(uuid: str) -> list[Any]:
            first, second = self.pids
            return [SimpleNamespace(pid=first, usedGpuMemory=GIB), SimpleNamespace(pid=second, usedGpuMemory=None)]

        def whole(uuid: str, value: Any) -> Any:
            if uuid == SLICE:
                raise Refused("not supported")
            return value

        library = SimpleNamespace(
            NVMLError=Refused,
            nvmlMemory_v2=2,
            nvmlInit=call("nvmlInit", count(1)),
            nvmlShutdown=count(-1),
            nvmlDeviceGetHandleByUUID=call("handle", handle),
            nvmlDeviceGetMemoryInfo=call(
                "memory", lambda uuid, version: SimpleNamespace(used=self.used[uuid], total=self.total[uuid])
            ),
            nvmlSystemGetDriverVersion=call("version", lambda: self.version),
            nvmlDeviceGetCount=call("count", lambda: len(LISTED)),
            nvmlDeviceGetHandleByIndex=LISTED.__getitem__,
            nvmlDeviceGetUUID=lambda uuid: self.text(uuid),
            nvmlDeviceGetName=call("name", lambda uuid: self.text(f"card {uuid[4]}")),
            nvmlDeviceGetMigMode=mode,
            nvmlDeviceGetMaxMigDeviceCount=lambda uuid: 7,
            nvmlDeviceGetMigDeviceHandleByIndex=slice_of,
            nvmlDeviceGetComputeRunningProcesses=call("running", running),
            nvmlDeviceGetGraphicsRunningProcesses=lambda uuid: running(uuid)[:1],
            NVML_TEMPERATURE_GPU=0,
            nvmlDeviceGetUtilizationRates=call("busy", lambda uuid: whole(uuid, SimpleNamespace(gpu=self.percent))),
            nvmlDeviceGetTemperature=call("heat", lambda uuid, sensor: whole(uuid, 61)),
            nvmlDeviceGetPowerUsage=call("power", lambda uuid: whole(uuid, 312_500)),
            nvmlDeviceGetEnforcedPowerLimit=call("limit", lambda uuid: whole(uuid, 700_000)),
        )
        if self.without:
            delattr(library, self.without)
        return library
