"""What of a machine decides whether a recommendation holds on it. Pure; asked by ``check`` and by ``load`` alike."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FACTS = {
    "device_name": "device",
    "capacity_bytes": "bytes of device memory",
    "torch_version": "torch",
    "cuda_version": "CUDA",
    "driver_version": "driver",
}
"""Field of ``Machine`` -> its name. Another device of the same kind will do."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One of them that is not as the file says."""

    field: str
    name: str
    then: object
    here: object

    @property
    def text(self) -> str:
        """With both values."""
        return f"{self.name}: {self.then or 'unknown'} in the file, {self.here or 'unknown'} here"


def changed_facts(then: Mapping[str, object], here: Mapping[str, object], device: str) -> Iterator[Fact]:
    """Those of ``here`` that differ.

    Args:
        then: fields of the file's machine.
        here: some or all of the same, of this machine.
        device: kind of device here.
    """
    for field, name in FACTS.items():
        if field not in here:
            continue
        before, value = then[field], here[field]
        if field == "device_name" and device == "cpu":
            before, value = _without_host(before), _without_host(value)
        if before != value:
            yield Fact(field, name, before, value)


def _without_host(name: object) -> str:
    """The name of a CPU ends with that of its host, and containers have a new one each time."""
    return str(name).rpartition(", ")[0] or str(name)
