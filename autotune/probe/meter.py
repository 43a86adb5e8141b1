"""Reading memory and time of one device from inside a probe process: CUDA by its allocator, CPU by the kernel.

Peaks are per phase: ``begin`` resets them, ``end`` reads them. Bytes throughout.
"""

import contextlib
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch

from autotune.errors import EnvironmentTrouble
from autotune.model import ALLOCATOR_VARIABLES
from autotune.probe import nvml
from autotune.probe.devices import has_unified_memory
from autotune.probe.host import available_bytes, own_data_bytes
from autotune.units import MIB, format_bytes


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak of one phase."""

    allocated_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What is known of memory when something failed, or at the end; None = cannot be told on this device."""

    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    free_bytes: int | None = None
    cap_bytes: int | None = None
    outside_at_cap_bytes: int | None = None
    """Taken off the budget for what is outside PyTorch's allocator, when the cap was set."""
    outside_bytes: int | None = None
    """What would be taken off now. A process never gives back what it holds there: if this is less, others were counted."""


class Meter(Protocol):
    """One device's memory and clock."""

    cap_bytes: int | None
    others_bytes: int | None

    def limit(self, limit_bytes: int, reserve_bytes: int) -> None:
        """Make allocations beyond the budget fail as they would on a smaller device.

        Args:
            limit_bytes: the budget.
            reserve_bytes: what of it is not for this process's tensors (CUDA: non-PyTorch memory; CPU: see CpuMeter).
        """

    def lift_limit(self) -> None:
        """Give the process room to report a failure."""

    def begin(self) -> None:
        """Reset the peaks."""

    def end(self) -> Peak:
        """Peaks since ``begin``."""

    def drop_cache(self) -> None:
        """Give memory that no tensor uses back to the device."""

    def allocated(self) -> int:
        """Bytes held by tensors (CUDA) or by the process (CPU) now."""

    def retries(self) -> int:
        """Allocator retries so far."""

    def exhausted(self) -> int:
        """How often the device's memory has run out so far. PyTorch copes by itself where only the workspace of a
        convolution does not fit: it takes another algorithm, and nothing is raised."""

    def non_pytorch(self) -> int | None:
        """Device memory of this process outside PyTorch's allocator."""

    def tick(self) -> None:
        """Note the time, on the device's own clock where it has one."""

    def intervals(self) -> list[float]:
        """Seconds between the first and second tick since the last call, the third and fourth, …"""

    def state(self) -> dict[str, int | None]:
        """``MemoryState`` now, for whoever judges the probe; never raises."""


def make_meter(device: torch.device) -> Meter:
    """The meter of this device.

    Raises:
        NotImplementedError: autotune cannot measure this kind of device.
    """
    if device.type == "cuda":
        return CudaMeter(device)
    if device.type == "cpu":
        return CpuMeter()
    raise NotImplementedError(f"device {device.type!r} cannot be measured yet; use --device cuda or --device cpu")


