"""Finders of the largest batch compared: autotune, Lightning, accelerate and brute force, under one memory cap.

    python benchmarks/finders.py --out results.json                        # everything; again to go on where it was cut
    python benchmarks/finders.py --out a.json --gpu 0 --workloads gpt2 bert
    python benchmarks/finders.py --table a.json b.json

Prints a Markdown table; progress goes to stderr. See benchmarks/README.md for what is measured and how.
"""

import argparse
import os
import shlex
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from autotune.units import GIB, MIB
from benchmarks.common.clock import Clock, to_be_gone_on_with
from benchmarks.common.documents import BadResults, read
from benchmarks.common.noting import note
from benchmarks.comparison.cases import CASES, FINDERS, ROOT, TRIAL_CASES
from benchmarks.comparison.comparing import Asked, Comparison
from benchmarks.comparison.results import Results, merge
from benchmarks.comparison.survivors import Wanted
from benchmarks.comparison.table import render


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, nargs="+", metavar="JSON", help="only print the table of these results")
    parser.add_argument("--workloads", nargs="+", choices=TRIAL_CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--finders", nargs="+", choices=FINDERS, default=list(FINDERS), metavar="NAME")
    parser.add_argument("--cap-gib", type=float, default=40, help="cap on PyTorch's allocator")
    parser.add_argument(
        "--non-pytorch-mib", type=int, help="memory outside PyTorch, if known; otherwise measured for each workload"
    )
    parser.add_argument("--survival", choices=[str(kind) for kind in Wanted], default=str(Wanted.LARGER))
    parser.add_argument("--survival-steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("finders.json"), help="written after every finished cell")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no cell is begun")
    parser.add_argument("--cell-timeout", type=float, default=300, help="seconds after which a finder is ended")
    parser.add_argument("--gpu", type=int, help="the only one to use; by default the first")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    return parser


def known(path: Path, cap_bytes: int, survival_steps: int) -> Results:
    """What an earlier run left in the file.

    Raises:
        BadResults: it was made under other conditions.
    """
    fresh = Results(cap_bytes=cap_bytes, survival_steps=survival_steps)
    return merge([read(path, Results), fresh]) if path.exists() else fresh


def main() -> None:
    """Run what is missing and print the table."""
    given = options().parse_args()
    try:
        if given.table:
            print(render(merge([read(path, Results) for path in given.table])), end="")
            return
        results = known(given.out, int(given.cap_gib * GIB), given.survival_steps)
    except BadResults as error:
        sys.exit(str(error))
    if given.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(given.gpu)
    asked = Asked(
        cases=tuple(TRIAL_CASES[name] for name in given.workloads),
        finders=tuple(name for name in FINDERS if name in given.finders),
        device=given.device,
        outside_bytes=None if given.non_pytorch_mib is None else given.non_pytorch_mib * MIB,
        survival=Wanted(given.survival),
        out=given.out.resolve(),
        clock=Clock(limit_s=given.time_limit),
        cell_timeout_s=given.cell_timeout,
        describe=partial(note, shlex.join(["python", *sys.argv])),
    )
    os.chdir(ROOT)  # workload files are named from there, in messages as well
    comparison = Comparison(asked, results)
    with to_be_gone_on_with(given.out):
        comparison.run()
    print(render(comparison.results), end="")


if __name__ == "__main__":
    main()
