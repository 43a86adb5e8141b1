"""Searches on planted machines, and machines drawn at random."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from autotune.model import Answer, Form, Precision, ProbeResult, Stop
from autotune.search.apart import plain
from autotune.search.batch import BatchFinder
from autotune.search.settings import SettingsFinder
from autotune.units import MIB
from tests.fakes import drive
from tests.unit.planted_settings import PlantedMachine, space_of

HALF = (Precision.BF16, Precision.FP16)


def searched(machine: PlantedMachine, **options: Any) -> tuple[Answer, list[ProbeResult]]:
    """Search to the end, and check what has to hold for every answer.

    Args:
        options: of the settings finder; those of the batch finder under ``batch``.
    """
    stop, history = search(machine, **options)
    return checked(machine, stop, history), history


def checked(machine: PlantedMachine, stop: Stop, history: Sequence[ProbeResult]) -> Answer:
    """The answer, if it is as every answer has to be."""
    answer = stop.answer
    assert answer is not None and answer.settings is not None, stop.reason
    assert stop.reason.endswith(".") and any(letter.isdigit() for letter in stop.reason)
    own = plain(machine.space.base)
    changed = plain(answer.settings)
    assert not machine.space.refuses(answer.settings)
    proofs = [p for p in history if p.form is Form.LONG and p.fits and p.settings == answer.settings]
    assert {answer.max_batch, answer.recommended_batch} <= {p.batch_size for p in proofs}
    assert machine.safe(changed, answer.max_batch) and answer.recommended_batch <= answer.max_batch
    if changed != own and machine.limit(own):
        assert any(p.form is Form.COMPARE and p.fits and plain(p.settings) == changed for p in history)
        assert machine.compares(changed) is None
    return answer


@dataclass(frozen=True)
class Found:
    """A search that is over."""

    machine: PlantedMachine
    stop: Stop
    history: tuple[ProbeResult, ...]


@cache
def found(seed: int, noise: float = 0.0) -> Found:
    """The search of a random machine, made once: it depends on nothing else, and nobody changes what it left."""
    machine = random_machine(seed, noise=noise)
    stop, history = search(machine)
    return Found(machine, stop, tuple(history))


def search(machine: PlantedMachine, **options: Any) -> tuple[Stop, list[ProbeResult]]:
    """Search to the end."""
    return drive(finder_for(machine, **options), machine, machine.budget, at_most=100)


def finder_for(machine: PlantedMachine, **options: Any) -> SettingsFinder:
    """A finder of the machine's space."""
    batch = options.pop("batch", {})
    return SettingsFinder(
        finder=BatchFinder(settings=machine.space.base, **batch), space=machine.space, seed=machine.seed, **options
    )


def random_machine(seed: int, *, noise: float = 0.0) -> PlantedMachine:
    """Effects drawn from what is seen on GPUs. Any two of them do a little to each other (0.3 %, in the settings that win some
    2 % together), compiling and precision much."""
    random = Random(seed)
    space = space_of()
    tf32, half = random.uniform(0, 0.6), random.uniform(0, 0.5)
    compiled = random.uniform(-0.1, 0.3)
    speed: dict[tuple[str, object], float] = {
        ("precision", "tf32"): tf32,
        ("precision", "bf16"): tf32 + half,
        ("precision", "fp16"): tf32 + half + random.uniform(-0.1, 0.25),
        ("compile", "default"): compiled,
        ("compile", "reduce-overhead"): compiled + random.uniform(-0.03, 0.02),
        ("checkpointing", "own"): -random.uniform(0.15, 0.35),
        ("checkpointing", "blocks"): -random.uniform(0.15, 0.35),
        ("checkpointing", "alternate"): -random.uniform(0.08, 0.18),
        ("activation_budget", 0.5): -random.uniform(0.05, 0.25),
        ("optimizer", "fused"): random.uniform(-0.005, 0.05),
        ("memory_format", "channels_last"): random.uniform(-0.2, 0.6),
        ("attention", "cudnn"): random.uniform(-0.08, 0.08),
        ("attention", "flash"): random.uniform(-0.05, 0.05),
        ("cudnn_benchmark", True): random.uniform(-0.05, 0.12),
        ("allocator", "expandable_segments:True"): -random.uniform(0, 0.02),
    }
    pairs: dict[tuple[tuple[str, object], tuple[str, object]], float] = {
        (one, other): random.gauss(0, 0.003) for one in speed for other in speed if one[0] < other[0]
    }
    more = random.uniform(0, 0.6)
    for mode in ("default", "reduce-overhead"):
        for precision in HALF:
            pairs[("compile", mode), ("precision", precision)] = more
        # The compiler has kernels of its own where those of fp16 are faster.
        pairs[("compile", mode), ("precision", Precision.FP16)] = (
            more + speed["precision", "bf16"] - speed["precision", "fp16"] - random.uniform(0, 0.03)
        )
    memory: dict[tuple[str, object], float] = {
        ("precision", "bf16"): -random.uniform(0.1, 0.6),
        ("compile", "default"): -random.uniform(0, 0.5),
        ("checkpointing", "own"): -1.0,
        ("checkpointing", "blocks"): -1.1,
        ("checkpointing", "alternate"): -0.5,
        ("activation_budget", 0.5): -0.4,
        ("cudnn_benchmark", True): random.uniform(0, 0.05),
    }
    memory["precision", "fp16"] = memory["precision", "bf16"]
    memory["compile", "reduce-overhead"] = memory["compile", "default"] + 0.1
    return PlantedMachine(
        space=space,
        speed=speed,
        pairs=pairs,
        memory=memory,
        half=random.uniform(0.3, 6),
        sample_bytes=int(random.uniform(100, 3000)) * MIB,
        noise=noise,
        seed=seed,
    )
