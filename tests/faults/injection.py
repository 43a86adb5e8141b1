"""One fault, the run it hits, and the same command again to its end: what must hold then."""

from collections.abc import Callable
from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.model import Outcome, ProbeResult, SearchRecord, SearchState
from tests.faults.bench import Bench, Ran
from tests.faults.striking import Fault

Rows = dict[str, tuple[SearchRecord, tuple[ProbeResult, ...]]]

_TO_BE_REPEATED = frozenset({Outcome.CRASHED, Outcome.UNRELIABLE})
"""What such a probe says may have come from outside: it is asked once more, and both rows are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault, and how the run that it hits ends."""

    group: str
    """Row of the table."""
    fault: Fault
    codes: frozenset[int]
    fresh: bool = True
    """The run that is hit starts a new search; False: it finds what is in the ledger, and confirms or goes on."""
    after: Fault | None = None
    """Hits a run before it, so that there is an unfinished search to go on with."""

    @property
    def name(self) -> str:
        fault = self.fault
        return f"{fault.act} {fault.victim} at {fault.point} (process {fault.process}, visit {fault.visit})"


def inject(injection: Injection, bench: Bench, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
    """Run the fault and then the undisturbed command; returns what is wrong, nothing if all is well.

    ``meanwhile`` is called between the two, to end what the fault began.
    """
    (bench.folder / "clock").unlink(missing_ok=True)
    answer = bench.answer()
    before = bench.rows()
    if injection.after is not None:
        bench.run("--fresh", fault=injection.after)
        before = bench.rows()
    text = bench.document.read_bytes() if bench.document.exists() else None
    hit = bench.run(*(["--fresh"] if injection.fresh else []), fault=injection.fault)
    meanwhile()
    between = bench.rows()
    wrong = [] if hit.struck else ["the point was not reached"]
    wrong += ended_well(hit, injection.codes)
    wrong += kept(before, between)
    wrong += _recorded(hit, before, between)
    if text != (bench.document.read_bytes() if bench.document.exists() else None):
        wrong += is_answer(bench, answer, "after the fault")
    final = bench.run()
    wrong += [f"then: {words}" for words in ended_well(final, frozenset({0}))]
    after = bench.rows()
    wrong += kept(between, after)
    wrong += _went_on(before, between, after)
    wrong += is_answer(bench, answer, "at the end")
    wrong += [f"left over: {name}" for name in bench.left_over()]
    return wrong


def ended_well(ran: Ran, codes: frozenset[int]) -> list[str]:
    """The right exit code, no traceback of ours, nothing that lives on."""
    wrong = []
    if ran.code not in codes:
        wrong.append(f"exit code {ran.code} and not {sorted(codes)}; it said: {ran.stderr[-600:]}")
    if "Traceback" in ran.stderr or "a bug in autotune" in ran.stderr:
        wrong.append(f"a traceback: {ran.stderr[-1500:]}")
    wrong += [f"still alive: {command}" for command in ran.orphans]
    return wrong


def kept(before: Rows, after: Rows) -> list[str]:
    """Every finished probe is where it was, as it was; searches that had ended are as they were."""
    wrong = []
    for search_id, (record, probes) in before.items():
        if search_id not in after:
            wrong.append(f"search {search_id} is lost")
            continue
        record_now, probes_now = after[search_id]
        if probes_now[: len(probes)] != probes:
            wrong.append(f"finished probes of search {search_id} are lost or changed")
        if record.state is SearchState.ANSWERED and record_now != record:
            wrong.append(f"the answer of search {search_id} has changed")
    return wrong


def _recorded(ran: Ran, before: Rows, after: Rows) -> list[str]:
    """What the tool said was finished is in the ledger."""
    count = sum(len(probes) for _, probes in after.values()) - sum(len(probes) for _, probes in before.values())
    return [f"{ran.told} probes were told, {count} are in the ledger"] if ran.told > count else []


def _went_on(before: Rows, between: Rows, after: Rows) -> list[str]:
    """The search that was hit has its answer now, each of its questions asked once; else one probe confirmed the old."""
    wrong = []
    for search_id, (record, probes) in between.items():
        is_open = record.state in (SearchState.RUNNING, SearchState.INTERRUPTED) and not record.based_on
        if not is_open:
            continue
        record_now, probes_now = after[search_id]
        if record_now.state is not SearchState.ANSWERED:
            wrong.append(f"search {search_id} was left {record_now.state.value}")
        done = [question(probe) for probe in probes if probe.outcome not in _TO_BE_REPEATED]
        again = [question(probe) for probe in probes_now[len(probes) :]]
        wrong += [f"asked again: {asked}" for asked in done if asked in again]
        return wrong
    fresh = [probes for search_id, (_, probes) in after.items() if search_id not in between]
    if [len(probes) for probes in fresh] != [1]:
        wrong.append(f"an answer was there, and was confirmed by {[len(probes) for probes in fresh]} probes")
    return wrong


def question(probe: ProbeResult) -> tuple[object, ...]:
    """What a probe was asked."""
    return probe.batch_size, probe.form.value, probe.evaluate_at, probe.settings


def is_answer(bench: Bench, answer: object, when: str) -> list[str]:
    try:
        found = bench.answer()
    except (AutotuneError, ValueError) as error:
        return [f"{bench.document.name} {when} is no document: {error}"]
    return [] if found == answer else [f"the answer {when} is {found} and not {answer}"]
