"""What may be changed to need less memory, and the files for the memory viewer, as text. Pure."""

from autotune.model import Advice, Findings
from autotune.units import format_bytes


def advice_lines(findings: Findings) -> list[str]:
    """The best first; measured and estimated ones are told apart."""
    advised = findings.advised
    assert advised is not None
    count = sum(one.measured for one in advised.advice)
    ways = "1 measured way" if count == 1 else f"{count} measured ways"
    lines = [f"{ways} to need less memory" if count else "no change that was tried saves memory"]
    if advised.peak_bytes is not None:
        lines[0] += f" (peak now {format_bytes(advised.peak_bytes)})"
    for number, one in enumerate(advised.advice, 1):
        lines.append(f"  {number}. {one.change}: {_worth(one)}")
        lines.append(f"     {one.does}; {'measured by' if one.measured else 'estimated from'} {one.source}")
    if advised.without:
        lines.append("  no advice:")
        lines += [f"    {why}" for why in advised.without]
    return lines


def snapshot_lines(findings: Findings) -> list[str]:
    """Where the files are."""
    files = findings.snapshots
    assert files is not None
    if not files.peak and not files.out_of_memory:
        return [f"no snapshot: {files.note or 'memory did not run out, and no step came to its end'}"]
    lines = ["snapshots for https://pytorch.org/memory_viz (the page reads them in the browser; nothing is sent):"]
    if files.peak:
        lines.append(f"  {files.peak}: one whole step; its highest point is the peak")
    if files.out_of_memory:
        lines.append(f"  {files.out_of_memory}: the moment at which memory ran out")
    return [*lines, *([f"  {files.note}"] if files.note else [])]


def _worth(one: Advice) -> str:
    saved = "it survives where the training dies now" if one.survives else f"saves {format_bytes(one.saved_bytes or 0)}"
    if one.time_ratio is None:
        return f"{saved}, at a cost in time that is not known"
    percent = 100 * (one.time_ratio - 1)
    if abs(percent) < 2:
        return f"{saved}, in about the same time"
    return f"{saved}, {abs(percent):.0f} % {'more' if percent > 0 else 'less'} time a sample"
