"""Ranks that trained together in a probe, in words: what each held, which failed first, and what all of them reach."""

from autotune.model import Parallel, Plan, ProbeResult, RankResult, Settings
from autotune.units import format_bytes


def rank_words(probe: ProbeResult) -> str:
    """Peaks of the processes that trained together; empty where one process trained."""
    if not probe.ranks:
        return ""
    peaks = ", ".join(
        f"{one.rank}: {'?' if one.peak_device_bytes is None else format_bytes(one.peak_device_bytes)}"
        for one in probe.ranks
    )
    whose = "each with batch" if probe.replicas > 1 else "all on one batch of"
    return f"{len(probe.ranks)} train together, {whose} {probe.batch_size}; peaks {peaks}"


def together_words(plan: Plan) -> str:
    """``2 train together``; of a prediction ``one process stands in for 2``; empty where one process trained."""
    if plan.ranks == 1:
        return ""
    return f"one process stands in for {plan.ranks}" if plan.predicted else f"{plan.ranks} train together"


def where_run(probe: ProbeResult) -> str:
    """``in a fresh process``; of several ranks ``in each of 2 fresh processes``."""
    return f"in each of {len(probe.ranks)} fresh processes" if probe.ranks else "in a fresh process"


def of_all_ranks(rate: float | None, plan: Plan, settings: Settings) -> float | None:
    """Samples per second of all ranks together; None where one process trains, or nothing was timed.

    Args:
        rate: of one rank: its batch over the step of the slowest.
        plan: of the search.
        settings: of the training. Under tensor parallelism all ranks train on the same batch.
    """
    if plan.ranks == 1 or rate is None:
        return None
    return rate if settings.parallel is Parallel.TENSOR else rate * plan.ranks


def what_became_of(one: RankResult, probe: ProbeResult) -> str:
    """``fits``, ``failed first: out of memory in forward, step 2``, ``stopped in backward, step 2``."""
    if probe.fits:
        return "fits"
    step = f", step {one.step}" if one.step is not None else ""
    where = f" in {one.phase}{step}" if one.phase is not None else ""
    if one.outcome is None:
        return f"stopped{where}"
    words = f"{one.outcome.value.replace('_', ' ')}{where}"
    return f"failed first: {words}" if probe.failure is not None and probe.failure.rank == one.rank else words
