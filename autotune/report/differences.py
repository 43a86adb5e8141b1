"""What differs between two searches, field by field, in words. Every field of plan, workload and machine takes part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass

from autotune.model import Answer, Choice, Form, ProbeResult, Recognised, SearchRecord
from autotune.report.columns import align
from autotune.units import format_bytes, format_seconds

_NONE = "none"
_CHANGED = "changed"
"""Of what is known by its hash alone."""
_PARTS = "workload.parts."
_MEASURED_EACH_TIME = frozenset(
    {
        "workload.process bytes",
        "workload.step imports bytes",
        "workload.device used bytes",
        "workload.notes",
        "workload.fingerprint",
        "plan.source.pickle path",
        "plan.source.fingerprint",
    }
)
"""Differ between two runs of the same, or say in numbers what other fields say in words."""
_OF_SETTINGS_SEARCH = ("plan.space", "plan.objective", "plan.effective batch", "plan.world", "plan.trials")
_NO_OTHER_QUESTION = (
    "plan.time budget s",
    "plan.device",
    "plan.source",
    "plan.settings",
    "machine.device index",
    "machine.unified",
)
"""Beginnings of fields that may differ between searches that ask the same."""
_ASKED_SETTINGS = ("plan.settings.precision", "plan.settings.allocator", "plan.settings.accumulate")


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not the same in two searches."""

    part: str
    """``plan``, ``workload``, ``machine``, ``budget`` or ``answer``."""
    field: str
    """In words."""
    before: str
    after: str

    def __str__(self) -> str:
        """As a clause: ``torch version 2.12.0 -> 2.13.0``."""
        return f"{self.field} {_CHANGED}" if self.after == _CHANGED else f"{self.field} {self.before} -> {self.after}"


def differences(before: SearchRecord, after: SearchRecord) -> tuple[Difference, ...]:
    """What was asked, of what and where: every field of plan, workload, machine and budget that is not the same."""
    parts = ("plan", "workload", "machine", "budget")
    return _differing([(part, getattr(before, part), getattr(after, part)) for part in parts])


def answer_differences(
    before: SearchRecord, after: SearchRecord, before_probes: Sequence[ProbeResult], after_probes: Sequence[ProbeResult]
) -> tuple[Difference, ...]:
    """What came out: how they ended, every field of the answers, and the figures measured at them."""
    ended = (
        [Difference("answer", "state", before.state.value, after.state.value)] if before.state != after.state else []
    )
    here, there = before.answer or _Nothing(), after.answer or _Nothing()
    figures = [("answer", _figures(before.answer, before_probes), _figures(after.answer, after_probes))]
    return (*ended, *_differing([("answer", here, there)]), *_differing(figures))


def what_changed(before: SearchRecord, after: SearchRecord) -> tuple[str, ...]:
    """Why a search asks another question than an earlier one, in clauses; never empty.

    Args:
        before, after: two searches with different keys.
    """
    tuned = [bool(one.plan.space or one.plan.effective_batch) for one in (before, after)]
    changes = []
    if tuned[0] != tuned[1]:
        words = ["settings as well" if one else "the batch alone" for one in tuned]
        changes.append(f"what is searched {words[0]} -> {words[1]}")
    other_workload = before.workload.fingerprint != after.workload.fingerprint
    for one in _paths([("plan", before.plan, after.plan), ("machine", before.machine, after.machine)]):
        path, difference = one
        of_workload = path.startswith(("plan.source.script args", "plan.source.command", "plan.source.templates"))
        asked = path in _ASKED_SETTINGS or not path.startswith(_NO_OTHER_QUESTION)
        if path in _OF_SETTINGS_SEARCH and not all(tuned):
            asked = False
        if asked or (of_workload and other_workload):
            changes.append(str(difference))
    if other_workload:
        found = dict(_paths([("workload", before.workload, after.workload)]))
        told = [str(one) for path, one in found.items() if not path.startswith(_PARTS)]
        # Of other parts than code the rest tells the values.
        said = {f"{_PARTS}arguments"} if any(one.startswith("script args") for one in changes) else set()
        parts = [str(found[path]) for path in found if path.startswith(f"{_PARTS}code") or not (told or path in said)]
        in_parts = bool(before.workload.parts and after.workload.parts)
        changes += told + parts or ([] if in_parts else ["the workload's code, or what it imports"])
    return tuple(changes) or (f"autotune {before.version} -> {after.version}, which asks in another form",)


