"""What a search does, shown on stderr while it runs: a live line on a terminal, plain lines in a pipe, or nothing."""

from enum import Enum
from time import monotonic
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from autotune.cli.console import Screen, printable
from autotune.model import Budget, Machine, Outcome, ProbeResult, Question, WorkloadInfo
from autotune.report.probes import candidate_words, evaluation_size_words, failure_lines, probe_line
from autotune.report.words import FORMS, REASONS, format_count
from autotune.units import format_bytes

_REFRESHES_PER_SECOND = 4
"""Enough for the elapsed seconds to move."""

_STYLES = {Outcome.FITS: "green", Outcome.OUT_OF_MEMORY: "yellow", Outcome.UNSAFE: "yellow"}
_OTHER_STYLE = "red"
"""Outcomes that are not the ordinary ends of a probe."""


class Verbosity(Enum):
    """How much of a search is shown."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"
    """Also what is about to run and why, and failures in full."""


class Progress:
    """A ``SearchObserver`` for people, and the memory of what a search found out before it failed."""

    def __init__(self, screen: Screen, verbosity: Verbosity) -> None:
        self._screen = screen
        self._verbosity = verbosity
        self._live: Live | None = None
        self._running: tuple[Question, int, float] | None = None
        self.workload: WorkloadInfo | None = None
        """What the search said it trains; None until it knew."""
        self.machine: Machine | None = None

    def __enter__(self) -> Self:
        if self._screen.is_terminal and self._verbosity is not Verbosity.QUIET:
            # Neither stream is redirected through the live display: stdout belongs to the result.
            self._live = Live(
                get_renderable=self._live_line,
                console=self._screen,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = None
        if self._live is not None:
            self._live.stop()

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None:
        """Say what is searched, where, and with how much memory."""
        self.workload, self.machine = workload, machine
        self._say(
            f"{workload.ref}: {format_count(workload.parameters)} parameters, {workload.optimizer}; "
            f"{machine.device_name} ({machine.device}); budget {format_bytes(budget.limit_bytes)} ({budget.source})"
        )

    def note(self, text: str) -> None:
        """Pass on what ``api`` thinks is worth knowing."""
        self._say(text, "dim")

    def asked(self, question: Question, number: int) -> None:
        """Show the probe that starts now."""
        self._running = (question, number, monotonic())
        if self._verbosity is Verbosity.VERBOSE:
            self._say(_asking(question, number), "dim")
        self._refresh()

    def answered(self, result: ProbeResult, number: int) -> None:
        """Turn the live line into a finished one."""
        self._running = None
        self._refresh()  # or the line of the running probe would stand below its own end for a moment
        self._say(probe_line(result, number), _STYLES.get(result.outcome, _OTHER_STYLE))
        if self._verbosity is Verbosity.VERBOSE and not result.fits:
            self._say("\n".join(failure_lines(result)))

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _say(self, text: str, style: str = "") -> None:
        if self._verbosity is not Verbosity.QUIET:
            self._screen.say(text, style)

    def _live_line(self) -> Text:
        running = self._running
        if running is None:
            return Text("preparing ..." if self.workload is None else "...", style="dim")
        question, number, since = running
        return Text(printable(f"{_asking(question, number)}  {monotonic() - since:.0f} s"), style="dim")


def _asking(question: Question, number: int) -> str:
    return (
        f"probe {number:<2}  batch {question.batch_size:<6}  {FORMS[question.form]:<5}  {REASONS[question.reason]:<12}  "
        f"running  {evaluation_size_words(question.evaluate_at)}".rstrip()
        + f"  {candidate_words(question.reason, question.settings)}".rstrip()
    )
