"""Findings to show: a leak with a suspect of every kind, and none."""

from dataclasses import replace

from autotune.model import Findings, LeakKind, Leaks, Rate, Suspect
from autotune.units import KIB, MIB
from tests.cli.results import BUDGET, MACHINE, WORKLOAD

RATE = Rate(bytes_per_step=91 * KIB, fit=0.9987, from_step=6, to_step=101)
SUSPECT = Suspect(
    kind=LeakKind.GRAPH,
    what="list history of model.py",
    count_per_step=1.0,
    bytes_per_step=91 * KIB,
    shape="float32 ()",
    made_at="model.py:23",
    kept_at="model.py:24",
    phase="forward",
)
CLEAN = Leaks(steps=29, device=None, host=None, workers=None)
LEAKS = Leaks(steps=101, device=RATE, host=None, workers=None, suspects=(SUSPECT,), ends_at_step=8159)
EVERY_KIND = replace(LEAKS, suspects=tuple(replace(SUSPECT, kind=kind) for kind in LeakKind), host=RATE, workers=RATE)
FINDINGS = Findings(
    workload=WORKLOAD, machine=MACHINE, budget=BUDGET, batch_size=8, batch_from="as asked for", leaks=LEAKS
)
CYCLES = replace(FINDINGS, leaks=replace(CLEAN, notes=("reference cycles keep 1 MiB of every step",)))
SMALL = replace(LEAKS, device=None, ends_at_step=None, suspects=(replace(SUSPECT, bytes_per_step=0.3 * MIB),))
