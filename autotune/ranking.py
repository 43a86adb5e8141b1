"""How many ranks train together in a probe, and what a search of several cannot do yet. No torch."""

import operator
import os
import re
from collections.abc import Sequence
from typing import SupportsIndex

from autotune.errors import UsageError
from autotune.model import Choice, Parallel, Settings, Source, WorkloadInfo

ALL = "all"
"""As many as there are CUDA devices."""
MOST = 1024
"""More than one host has devices for."""


def count_ranks(asked: object, device: str) -> int:
    """The number of ranks that is asked for: a whole number, as text as well, or ``all``.

    Raises:
        UsageError: it is something else, or nothing tells how many devices there are.
    """
    if asked == ALL:
        return _devices(device)
    number = int(asked) if isinstance(asked, str) and re.fullmatch(r"[0-9]{1,6}", asked) else asked
    if isinstance(number, bool) or not isinstance(number, SupportsIndex) or not 1 <= operator.index(number) <= MOST:
        raise UsageError(
            f"ranks is {str(asked)[:60]!r}", hint=f"give --ranks a whole number from 1 to {MOST}, or all (CUDA devices)"
        )
    return operator.index(number)


def _devices(device: str) -> int:
    if device == "cpu":
        raise UsageError(
            "--ranks all counts CUDA devices, and the search is on the CPU", hint="give a number: --ranks 2"
        )
    from autotune.probe import nvml
    from autotune.probe.visible import visible

    cards = nvml.cards()
    found = visible(cards, os.environ) if cards else None
    if not found:
        why = nvml.missing() or "CUDA_VISIBLE_DEVICES leaves none, or they are not numbered by the bus"
        raise UsageError(f"--ranks all: the devices cannot be counted: {why}", hint="give a number: --ranks 2")
    return len(found)


def refuse_sharing(parallel: Parallel, ranks: int, world: int) -> None:
    """Refuse a way of sharing that these ranks cannot be probed with.

    Raises:
        UsageError: there is one rank, or layers would be split over devices that are not here.
    """
    if parallel is not Parallel.DEFAULT and ranks == 1:
        raise UsageError(
            f"--parallel {parallel} is how several ranks train together, and there is one",
            hint="say how many: --ranks 2, or --ranks all",
        )
    if parallel is Parallel.TENSOR and world != ranks:
        raise UsageError(
            f"--parallel tensor splits layers over all devices, and of {world} (--world) {ranks} are here (--ranks)",
            hint="leave out --world",
        )


def refuse_tensor_beside_others(settings: Settings, space: Sequence[Choice]) -> None:
    """Refuse to compare tensor parallel with other ways of sharing.

    Raises:
        UsageError: it is one of several choices, or is not where the search begins.
    """
    values = [value for choice in space if choice.knob == "parallel" for value in choice.values]
    if values and (settings.parallel is Parallel.TENSOR or Parallel.TENSOR in values):
        raise UsageError(
            "tensor parallel is not compared with other ways of sharing: its ranks train on one batch, theirs on others",
            hint="search it by itself: --parallel tensor, without parallel in --fix and --allow",
        )


def refuse_without_plan(workload: WorkloadInfo, parallel: Parallel) -> None:
    """Refuse tensor parallel where nothing says how.

    Raises:
        UsageError: it is asked for, and there is no plan.
    """
    if parallel is Parallel.TENSOR and not workload.traits.tensor_plan:
        raise UsageError(
            f"--parallel tensor: neither the model (_tp_plan) nor {workload.ref} (make_plan) says how to split it",
            hint='define make_plan() in it: return {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}',
        )


def refuse_with_ranks(source: Source, device: str, ranks: int, world: int) -> None:
    """Refuse what several ranks cannot be searched for.

    Args:
        source: what is trained.
        device: as it was asked for.
        ranks: more than one.
        world: devices that are to train together in the end.

    Raises:
        UsageError: it is one of these things.
    """
    if source.command:
        raise UsageError(
            f"--ranks {ranks} is for models, and a training command starts its own ranks",
            hint=f"give it with its launcher: autotune search -- torchrun --nproc-per-node={ranks} train.py …",
        )
    if re.fullmatch(r"cuda:\d+", device):
        raise UsageError(
            f"--device {device} is one device, and --ranks {ranks} takes as many",
            hint="use --device cuda, and choose devices by CUDA_VISIBLE_DEVICES",
        )
    if world % ranks:
        raise UsageError(
            f"--world {world} is no multiple of --ranks {ranks}",
            hint=f"--world counts the devices of all hosts together, such as {ranks * 2}; leave it out for one host",
        )


def refuse_workload(workload: WorkloadInfo, ranks: int) -> None:
    """Refuse what wraps and spreads its model by itself.

    Raises:
        UsageError: it does, and several ranks are asked for.
    """
    if ranks > 1 and any(line.what == "train step" for line in workload.recognised):
        raise UsageError(
            f"{workload.ref} is trained by its own framework, which spreads it over devices by itself: --ranks {ranks} is"
            " for models that autotune wraps",
            hint=f"search its training command: autotune search -- torchrun --nproc-per-node={ranks} train.py …",
        )
