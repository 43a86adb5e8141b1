"""The tool's side of probing: starts the guardian, gives orders, returns results. No torch.

One launcher serves one workload. Probes are forked from a zygote where that is safe and spawned elsewhere; the answer is
the same. Closing it (or dying) ends every process below.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autotune.model import (
    Budget,
    Failure,
    Form,
    Machine,
    Outcome,
    Parallel,
    ProbeResult,
    Question,
    Section,
    Settings,
    Source,
    WorkloadInfo,
)
from autotune.probe import linux, nvml
from autotune.probe.answers import (
    OWN_FAULTS,
    describe_result,
    failure_of,
    obeyed,
    others_left,
    probe_result,
    read_trace,
    section_result,
)
from autotune.probe.ended import Ended, tail
from autotune.probe.guarded import Guarded
from autotune.probe.loaded import fork_trouble, load_error, was_killed
from autotune.probe.order import Op, Order, Rank, Request
from autotune.probe.ranks import orders, standing_in, verdict
from autotune.probe.tenants import disturbance, gone_bytes
from autotune.probe.turns import Turns
from autotune.probe.variables import with_variables
from autotune.probe.workplace import Workplace
from autotune.workload.source import INSIDE_VARIABLE

_FIRST_S = 10.0
"""For the first forked child to compute: a healthy one does in milliseconds, a dead-locked one never."""
_FIRST_DEVICE_S = 60.0
"""... and to start the device: a driver takes a second, on a host with many devices several."""
_NO_SETTINGS = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The end of a process that looked at a training."""

    seen: Any
    """The section's noun (``diagnose.evidence``), complete or up to the failure; None where nothing was answered."""
    outcome: Outcome = Outcome.FITS
    failure: Failure | None = None
    """What ended it too early; None exactly when the outcome is ``fits``."""


