"""Telling an out-of-memory of the user's step from every other failure, by the tables that judge probes."""

import traceback

import torch

from autotune.model import Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from autotune.probe.raised import chain


def is_out_of_memory(error: BaseException, device: torch.device) -> bool:
    """Whether this error of a forward or backward pass says that the device's memory is exhausted.

    On the CPU that is the host's memory. Where the words are ambiguous (a library that could not allocate), what is free
    on the device decides, as in a probe.
    """
    free, capacity = _free_and_capacity(device)
    raised = tuple(Raised(**(link | {"bases": tuple(link["bases"])})) for link in chain(error))  # type: ignore[arg-type]
    evidence = Evidence(
        raised=raised, phase=Phase.FORWARD, device=device.type, free_bytes=free, capacity_bytes=capacity
    )
    return classify(evidence)[0] is Outcome.OUT_OF_MEMORY


def release(error: BaseException) -> None:
    """Let go of what the frames of the error hold (activations, above all). Its traceback can still be printed."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        traceback.clear_frames(link.__traceback__)
        waiting += [link.__cause__, link.__context__]


def _free_and_capacity(device: torch.device) -> tuple[int | None, int | None]:
    if device.type != "cuda":
        return None, None
    try:
        return torch.cuda.mem_get_info(device)
    except RuntimeError:  # a device that does not tell, or is lost; then the words alone decide
        return None, None
