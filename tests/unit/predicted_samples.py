"""A prediction for eight devices, made of the planted search."""

from dataclasses import replace

from autotune.errors import NothingFits, WorkloadError
from autotune.model import Communicators, Parallel, Predicted, PredictedWay
from autotune.units import MIB
from tests.cli.results import BUDGET, MACHINE, PLAN, RESULT, WORKLOAD

MARKED = replace(PLAN, ranks=8, world=8, predicted=True, communicators_bytes=512 * MIB)
DDP = PredictedWay(parallel=Parallel.DDP, result=replace(RESULT, plan=MARKED, search_id="dd00"))
FSDP = PredictedWay(
    parallel=Parallel.FSDP,
    result=None,
    error=NothingFits(
        "nothing fits: batch 1 is out of memory in phase backward: CUDA out of memory: tried 1 GiB",
        detail="weights 3 GiB",
        hint="try --precision bf16",
    ),
    enough=16,
)
ZERO = PredictedWay(
    parallel=Parallel.ZERO, result=None, error=WorkloadError("the workload fails at batch 1: 2 parameters")
)
PREDICTED = Predicted(
    plan=MARKED,
    workload=WORKLOAD,
    machine=MACHINE,
    budget=BUDGET,
    communicators=Communicators(size_bytes=512 * MIB, told_by="512 MiB is assumed"),
    ways=(DDP, FSDP, ZERO),
)
VERIFIED = replace(DDP, real=replace(RESULT, plan=replace(PLAN, ranks=8), search_id="4ea1"))
"""All ranks ran, and held as much."""
