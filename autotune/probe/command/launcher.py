"""Probes of a training command: started as the user would start it, with the hook in its environment. Parent side, no torch."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autotune.errors import WorkloadError
from autotune.knobs import in_words
from autotune.model import Budget, Cause, Machine, ProbeResult, Question, Settings, Source, WorkloadInfo
from autotune.probe import nvml
from autotune.probe.answers import describe_result, failure_of, known_batch, machine_result, obeyed, probe_result
from autotune.probe.command.containment import contained, visible_devices
from autotune.probe.command.known import unseen, with_command
from autotune.probe.command.orders import HOOK_VARIABLE, HookOrder
from autotune.probe.command.unwatched import Sampler, judge_unwatched
from autotune.probe.ended import Ended, tail
from autotune.probe.guarded import Guarded
from autotune.probe.order import Op, Order, Request
from autotune.probe.tenants import disturbance, gone_bytes
from autotune.probe.turns import Turns
from autotune.probe.variables import with_variables
from autotune.probe.wire import new_token
from autotune.probe.workplace import Workplace
from autotune.workload.command import BATCH_VARIABLE, fill
from autotune.workload.source import INSIDE_VARIABLE

_SITE = Path(__file__).resolve().parent / "site"
_ROOT = Path(__file__).resolve().parents[3]
_REHEARSED_STEPS = 2
"""The first shows the optimizer, the second what models are called with where there is no data loader."""
_HOOK_NEEDS = ("psutil", "pynvml")
"""Beside torch: what a Python without autotune lacks."""


class CommandLauncher:
    """Runs probes of one command; use as a context manager."""

    def __init__(
        self,
        source: Source,
        *,
        timeout_s: float,
        seed: int,
        say: Callable[[str], None] = lambda text: None,
        turns: Turns | None = None,
    ) -> None:
        """
        Args:
            source: with a command.
            timeout_s: wall limit of one run, its start included.
            seed: not used: a command has its own.
            say: told once what kind of watching is possible.
            turns: at the device, with other searches; None = it is not shared.
        """
        del seed
        self._turns = turns
        self._source = source
        self._timeout_s = timeout_s
        self._say = say
        self._workplace = Workplace()
        self._directory = self._workplace.path
        self._guarded = Guarded(self._directory)
        self._number = 0
        self._watched = True
        """Whether the hook attaches."""
        self.known_batch: int | None = None
        self.known_extents: list[list[int]] = []
        """What the rehearsal was told, and trained on (see ``HookOrder``)."""
        self.machine: Machine | None = None
        self._nvml_uuid = ""
        """Empty where NVML says nothing of the device, or nothing that could be true."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove the working files."""
        self._guarded.stop()
        self._workplace.remove()

    def preload(self, device: str) -> None:
        """Start the guardian.

        Raises:
            EnvironmentTrouble: no process can be started.
        """
        self._guarded.start()

    def describe(
        self, device: str, batch_size: int, length_buckets: Sequence[int] = ()
    ) -> tuple[WorkloadInfo, Machine]:
        """Run the command for two optimizer steps at a small size, to see what it trains and on what.

        Nothing is known of the length of its samples: ``planning`` refuses length buckets.

        Raises:
            WorkloadError: it fails in a way that has nothing to do with the size; ``detail`` is its traceback.
            EnvironmentTrouble: there is no such device, or no process can be started.
        """
        self._guarded.start()
        with self._turns.before(device) if self._turns else nullcontext():
            info, machine = self._describe(device, batch_size)
            return with_variables(info, os.environ), machine

    def _describe(self, device: str, batch_size: int) -> tuple[WorkloadInfo, Machine]:
        ended, log = self._rehearse(device, batch_size)
        answer = obeyed(ended)
        if answer is not None and answer.described is not None:
            info, self.machine = describe_result(answer.described)
            self.known_batch, self.known_extents = known_batch(answer.described)
            self._nvml_uuid = self.machine.device_uuid if info.device_used_bytes is None else ""
            return with_command(info, self._source, ""), self.machine
        self.machine = self._look(device)
        self._nvml_uuid = self.machine.device_uuid
        unwatched = ""
        if ended.mark is None and answer is None:
            self._watched, unwatched = False, self._why_not()
            self._say(f"the hook does not attach: {unwatched}; memory is sampled, and exit code and log decide")
        self._refuse_bugs(ended, log)
        return with_command(unseen(self._source), self._source, unwatched), self.machine

    def turn(self) -> AbstractContextManager[None]:
        """The device for this search alone (see ``ports.Laboratory``)."""
        assert self.machine is not None, "describe() comes first"
        return self._turns.at(self.machine) if self._turns else nullcontext()

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Run one probe (see ``ports.Prober``)."""
        with self.turn():
            return self._probe(question, budget, reserve_bytes)

    def _probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        assert self.machine is not None
        started_at = datetime.now(UTC)
        before_bytes = self._others_bytes()
        request = self._request(
            question.batch_size,
            question.settings,
            self.machine.torch_device,
            form=question.form,
            steps=question.form.steps,
            limit_bytes=budget.limit_bytes,
            reserve_bytes=reserve_bytes,
            others_bytes=before_bytes,
        )
        try:
            if not self._watched:
                return self._unwatched(request, question, budget, started_at, before_bytes)
            return self._watch(request, question, budget, started_at, before_bytes)
        finally:
            shutil.rmtree(Path(request.stdout).parent, ignore_errors=True)

    def _watch(
        self, request: Request, question: Question, budget: Budget, started_at: datetime, before_bytes: int | None
    ) -> ProbeResult:
        """Run it with the hook in it."""
        assert self.machine is not None
        ended = _without_early_end(self._guarded.ask(request))
        after_bytes = self._others_bytes()
        return probe_result(
            question,
            ended,
            disturbed=disturbance(budget, before_bytes, after_bytes),
            others_gone_bytes=gone_bytes(before_bytes, after_bytes),
            machine=self.machine,
            budget_bytes=budget.limit_bytes,
            started_at=started_at,
            launcher="command",
            stdout=Path(request.stdout),
            stderr=Path(request.stderr),
            of_command=True,
        )

    def _unwatched(
        self, request: Request, question: Question, budget: Budget, started_at: datetime, before_bytes: int | None
    ) -> ProbeResult:
        """Run it without the hook: what the system says is all there is."""
        assert self.machine is not None
        if self.machine.device == "cpu":
            request = replace(request, data_limit_bytes=budget.limit_bytes)
        assert self._guarded.process is not None
        with Sampler(self.machine, self._guarded.process.pid) as sampler:
            ended = self._guarded.ask(request)
        return judge_unwatched(
            question,
            ended,
            machine=self.machine,
            peak_bytes=sampler.peak_bytes,
            budget_bytes=budget.limit_bytes,
            started_at=started_at,
            stdout=Path(request.stdout),
            stderr=Path(request.stderr),
            disturbed=disturbance(budget, before_bytes, self._others_bytes()),
        )

    def _others_bytes(self) -> int | None:
        assert self.machine is not None
        return nvml.used_bytes(self._nvml_uuid) if self.machine.device == "cuda" else None

    def _rehearse(self, device: str, batch_size: int) -> tuple[Ended, str]:
        """At twice the size, and at the size itself where the training does not bear that.

        Twice, since the first probe is of the size: what two sizes have alike does not follow what the command is told.

        Returns:
            How it ended, and the end of what it wrote to its error output.
        """
        for size in (2 * batch_size, batch_size):
            request = self._request(size, Settings(), device, steps=_REHEARSED_STEPS, rehearsal=True)
            ended = _without_early_end(self._guarded.ask(request))
            log = tail(Path(request.stderr))
            shutil.rmtree(Path(request.stdout).parent, ignore_errors=True)
            if ended.exit_code in (0, None) and (ended.answer is None or not ended.answer.raised):
                break
        return ended, log

    def _refuse_bugs(self, ended: Ended, text: str) -> None:
        """End here what no other size would help.

        Raises:
            WorkloadError: the command has failed so, or takes too long.
        """
        by_itself = f"try it by itself: {fill(self._source, 1, {}, 'DIR').text}"
        if not self._watched and (ended.timed_out or ended.exit_code == 0):
            return  # all that can be asked of it
        if ended.timed_out:
            raise WorkloadError(
                f"{_REHEARSED_STEPS} steps of the command at its smallest batch size did not end in {self._timeout_s:g} s",
                hint=f"give more by --timeout, or look what it waits for; {by_itself}",
                detail=text,
            )
        if ended.answer is not None and not ended.answer.raised:
            return  # it trained and ended early, of which the probes tell
        _, failure = failure_of(ended, device="cpu", capacity_bytes=0, stderr_tail=text, of_command=True)
        if failure.cause is Cause.NO_ANSWER:
            raise WorkloadError(
                f"the command ended by itself, with exit code {ended.exit_code}, and did not train",
                hint=by_itself,
                detail=text,
            )
        if failure.cause is Cause.USER_BUG:
            raise WorkloadError(
                f"the command fails: {failure.message}",
                hint=failure.hint or by_itself,
                detail=failure.traceback or text,
            )

    def _look(self, device: str) -> Machine:
        """The machine as autotune's own Python sees it."""
        path = self._directory / "look.json"
        Order(op=Op.LOOK, source=self._source, settings=Settings(), job_environment={}, seed=0, device=device).write(
            path
        )
        request = Request(
            load=False,
            fork=False,
            order=str(path),
            environment=dict(os.environ),
            stdout=str(self._directory / "look.out"),
            stderr=str(self._directory / "look.err"),
            deadline_s=self._timeout_s,
        )
        answer = obeyed(self._guarded.ask(request))
        return machine_result((answer.described if answer else None) or {})

    def _request(self, batch_size: int, settings: Settings, device: str, **details: Any) -> Request:
        """Write the hook's order down, fill the command in, and make the pipe it answers on."""
        self._number += 1
        folder = self._directory / str(self._number)
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        pipe, order = folder / "pipe", folder / "order.json"
        os.mkfifo(pipe, 0o600)
        token = new_token()
        HookOrder(
            roots={"autotune": str(_ROOT), **{name: _folder(name) for name in _HOOK_NEEDS}},
            pipe=str(pipe),
            token=token,
            trouble=str(self._directory / "trouble"),
            batch_size=batch_size,
            device="cuda:0" if device.startswith("cuda") else device,
            known_batch=self.known_batch,
            known_extents=self.known_extents,
            directory=self._source.directory,
            **details,
        ).write(order)
        filled = fill(self._source, batch_size, in_words(settings), str(scratch))
        path = [str(_SITE), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        return Request(
            load=False,
            fork=False,
            order="",
            environment={
                **os.environ,
                **contained(scratch),
                **settings.environment,
                BATCH_VARIABLE: str(batch_size),
                **filled.environment,
                **visible_devices(device),
                HOOK_VARIABLE: str(order),
                INSIDE_VARIABLE: str(self._directory),
                "PYTHONPATH": os.pathsep.join(path),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=str(folder / "out"),
            stderr=str(folder / "err"),
            deadline_s=self._timeout_s,
            command=filled.words,
            directory=self._source.directory,
            pipe=str(pipe),
            token=token,
        )

    def _why_not(self) -> str:
        """Why the hook did not attach, as far as it said so."""
        trouble = tail(self._directory / "trouble").strip().splitlines()
        return trouble[-1] if trouble else "no Python with torch was seen"


def _without_early_end(ended: Ended) -> Ended:
    """A process that failed, or was stopped, says only by its log why, if all that the hook saw was its end.

    One that we ended has said all there is: that a script around it then misses what training would have left is no
    failure.
    """
    answer, failed = ended.answer, ended.timed_out or ended.exit_code not in (0, None)
    if failed and answer is not None and answer.ending and not answer.raised:
        return replace(ended, answer=None)
    return ended


def _folder(name: str) -> str:
    """The folder that a package, or a module of one file, is imported from."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, f"{name} is installed with autotune"
    return str(Path(spec.origin).parents[1 if spec.submodule_search_locations else 0])