class CudaMeter:
    """PyTorch's caching allocator, ``cudaMemGetInfo`` and, where present, NVML."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._unified = False
        self.missing_bytes = 0
        """What a training will hold outside of PyTorch and this process does not; counts as if it did."""
        self.cap_bytes: int | None = None
        self.others_bytes: int | None = None
        self._reserve_bytes = 0
        self._outside_at_cap_bytes: int | None = None

    def start(self, device_uuid: str) -> None:
        """Start the device, noting first what others hold."""
        self.others_bytes = nvml.used_bytes(device_uuid)
        before = available_bytes()
        torch.cuda.set_device(self._device)
        self.leave_out(self.others_bytes, before)
        torch.empty(1, device=self._device)
        self._check_allocator()

    def leave_out(self, others_bytes: int | None, available: int) -> None:
        """Count this as others': what NVML says, or all that the host has in use where its memory is the device's.

        Args:
            others_bytes: by NVML; None where it cannot tell.
            available: of the host's memory, at best from before this process started the device.
        """
        self.others_bytes, self._unified = others_bytes, has_unified_memory(self._device)
        if self._unified:
            self.others_bytes = max(0, torch.cuda.mem_get_info(self._device)[1] - available)

    def _free_and_total(self) -> tuple[int, int]:
        """Of the device. Where its memory is the host's the driver counts files that the kernel would drop as used."""
        free, total = torch.cuda.mem_get_info(self._device)
        return (min(total, available_bytes()) if self._unified else free), total

    def _check_allocator(self) -> None:
        """Make sure that the allocator runs as asked: the variables were set after torch was imported, before it began.

        Raises:
            EnvironmentTrouble: this torch read them at import, so the probe would measure something else.
        """
        asked = os.environ.get(ALLOCATOR_VARIABLES[0], "")
        snapshot = getattr(torch.cuda.memory, "_snapshot", None)
        if "expandable_segments:" not in asked or snapshot is None:
            return
        wanted = "expandable_segments:true" in asked.lower()
        got = snapshot().get("allocator_settings", {}).get("expandable_segments", wanted)
        if bool(got) is not wanted:
            raise EnvironmentTrouble(
                f"the allocator setting {asked!r} is not in force (expandable_segments is {got})",
                hint=f"set {ALLOCATOR_VARIABLES[0]}={asked} yourself before starting autotune",
            )

    def limit(self, limit_bytes: int, reserve_bytes: int) -> None:
        """Cap the allocator at the budget minus non-PyTorch memory (measured now, or before if that was more)."""
        total = self._free_and_total()[1]
        self._reserve_bytes = reserve_bytes
        outside = self._outside_at_cap_bytes = self._outside()
        self.cap_bytes = max(0, min(limit_bytes - outside, total))
        torch.cuda.memory.set_per_process_memory_fraction(self.cap_bytes / total, self._device)

    def _outside(self) -> int:
        """What is not for this process's tensors."""
        return max(self._reserve_bytes, self.non_pytorch() or 0)

    def lift_limit(self) -> None:
        """Nothing to do: reporting needs no device memory."""

    def begin(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def end(self) -> Peak:
        return Peak(
            torch.cuda.max_memory_allocated(self._device),
            torch.cuda.max_memory_reserved(self._device),
        )

    def drop_cache(self) -> None:
        torch.cuda.empty_cache()

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def retries(self) -> int:
        return int(torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0))

    def exhausted(self) -> int:
        return int(torch.cuda.memory_stats(self._device).get("num_ooms", 0))

    def non_pytorch(self) -> int | None:
        """Device-wide use minus this allocator minus others; without NVML others count as ours, the safe way round."""
        free, total = self._free_and_total()
        held = total - free - torch.cuda.memory_reserved(self._device) - (self.others_bytes or 0)
        return max(0, held) + self.missing_bytes

    def tick(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)

    def intervals(self) -> list[float]:
        torch.cuda.synchronize(self._device)
        pairs = zip(self._events[::2], self._events[1::2], strict=False)
        self._events = []
        return [start.elapsed_time(end) / 1000 for start, end in pairs]

    def state(self) -> dict[str, int | None]:
        state = MemoryState(cap_bytes=self.cap_bytes)
        with contextlib.suppress(RuntimeError):  # a lost context answers nothing, and that is the answer
            state = MemoryState(
                allocated_bytes=torch.cuda.memory_allocated(self._device),
                reserved_bytes=torch.cuda.memory_reserved(self._device),
                free_bytes=torch.cuda.mem_get_info(self._device)[0],
                cap_bytes=self.cap_bytes,
                # Where the device's memory is the host's, a process does give back: a model that was made on the CPU.
                outside_at_cap_bytes=None if self._unified else self._outside_at_cap_bytes,
                outside_bytes=None if self._unified else self._outside(),
            )
        return asdict(state)


_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


HEAP_SLACK_BYTES = 2 * MIB
"""Kept free of the limit on the CPU: the same training, step by step and run by run, differs by this much in small
allocations (498.5 to 500.3 MiB over 40 steps of examples/tiny_gpt.py, large tensors mapped one by one)."""


