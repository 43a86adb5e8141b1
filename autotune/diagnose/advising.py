"""Which changes of a training are worth a probe for the memory they may save, and what a probe of one says. Pure."""

from collections.abc import Sequence

from autotune.knobs import choices, knob_of, make_space
from autotune.model import Advice, Fragmentation, MemoryKind, Outcome, Peak, ProbeResult, Settings, Traits, WorkloadInfo
from autotune.units import MIB, format_bytes

TRIED = ("checkpointing", "precision=bf16", "optimizer", "optimizer=for-loop", "set_to_none", "attention", "allocator")
"""Knobs that may save memory and cost no compiling, in the syntax of ``--allow``."""
COMPARED = frozenset({"checkpointing", "precision", "attention", "memory_format"})
"""Knobs that may change what is trained: no advice before a comparison."""
LEAST_SHARE = {"cuda": 0.01, "cpu": 0.05}
LEAST_BYTES = MIB
"""A smaller saving is none: peaks of the same training differ by as much. On the CPU that is the luck of the heap."""
_STATES = {"adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "adamax": 2}
"""Optimizers with so many tensors of state for each trainable one (PyTorch's documentation)."""


def changes(settings: Settings, traits: Traits, device: str) -> tuple[tuple[Settings, ...], tuple[str, ...]]:
    """Settings that differ from the present ones in one knob, and why values fall away here.

    Args:
        settings: what the training runs with.
        traits: of the workload on the device.
        device: kind of device.
    """
    space, left = make_space(settings, choices((), TRIED, (), settings), traits, device)
    why = tuple(f"{one.knob}{'=' + one.value if one.value else ''}: {one.why}" for one in left)
    return space.neighbours(settings), why


def change_of(settings: Settings, base: Settings) -> tuple[str, str]:
    """The change as the user types it, and what it does."""
    (name,) = settings.changes(base)
    knob = knob_of(name)
    return f"{name}={knob.text(knob.of(settings))}", knob.summary


def peak_of(probe: ProbeResult) -> int | None:
    """What savings are counted in; None where the probe did not come to its end."""
    return probe.measurement.peak_allocated_bytes if probe.fits else None


def seconds_per_sample(probe: ProbeResult) -> float | None:
    """None where nothing was timed."""
    rate = probe.samples_per_second
    return 1 / rate if probe.fits and rate else None


def _counted(probe: ProbeResult, change: str) -> int | None:
    """An allocator cuts what is reserved; the rest changes what is allocated."""
    if probe.fits and change.startswith("allocator="):
        return probe.measurement.peak_reserved_bytes
    return peak_of(probe)


def judge_change(change: str, does: str, base: ProbeResult, tried: ProbeResult, device: str) -> Advice | str:
    """What a probe with the change says of it, or why it is no advice.

    Args:
        change: as the user types it.
        does: in half a sentence.
        base: without the change.
        tried: a probe of the same form with it; their batch sizes may differ.
        device: kind of device.
    """
    peak, before = _counted(tried, change), _counted(base, change)
    if peak is None:
        return f"{change}: it ends with {tried.outcome.value.replace('_', ' ')}"
    if base.fits and before is not None:
        saved = before - peak
        if saved < max(LEAST_BYTES, LEAST_SHARE[device] * before):
            return f"{change}: it saves nothing here"
    new, old = seconds_per_sample(tried), seconds_per_sample(base)
    return Advice(
        change=change,
        does=does,
        measured=True,
        saved_bytes=None if before is None else before - peak,
        time_ratio=new / old if new and old else None,
        source=_source(tried, peak),
        survives=not base.fits,
    )


def _source(tried: ProbeResult, peak: int) -> str:
    steps = tried.measurement.steps_executed
    return f"a probe of {steps} steps at batch {tried.batch_size}: peak {format_bytes(peak)}"


def of_fragmentation(found: Fragmentation | None) -> tuple[Advice, ...]:
    """The allocator configuration that a rerun showed to help, if there is one."""
    best = found.best if found is not None else None
    if found is None or best is None:
        return ()
    survives = found.outcome is not Outcome.FITS
    before, after = found.evidence.peak_reserved_bytes, best.peak_reserved_bytes
    slow, fast = found.evidence.steady_seconds, best.step_seconds
    return (
        Advice(
            change=f"PYTORCH_CUDA_ALLOC_CONF={best.allocator}",
            does="cuts memory in another way, so that less is lost in pieces",
            measured=True,
            saved_bytes=None if survives or after is None else max(0, before - after),
            time_ratio=None if survives or not slow or not fast else fast / slow,
            source="a rerun of the same steps in a fresh process, in bytes reserved",
            survives=survives,
        ),
    )


def estimates(workload: WorkloadInfo, peak: Peak | None) -> tuple[Advice, ...]:
    """What no setting of ours can do, so that no probe can measure it.

    ``peak``: as taken apart; None = it was not, and what is known of the parameters has to do.
    """
    found: list[Advice] = []
    states = _STATES.get(workload.optimizer.partition(" ")[0].rpartition(".")[2].lower())
    state = peak.bytes_of(MemoryKind.OPTIMIZER) if peak else (states or 0) * workload.trainable_bytes
    if states and state >= LEAST_BYTES:
        found.append(
            Advice(
                change="torch.optim.SGD with momentum",
                does="keeps one tensor of state for each weight where Adam keeps two; it trains differently",
                measured=False,
                saved_bytes=state // 2,
                time_ratio=None,
                source=f"half of the optimizer's state ({format_bytes(state)})",
            )
        )
    held = sum(peak.bytes_of(kind) for kind in _OF_WEIGHTS) if peak else 0
    if held >= LEAST_BYTES and not workload.traits.lower_parameters:
        found.append(
            Advice(
                change="model.to(torch.bfloat16)",
                does="keeps weights, gradients and optimizer state in two bytes each; small updates round to nothing",
                measured=False,
                saved_bytes=held // 2,
                time_ratio=None,
                source=f"half of weights, gradients and optimizer state at the peak ({format_bytes(held)})",
            )
        )
    return tuple(found)


_OF_WEIGHTS = (MemoryKind.WEIGHTS, MemoryKind.GRADIENTS, MemoryKind.OPTIMIZER)


def ranked(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    """What makes a dying training survive first, then by bytes; estimates last."""
    return tuple(sorted(advice, key=lambda one: (not one.measured, not one.survives, -(one.saved_bytes or 0))))
