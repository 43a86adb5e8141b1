"""The truth about a workload: long-form probes in fresh processes, under the same cap on PyTorch's allocator as the peers."""

import time
from types import TracebackType
from typing import Self

from autotune import api
from autotune.errors import EnvironmentTrouble
from autotune.model import Budget, Form, Machine, ProbeResult, Question, Reason
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from benchmarks.common.documents import Status
from benchmarks.comparison.cases import Case
from benchmarks.comparison.limit import is_exact, largest, next_size
from benchmarks.comparison.results import Cell, Trial

OUTSIDE_BATCH = 16
"""Where the memory outside PyTorch is measured: in the long form, which loads every kernel the training needs."""
_ROOM_BYTES = 4 * GIB
"""Left beside the cap for memory outside PyTorch, so that the cap alone decides."""


def room(machine: Machine, cap_bytes: int) -> tuple[Budget, int]:
    """Budget of a probe under this cap on PyTorch's allocator, and what of it is for memory outside; the CPU has no cap."""
    capacity = machine.capacity_bytes
    limit = capacity if machine.device == "cpu" else cap_bytes + _ROOM_BYTES
    budget = Budget(limit_bytes=limit, source="benchmark", capacity_bytes=capacity, others_bytes=0, headroom_bytes=0)
    return budget, _ROOM_BYTES


class Reference:
    """Probes of one workload, forked from a process that has loaded it; use as a context manager."""

    def __init__(
        self,
        case: Case,
        device: str,
        cap_bytes: int,
        *,
        ranks: int = 1,
        parallel: str = "default",
        timeout_s: float = 300.0,
        repeats: int = 1,
    ) -> None:
        """
        Args:
            case: the workload, its file found from the working directory.
            device: ``cuda`` or ``cpu``.
            cap_bytes: of PyTorch's allocator, for each rank; not used on the CPU.
            ranks: processes that train together in a probe.
            parallel: how, as ``autotune --parallel`` has it.
            timeout_s: wall limit of one probe.
            repeats: probes of a size, each with another seed, which must all be safe.
        """
        plan = api.plan(
            str(case.file),
            device=device,
            precision=case.precision,
            ranks=ranks,
            parallel=parallel,
            timeout_s=timeout_s,
            recommend=False,
        )
        self._device = device
        self.cap_bytes = cap_bytes
        """May be set anew before ``limit``, where it is known only after the workload was loaded."""
        self._settings = plan.settings
        self._seeds = range(plan.seed + 1, plan.seed + 1 + repeats)  # the search had plan.seed
        self._launcher = Launcher(plan.source, timeout_s=timeout_s, seed=self._seeds[0], ranks=ranks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._launcher.close()

    def machine(self) -> Machine:
        """Load the workload and look at the device.

        Raises:
            WorkloadError: the workload cannot be loaded, for example because its library is not installed.
            EnvironmentTrouble: there is no such device.
        """
        return self._launcher.describe(self._device, 1)[1]

    def outside_bytes(self) -> int:
        """Memory of a training process outside PyTorch's allocator; 0 on the CPU, where it cannot be told.

        Raises:
            EnvironmentTrouble: not even the device could be started.
        """
        probe = self._probe(OUTSIDE_BATCH)
        measured = probe.measurement.non_pytorch_bytes
        if measured is None and self._device != "cpu":
            why = probe.failure.message if probe.failure else "nothing was measured"
            raise EnvironmentTrouble(
                f"memory outside PyTorch cannot be measured at batch {OUTSIDE_BATCH}: {why}",
                hint="give it with --non-pytorch-mib",
            )
        return measured or 0

    def limit(self, start: int) -> Cell:
        """The true limit, searched around ``start``."""
        began = time.monotonic()
        tried: dict[int, bool] = {}
        trials = []
        while (size := next_size(tried, start)) is not None:
            for seed in self._seeds:
                self._launcher.seed = seed
                probe = self._probe(size)
                tried[size] = probe.fits
                trials.append(Trial(size=size, outcome=probe.outcome, seconds=round(probe.seconds, 3)))
                if not probe.fits:
                    break
        best = largest(tried)
        return Cell(
            status=Status.FAILED if best is None else Status.DONE,
            answer=best,
            seconds=round(time.monotonic() - began, 1),
            trials=tuple(trials),
            message="no size that was tried fits" if best is None else "",
            exact=is_exact(tried),
        )

    def _probe(self, size: int) -> ProbeResult:
        machine = self._launcher.machine
        assert machine is not None, "machine() comes first"
        question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=self._settings)
        return self._launcher.probe(question, *room(machine, self.cap_bytes))