class CpuMeter:
    """Private memory of this process, as the kernel counts it (``/proc/self/status``)."""

    def __init__(self) -> None:
        self._ticks: list[float] = []
        self._hard_limit: int | None = None
        self._files_at_begin = 0
        self._held_at_begin = 0
        self.cap_bytes: int | None = None
        self.others_bytes: int | None = None

    def limit(self, limit_bytes: int, reserve_bytes: int) -> None:
        """Limit the data segment: all private writable memory, whether by heap or by mapping (Linux 4.7, setrlimit(2)).

        Set after the imports, it makes PyTorch's own CPU allocator fail at the size where a machine of that size would,
        and leaves read-only file mappings (libraries) out, which the kernel can drop.

        Raises:
            MemoryError: the process holds that much already.
        """
        del reserve_bytes  # everything of this process is within the limit
        limit_bytes = max(0, limit_bytes - HEAP_SLACK_BYTES)
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        cap = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
        held = own_data_bytes()
        if held >= cap:
            raise MemoryError(
                f"the process and its libraries hold {format_bytes(held)} before training begins;"
                f" {format_bytes(cap)} are allowed"
            )
        resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))
        self._hard_limit, self.cap_bytes = hard, cap

    def lift_limit(self) -> None:
        if self._hard_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self._hard_limit, self._hard_limit))

    def begin(self) -> None:
        with contextlib.suppress(OSError):  # some sandboxes lack it; then peaks are those of the whole process so far
            _CLEAR_REFS.write_text("5")
        status = _status()
        self._files_at_begin = status.get("RssFile", 0)
        self._held_at_begin = status.get("RssAnon", 0)

    def end(self) -> Peak:
        """Peak of this process's own memory in the phase as its limit counts it, plus what its children (loader workers)
        hold at its end.

        VmHWM, since ``ru_maxrss`` of a forked child starts at its parent's. File pages are taken off as far as they
        were there all the time; those that came and went (a mapped checkpoint) cannot be told from the rest, but
        private memory does not grow beyond the cap, so cap plus shared memory bounds the figure. What is mapped and was
        never touched (stacks and heaps of threads: 40 MiB with one thread, 120 with two) is added as it is at the end:
        it is within the limit too, and without it memory seems to run out far below.
        """
        status = _status()
        files = min(self._files_at_begin, status.get("RssFile", 0))
        untouched = max(0, status.get("VmData", 0) - status.get("RssAnon", 0))
        peak = status["VmHWM"] - files + untouched
        if self.cap_bytes is not None:
            private = max(self.cap_bytes, self._held_at_begin, status.get("RssAnon", 0))
            peak = min(peak, private + status.get("RssShmem", 0))
        return Peak(peak + children_bytes(os.getpid()), None)

    def drop_cache(self) -> None:
        """Nothing to do: the allocator of the CPU keeps nothing."""

    def allocated(self) -> int:
        return _status().get("RssAnon", 0)

    def retries(self) -> int:
        return 0

    def exhausted(self) -> int:
        return 0

    def non_pytorch(self) -> int | None:
        return None

    def tick(self) -> None:
        self._ticks.append(time.perf_counter())

    def intervals(self) -> list[float]:
        ticks, self._ticks = self._ticks, []
        return [end - start for start, end in zip(ticks[::2], ticks[1::2], strict=False)]

    def state(self) -> dict[str, int | None]:
        status = _status()
        free = None if self.cap_bytes is None else max(0, self.cap_bytes - status.get("VmData", 0))
        return asdict(MemoryState(allocated_bytes=status.get("RssAnon"), free_bytes=free, cap_bytes=self.cap_bytes))


def children_bytes(pid: int) -> int:
    """Memory that descendants hold for themselves now; pages they still share with their parent count there."""
    total = 0
    with contextlib.suppress(OSError):  # no procfs
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread or child that has just ended
                for child in children.read_text().split():
                    lines = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:"))
                    total += children_bytes(int(child))
    return total


def _status(path: Path = _STATUS) -> dict[str, int]:
    """Memory lines of ``/proc/PID/status`` in bytes; ``VmHWM`` is always there, if need be the peak of getrusage."""
    # not Linux, or a sandbox that leaves lines out: a peak of the whole process so far (bytes on macOS, else kilobytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {"VmHWM": peak, **{name.rstrip(":"): int(value) * 1024 for name, value, _ in fields}}
