"""The observer of each section. In the child."""

from collections.abc import Callable

from autotune.diagnose.examiner import Examiner
from autotune.diagnose.leaks.watching import LeakExaminer
from autotune.model import Section

MAKERS: dict[Section, Callable[[int | None, str], Examiner]] = {
    Section.LEAKS: lambda steps, output: LeakExaminer(steps),
}
"""(steps that the user asked for or None, folder for files or empty) -> a fresh one."""
