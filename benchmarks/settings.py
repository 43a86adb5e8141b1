"""The search for settings against an exhaustive grid, against another tuner, and against a plain training.

    python benchmarks/settings.py grid --workload gpt2 --out benchmarks/recordings/2026-11-30-h200-gpt2-grid.json
    python benchmarks/settings.py search peer check --workload gpt2 --out benchmarks/results/2026-11-30-h200-settings.json
    python benchmarks/settings.py --table benchmarks/recordings/*-grid.json benchmarks/results/*-settings.json

The same command goes on where it was cut. Prints a Markdown table; progress goes to stderr. See benchmarks/README.md for
what is measured and how.
"""

import argparse
import json
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.clock import Clock, to_be_gone_on_with
from benchmarks.common.documents import BadResults, read
from benchmarks.common.noting import note
from benchmarks.comparison.cases import ROOT
from benchmarks.grid.cases import CAP_BYTES, TRIAL_CASES
from benchmarks.grid.comparing import PARTS, Comparing
from benchmarks.grid.machine import record_grid
from benchmarks.grid.recording import Recording
from benchmarks.grid.results import SPACES, Results, merge
from benchmarks.grid.table import render

GRID = "grid"


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{GRID}, or any of {', '.join(PARTS)}")
    parser.add_argument("--workload", choices=TRIAL_CASES, metavar="NAME", help=", ".join(TRIAL_CASES))
    parser.add_argument("--out", type=Path, help="file to go on with, written after every probe or command")
    parser.add_argument("--table", type=Path, nargs="+", metavar="JSON", help="only print the table of these files")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which nothing is begun")
    parser.add_argument(
        "--probe-timeout", type=float, default=300, help="seconds after which a probe of the grid is ended"
    )
    parser.add_argument("--timeout", type=float, default=900, help="seconds after which another command is ended")
    parser.add_argument("--peer-budget", default="balanced", help="of the other tuner: fast, balanced, max, or seconds")
    parser.add_argument("--spaces", nargs="+", choices=SPACES, default=list(SPACES), help="which searches")
    parser.add_argument("--steps", type=int, default=50, help="of the trainings")
    parser.add_argument("--gpu", type=int, help="the only one to use; by default the first")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    return parser


def asked() -> argparse.Namespace:
    """The command line, checked."""
    parser = options()
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in (GRID, *PARTS)]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are {GRID}, {', '.join(PARTS)}")
    if bool(given.parts) == bool(given.table):
        parser.error("give the parts to run, or --table with files")
    if given.parts and (given.workload is None or given.out is None):
        parser.error("--workload and --out are needed")
    if given.out is not None and not given.out.resolve().parent.is_dir():
        parser.error(f"there is no folder {given.out.resolve().parent} to write to")
    if GRID in given.parts and len(given.parts) > 1:
        parser.error(f"{GRID} writes a file of its own: run it by itself")
    return given


def table(paths: list[Path]) -> str:
    """The table of these files.

    Raises:
        BadResults: one is neither a recorded grid nor a results file, or they do not go together.
    """
    grids: list[Recording] = []
    compared: list[Results] = []
    for path in paths:
        if _kind(path) == "settings-grid":
            grids.append(read(path, Recording))
        else:
            compared.append(read(path, Results))
    return render(grids, merge(compared) if compared else None)


def _kind(path: Path) -> object:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BadResults(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadResults(f"{path} is no JSON: {error}") from error
    return content.get("kind") if isinstance(content, dict) else None


def _compared(given: argparse.Namespace, out: Path, clock: Clock, command: str) -> None:
    """Run searches, peer and trainings."""
    known = Results(cap_bytes=CAP_BYTES, check_steps=given.steps)
    if out.exists():
        known = merge([read(out, Results), known])
    comparing = Comparing(
        results=known,
        out=out,
        device=given.device,
        spaces=tuple(given.spaces),
        peer_budget=given.peer_budget,
        timeout_s=given.timeout,
        clock=clock,
        describe=partial(note, command),
    )
    comparing.run(TRIAL_CASES[given.workload], tuple(given.parts))


def _grid(given: argparse.Namespace, out: Path, clock: Clock, command: str) -> None:
    """Run what is missing of the grid. The compiler's cache is empty at first, so that costs are those of a first time."""
    with TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "inductor"))
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder, "triton"))
        record_grid(
            TRIAL_CASES[given.workload],
            out,
            device=given.device,
            cap_bytes=CAP_BYTES,
            timeout_s=given.probe_timeout,
            clock=clock,
            describe=partial(note, command),
        )


def main() -> None:
    """Run what is missing and print the table."""
    given = asked()
    paths: list[Path] = given.table or [given.out.resolve()]
    if given.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(given.gpu)
    with to_be_gone_on_with(given.out):
        if given.parts:
            os.chdir(ROOT)  # workload files are named from there
            run = _grid if GRID in given.parts else _compared
            run(given, paths[0], Clock(limit_s=given.time_limit), shlex.join(["python", *sys.argv]))
        print(table(paths), end="")


if __name__ == "__main__":
    main()
