"""The commands on the pages of docs/ run as they are written, but for a bound on the sizes that are tried."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.support import ROOT, forking_environment

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = {"trainer": "transformers", "lightning": "lightning", "watch": "prometheus_client"}
"""Pages whose examples need another package."""
PAGES = sorted(path.stem for path in DOCS.glob("*.md") if BLOCK.search(path.read_text()))


def test_every_way_in_has_a_page_with_commands() -> None:
    assert PAGES == ["ci", "diagnose", "lightning", "model_and_data", "script", "trainer", "watch"]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    if page in NEEDS and importlib.util.find_spec(NEEDS[page]) is None:
        pytest.skip(f"{NEEDS[page]} is not installed")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "autotune").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m autotune "$@"\n')
    (tmp_path / "autotune").chmod(0o755)
    (block,) = BLOCK.findall((DOCS / f"{page}.md").read_text())
    unbounded = re.sub(r" --max-batch \d+", "", block)
    bounded = re.sub(r"autotune (max-batch|search) ", r"autotune \1 --max-batch 1 ", unbounded)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", bounded],
        cwd=tmp_path,
        env=forking_environment(PATH=path, AUTOTUNE_STORAGE=str(tmp_path / "ledger.sqlite3")),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
