"""``python -m tests.faults``: inject all faults into real searches, print a table, exit with 1 if anything went wrong."""

import argparse
import functools
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.faults import deaths, troubles
from tests.faults.bench import Bench
from tests.faults.injection import Injection, ended_well, inject
from tests.faults.troubles import Trouble

_IN_A_SERIES = 10
"""Injections into one ledger, one after the other."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one injection."""

    group: str
    name: str
    wrong: tuple[str, ...]
    seconds: float


Report = Callable[[Outcome], None]
Series = Callable[[Path, Report], None]
T = TypeVar("T", Injection, Trouble)


def series_of(
    injections: Sequence[Injection], options: str = "", *, site: bool = False, more: Sequence[str] = ()
) -> Series:
    """Deaths in one ledger, one after the other. ``more``: options of the command."""

    def run(folder: Path, report: Report) -> None:
        bench = Bench(folder, options=options, site=site)
        bench.command += tuple(more)
        _undisturbed(bench, report)
        for injection in injections:
            _timed(injection.group, injection.name, report, functools.partial(inject, injection, bench))

    return run


def series_on_small_disk(injections: Sequence[Injection]) -> Series:
    """The same, with the ledger, the working files and autotune.json on a disk that can be filled."""

    def run(folder: Path, report: Report) -> None:
        with troubles.small_disk(folder) as is_mounted:
            if not is_mounted:
                report(Outcome("full disk", "left out: only root may mount a small file system", (), 0.0))
                return
            bench = Bench(folder)
            _undisturbed(bench, report)
            for injection in injections:
                _timed(
                    injection.group,
                    injection.name,
                    report,
                    functools.partial(troubles.inject_on_small_disk, injection, bench),
                )

    return run


def series_of_troubles(met: Sequence[Trouble], *, site: bool = False) -> Series:
    """What a command meets when it starts."""

    def run(folder: Path, report: Report) -> None:
        bench = Bench(folder, site=site)
        _undisturbed(bench, report)
        for trouble in met:
            _timed(trouble.group, trouble.name, report, functools.partial(troubles.meet, trouble, bench))

    return run


def _undisturbed(bench: Bench, report: Report) -> None:
    wrong = ended_well(bench.run(), frozenset({0}))
    if wrong:
        report(Outcome("undisturbed", "the first search", tuple(wrong), 0.0))


def _timed(group: str, name: str, report: Report, run: Callable[[], list[str]]) -> None:
    started = time.monotonic()
    wrong = run()
    report(Outcome(group, name, tuple(wrong), time.monotonic() - started))


def all_series(seed: int, only: str) -> list[Series]:
    """Everything there is, in the order and at the places that the seed says."""
    random = Random(seed)

    def wanted(items: Sequence[T]) -> list[T]:
        return [item for item in items if only in f"{item.group}: {item.name}"]

    in_the_middle = [*deaths.probe_deaths(random), *deaths.tool_deaths(random), *deaths.second_deaths(random)]
    random.shuffle(in_the_middle)
    chosen = wanted(in_the_middle)
    parts = [chosen[start : start + _IN_A_SERIES] for start in range(0, len(chosen), _IN_A_SERIES)]
    found = [series_of(part) for part in parts]
    if hits := wanted([*deaths.torn_writes(random), *troubles.locks(random)]):
        found.append(series_of(hits))
    if hits := wanted(deaths.deaths_afresh(random)):
        found.append(series_of(hits, "afresh"))
    if hits := wanted(deaths.deaths_ahead(random)):
        found.append(series_of(hits, "ahead"))
    if hits := wanted(deaths.deaths_with_ranks(random)):
        found.append(series_of(hits, more=deaths.RANKS))
    if hits := wanted(troubles.clock_jumps(random)):
        found.append(series_of(hits, site=True))
    if hits := wanted(troubles.full_disks(random)):
        found.append(series_on_small_disk(hits))
    if met := wanted([*troubles.of_the_ledger(), *troubles.of_files()]):
        found.append(series_of_troubles(met))
    if met := wanted(troubles.of_nvml()):
        found.append(series_of_troubles(met, site=True))
    return found


def table(outcomes: list[Outcome]) -> str:
    """One line for each group."""
    counts, failed = Counter(o.group for o in outcomes), Counter(o.group for o in outcomes if o.wrong)
    width = max(len(group) for group in counts)
    lines = [f"{'injected':<{width}}  times  wrong"]
    lines += [f"{group:<{width}}  {counts[group]:>5}  {failed[group] or '-':>5}" for group in sorted(counts)]
    lines.append(f"{'all':<{width}}  {len(outcomes):>5}  {sum(failed.values()) or '-':>5}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which processes are hit, and when (default 0)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="series at a time")
    parser.add_argument("--only", default="", help="injections whose group and name hold this text")
    asked = parser.parse_args(argv)
    root = Path(tempfile.mkdtemp(prefix="autotune-faults-"))
    started = time.monotonic()
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        said = [f"{'WRONG' if outcome.wrong else 'ok':<5}  {outcome.seconds:5.1f} s  {outcome.group}: {outcome.name}"]
        print("\n       ".join([*said, *outcome.wrong]), flush=True)

    def run(number: int, series: Series) -> None:
        series(root / str(number), report)

    try:
        with ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(run, *zip(*enumerate(all_series(asked.seed, asked.only)), strict=True)))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"\nseed {asked.seed}, {time.monotonic() - started:.0f} s\n\n{table(outcomes)}")
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
