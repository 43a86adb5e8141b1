"""One look at the machine after the other."""

import threading
import time
from datetime import UTC, datetime

from autotune.probe import nvml
from autotune.probe.installation import DISTRIBUTION, installed
from autotune.watch import devices
from autotune.watch.searches import Searches
from autotune.watch.snapshot import Snapshot
from autotune.watch.trainings import trainings


class Collector:
    """Looks when it is asked; by several threads one after the other."""

    def __init__(self, storage: str | None = None) -> None:
        """
        Args:
            storage: the ledger whose searches are shown; None = the default one.
        """
        self._searches = Searches(storage)
        self._turn = threading.Lock()

    def look(self) -> Snapshot:
        """Devices, tenants, trainings and searches now. What cannot be seen is a note."""
        with self._turn, nvml.kept_open():
            return self._look()

    def _look(self) -> Snapshot:
        began = time.monotonic()
        notes: list[str] = []
        why = nvml.missing()
        if why:
            notes.append(f"NVML cannot be asked, so that only the host is seen: {why}")
        seen = (*devices.cards(), devices.host())
        found = trainings(seen)
        running = self._searches.running()
        if not all(one.lock_told for one in seen):
            notes.append("whether probes run cannot be told: there are no locks in the folder for them")
        return Snapshot(
            taken=datetime.now(UTC),
            host=devices.host_name(),
            version=installed(DISTRIBUTION) or "",
            driver=nvml.driver_version(),
            devices=seen,
            trainings=found.trainings,
            searches=running.searches,
            notes=(*notes, *found.notes, *running.notes),
            seconds=time.monotonic() - began,
        )
