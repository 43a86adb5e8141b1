"""How a diagnosis goes through its sections where some of them die of memory and others tell of that."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, cast

import pytest

from autotune.diagnosing import Start, _advised, run_sections, sections_of
from autotune.errors import NothingFits, UsageError, WorkloadError
from autotune.model import (
    NO_CUDA,
    NO_FOLDER,
    Advised,
    Cause,
    CompositionEvidence,
    Failure,
    Findings,
    FragmentEvidence,
    Outcome,
    Peak,
    Pieces,
    Section,
    Settings,
    Snapshots,
)
from autotune.probe.launcher import Examined, Launcher
from autotune.units import GIB, MIB
from autotune.verifying import Adviser
from tests.cli.results import BUDGET, MACHINE, WORKLOAD

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
GOOD = FragmentEvidence(steps=4, retries_per_step=(0, 0, 0, 0))


@dataclass
class Machinery:
    """Answers each section as planted, and remembers what was asked."""

    answers: dict[Section, Examined]
    rerun: Examined = field(default_factory=lambda: Examined(seen=GOOD))
    asked: list[tuple[Section, str]] = field(default_factory=list)

    def examine(
        self, section: Section, batch_size: int, settings: Settings, budget: object, **details: object
    ) -> Examined:
        self.asked.append((section, settings.allocator))
        return self.rerun if settings.allocator else self.answers[section]


def go(machinery: Machinery, *sections: Section, device: str = "cuda", output: str = "") -> Findings:
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
    )


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
    assert why.startswith("composition: training at batch 8 fails")
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

        def advise(self, batch_size: int, *others: object) -> Advised:
            self.asked.append(batch_size)
            if batch_size != 8:
                raise WorkloadError(f"batch {batch_size} is no multiple of 8")
            return Advised(peak_bytes=1, seconds_per_sample=None)

    findings = _advised(NOTHING, (2, 1, 8, 64), cast(Adviser, Picky()))
    assert findings.batch_size == 8 and findings.advised is not None and Picky.asked == [2, 1, 8]
    with pytest.raises(WorkloadError, match="batch 2 "):
        _advised(NOTHING, (2, 1), cast(Adviser, Picky()))
