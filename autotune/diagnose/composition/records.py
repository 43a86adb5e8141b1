"""Allocations of one stretch of a process as they happen: by CUDA's allocator, or on the CPU by watching storages.

The functions of the allocator's record are private and have changed with the releases; where they are missing there is no
record (``make_record`` raises ``Unrecordable``).
"""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from autotune.diagnose.composition.blocks import Event, Sighting
from autotune.model import MemoryKind

_MAX_ENTRIES = 4_000_000
"""Of the allocator's ring buffer, as for the recordings of the memory model."""


class Unrecordable(Exception):
    """This PyTorch or device keeps no record; the text says why."""


class Record(Protocol):
    """Begun when it is made."""

    before: dict[int, int]
    """Requested bytes of what was alive when it began, by address."""

    def position(self) -> int:
        """Number of events so far."""
        ...

    def saw(self, tensors: Iterable[torch.Tensor]) -> None:
        """These exist now."""
        ...

    def finish(self) -> tuple[list[Event], list[Sighting]]:
        """End it: all events, and what the record itself knows of some blocks.

        Raises:
            Unrecordable: events were lost.
        """
        ...


def make_record(device: torch.device, known: Iterable[torch.Tensor]) -> Record:
    """Begin to record.

    Args:
        device: the training's.
        known: what is known to be alive now; the allocator knows by itself.

    Raises:
        Unrecordable: there is no record here.
    """
    return AllocatorRecord(device) if device.type == "cuda" else StorageRecord(known)


def address_of(tensor: torch.Tensor) -> int:
    """First byte of the memory behind a tensor; 0 where it has none of its own (sparse, fake, empty)."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # what tensors without a storage raise, by kind
        return 0


class AllocatorRecord:
    """CUDA's caching allocator tells itself, without stacks, which makes it cheap."""

    def __init__(self, device: torch.device) -> None:
        """
        Raises:
            Unrecordable: another allocator, or a PyTorch whose functions for it are others.
        """
        self._device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        if torch.cuda.get_allocator_backend() != "native":
            raise Unrecordable(f"the allocator {torch.cuda.get_allocator_backend()} keeps no record")
        try:
            torch.cuda.memory._record_memory_history(None)
            torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=_MAX_ENTRIES)
            segments = torch.cuda.memory._snapshot()["segments"]
            self.before = requested_by_address(segments, self._index)
            self._start = self._count()
        except (AttributeError, TypeError, KeyError, RuntimeError) as error:
            raise Unrecordable(f"this PyTorch's record has another form ({error})") from error

    def _count(self) -> int:
        """Allocations and completed frees so far."""
        active = torch.cuda.memory.memory_stats_as_nested_dict(self._device)["active"]["all"]
        return int(active["allocated"]) + int(active["freed"])

    def position(self) -> int:
        return self._count() - self._start

    def saw(self, tensors: Iterable[torch.Tensor]) -> None:
        """Nothing to do."""

    def finish(self) -> tuple[list[Event], list[Sighting]]:
        position = self.position()
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()  # what this frees is what cuBLAS held; it makes its workspaces anew when it needs them
        try:
            count = self.position()
            entries = torch.cuda.memory._snapshot()["device_traces"][self._index]
            torch.cuda.memory._record_memory_history(None)
            events = events_of(entries)
        except (AttributeError, TypeError, KeyError, IndexError, RuntimeError) as error:
            raise Unrecordable(f"this PyTorch's record has another form ({error})") from error
        if len(events) != count:
            raise Unrecordable(f"{count} events happened and {len(events)} were recorded")
        held = [Sighting(position, event.address, MemoryKind.WORKSPACE, "cuBLAS") for event in events[position:]]
        return events, held


def requested_by_address(segments: Iterable[Mapping[str, Any]], device_index: int) -> dict[int, int]:
    """Requested bytes of the blocks in use, by address.

    ``segments``: of the allocator's snapshot; only those of this device count.
    """
    found: dict[int, int] = {}
    for segment in segments:
        if segment["device"] == device_index:
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"].startswith("active"):
                    found[address] = block.get("requested_size", block["size"])
                address += block["size"]
    return found


def events_of(entries: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Allocations and completed frees among the allocator's entries (``action``, ``addr``, ``size``), in their order."""
    events = []
    for entry in entries:
        if entry["action"] == "alloc":
            events.append(Event(entry["addr"], entry["size"]))
        elif entry["action"] == "free_completed":
            events.append(Event(entry["addr"], 0))
    return events


class StorageRecord:
    """On the CPU nobody keeps a record: a storage counts from the operator that returns it until it is let go.

    What operators allocate and free inside is not seen.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        self._events: list[Event] = []
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._open = True
        self.before: dict[int, int] = {}
        for tensor in known:
            storage = self._new(tensor)
            if storage is not None:
                self.before[storage.data_ptr()] = storage.nbytes()

    def _new(self, tensor: torch.Tensor) -> torch.UntypedStorage | None:
        """Its storage, watched from now on; None where that is known, or there is none."""
        address = address_of(tensor)
        if not address or tensor.device.type != "cpu":
            return None
        storage = tensor.untyped_storage()
        reference = self._references.get(address)
        if reference is not None and reference() is not None:
            return None
        self._references[address] = weakref.ref(storage, lambda gone: self._freed(address, gone))
        return storage

    def _freed(self, address: int, gone: weakref.ref[torch.UntypedStorage]) -> None:
        if self._references.get(address) is gone:
            del self._references[address]
            if self._open:
                self._events.append(Event(address, 0))

    def position(self) -> int:
        return len(self._events)

    def saw(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = self._new(tensor)
            if storage is not None and storage.nbytes():
                self._events.append(Event(storage.data_ptr(), storage.nbytes()))

    def finish(self) -> tuple[list[Event], list[Sighting]]:
        self._open = False
        return self._events, []
