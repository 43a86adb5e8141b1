"""Searches whose reports are looked at, and a page taken apart."""

from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from autotune.knobs import choices
from autotune.model import (
    Answer,
    Cause,
    Comparison,
    Failure,
    Form,
    Outcome,
    Phase,
    PhaseMemory,
    Precision,
    ProbeResult,
    Reason,
    SearchRecord,
    SearchState,
    Settings,
)
from autotune.report.page.build import build_view
from autotune.report.page.view import View
from autotune.units import GIB
from tests.cli.results import ANSWER, PLAN, PROBES, RECORD, fitting
from tests.unit.planted_passes import Planted, trained

RECORDING = replace(fitting(2, reason=Reason.TRACE), trace=trained(Planted(cache=100_000), (2, 3)))
BF16 = Settings(precision=Precision.BF16)
HOSTILE = (
    "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
    "<svg onload=\"document.title='pwned'\"><a href='http://evil.example/'>click</a>{{ 7 * 7 }}%{x}'\"`|&amp;\u2028"
)
"""For a name, a message, a path: whatever of it is not escaped shows in the title, or as an element."""


def phases(probe: ProbeResult) -> ProbeResult:
    """With a peak of each phase."""
    top = probe.measurement.peak_allocated_bytes or 0
    each = tuple(
        PhaseMemory(phase=phase, peak_allocated_bytes=top * share // 10, peak_reserved_bytes=top)
        for phase, share in ((Phase.BUILD, 1), (Phase.FORWARD, 8), (Phase.BACKWARD, 10), (Phase.OPTIMIZER, 3))
    )
    return replace(probe, measurement=replace(probe.measurement, phases=each))


def tuned() -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """A search of settings: bf16 is twice as fast and trains the same, fp16 is faster still and does not."""
    plan = replace(PLAN, space=choices((), (), (), Settings()))
    fp16 = Settings(precision=Precision.FP16)

    def timed(settings: Settings, batch_size: int, step_s: float, form: Form = Form.TIMED) -> ProbeResult:
        steps = (step_s, step_s * 1.01, step_s * 0.99)
        return replace(phases(fitting(batch_size, form, Reason.KNOWN, step_seconds=steps)), settings=settings)

    def compared(settings: Settings, *, same: bool) -> ProbeResult:
        probe = fitting(2, Form.COMPARE, Reason.COMPARE, step_seconds=())
        probe = replace(probe, settings=settings, measurement=replace(probe.measurement, comparison=Comparison()))
        if same:
            return probe
        failure = Failure(cause=Cause.GRADIENTS_DIFFER, message="the gradients point elsewhere")
        return replace(probe, outcome=Outcome.CHANGES_TRAINING, failure=failure)

    probes = (
        RECORDING,
        *(phases(probe) if probe.fits else probe for probe in PROBES),
        timed(BF16, 24, 0.08),
        compared(BF16, same=True),
        timed(fp16, 24, 0.05),
        compared(fp16, same=False),
        timed(BF16, 26, 0.085, Form.LONG),
    )
    answer = replace(ANSWER, max_batch=26, recommended_batch=26, refuted_at=None, settings=BF16, limited_by="max_batch")
    return replace(RECORD, plan=plan, answer=answer), probes


def hostile() -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """The same with hostile text wherever text is the user's."""
    record, probes = tuned()
    source = replace(record.plan.source, ref=HOSTILE, directory=HOSTILE, script_args=(HOSTILE,))
    workload = replace(record.workload, ref=HOSTILE, optimizer=HOSTILE, batch=HOSTILE, notes=(HOSTILE,))
    machine = replace(record.machine, device_name=HOSTILE, platform=HOSTILE, driver_version=HOSTILE)
    budget = replace(record.budget, source=HOSTILE)

    def said(probe: ProbeResult) -> ProbeResult:
        failure = probe.failure and replace(
            probe.failure, message=HOSTILE, error_type=HOSTILE, traceback=HOSTILE, hint=HOSTILE, signal=HOSTILE
        )
        return replace(probe, failure=failure, stderr_tail=HOSTILE, stdout_tail=HOSTILE)

    record = replace(
        record,
        plan=replace(record.plan, source=source),
        workload=workload,
        machine=machine,
        budget=budget,
        message=HOSTILE,
        version=HOSTILE,
        id=HOSTILE,
    )
    return record, tuple(said(probe) for probe in probes)


def without_answer(
    probes: tuple[ProbeResult, ...], state: SearchState = SearchState.NO_ANSWER, message: str = ""
) -> View:
    """Of a search that has none."""
    return build_view(replace(RECORD, answer=None, state=state, message=message), probes)


def many(count: int) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """A search with so many probes, each at a size of its own."""
    probes = tuple(replace(phases(fitting(size)), budget_bytes=40 * GIB) for size in range(1, count + 1))
    answer = Answer(max_batch=24, refuted_at=28, recommended_batch=24, limited_by="device_memory", step=1)
    return replace(RECORD, answer=answer), (*probes, *PROBES)


@dataclass
class Page(HTMLParser):
    """The elements of a page, in order; text by element where it matters."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    tables: list[dict[str, int]] = field(default_factory=list)
    title: str = ""
    text: str = ""
    scripts: list[str] = field(default_factory=list)
    _within: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def read(cls, text: str) -> "Page":
        """Take a page apart."""
        page = cls()
        page.feed(text)
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One more element."""
        given = dict(attrs)
        self.tags.append((tag, given))
        self._within.append(tag)
        if given.get("id"):
            self.ids.append(given["id"] or "")
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append((int(tag[1]), ""))
        if tag == "script":
            self.scripts.append("")
        if tag == "table":
            self.tables.append({"caption": 0, "th": 0, "scoped": 0})
        elif self.tables and tag == "caption":
            self.tables[-1]["caption"] += 1
        elif self.tables and tag == "th":
            self.tables[-1]["th"] += 1
            self.tables[-1]["scoped"] += given.get("scope") in ("col", "row")
        if tag in ("meta", "link", "img", "br", "input"):
            self._within.pop()

    def handle_endtag(self, tag: str) -> None:
        """Everything that was open within it ends as well."""
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Text."""
        where = self._within[-1] if self._within else ""
        if where == "title":
            self.title += data
        elif where == "script":
            self.scripts[-1] += data
        elif where != "style":
            self.text += data
        if where in ("h1", "h2", "h3", "h4"):
            level, words = self.headings[-1]
            self.headings[-1] = level, words + data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [given for name, given in self.tags if name == tag]
