"""States of random number generators: of PyTorch for a step, of all that trainings use for a checkpoint."""

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Device:
    """PyTorch's generators that a step draws from."""

    cpu: torch.Tensor
    cuda: torch.Tensor | None


def drawn(device: torch.device) -> Device:
    """Their states now; nothing is waited for."""
    return Device(torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)


def draw_on(state: Device, device: torch.device) -> None:
    """Go on from there."""
    torch.set_rng_state(state.cpu)
    if state.cuda is not None:
        torch.cuda.set_rng_state(state.cuda, device)


def all_states() -> dict[str, Any]:
    """Of Python, NumPy (where it is in use), PyTorch and all CUDA devices, as plain numbers and tensors."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, position, has_gauss, cached = sys.modules["numpy"].random.get_state()
        states["numpy"] = (str(kind), torch.tensor(keys.tolist()), int(position), int(has_gauss), float(cached))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_all(states: Mapping[str, Any]) -> None:
    """Go on from states that ``all_states`` gave; those of devices that are not here are left out."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy

        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    if "cuda" in states and torch.cuda.is_available():
        for index, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)