def comparison_lines(ids: tuple[str, str], found: Sequence[Difference]) -> str:
    """Two searches side by side: one line a field that differs."""
    if not found:
        return "nothing differs"
    rows = [("", "", *ids)]
    for number, one in enumerate(found):
        again = number > 0 and found[number - 1].part == one.part
        rows.append(("" if again else one.part, one.field, one.before, one.after))
    return "\n".join(align(rows))


@dataclass(frozen=True, slots=True)
class _Nothing:
    """In place of an answer that there is not."""


@dataclass(frozen=True, slots=True)
class _Figures:
    samples_per_second: float | None
    peak_device_bytes: int | None
    probes: int


def _figures(answer: Answer | None, probes: Sequence[ProbeResult]) -> _Figures:
    at = [p for p in probes if answer and p.fits and p.form is Form.LONG and p.batch_size == answer.recommended_batch]
    if answer is not None and answer.settings is not None:
        at = [p for p in at if p.settings == answer.settings]
    last = at[-1] if at else None
    rate = last.samples_per_second if last else None
    return _Figures(rate, last.measurement.peak_device_bytes if last else None, len(probes))


def _differing(pairs: Sequence[tuple[str, object, object]]) -> tuple[Difference, ...]:
    return tuple(difference for _, difference in _paths(pairs))


def _paths(pairs: Sequence[tuple[str, object, object]]) -> Iterator[tuple[str, Difference]]:
    """(path, difference) of every leaf that is not the same, in the order of the fields."""
    for part, one, other in pairs:
        here, there = dict(_leaves(part, one)), dict(_leaves(part, other))
        for path in {**here, **there}:
            if path in _MEASURED_EACH_TIME or here.get(path) == there.get(path):
                continue
            if path.startswith(_PARTS):
                if path in here and path in there:
                    yield path, Difference(part, _label(path), "as it was", _CHANGED)
                elif any(one.startswith(_PARTS) for one in here) and any(one.startswith(_PARTS) for one in there):
                    words = ["there" if path in leaves else _NONE for leaves in (here, there)]
                    yield path, Difference(part, path.removeprefix(_PARTS), *words)
                continue
            words = [_words(path, leaves.get(path)) for leaves in (here, there)]
            if words[0] == words[1]:  # rounded for people, to the same
                words = [str(leaves.get(path, _NONE)) for leaves in (here, there)]
            yield path, Difference(part, _label(path), *words)


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """(path, value) of everything within that is no dataclass itself."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _leaves(f"{path}.{field.name.replace('_', ' ')}", getattr(value, field.name))
    elif isinstance(value, tuple) and value and all(isinstance(item, Recognised) for item in value):
        for item in value:
            yield f"{path}.{item.what}", item.found
    elif path == _PARTS.rstrip("."):
        for what, digest in value if isinstance(value, tuple) else ():
            yield f"{_PARTS}{what}", digest
    else:
        yield path, value


def _label(path: str) -> str:
    """The last words of a path, without the unit that the value says."""
    if path.startswith(_PARTS):
        return path.removeprefix(_PARTS)
    return path.rpartition(".")[2].removesuffix(" bytes").removesuffix(" s")


def _words(path: str, value: object) -> str:
    if value is None or value == "" or value == ():
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(_item(item) for item in value)
    if isinstance(value, int | float):
        if path.endswith(" bytes"):
            return format_bytes(int(value))
        return (
            format_seconds(value) if path.endswith(" s") else f"{value:.6g}" if isinstance(value, float) else str(value)
        )
    return str(value)


def _item(item: object) -> str:
    if isinstance(item, Choice):
        return f"{item.knob}={','.join(item.values) or 'any'}"
    return "=".join(map(str, item)) if isinstance(item, tuple) else str(item)
