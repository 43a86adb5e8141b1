"""How a diagnosis goes through its sections where some of them die of memory and others tell of that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, cast

import pytest

from autotune.diagnosing import Start, run_sections, sections_of
from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, UsageError, WorkloadError
from autotune.looking import Looker
from autotune.model import (
    NO_CUDA,
    NO_FOLDER,
    Budget,
    Cause,
    CompositionEvidence,
    Failure,
    Findings,
    FragmentEvidence,
    LeakEvidence,
    Outcome,
    Peak,
    Pieces,
    ProbeResult,
    Question,
    Section,
    Settings,
    Snapshots,
)
from autotune.probe.launcher import Examined, Launcher
from autotune.units import GIB, MIB
from tests.cli.results import BUDGET, MACHINE, WORKLOAD
from tests.fakes import BUG, result

NOTHING = Findings(workload=WORKLOAD, machine=MACHINE, budget=BUDGET, batch_size=2, batch_from="a small one")
DIED = Failure(cause=Cause.DEVICE_MEMORY, message="CUDA out of memory", step=1)
PEAK = Peak(
    batch_size=8,
    phase=None,
    measured_bytes=GIB,
    watched_bytes=GIB,
    kinds=(),
    modules=(),
    makers=(),
    non_pytorch_bytes=0,
)
CUT = Pieces(
    allocated_bytes=GIB, reserved_bytes=2 * GIB, inactive_split_bytes=GIB, largest_free_bytes=MIB, free_blocks=9
)
IN_PIECES = FragmentEvidence(cap_bytes=2 * GIB, at_failure=CUT, requested_bytes=512 * MIB)
PEAK_SEEN = Examined(seen=CompositionEvidence(peak=PEAK))
GOOD = FragmentEvidence(steps=4, retries_per_step=(0, 0, 0, 0))


@dataclass
class Machinery:
    """Answers each section as planted, and remembers what was asked."""

    answers: dict[Section, Examined | AutotuneError]
    rerun: Examined = field(default_factory=lambda: Examined(seen=GOOD))
    asked: list[tuple[Section, str]] = field(default_factory=list)

    def examine(
        self, section: Section, batch_size: int, settings: Settings, budget: object, **details: object
    ) -> Examined:
        self.asked.append((section, settings.allocator))
        answer = self.rerun if settings.allocator else self.answers[section]
        if isinstance(answer, AutotuneError):
            raise answer
        return answer


def go(
    machinery: Machinery,
    *sections: Section,
    device: str = "cuda",
    output: str = "",
    keep: Callable[[Findings], None] = lambda findings: None,
) -> Findings:
    return run_sections(
        cast(Launcher, machinery),
        Start(batches=(8,), batch_from="as asked for", settings=Settings()),
        cast(Sequence[Section], sections),
        workload=WORKLOAD,
        machine=replace(MACHINE, device=device),
        budget=BUDGET,
        steps=None,
        output=output,
        say=lambda text: None,
        keep=keep,
    )


def ended(outcome: Outcome, step: int, seen: object = None) -> Examined:
    failure = Failure(cause=Cause.USER_BUG, message="it failed", step=step, hint="mend it", traceback="theirs")
    return Examined(seen=seen, outcome=outcome, failure=failure)


def dead(seen: object) -> Examined:
    return Examined(seen=seen, outcome=Outcome.OUT_OF_MEMORY, failure=DIED)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def test_a_peak_is_what_its_process_answered() -> None:
    machinery = Machinery({Section.COMPOSITION: Examined(seen=CompositionEvidence(peak=PEAK))})
    findings = go(machinery, Section.COMPOSITION)
    assert findings.peak == PEAK and findings.clean


def test_a_composition_that_died_is_an_error_where_nothing_else_was_asked() -> None:
    with pytest.raises(NothingFits, match="out of memory"):
        go(Machinery({Section.COMPOSITION: dead(CompositionEvidence())}), Section.COMPOSITION)


def test_c27_fragmentation_answers_for_a_training_that_the_composition_died_of() -> None:
    machinery = Machinery({Section.COMPOSITION: dead(CompositionEvidence()), Section.FRAGMENTATION: dead(IN_PIECES)})
    findings = go(machinery, Section.COMPOSITION, Section.FRAGMENTATION)
    (why,) = findings.unanswered
    assert (why.section, why.kind) == (Section.COMPOSITION, "nothing_fits")
    assert why.message.startswith("training at batch 8 fails")
    assert findings.fragmentation is not None and findings.fragmentation.flagged and not findings.clean
    assert findings.fragmentation.best is not None
    tried = [allocator for section, allocator in machinery.asked if allocator]
    assert tried[0] == "expandable_segments:True" and len(tried) == len(findings.fragmentation.remedies) == 4


def test_a_profile_that_dies_after_the_peak_was_taken_apart_keeps_it() -> None:
    findings = go(Machinery({Section.COMPOSITION: dead(CompositionEvidence(peak=PEAK))}), Section.COMPOSITION)
    assert findings.peak == PEAK


def test_a_training_that_fails_by_itself_is_no_fragmentation() -> None:
    wrong = Examined(
        seen=GOOD, outcome=Outcome.WORKLOAD_ERROR, failure=Failure(cause=Cause.USER_BUG, message="NameError: x")
    )
    with pytest.raises(Exception, match="NameError"):
        go(Machinery({Section.FRAGMENTATION: wrong}), Section.FRAGMENTATION)


def test_an_out_of_memory_that_left_a_file_is_an_answer(tmp_path: Path) -> None:
    files, folder = Snapshots(out_of_memory="/out/out-of-memory.pickle"), str(tmp_path / "new" / "folder")
    findings = go(Machinery({Section.SNAPSHOT: dead(files)}), Section.SNAPSHOT, output=folder)
    assert findings.snapshots == files and Path(folder).is_dir()
    with pytest.raises(NothingFits):
        go(Machinery({Section.SNAPSHOT: dead(Snapshots())}), Section.SNAPSHOT, output=folder)


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    machinery = Machinery({})
    with pytest.raises(UsageError, match="no folder can be made"):
        go(machinery, Section.SNAPSHOT, output=str(tmp_path / "file" / "below"))
    assert machinery.asked == []


def test_on_a_cpu_and_without_a_folder_no_process_is_started_for_what_cannot_be() -> None:
    machinery = Machinery({})
    findings = go(machinery, Section.FRAGMENTATION, Section.SNAPSHOT, device="cpu", output="/out")
    assert findings.fragmentation is not None and not findings.fragmentation.flagged
    assert findings.snapshots == Snapshots(note=NO_CUDA)
    assert go(machinery, Section.SNAPSHOT).snapshots == Snapshots(note=NO_FOLDER)
    assert machinery.asked == []


def test_sections_are_named_and_come_in_their_order() -> None:
    assert sections_of(()) == tuple(Section)
    assert sections_of("advice,composition") == (Section.COMPOSITION, Section.ADVICE)
    with pytest.raises(UsageError, match="nonsense"):
        sections_of("nonsense")


def test_advice_takes_the_first_size_that_trains_and_tells_of_the_first_where_none_does() -> None:
    class Picky:
        asked: ClassVar[list[int]] = []

        def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
            self.asked.append(question.batch_size)
            if question.batch_size != 8:
                return result(question.batch_size, question.form, BUG)
            return result(8, question.form, need_bytes=GIB, budget_bytes=budget.limit_bytes)

    def looker(*sizes: int) -> Looker:
        return Looker(cast(Launcher, Picky()), NOTHING, sizes, steps=None, output="", say=lambda text: None)

    several = looker(2, 1, 8, 64)
    assert several.look(Section.ADVICE) is None
    assert several.findings.batch_size == 8 and several.findings.advised is not None and Picky.asked[:3] == [2, 1, 8]
    ended = looker(2, 1).look(Section.ADVICE)
    assert ended is not None and isinstance(ended.error, WorkloadError) and "batch 2 " in ended.error.message


LEAK = Examined(seen=LeakEvidence(held_bytes=tuple(MIB * step for step in range(1, 31))))
CALM = Examined(seen=LeakEvidence(held_bytes=(MIB,) * 30))


@pytest.mark.parametrize(
    ("end", "kind", "exit_code"),
    [
        (ended(Outcome.CRASHED, 3), "environment", 5),
        (ended(Outcome.TIMED_OUT, 3), "environment", 5),
        (ended(Outcome.WORKLOAD_ERROR, 1), "workload", 4),
        (ended(Outcome.UNSUPPORTED, 1), "usage", 2),
        (Examined(seen=None), "environment", 5),
        (dead(None), "nothing_fits", 3),
    ],
)
def test_what_was_found_outlives_a_later_section_that_has_no_answer(end: Examined, kind: str, exit_code: int) -> None:
    findings = go(Machinery({Section.LEAKS: CALM, Section.COMPOSITION: end}), Section.LEAKS, Section.COMPOSITION)
    assert findings.leaks is not None and findings.leaks.clean
    (why,) = findings.unanswered
    assert (why.section, why.kind, why.exit_code) == (Section.COMPOSITION, kind, exit_code)
    assert not findings.clean and not findings.wrong
    if end.failure is not None and kind != "nothing_fits":
        assert (why.hint, why.detail) == ("mend it", "theirs") and "it failed" in why.message


def test_a_leak_stays_what_is_wrong_whatever_ends_the_sections_behind_it() -> None:
    grown = Examined(seen=LEAK.seen, outcome=Outcome.OUT_OF_MEMORY, failure=replace(DIED, step=9))
    machinery = Machinery(
        {
            Section.LEAKS: grown,
            Section.COMPOSITION: ended(Outcome.CRASHED, 1),
            Section.FRAGMENTATION: Examined(seen=GOOD),
        }
    )
    findings = go(machinery, Section.LEAKS, Section.COMPOSITION, Section.FRAGMENTATION)
    assert findings.wrong and findings.leaks is not None and findings.leaks.died_at_step == 9
    assert [one.section for one in findings.unanswered] == [Section.COMPOSITION]
    assert findings.fragmentation is not None, "the section behind the one that crashed was looked at"


def test_a_section_that_ends_late_does_not_keep_the_others_from_being_looked_at() -> None:
    machinery = Machinery({Section.LEAKS: ended(Outcome.TIMED_OUT, 70), Section.COMPOSITION: PEAK_SEEN})
    findings = go(machinery, Section.LEAKS, Section.COMPOSITION)
    assert findings.peak == PEAK and [one.section for one in findings.unanswered] == [Section.LEAKS]


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.WORKLOAD_ERROR])
def test_what_ends_the_very_first_step_is_not_waited_for_in_every_section(outcome: Outcome) -> None:
    machinery = Machinery({section: ended(outcome, 1) for section in Section})
    with pytest.raises(AutotuneError, match="it failed"):
        go(machinery, *Section)
    assert len(machinery.asked) == 1


def test_where_no_process_can_be_run_any_more_the_rest_is_named_and_not_tried() -> None:
    trouble = EnvironmentTrouble("others hold the device", hint="wait")
    machinery = Machinery(
        {Section.LEAKS: CALM, Section.COMPOSITION: trouble, Section.FRAGMENTATION: Examined(seen=GOOD)}
    )
    findings = go(machinery, Section.LEAKS, Section.COMPOSITION, Section.FRAGMENTATION)
    first, second = findings.unanswered
    assert (first.message, first.hint) == ("others hold the device", "wait")
    assert (second.section, second.hint) == (Section.FRAGMENTATION, "") and "not looked at" in second.message
    assert len(machinery.asked) == 2


def test_the_error_of_the_first_section_goes_out_where_no_section_says_anything() -> None:
    machinery = Machinery({Section.LEAKS: dead(None), Section.COMPOSITION: ended(Outcome.CRASHED, 1)})
    with pytest.raises(NothingFits, match="out of memory"):
        go(machinery, Section.LEAKS, Section.COMPOSITION, Section.FRAGMENTATION, device="cpu")


def test_fragmentation_stays_where_its_remedies_cannot_be_tried() -> None:
    class NoMore(Machinery):
        def examine(
            self, section: Section, batch_size: int, settings: Settings, budget: object, **details: object
        ) -> Examined:
            if settings.allocator:
                raise UsageError("the worker refused its order")
            return super().examine(section, batch_size, settings, budget)

    findings = go(NoMore({Section.FRAGMENTATION: dead(IN_PIECES)}), Section.FRAGMENTATION)
    assert findings.fragmentation is not None and findings.fragmentation.flagged and findings.wrong
    assert [one.message for one in findings.unanswered] == ["the worker refused its order"]


def test_a_file_of_the_peak_that_was_written_before_the_training_crashed_is_named_with_the_crash(
    tmp_path: Path,
) -> None:
    written = Snapshots(peak="/out/peak.pickle")
    findings = go(
        Machinery({Section.SNAPSHOT: ended(Outcome.CRASHED, 5, written)}), Section.SNAPSHOT, output=str(tmp_path)
    )
    assert findings.snapshots == written and [one.kind for one in findings.unanswered] == ["environment"]


def test_a_full_disk_is_no_error_of_the_training_and_costs_its_own_section_alone(tmp_path: Path) -> None:
    full = Examined(seen=Snapshots(unwritten="/out/peak-batch-8.pickle could not be written: No space left on device"))
    machinery = Machinery({Section.LEAKS: CALM, Section.SNAPSHOT: full, Section.FRAGMENTATION: Examined(seen=GOOD)})
    findings = go(machinery, Section.SNAPSHOT, Section.LEAKS, Section.FRAGMENTATION, output=str(tmp_path))
    (why,) = findings.unanswered
    assert (why.section, why.kind, why.exit_code) == (Section.SNAPSHOT, "environment", 5)
    assert why.message.startswith("/out/peak-batch-8.pickle could not be written") and "make room" in why.hint
    assert findings.snapshots is None and findings.leaks is not None and findings.fragmentation is not None
    with pytest.raises(EnvironmentTrouble, match="No space left"):
        go(machinery, Section.SNAPSHOT, output=str(tmp_path))
    with pytest.raises(NothingFits, match="out of memory; /out/peak-batch-8"):
        go(Machinery({Section.SNAPSHOT: dead(full.seen)}), Section.SNAPSHOT, output=str(tmp_path))


def test_what_is_kept_after_each_section_says_which_were_not_looked_at_yet() -> None:
    machinery = Machinery(
        {Section.LEAKS: dead(None), Section.COMPOSITION: PEAK_SEEN, Section.FRAGMENTATION: Examined(seen=GOOD)}
    )
    kept: list[Findings] = []
    findings = go(machinery, Section.LEAKS, Section.COMPOSITION, Section.FRAGMENTATION, keep=kept.append)
    first, last = kept
    assert first.peak == PEAK and first.fragmentation is None
    assert [(one.section, one.kind) for one in first.unanswered] == [
        (Section.LEAKS, "nothing_fits"),
        (Section.FRAGMENTATION, "interrupted"),
    ]
    assert last == findings


def test_a_training_that_memory_ran_out_of_is_not_clean_though_it_is_not_in_pieces() -> None:
    used_up = FragmentEvidence(cap_bytes=2 * GIB, at_failure=replace(CUT, allocated_bytes=2 * GIB), requested_bytes=GIB)
    findings = go(Machinery({Section.FRAGMENTATION: dead(used_up)}), Section.FRAGMENTATION)
    assert findings.fragmentation is not None and not findings.fragmentation.flagged
    assert findings.wrong and not findings.clean
