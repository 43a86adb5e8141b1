"""Taking turns at a device with other searches: which lock, how long to wait for it, what to say meanwhile. No torch."""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from autotune.errors import EnvironmentTrouble, TimeRanOut
from autotune.model import Machine
from autotune.probe import nvml
from autotune.probe.device_lock import FOLDER_VARIABLE, DeviceLock
from autotune.probe.host import host_limit
from autotune.probe.visible import visible
from autotune.units import format_seconds

_POLL_S = 0.05
_TELL_AFTER_S = 1.0
"""Shorter waits are not worth a line: two searches take turns at every probe."""
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""One of them is there where a CUDA or ROCm device can be (the last under WSL)."""
_INDEX = re.compile(r"cuda(?::(\d+))?")


class Turns:
    """One search's turns at its device."""

    def __init__(
        self,
        *,
        wait_s: float,
        until: float | None = None,
        say: Callable[[str], None] = lambda text: None,
        host_alone: bool = False,
        ranks: int = 1,
    ) -> None:
        """
        Args:
            wait_s: how long one turn may be waited for; 0 = not at all.
            until: instant on ``time.monotonic`` at which the search's time is over; None = never.
            say: told whom is waited for, once for each.
            host_alone: on the CPU, the budget is all that is free, so that two such searches cannot both have it. Where
                a limit was given, CPU searches run side by side, as other programs do.
            ranks: processes that train together, on as many devices; all of these are held.
        """
        self._wait_s = wait_s
        self._until = until
        self._say = say
        self._host_alone = host_alone
        self._told: set[str] = set()
        self._ranks = ranks
        self._keys: tuple[str, ...] = ()
        """Of the devices that were looked at: known for sure only when torch has seen them."""
        self.waited_s = 0.0
        """In all."""

    def end_at(self, until: float | None) -> None:
        """The search's time is over at another instant than was said before."""
        self._until = until

    @contextmanager
    def before(self, device: str) -> Iterator[None]:
        """While the device is looked at that this name stands for (``auto``, ``cuda:1``).

        Raises:
            EnvironmentTrouble: others still held it when the wait ended.
            TimeRanOut: the search's time ended first.
        """
        self._keys = _keys_before(device, self._ranks)
        with self._holding(self._keys, device if self._ranks == 1 else "cuda:{}"):
            yield

    @contextmanager
    def at(self, machine: Machine) -> Iterator[None]:
        """While something runs on the device, or others' memory on it is read.

        Raises:
            EnvironmentTrouble, TimeRanOut: as ``before``.
        """
        if machine.device == "cpu":
            host = host_key() if self._host_alone else None
            keys: tuple[str, ...] = () if host is None else (host,)
            name = "the host's memory"
        else:
            keys = self._keys_of(machine)
            name = f"{machine.device}:{machine.device_index}" if self._ranks == 1 else f"{machine.device}:{{}}"
        with self._holding(keys, name):
            yield

    def _keys_of(self, machine: Machine) -> tuple[str, ...]:
        """By UUID; by number where NVML did not know the UUID beforehand, as other searches in the same place do then."""
        numbered = any(key.startswith("cuda-") for key in self._keys)
        if numbered or not all((machine.device_uuid, *machine.peers)):
            return self._keys or tuple(f"cuda-{machine.device_index + rank}" for rank in range(self._ranks))
        return tuple(map(bare, (machine.device_uuid, *machine.peers)))

    @contextmanager
    def _holding(self, keys: tuple[str, ...], name: str) -> Iterator[None]:
        """Hold all of them; in their ``name`` the place of each is filled in.

        Everybody takes them in the same order, so that no two wait for each other.
        """
        with ExitStack() as stack:
            for key, rank in sorted({key: rank for rank, key in enumerate(keys)}.items()):
                stack.enter_context(self._holding_one(key, name.format(rank)))
            yield

    @contextmanager
    def _holding_one(self, key: str, name: str) -> Iterator[None]:
        lock = DeviceLock(key)
        try:
            try:
                self._wait(lock, name)
            except OSError as error:
                self._tell(
                    f"searches of others on {name} are not waited for, since there is no lock: {error}"
                    f" ({FOLDER_VARIABLE} names another folder)"
                )
            yield
        finally:
            lock.release()

    def _wait(self, lock: DeviceLock, name: str) -> None:
        began = time.monotonic()
        while not lock.take():
            waited_s = time.monotonic() - began
            over = self._until is not None and time.monotonic() >= self._until
            if waited_s >= self._wait_s or over:
                self.waited_s += waited_s
                raise _busy(name, lock, waited_s, out_of_time=over)
            if waited_s >= _TELL_AFTER_S:
                self._tell(f"waiting for {name}: {_held_by(lock)} runs a probe there")
            time.sleep(_POLL_S)
        self.waited_s += time.monotonic() - began

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(text)


def bare(uuid: str) -> str:
    """A UUID without what NVML, and not torch, puts before it."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def _busy(name: str, lock: DeviceLock, waited_s: float, *, out_of_time: bool) -> EnvironmentTrouble | TimeRanOut:
    holder = _held_by(lock)
    if out_of_time:
        return TimeRanOut(
            f"the time budget ended while waiting for {name}, which {holder} holds",
            hint="run the same command again to go on, with a larger --time-budget or when that has ended",
        )
    return EnvironmentTrouble(
        f"{name} is busy: {holder} still held it after a wait of {format_seconds(waited_s)}",
        hint="run the same command again when that has ended (finished probes are kept), wait longer with --device-wait,"
        " or choose another --device",
    )


def _held_by(lock: DeviceLock) -> str:
    holder = lock.holder()
    return "another search" if holder is None else holder.text


def _keys_before(device: str, ranks: int) -> tuple[str, ...]:
    """What stands for devices that torch has not seen yet; empty where none is there."""
    asked = _INDEX.fullmatch("cuda" if device == "auto" else device)
    if asked is None:
        return ()
    indices = range(first := int(asked[1] or 0), first + ranks)
    cards = nvml.cards()
    found = visible(cards, os.environ) if cards else None
    if found is not None:
        return tuple(bare(found[index]) for index in indices if index < len(found))
    return tuple(f"cuda-{index}" for index in indices) if any(map(os.path.exists, _DRIVERS)) else ()


def host_key() -> str | None:
    """The memory that CPU searches share: the host's, or that of their cgroup; None where the limit is each process's own."""
    shared_by = host_limit().shared_by
    return f"host-{shared_by}" if shared_by else None
