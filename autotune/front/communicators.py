"""What communicators hold of a device: as measured where ranks ran on this kind of machine before, else a figure for all."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.errors import DamagedRow
from autotune.model import Communicators, Machine, SearchRecord
from autotune.units import MIB, format_bytes

if TYPE_CHECKING:
    from autotune.storage.store import Store

UNMEASURED_BYTES = 848 * MIB
"""NCCL 2.28.9 on two H200 with NVLink: GPT-2 held 1,615 MiB outside of PyTorch's allocator with two ranks of DDP and 767 MiB
alone, four MiB less with FSDP2 (benchmarks/results: 2026-11-30-h200-ranks.json, 2026-11-29-h200-gpt2.json; torch 2.11). Most
of it are 10 MiB for each connection of up to 32 channels (github.com/NVIDIA/nccl, issue 1685): cards without NVLink have
fewer channels and take less, and rings of more ranks have no more connections each."""
_LOOK_AT = 200
"""Searches of a ledger, the newest."""


def communicators(store: "Store", machine: Machine, ranks: int) -> Communicators:
    """What they will hold with so many ranks.

    Measured it is the difference in non-PyTorch memory between a search with ranks and one without. One with fewer ranks
    than asked about only counts where it is more than ``UNMEASURED_BYTES``, since more ranks take more.
    """
    if machine.device == "cpu":
        return Communicators(size_bytes=0, told_by="buffers of gloo are not counted")
    together, alone = _found(store, machine, several=True), _found(store, machine, several=False)
    if together is not None and alone is not None:
        (record, size), (_, single) = together, alone
        measured = max(0, size - single)
        if record.plan.ranks >= ranks or measured >= UNMEASURED_BYTES:
            return Communicators(
                size_bytes=measured, told_by=f"measured with {record.plan.ranks} ranks by search {record.id}"
            )
    return Communicators(
        size_bytes=UNMEASURED_BYTES,
        told_by=f"{format_bytes(UNMEASURED_BYTES)} is assumed: no search with --ranks {ranks} has run on this kind of device",
    )


def _found(store: "Store", machine: Machine, *, several: bool) -> tuple[SearchRecord, int] | None:
    """The newest search on this kind of machine with several real ranks, or with one process, and its non-PyTorch memory."""
    for record in store.searches(_LOOK_AT):
        together = record.plan.ranks > 1 and not record.plan.predicted
        if together is not several or not _same(record.machine, machine) or record.plan.source.command:
            continue  # a training command may have started ranks that nobody here knows of
        try:
            seen = max(_outside(store, record), default=0)
        except DamagedRow:  # another one may say it
            continue
        if seen:
            return record, seen - record.plan.communicators_bytes
    return None


def _outside(store: "Store", record: SearchRecord) -> Iterator[int]:
    for probe in store.probes(record.id):
        if probe.fits and probe.measurement.non_pytorch_bytes is not None:
            yield probe.measurement.non_pytorch_bytes


def _same(one: Machine, other: Machine) -> bool:
    kinds = [(each.device_name, each.torch_version, each.cuda_version, each.driver_version) for each in (one, other)]
    return kinds[0] == kinds[1]