class Launcher:
    """Runs probes of one workload; use as a context manager."""

    _ahead: bool | None = None
    """Whether the zygote uses the time while a probe works; None = on CUDA. Tests say so for the CPU."""
    _certifies_afresh: bool | None = None
    """Whether the long form starts a fresh interpreter; None = on the CPU. Tests whose subject is no memory say no."""

    def __init__(
        self,
        source: Source,
        *,
        timeout_s: float,
        seed: int,
        say: Callable[[str], None] = lambda text: None,
        turns: Turns | None = None,
        ranks: int = 1,
        stands_in: bool = False,
    ) -> None:
        """
        Args:
            source: what to load.
            timeout_s: wall limit of one process, loading included.
            seed: of every probe.
            say: told once about a fallback.
            turns: at the device, with other searches; None = it is not shared.
            ranks: processes that train together in each probe: on the CPU, or on the first so many CUDA devices.
            stands_in: there is one of them, which stands in for all (``probe.stand_ins``).
        """
        self._source = source
        self._turns = turns
        self._ranks = 1 if stands_in else ranks
        """Processes of a probe."""
        self._world = ranks
        self._stands_in = stands_in
        self._fullest_rank = 0
        self.communicators_bytes = 0
        """Where one process stands in: what communicators with the others would hold of its device."""
        self._timeout_s = timeout_s
        self.seed = seed
        """Of the next probes."""
        self._say = say
        # The pickle of live objects lies in the working directory, so that the guardian removes it, too, at the end.
        self._own = None if source.pickle_path else Workplace()
        self._directory = self._own.path if self._own else Path(source.pickle_path).parent
        self._guarded = Guarded(self._directory)
        self._zygote = False
        self._loading: Request | None = None
        """Sent, and its end not yet waited for."""
        self._number = 0
        self._forks = linux.IS_LINUX
        self._outside_bytes = 0
        """Device memory outside PyTorch's allocator, the most that a process was seen to hold that looked at a training."""
        self.machine: Machine | None = None
        self._nvml_uuids: tuple[str, ...] = ("",) * self._ranks
        """One a rank; empty where NVML says nothing of the device, or nothing that could be true."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove the working files."""
        self._guarded.stop()
        if self._own is not None:
            self._own.remove()
        else:
            shutil.rmtree(self._directory, ignore_errors=True)

    def preload(self, device: str) -> None:
        """Begin to load the workload, which ``describe`` waits for; returns at once.

        Raises:
            EnvironmentTrouble: no process can be started.
        """
        self._guarded.start()
        if self._forks:
            self._begin_loading(device)

    def describe(
        self, device: str, batch_size: int, length_buckets: Sequence[int] = ()
    ) -> tuple[WorkloadInfo, Machine]:
        """Load the workload, build it once on the CPU, and look at the machine.

        Raises:
            WorkloadError: the user's file or model building fails; ``detail`` is the user's traceback.
            EnvironmentTrouble: the device is not there, or processes cannot be started.
            UsageError: there are no lengths to make buckets of.
        """
        begin_s = _FIRST_S if device == "cpu" else _FIRST_DEVICE_S
        if self._forks and not self._zygote:
            self._guarded.start()
            self._load_zygote(device)  # before the device is asked for, which takes no time then
        with self._turns.before(device) if self._turns else nullcontext():
            for last in (False, True):
                ended, _, stderr, _ = self._run(
                    Op.DESCRIBE,
                    begin_s=begin_s,
                    device=device,
                    batch_size=batch_size,
                    length_buckets=tuple(length_buckets),
                    prebuild_s=self._timeout_s / 2,
                )
                if last or not was_killed(ended, stderr):
                    break
        answer = obeyed(ended)
        if answer is None or answer.described is None:
            raise load_error(ended, stderr, self._source.ref, self._timeout_s)
        workload, self.machine = describe_result(answer.described)
        self._fullest_rank = workload.fullest_rank
        of_first = self.machine.device_uuid if workload.device_used_bytes is None else ""
        of_others = self.machine.peers or ("",) * (self._ranks - 1)  # none on the CPU
        self._nvml_uuids = (of_first, *of_others)
        return with_variables(workload, os.environ), self.machine

    def turn(self) -> AbstractContextManager[None]:
        """The device for this search alone (see ``ports.Laboratory``)."""
        assert self.machine is not None, "describe() comes first"
        return self._turns.at(self.machine) if self._turns else nullcontext()

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Run one probe (see ``ports.Prober``)."""
        with self.turn():
            return self._probe(question, budget, reserve_bytes)

    def _probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        machine = self.machine
        assert machine is not None
        started_at = datetime.now(UTC)
        # On the CPU a forked child shares the zygote's address layout, and so its luck with heap fragmentation (10 %
        # of the peak from layout to layout with glibc's defaults): what certifies starts as the training will.
        afresh = machine.device == "cpu" if self._certifies_afresh is None else self._certifies_afresh
        fork = question.form is not Form.LONG or not afresh
        trace_path = self._directory / "trace"
        before_bytes = self._others_bytes()
        ended, stdout, stderr, launcher = self._run(
            Op.PROBE,
            fork=fork,
            device=machine.torch_device,
            device_uuid=self._nvml_uuids[0],
            batch_size=question.batch_size,
            form=question.form,
            settings=question.settings,
            reference=question.reference,
            limit_bytes=budget.limit_bytes,
            reserve_bytes=reserve_bytes,
            trace_unit=question.trace_unit,
            trace_largest=question.trace_largest,
            evaluate_at=question.evaluate_at,
            length_bucket=question.length_bucket,
            trace_path=str(trace_path),
        )
        trace = read_trace(trace_path)
        after_bytes = self._others_bytes()
        tenants = list(zip(before_bytes, after_bytes, strict=True))
        of_devices = (disturbance(budget, *both) for both in tenants)
        disturbed = next((failure for failure in of_devices if failure is not None), None)
        gone = max(gone_bytes(*both) for both in tenants)

        def result(ended: Ended, stdout: Path, stderr: Path) -> ProbeResult:
            return probe_result(
                question,
                ended,
                trace=trace,
                disturbed=disturbed,
                others_gone_bytes=gone,
                machine=machine,
                budget_bytes=budget.limit_bytes,
                started_at=started_at,
                launcher=launcher,
                stdout=stdout,
                stderr=stderr,
            )

        if self._ranks == 1:
            return result(ended, stdout, stderr)
        return verdict(ended, [(stdout, stderr), *map(self._logs, range(1, self._ranks))], result)

    def examine(
        self, section: Section, batch_size: int, settings: Settings, budget: Budget, **details: Any
    ) -> Examined:
        """Look at a training for one section of a diagnosis, in a process of its own.

        ``details``: ``steps`` and ``output`` as in ``Order``.

        Raises:
            AutotuneError: the worker refused its order.
            EnvironmentTrouble: the process cannot be started, or others hold the device for too long.
        """
        assert self.machine is not None, "describe() comes first"
        with self.turn():
            before_bytes = self._others_bytes()[0]
            ended, _, stderr, _ = self._run(
                Op.EXAMINE,
                section=section,
                device=self.machine.torch_device,
                device_uuid=self._nvml_uuids[0],
                batch_size=batch_size,
                settings=settings,
                limit_bytes=budget.limit_bytes,
                reserve_bytes=self._outside_bytes,
                **details,
            )
            gone = gone_bytes(before_bytes, self._others_bytes()[0])
        answer = obeyed(ended)
        disturbed = others_left(ended, budget.limit_bytes, gone)
        if answer is not None and answer.measurement is not None and disturbed is None:
            self._outside_bytes = max(self._outside_bytes, answer.measurement.non_pytorch_bytes or 0)
        seen = section_result(section, answer.examined) if answer and answer.examined is not None else None
        if answer is not None and not answer.raised:
            return Examined(seen=seen)
        outcome, failure = failure_of(
            ended,
            device=self.machine.device,
            capacity_bytes=budget.limit_bytes,
            stderr_tail=tail(stderr),
            allocator=settings.allocator,
        )
        if disturbed is not None and outcome not in OWN_FAULTS:
            outcome, failure = Outcome.UNRELIABLE, disturbed
        return Examined(seen=seen, outcome=outcome, failure=failure)

    def _others_bytes(self) -> tuple[int | None, ...]:
        """Memory of each rank's device in use while no probe runs; None where that cannot be told."""
        assert self.machine is not None
        if self.machine.device != "cuda":
            return (None,) * self._ranks
        return tuple(map(nvml.used_bytes, self._nvml_uuids))

    def _logs(self, rank: int) -> tuple[Path, Path]:
        """Standard output and error of one rank of the last probe."""
        name = f"{self._number}-{rank}"
        return self._directory / f"{name}.out", self._directory / f"{name}.err"

    def _run(
        self, op: Op, *, fork: bool = True, begin_s: float | None = None, **details: Any
    ) -> tuple[Ended, Path, Path, str]:
        """One order through zygote or spawn: its end, its logs, and how it was started."""
        self._guarded.start()
        fork = fork and self._forks
        if fork and not self._zygote:
            self._load_zygote(str(details["device"]))
            fork = self._forks
        self._forget(f"{self._number}.*", f"{self._number}-*")
        self._number += 1
        request = self._request(str(self._number), op, fork=fork, begin_s=begin_s if fork else None, **details)
        ended = self._guarded.ask(request)
        self._zygote = ended.zygote
        trouble = fork_trouble(op, ended) if fork else ""
        if trouble:
            self._forks = False
            self._say(f"probes start a fresh interpreter each, which is slower: {trouble}")
            return self._run(op, fork=False, **details)
        return ended, Path(request.stdout), Path(request.stderr), "fork" if fork else "spawn"

    def _forget(self, *patterns: str) -> None:
        """Remove files of what has ended: its result has all that is kept of them."""
        for pattern in patterns:
            for file in self._directory.glob(pattern):
                file.unlink()

    def _request(
        self,
        name: str,
        op: Op,
        *,
        load: bool = False,
        fork: bool = False,
        begin_s: float | None = None,
        settings: Settings = _NO_SETTINGS,
        **details: Any,
    ) -> Request:
        """Write the order down and address it."""
        path = self._directory / f"{name}.json"
        order = Order(
            op=op,
            source=self._source,
            settings=settings,
            job_environment=settings.environment,
            seed=self.seed,
            ranks=self._world,
            stands_in=self._stands_in,
            communicators_bytes=self.communicators_bytes,
            **details,
        )
        if op is Op.PROBE and self._stands_in:
            order = standing_in(order, self._fullest_rank if settings.parallel is Parallel.ZERO else 0)
        peers: list[Rank] = []
        if op is Op.PROBE and self._ranks > 1:
            order, *others = orders(order, self._directory / f"{name}.meeting", self._nvml_uuids)
            for other in others:
                other_path = self._directory / f"{name}-{other.rank}.json"
                other.write(other_path)
                stdout, stderr = map(str, self._logs(other.rank))
                variables = other.job_environment
                peers.append(Rank(order=str(other_path), stdout=stdout, stderr=stderr, variables=variables))
        order.write(path)
        environment = {
            **os.environ,
            **settings.environment,
            INSIDE_VARIABLE: str(self._directory),
            # without it a mere torch.cuda.is_available() in the user's file spoils later forks (PyTorch documentation)
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
        }
        return Request(
            load=load,
            fork=fork,
            order=str(path),
            environment=environment,
            stdout=str(self._directory / f"{name}.out"),
            stderr=str(self._directory / f"{name}.err"),
            deadline_s=self._timeout_s,
            begin_s=begin_s,
            peers=tuple(peers),
            variables=order.job_environment,
        )

    def _begin_loading(self, device: str) -> Request:
        """Have the workload loaded once, to be forked from."""
        self._forget("zygote-*")
        request = self._request(f"zygote-{self._number}", Op.LOAD, load=True, device=device, ahead=self._ahead)
        self._guarded.send(request)
        self._loading = request
        return request

    def _load_zygote(self, device: str) -> None:
        """Wait for the workload to be loaded; where forking from it is unsafe, say so and spawn from now on.

        Raises:
            AutotuneError: the workload cannot be loaded.
        """
        request = self._loading or self._begin_loading(device)
        self._loading = None
        ended = self._guarded.wait(request)
        if was_killed(ended, Path(request.stderr)):
            ended = self._guarded.ask(request)
        self._zygote = ended.zygote
        answer = obeyed(ended)
        if answer is None or answer.fork_safe is None:
            raise load_error(ended, Path(request.stderr), self._source.ref, self._timeout_s)
        if not answer.fork_safe:
            self._forks = False
            self._say(f"probes start a fresh interpreter each, which is slower: {answer.why}")
