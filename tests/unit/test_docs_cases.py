"""The table of cases in docs/cases.md names the tests that there are, and there are tests for every case."""

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = TESTS.parent / "docs" / "cases.md"


def in_tests() -> dict[str, set[str]]:
    """Case -> files with tests that carry its number, as ``folder: name``."""
    found = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for number in re.findall(r"def test_c(\d\d)_", path.read_text()):
            found[f"C{number}"].add(f"{path.parent.name}: {path.stem.removeprefix('test_')}")
    return found


def in_table() -> dict[str, set[str]]:
    """The same as the table has it."""
    found = {}
    for line in TABLE.read_text().splitlines():
        if row := re.match(r"\| (C\d\d) \| .+? \| .+? \| (.*) \|", line):
            groups = [group.split(": ") for group in row[2].split("; ")] if row[2] != "-" else []
            found[row[1]] = {f"{folder}: {name}" for folder, names in groups for name in names.split(", ")}
    return found


def test_every_case_has_a_row_with_the_files_of_its_tests() -> None:
    assert list(in_table()) == [f"C{number:02}" for number in range(1, 37)]
    assert {case: files for case, files in in_table().items() if files} == in_tests()


def test_every_case_has_a_test_of_its_own() -> None:
    assert [case for case, files in in_table().items() if not files] == []
