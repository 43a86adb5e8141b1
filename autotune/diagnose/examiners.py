"""The observer of each section. In the child."""

from collections.abc import Callable

from autotune.diagnose.composition.examiner import CompositionExaminer
from autotune.diagnose.examiner import Examiner
from autotune.diagnose.fragmentation.examiner import FragmentationExaminer
from autotune.diagnose.leaks.watching import LeakExaminer
from autotune.diagnose.snapshots import SnapshotExaminer
from autotune.model import Section

MAKERS: dict[Section, Callable[[int | None, str], Examiner]] = {
    Section.LEAKS: lambda steps, output: LeakExaminer(steps),
    Section.COMPOSITION: lambda steps, output: CompositionExaminer(),
    Section.FRAGMENTATION: lambda steps, output: FragmentationExaminer(steps),
    Section.SNAPSHOT: lambda steps, output: SnapshotExaminer(output),
}
"""(steps that the user asked for or None, folder for files or empty) -> a fresh one."""
