"""The limits of two ranks that train together: autotune against brute force, and a training by torchrun at the answer.

    python benchmarks/ranks.py --out ranks.json            # on two CUDA devices; again to go on where it was cut
    python benchmarks/ranks.py --out ranks.json --rows gpt2-ddp --time-limit 200
    python benchmarks/ranks.py --table ranks.json

Prints a Markdown table; progress goes to stderr. See benchmarks/README.md for what is measured and how.
"""

import argparse
import os
import shlex
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autotune.errors import UsageError
from autotune.units import parse_bytes
from benchmarks.common.clock import Clock, to_be_gone_on_with
from benchmarks.common.documents import BadResults, read
from benchmarks.common.noting import note
from benchmarks.comparison.cases import ROOT
from benchmarks.ranked.cases import CASES, TRIAL_CASES
from benchmarks.ranked.parts import How
from benchmarks.ranked.results import Results, merge
from benchmarks.ranked.running import Running
from benchmarks.ranked.table import render


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, nargs="+", metavar="JSON", help="only print the table of these results")
    parser.add_argument("--rows", nargs="+", choices=TRIAL_CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--memory-limit", type=_size, metavar="SIZE", help="of each rank, instead of the rows' own")
    parser.add_argument("--survival-steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("ranks.json"), help="written after every finished part")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no part is begun")
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which a command is ended")
    parser.add_argument("--probe-timeout", type=float, default=150, help="seconds after which a probe is ended")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu, with gloo, is for the tiny rows"
    )
    return parser


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def known(path: Path, survival_steps: int) -> Results:
    """What an earlier run left in the file.

    Raises:
        BadResults: it was made with another number of steps, or is no such file.
    """
    fresh = Results(survival_steps=survival_steps)
    return merge([read(path, Results), fresh]) if path.exists() else fresh


def command() -> str:
    """This command, with the variables that change what NCCL does."""
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NCCL_"))
    return shlex.join([*variables, "python", *sys.argv])


def main() -> None:
    """Run what is missing and print the table."""
    parser = options()
    given = parser.parse_args()
    try:
        if given.table:
            print(render(merge([read(path, Results) for path in given.table])), end="")
            return
        out = given.out.resolve()
        if not out.parent.is_dir():
            parser.error(f"there is no folder {out.parent} to write to")
        results = known(out, given.survival_steps)
    except BadResults as error:
        sys.exit(str(error))
    if given.device == "cpu":  # FSDP makes and frees blocks all the time, and glibc's heap would look like a leak
        os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "131072")
    os.chdir(ROOT)  # workload files are named from there
    clock = Clock(limit_s=given.time_limit)
    how = How(device=given.device, timeout_s=given.timeout, probe_timeout_s=given.probe_timeout, say=clock.say)
    running = Running(results=results, out=out, how=how, clock=clock, describe=partial(note, command()))
    with to_be_gone_on_with(given.out):
        running.run([TRIAL_CASES[name] for name in given.rows], given.memory_limit)
    print(render(running.results), end="")


if __name__ == "__main__":
    main()
