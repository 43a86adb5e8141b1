"""What ``autotune doctor`` finds out about devices, tenants, locks and limits. Parent side: torch is asked in a child."""

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from pydantic import TypeAdapter, ValidationError

from autotune.masked import variable_value
from autotune.model import ALLOCATOR_VARIABLES, Fact, Health, Seen, SeenDevice
from autotune.probe import nvml
from autotune.probe.device_lock import FOLDER_VARIABLE, DeviceLock, lock_folder
from autotune.probe.facts import fact
from autotune.probe.host import host_limit, shared_memory_bytes
from autotune.probe.interpreter import interpreter
from autotune.probe.turns import bare
from autotune.probe.visible import Card, visible
from autotune.units import MIB, format_bytes

_TORCH_S = 180.0
"""For an interpreter to import torch from a slow disk and to start every device."""
_SHARED_LEAST_BYTES = 256 * MIB
"""Docker gives containers 64 MiB, in which loader workers run out of room."""
_VARIABLES = ("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "NCCL_", "OMP_", "MKL_")
_GET_TORCH = "choose the build for your driver at https://pytorch.org/get-started/locally/"


def look_by_torch(busy: Sequence[str], call: str = "from autotune.probe.sight import main") -> Seen | str:
    """What a fresh process with torch sees, or why it saw nothing.

    Args:
        busy: UUIDs of devices that nothing may run on now.
        call: what the process imports ``main`` by.
    """
    with TemporaryDirectory(prefix="autotune-") as folder:
        path = Path(folder) / "seen.json"
        words = interpreter(f"{call}; main({str(path)!r}, {list(busy)!r})")
        try:
            ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TORCH_S, check=False)
        except subprocess.TimeoutExpired:
            return f"a process that loads it and starts the devices did not end within {_TORCH_S:g} s"
        except OSError as error:
            return f"no process can be started: {error}"
        if path.exists():
            try:
                seen: Seen = TypeAdapter(Seen).validate_json(path.read_bytes())
                return seen
            except ValidationError as error:
                return f"the process that looks answered in an unknown form: {error}"
    if ended.returncode < 0:
        return f"a process that loads it was killed by {signal.Signals(-ended.returncode).name}"
    last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return last[0][:300] if last else f"a process that loads it ended with exit code {ended.returncode}"


@contextlib.contextmanager
def standing_back(cards: Sequence[Card]) -> Iterator[tuple[list[str], list[Fact]]]:
    """UUIDs of devices where somebody's probe runs, and what to say of locks; the other devices are held meanwhile."""
    uuids = [uuid for card in cards for uuid in (card.uuid, *(card.slices or ()))]
    busy: list[str] = []
    facts: list[Fact] = []
    with contextlib.ExitStack() as stack:
        for uuid in uuids or ["doctor"]:
            lock = DeviceLock(bare(uuid))
            stack.callback(lock.release)
            try:
                if not lock.take():
                    busy.append(uuid)
                    holder = lock.holder()
                    who = "another search" if holder is None else holder.text
                    facts.append(
                        Fact(section="locks", name=uuid, value=f"held by {who}: left alone", health=Health.NOTE)
                    )
            except OSError as error:
                text = f"none in {lock_folder()}: {error}; searches do not wait for each other"
                hint = f"set {FOLDER_VARIABLE} to a folder that all users of the device can write to"
                facts.append(Fact(section="locks", name="folder", value=text, health=Health.TROUBLE, hint=hint))
                break
        if not facts:
            facts.append(Fact(section="locks", name="folder", value=f"{lock_folder()}; no probe runs"))
        yield busy, facts


def devices(seen: Seen | str, cards: Sequence[Card]) -> list[Fact]:
    """Each device by PyTorch and by NVML, and who uses it."""
    facts = [_driver(cards)]
    found = () if isinstance(seen, str) else seen.devices
    facts += [one for device in found for one in _device(device)]
    if not isinstance(seen, str) and cards and not found and visible(cards, os.environ) != ():
        text = f"the driver lists {len(cards)}, PyTorch sees none"
        hint = (
            _GET_TORCH
            if not seen.cuda_version
            else "compare `nvidia-smi` with the CUDA version above; update the driver"
        )
        facts.append(Fact(section="devices", name="CUDA", value=text, health=Health.TROUBLE, hint=hint))
    elif not found:
        facts.append(Fact(section="devices", name="CUDA", value="none; searches run on the CPU"))
    return facts


def _driver(cards: Sequence[Card]) -> Fact:
    version = nvml.driver_version()
    if version:
        listed = ", ".join(f"{card.name}{' in slices' if card.slices is not None else ''}" for card in cards)
        return Fact(section="devices", name="NVML", value=f"driver {version}; {listed or 'no devices'}")
    why = nvml.missing()
    hint = "pip install nvidia-ml-py" if "not installed" in why else ""
    return Fact(section="devices", name="NVML", value=f"cannot be asked: {why}", health=Health.NOTE, hint=hint)


