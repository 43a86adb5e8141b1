"""The ranks of one probe as one of them sees them: the process group they train in, and what they have to agree on.

They meet by a file in the probe's own folder and not by a port, so that nothing can hold it before them and none is left
over. The group is that of the training; what they agree on beside it goes through the file as well, so that no collective
of ours stands between those of the model.
"""

import os
from datetime import timedelta
from typing import TypeAlias

import torch
from torch import distributed

from autotune.probe.order import Order

_PATIENCE = timedelta(days=7)
"""Longer than any probe: how long it may take is the guardian's business."""


class Alone:
    """One process that trains by itself."""

    def any(self, mine: bool) -> bool:
        """What this process says."""
        return mine

    def leave(self) -> None:
        """Nobody waits for it."""


class Together:
    """One rank among several. All of them have to do the same calls in the same order."""

    def __init__(self, order: Order, device: torch.device) -> None:
        """Join the others; returns when all are there.

        The device is started already: its process group begins to talk here, so that what it holds of the device's memory
        is known before the allocator is given its cap.
        """
        store = distributed.FileStore(order.meeting, order.ranks)  # type: ignore[attr-defined]
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=distributed.PrefixStore("training", store),  # type: ignore[attr-defined]
            rank=order.rank,
            world_size=order.ranks,
        )
        if device.type == "cuda":
            distributed.all_reduce(torch.zeros(1, device=device))
        self._rank, self._ranks = order.rank, order.ranks
        self._words = distributed.PrefixStore("words", store)  # type: ignore[attr-defined]
        self._words.set_timeout(_PATIENCE)
        self._said = 0

    def any(self, mine: bool) -> bool:
        """Whether one of the ranks says so; waits until all of them have spoken."""
        self._said += 1
        self._words.set(f"{self._said} {self._rank}", "yes" if mine else "no")
        said = [self._words.get(f"{self._said} {rank}") for rank in range(self._ranks)]
        return b"yes" in said

    def leave(self) -> None:
        """Wait until the others have come to their end as well: they may still need this process for a collective."""
        self.any(False)


Group: TypeAlias = Alone | Together
"""The ranks of a probe."""


def join(order: Order, device: torch.device) -> Group:
    """The ranks that the order is for one of.

    A CPU rank has one thread, unless ``OMP_NUM_THREADS`` says otherwise: ``torchrun`` gives it no more.
    """
    if order.ranks == 1:
        return Alone()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    if order.stands_in:
        from autotune.probe import stand_ins

        stand_ins.join(order.rank, order.ranks, order.settings.parallel, device)
        return Alone()
    return Together(order, device)
