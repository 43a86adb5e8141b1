"""Loading model files within the test process, and scripts in a process of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.model import Source
from autotune.workload.load import load
from autotune.workload.places import is_installed
from autotune.workload.task import Workload

ASSETS = Path(__file__).parents[1] / "assets" / "workloads"


@contextmanager
def process_restored() -> Iterator[None]:
    """Undo what loading changes: working directory, ``sys.path``, ``sys.argv`` and the modules of model files."""
    directory, path, argv, modules = os.getcwd(), list(sys.path), list(sys.argv), set(sys.modules)
    try:
        yield
    finally:
        os.chdir(directory)
        sys.path[:] = path
        sys.argv = argv  # loading made a list of its own
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not is_installed(file):
                del sys.modules[name]


def load_file(file: Path, name: str = "", script_args: tuple[str, ...] = ()) -> Workload:
    """Load a model file from its own folder, as the user would write it there."""
    ref = f"{file.name}:{name}" if name else file.name
    with process_restored():
        return load(Source(ref=ref, script_args=script_args, directory=str(file.parent)))


def load_text(folder: Path, text: str, name: str = "", script_args: tuple[str, ...] = ()) -> Workload:
    """Write ``model.py`` into a folder and load it."""
    file = folder / "model.py"
    file.write_text(text)
    return load_file(file, name, script_args)


def run_python(folder: Path, *arguments: str, **environment: str) -> str:
    """Standard output of a fresh interpreter that must end well."""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
