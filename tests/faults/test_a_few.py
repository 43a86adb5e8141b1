"""A few of the deaths that ``make faults`` injects, in every run of the tests: one for each of the ways found to lose."""

from pathlib import Path

from tests.faults.bench import Bench
from tests.faults.injection import Injection, ended_well, inject
from tests.faults.striking import Fault

FEW = (
    # somebody kills the process that describes the workload: this is no failure of the workload
    Injection(group="", fault=Fault(point="build", victim="self"), codes=frozenset({0})),
    # the kernel cuts the fourth transaction: of the third probe, with two before it in the ledger
    Injection(group="", fault=Fault(point="uncommitted", visit=4, act="torn log"), codes=frozenset({-25})),
    # the tool is killed with a draft of autotune.json beside the old file
    Injection(group="", fault=Fault(point="document: written"), codes=frozenset({-9})),
)


def test_c21_after_a_death_nothing_is_lost_repeated_or_left_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    assert ended_well(bench.run(), frozenset({0})) == []
    assert {injection.name: inject(injection, bench) for injection in FEW} == {one.name: [] for one in FEW}
