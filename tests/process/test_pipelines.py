"""The pipelines that are shipped: the Makefile run from end to end, the commands of the others read as the tool reads them."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from autotune.cli.commands import app
from autotune.report.outputs import JSON, NAMES
from tests.process.support import ROOT, forking_environment

PIPELINES = ROOT / "examples" / "pipelines"
WRITTEN = {"github-actions.yml": 2, "gitlab-ci.yml": 2, "argo-workflow.yaml": 2}
"""File -> calls of autotune in it."""
SEARCH = "--device cpu --memory-limit 1GiB --max-batch 1 --allow none"
TRAIN = "python -c 'import autotune, sys; print(\"trained with\", autotune.load(strict=True))'"


def texts(value: Any) -> Iterator[str]:
    """All text in a document."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def calls(name: str) -> list[list[str]]:
    """Arguments of each call of autotune."""
    lines = [line for text in texts(yaml.safe_load((PIPELINES / name).read_text())) for line in text.splitlines()]
    return [shlex.split(found[1]) for line in lines if (found := re.search(r"(?:^|\|\| )autotune (.+)$", line.strip()))]


def test_every_pipeline_is_known_here() -> None:
    assert {path.name for path in PIPELINES.iterdir()} == {"Makefile", *WRITTEN}


@pytest.mark.parametrize(("name", "number"), WRITTEN.items())
def test_the_commands_of_a_pipeline_are_commands_of_the_tool(name: str, number: int) -> None:
    found = calls(name)
    assert len({tuple(argv) for argv in found}) == number
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    for argv in found:
        with commands[argv[0]].make_context(argv[0], argv[1:]) as context:  # refuses what it does not know
            files = context.params["output_file"] or ()
            assert {text.partition("=")[0] for text in files} <= {*NAMES, JSON}


def test_what_a_pipeline_reads_of_a_step_is_a_value_of_it() -> None:
    text = (PIPELINES / "github-actions.yml").read_text()
    assert set(re.findall(r"steps\.gate\.outputs\.(\w+)", text)) <= set(NAMES)
    argo = yaml.safe_load((PIPELINES / "argo-workflow.yaml").read_text())
    (gate,) = (one for one in argo["spec"]["templates"] if one["name"] == "gate")
    paths = {one["name"]: one["valueFrom"]["path"] for one in gate["outputs"]["parameters"]}
    (check,) = (argv for argv in calls("argo-workflow.yaml") if argv[0] == "check")
    assert dict(word.split("=") for word in check if "=" in word) == paths
    assert set(re.findall(r"steps\.gate\.outputs\.parameters\.(\w+)", json.dumps(argo))) == set(paths)


def test_the_makefile_searches_once_checks_and_trains_and_does_not_train_where_the_check_fails(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text((ROOT / "examples" / "train_with_config.py").read_text())
    (tmp_path / "autotune").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m autotune "$@"\n')
    (tmp_path / "autotune").chmod(0o755)
    # a heap that does not depend on chance (see docs/memory.md)
    environment = forking_environment(AUTOTUNE_STORAGE=str(tmp_path / "ledger"), MALLOC_MMAP_THRESHOLD_="131072")
    environment["PATH"] = f"{tmp_path}:{Path(sys.executable).parent}:{environment['PATH']}"

    def make(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "-f", str(PIPELINES / "Makefile"), *words, "MODEL=model.py", f"SEARCH={SEARCH}", f"TRAIN={TRAIN}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    first = make("train")
    assert first.returncode == 0, first.stderr
    assert "autotune.json holds here: batch 1 ran 8 steps in a fresh process" in first.stdout
    assert "trained with Tuned(autotune.json: batch 1, accumulate 1, cpu)" in first.stdout
    (tmp_path / "autotune.json").write_text("{")
    second = make("train")
    assert second.returncode == 2
    assert "autotune.json: this is not a recommendation" in second.stderr
    assert "autotune search" not in second.stdout, "there is a file"
    assert "trained with" not in second.stdout
