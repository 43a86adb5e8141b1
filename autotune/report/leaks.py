"""What grows from step to step, as text and as JSON: the answer, each thing that grows, what to do about it. Pure."""

from collections.abc import Iterator
from dataclasses import asdict

from autotune.model import Findings, LeakKind, Leaks, Rate, Suspect
from autotune.units import format_bytes

KINDS = {
    LeakKind.GRAPH: "autograd graph retained",
    LeakKind.TENSORS: "tensors kept",
    LeakKind.STATE: "state of the module grows",
    LeakKind.HOOKS: "hooks registered again and again",
    LeakKind.CYCLES: "reference cycles, freed only when Python's garbage collector runs",
    LeakKind.LOCKED_CYCLES: "reference cycles through an autograd graph, which no garbage collection frees",
    LeakKind.WORKERS: "kept in the loader's worker processes",
    LeakKind.HOST: "objects of Python or NumPy kept",
    LeakKind.UNKNOWN: "memory of the device or of a library",
}


def leak_lines(findings: Findings) -> list[str]:
    """The answer first; what grows, largest first, each with its advice."""
    leaks = findings.leaks
    assert leaks is not None
    lines = [headline(leaks)]
    for one in leaks.suspects:
        lines += ["", *_suspect_lines(one, leaks)]
    lines += [f"- {note}" for note in leaks.notes]
    return lines


def leak_facts(findings: Findings) -> dict[str, object] | None:
    """All of it, for programs."""
    leaks = findings.leaks
    if leaks is None:
        return None
    return {
        "clean": leaks.clean,
        "answer": headline(leaks),
        **asdict(leaks),
        "suspects": [{**asdict(one), "advice": advice(one)} for one in leaks.suspects],
    }


def headline(leaks: Leaks) -> str:
    """The answer in a sentence or two."""
    if leaks.clean:
        return f"no leak: nothing grows from step to step ({leaks.steps} steps)"
    parts = [
        f"{words} by {_rate(rate)}"
        for words, rate in (
            ("memory grows", leaks.device),
            ("host memory grows", leaks.host),
            ("memory of the loader's workers grows", leaks.workers),
        )
        if rate is not None
    ]
    text = f"leak: {', '.join(parts) or 'little memory is kept of every step'}"
    if leaks.died_at_step is not None:
        return f"{text}; it ran out in step {leaks.died_at_step:,}"
    if leaks.ends_at_step is not None:
        return f"{text}, and would run out at about step {leaks.ends_at_step:,}"
    return text


def advice(suspect: Suspect) -> str:
    """What to do about one."""
    kept = suspect.kept_at or suspect.made_at
    at = f" at {kept}" if kept else ""
    made = f" at {suspect.made_at}" if suspect.made_at else at
    texts = {
        LeakKind.GRAPH: (
            f"keep what has no graph{at}: .item() for numbers, .detach() for tensors; a running total as total += loss.item()"
        ),
        LeakKind.TENSORS: f"empty it, or bound it{at}: collections.deque(maxlen=...), or keep .cpu() copies and write them out",
        LeakKind.STATE: f"let buffers and parameters{at} keep their size: make them once in __init__ and write into them",
        LeakKind.HOOKS: (
            f"register once, outside the step{at}, or keep the handle and call handle.remove() when it has done its work"
        ),
        LeakKind.CYCLES: (
            f"break the cycle{made} (weakref, or set the attribute to None when done); if the collector is switched off or"
            " frozen, call gc.collect() now and then"
        ),
        LeakKind.LOCKED_CYCLES: (
            f"let no hook or attribute of a graph{made} refer to tensors of the same graph: use a weak reference, .detach()"
            " what it keeps, or remove the hook after backward()"
        ),
        LeakKind.WORKERS: (
            f"let the data set keep nothing of a sample{at}, or bound its cache; each worker has a copy of its own, and"
            " persistent_workers=False frees it after an epoch"
        ),
        LeakKind.HOST: f"empty it, or bound it{at}: collections.deque(maxlen=...), functools.lru_cache(maxsize=...)",
        LeakKind.UNKNOWN: (
            "look for libraries that keep memory by themselves (extensions, kernels and graphs for ever new shapes); on CUDA"
            " the allocator's snapshot shows more"
        ),
    }
    return texts[suspect.kind]


def _rate(rate: Rate) -> str:
    fit = f"a line explains {rate.fit:.1%} of it" if rate.fit < 0.9995 else "along a straight line"
    return f"{format_bytes(round(rate.bytes_per_step))} a step ({fit}, steps {rate.from_step} to {rate.to_step})"


def _suspect_lines(one: Suspect, leaks: Leaks) -> Iterator[str]:
    size = "" if one.bytes_per_step is None else f"{format_bytes(round(one.bytes_per_step))} a step: "
    yield f"{size}{KINDS[one.kind]}"
    shape = f" ({one.shape})" if one.shape else ""
    times = f", {one.count_per_step:,.3g} a step" if one.count_per_step not in (0, 1) else ""
    yield f"  what     {one.what}{times}{shape}"
    if one.made_at:
        yield f"  made at  {one.made_at}{f' (phase {one.phase})' if one.phase else ''}"
    if one.kept_at:
        yield f"  kept at  {one.kept_at}"
    yield f"  do       {advice(one)}"
