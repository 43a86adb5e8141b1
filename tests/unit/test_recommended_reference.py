"""Which code a recommendation may name: that of its own project, and a command only if this ledger ran it."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.model import SearchRecord, Source
from autotune.recommended.reference import source_again
from autotune.report.document import document
from autotune.report.fields import Document
from tests.cli.results import PLAN, RECORD, RESULT, WORKLOAD

COMMAND = (sys.executable, "train.py", "--bs", "{batch}")


def content(ref: str = "model.py", **source: Any) -> Document:
    plan = replace(PLAN, source=replace(PLAN.source, ref=ref, **source))
    return document(replace(RESULT, plan=plan, workload=replace(WORKLOAD, ref=ref)))


def again(made: Document, path: Path, directory: Path, recorded: SearchRecord | None = None) -> Source:
    return source_again(made, path, directory, recorded)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a model, and a folder of files in it."""
    (tmp_path / "project" / "conf").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project" / "pyproject.toml").touch()
    (tmp_path / "project" / "model.py").touch()
    return tmp_path / "project"


def test_the_model_is_looked_for_beside_the_file_wherever_one_stands(project: Path) -> None:
    source = again(content(script_args=("--depth", "3")), project / "autotune.json", project.parent / "elsewhere")
    assert (source.ref, source.directory, source.script_args) == ("model.py", str(project), ("--depth", "3"))


def test_then_in_the_folders_above_it_up_to_that_of_the_project(project: Path) -> None:
    (project.parent / "other.py").touch()
    elsewhere = project.parent / "elsewhere"
    assert again(content(), project / "conf" / "autotune.json", elsewhere).directory == str(project)
    with pytest.raises(UsageError, match=r"was made for other\.py, and it is not there") as caught:
        again(content("other.py"), project / "conf" / "autotune.json", elsewhere)
    assert "conf/autotune.json MODEL" in caught.value.hint


def test_then_in_the_working_directory(project: Path) -> None:
    path = project.parent / "elsewhere" / "autotune.json"
    assert again(content(), path, project).directory == str(project)


def test_a_module_is_looked_for_in_the_same_places(project: Path) -> None:
    (project / "pkg").mkdir()
    (project / "pkg" / "__init__.py").touch()
    source = again(content("pkg.models:Net"), project / "conf" / "autotune.json", project.parent)
    assert (source.ref, source.directory) == ("pkg.models:Net", str(project))


@pytest.mark.parametrize("ref", ["../elsewhere/evil.py", "{}/elsewhere/evil.py"])
def test_code_outside_of_the_project_is_not_run_because_a_file_names_it(project: Path, ref: str) -> None:
    evil = project.parent / "elsewhere" / "evil.py"
    evil.touch()
    named = ref.format(project.parent)
    with pytest.raises(UsageError, match="outside of its project") as caught:
        again(content(named), project / "autotune.json", project)
    assert caught.value.hint.endswith(f"autotune check {project}/autotune.json {named}")


def test_an_absolute_path_within_the_project_is_fine(project: Path) -> None:
    ref = str(project / "model.py")
    assert again(content(ref), project / "autotune.json", project.parent).ref == ref


def of_command(command: tuple[str, ...] = COMMAND, **source: Any) -> Document:
    return content(shlex.join(command), command=command, **source)


def ran(command: tuple[str, ...] = COMMAND, directory: str = "", **source: Any) -> SearchRecord:
    made = Source(ref=shlex.join(command), command=command, directory=directory, **source)
    return replace(RECORD, plan=replace(PLAN, source=made))


def test_a_command_that_this_ledger_ran_is_run_again_where_it_ran(project: Path) -> None:
    templates = (("precision", "--amp {value}"),)
    made = of_command(templates=templates)
    source = again(made, project / "autotune.json", project, ran(directory=str(project), templates=templates))
    assert (source.command, source.templates, source.directory) == (COMMAND, templates, str(project))


@pytest.mark.parametrize(
    "recorded", [None, ran((sys.executable, "other.py", "{batch}")), ran(templates=(("batch", "env:B"),))]
)
def test_another_command_is_not_run_because_a_file_says_so(project: Path, recorded: SearchRecord | None) -> None:
    with pytest.raises(UsageError, match="this ledger holds no search of it") as caught:
        again(of_command(), project / "autotune.json", project, recorded)
    assert caught.value.hint.endswith(f"autotune check {project}/autotune.json -- {shlex.join(COMMAND)}")


def test_a_command_of_an_older_file_is_that_of_the_ledger(project: Path) -> None:
    made = of_command()
    older = made.model_copy(update={"asked": None})
    recorded = ran(directory=str(project))
    assert again(older, project / "autotune.json", project, recorded).command == COMMAND
    with pytest.raises(UsageError, match="this ledger holds no search"):
        again(older, project / "autotune.json", project, None)