def _device(device: SeenDevice) -> Iterator[Fact]:
    name = f"cuda:{device.index}"
    free = f", {format_bytes(device.free_bytes)} free" if device.free_bytes is not None else ""
    kind = "; its memory is the host's" if device.unified else ""
    text = f"{device.name}; UUID {device.uuid or 'not told'}; {format_bytes(device.capacity_bytes)}{free}{kind}"
    if device.trouble:
        hint = f"nothing can be computed there; {_GET_TORCH}"
        yield Fact(section="devices", name=name, value=f"{text}; {device.trouble}", health=Health.TROUBLE, hint=hint)
    else:
        computes = "computes" if device.computes else "not tried: a probe runs there"
        yield Fact(section="devices", name=name, value=f"{text}; {computes}")
    yield fact("devices", f"{name} by NVML", lambda: _by_nvml(device))
    yield fact("tenants", name, lambda: _tenants(device.uuid))


def _by_nvml(device: SeenDevice) -> str | Fact:
    why = nvml.trouble(device.uuid, device.capacity_bytes)
    if not why:
        total, used = nvml.capacity_bytes(device.uuid), nvml.used_bytes(device.uuid)
        return f"{format_bytes(total)}, {format_bytes(used)} in use"
    text = f"not used: {why}; PyTorch's own figures stand in for it"
    return Fact(section="devices", name=f"cuda:{device.index} by NVML", value=text, health=Health.NOTE)


def _tenants(uuid: str) -> str:
    running = nvml.tenants(uuid)
    if running is None:
        return "not told"
    return (
        "; ".join(
            f"{_process(pid)}, {format_bytes(used) if used is not None else 'bytes not told'}" for pid, used in running
        )
        or "none"
    )


def _process(pid: int) -> str:
    """NVML says ids of the host: within a container one may be nobody's, or somebody else's."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return f"pid {pid} {process.name()} ({process.username()})"
    return f"pid {pid}"


def limits() -> list[Fact]:
    """What bounds memory and processes here."""
    return [
        fact("limits", "host memory", _host_memory),
        fact("limits", "rlimits", _rlimits),
        fact("limits", "shared memory", _shared_memory),
        fact("limits", "processors", lambda: f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"),
    ]


def _host_memory() -> str:
    limit, memory = host_limit(), psutil.virtual_memory()
    text = f"{format_bytes(memory.available)} available of {format_bytes(memory.total)}"
    if limit.source == "available memory":
        return f"{text}; no tighter limit"
    return f"{text}; {format_bytes(limit.free_bytes)} of {format_bytes(limit.total_bytes)} by {limit.source} {limit.shared_by}".rstrip()


def _rlimits() -> str:
    kinds = {"address space": resource.RLIMIT_AS, "data": resource.RLIMIT_DATA}
    counts = {"processes": resource.RLIMIT_NPROC, "open files": resource.RLIMIT_NOFILE}
    told = [f"{name} {_limit(kind, sized=True)}" for name, kind in kinds.items()]
    return ", ".join([*told, *(f"{name} {_limit(kind, sized=False)}" for name, kind in counts.items())])


def _limit(kind: int, *, sized: bool) -> str:
    soft = resource.getrlimit(kind)[0]
    if soft == resource.RLIM_INFINITY:
        return "unlimited"
    return format_bytes(soft) if sized else str(soft)


def _shared_memory() -> str | Fact:
    size = shared_memory_bytes()
    if size is None:
        return "none"
    text = f"{format_bytes(size)} at /dev/shm"
    if size >= _SHARED_LEAST_BYTES:
        return text
    hint = "for loader workers start the container with --shm-size=8g or --ipc=host"
    return Fact(section="limits", name="shared memory", value=text, health=Health.NOTE, hint=hint)


def allocator() -> list[Fact]:
    """Allocator settings in force by the environment; they change what fits."""
    told = {name: os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ}
    if not told:
        return [Fact(section="environment", name="allocator", value="PyTorch's default")]
    found = [Fact(section="environment", name=name, value=value) for name, value in told.items()]
    if len(set(told.values())) > 1:
        hint = f"unset all but one: unset {' '.join(list(told)[1:])}"
        found[-1] = replace(found[-1], health=Health.TROUBLE, hint=hint)
    return found


def environment() -> list[Fact]:
    """Other variables that PyTorch, CUDA and their libraries read."""
    names = [name for name in sorted(os.environ) if name.startswith(_VARIABLES) and name not in ALLOCATOR_VARIABLES]
    return [
        Fact(section="environment", name=name, value=variable_value(name, os.environ[name]) or "(empty)")
        for name in names
    ]
