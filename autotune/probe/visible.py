"""Which card a CUDA device is, told from the environment by CUDA's rules: for the tool's side, which loads no torch. Pure.

NVML numbers cards by PCI bus and knows nothing of ``CUDA_VISIBLE_DEVICES``; CUDA counts only what that names, in its order.
Where the rules leave a doubt nothing is guessed: then torch is asked, which knows (rules: "CUDA Environment Variables" in
the CUDA C++ Programming Guide, "Device enumeration" in the MIG User Guide).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One device as NVML lists it."""

    uuid: str
    """``GPU-…``."""
    name: str
    slices: tuple[str, ...] | None = None
    """``MIG-…`` UUIDs of its instances, in NVML's order; None where it is not divided."""


def visible(cards: Sequence[Card], environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """UUIDs of what CUDA calls device 0, 1, …; empty = none, so that training is on the CPU; None = only torch can tell.

    Args:
        cards: in NVML's order, that of PCI buses.
        environ: with ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``, if set.
    """
    told = environ.get("CUDA_VISIBLE_DEVICES")
    # CUDA's own order is by speed, which nothing here tells; cards of one kind stay in the order of their buses.
    numbered = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({card.name for card in cards}) <= 1
    if told is None:
        whole = numbered and all(card.slices is None for card in cards)
        return tuple(card.uuid for card in cards) if whole else None
    names = [name.strip() for name in told.split(",")]
    if names == [""] or names[0] == "-1":
        return ()
    if all(name.startswith("MIG-") for name in names):
        return _slice(cards, names)
    if all(name.startswith("GPU-") for name in names):
        found = [_by_prefix(cards, name) for name in names]
    elif numbered and all(_NUMBER.fullmatch(name) and int(name) < len(cards) for name in names):
        found = [cards[int(name)] for name in names]
    else:
        return None
    uuids = [card.uuid for card in found if card is not None and card.slices is None]
    return tuple(uuids) if len(set(uuids)) == len(names) else None


def _slice(cards: Sequence[Card], names: Sequence[str]) -> tuple[str, ...] | None:
    """A process can use one instance of a divided card, whatever is named behind it."""
    known = {uuid for card in cards for uuid in card.slices or ()}
    return (names[0],) if names[0] in known else None


def _by_prefix(cards: Sequence[Card], name: str) -> Card | None:
    """The card whose UUID begins so, if it is one: CUDA takes what is enough to tell cards apart."""
    found = [card for card in cards if card.uuid.startswith(name)]
    return found[0] if len(found) == 1 else None
