"""What the peak of a training step consists of, as text. Pure."""

from collections.abc import Sequence

from autotune.model import Findings, KindBytes, MemoryKind, NamedBytes, OperatorCost
from autotune.report.columns import align
from autotune.units import counted, format_bytes, format_seconds

_WORDS = {
    MemoryKind.WEIGHTS: "weights",
    MemoryKind.BUFFERS: "buffers",
    MemoryKind.GRADIENTS: "gradients",
    MemoryKind.OPTIMIZER: "optimizer state",
    MemoryKind.ACTIVATIONS: "saved activations",
    MemoryKind.BATCH: "batch",
    MemoryKind.TEMPORARIES: "temporaries",
    MemoryKind.WORKSPACE: "workspace",
    MemoryKind.SLACK: "rest of rounded blocks",
    MemoryKind.PROCESS: "process and libraries",
    MemoryKind.UNKNOWN: "not attributed",
}
_NAMED = 6
"""So many modules and operators are shown to people; JSON has them all."""
_OUTSIDE = "(outside of all modules)"
_DIFFERENCE = 0.02
"""From this share on the watched step's peak counts as another than that of a plain one."""


def peak_lines(findings: Findings) -> list[str]:
    """The largest kinds first, then where they come from."""
    peak = findings.peak
    assert peak is not None
    phase = f", in the {peak.phase.value} phase" if peak.phase else ""
    top = [one for one in peak.kinds if one.kind is not MemoryKind.UNKNOWN][:3]
    largest = ", ".join(_WORDS[one.kind] for one in top)
    what = "allocated" if peak.non_pytorch_bytes is not None else "resident"
    lines = [f"peak {format_bytes(peak.measured_bytes)} {what} at batch {peak.batch_size}{phase}; largest: {largest}"]
    lines += _indented(align([_row(one, peak.watched_bytes) for one in peak.kinds]))
    if peak.non_pytorch_bytes is not None:
        lines.append(f"  beside it {format_bytes(peak.non_pytorch_bytes)} of the device outside of PyTorch's allocator")
    if abs(peak.watched_bytes - peak.measured_bytes) > _DIFFERENCE * peak.measured_bytes:
        lines.append(
            f"  the step that was taken apart peaked at {format_bytes(peak.watched_bytes)}: watching it cost memory, or "
            "steps differ"
        )
    lines += _block("saved activations by module:", peak.modules)
    lines += _block("temporaries and workspace by operator:", peak.makers)
    lines += _operators("operators by time:", peak.operators_by_time)
    lines += _operators("operators by memory they allocate in a step:", peak.operators_by_memory)
    return [*lines, *(f"  {note}" for note in peak.notes)]


def _row(one: KindBytes, whole: int) -> tuple[str, ...]:
    share = f"{100 * one.size_bytes / whole:.1f} %" if whole else ""
    return _WORDS[one.kind], format_bytes(one.size_bytes), share


def _block(title: str, named: Sequence[NamedBytes]) -> list[str]:
    if not named:
        return []
    rows = [
        (one.name or _OUTSIDE, format_bytes(one.size_bytes), counted(one.count, "tensor")) for one in named[:_NAMED]
    ]
    return [f"  {title}", *_indented(align(rows), 4)]


def _operators(title: str, costs: Sequence[OperatorCost]) -> list[str]:
    if not costs:
        return []
    rows = [
        (
            one.name,
            format_seconds(one.seconds),
            counted(one.calls, "call"),
            format_bytes(one.allocated_bytes),
        )
        for one in costs[:_NAMED]
    ]
    return [f"  {title}", *_indented(align(rows), 4)]


def _indented(lines: Sequence[str], by: int = 2) -> list[str]:
    return [" " * by + line for line in lines]
