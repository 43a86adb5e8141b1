"""What is here, held field by field against what a recommendation was made for. Pure.

A change is ``stale`` where what the file says was measured of something else: another training, another device, other
versions below it. One more probe would show that the batch fits, and not that the settings are the fastest or the limit
is where it was; the file has to be made anew. Everything else is only worth knowing: that the batch is safe under the
budget there is now, the confirming probe shows.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from autotune.model import ALLOCATOR_VARIABLES, Budget, Machine, WorkloadInfo
from autotune.recommended.facts import changed_facts
from autotune.report.document import settings_of
from autotune.report.fields import Change, Document
from autotune.units import format_bytes

GROWTH = 0.05
"""Share by which a budget must have grown before a larger batch is worth a search; as for answers from the ledger."""
_THERE, _NOT_THERE = "there", "not there"
_ANOTHER_TRAINING = "another training than the one that was searched"
_ANOTHER_DEVICE = "batch and speed were measured on another device"
_ANOTHER_VERSION = "batch and speed were measured with another version"
_NO_MATTER = "neither batch nor speed depend on it, as far as is known"


def workload_changes(content: Document, workload: WorkloadInfo) -> tuple[Change, ...]:
    """Where it is not the training that was searched, in parts as far as the file has them."""
    then = content.workload
    if then.fingerprint == workload.fingerprint:
        return ()
    found = [*_parts(then.parts, dict(workload.parts))] if then.parts else []
    if then.parameters != workload.parameters:
        counts = f"{then.parameters or 0:,}", f"{workload.parameters:,}"
        found.append(_stale("number of parameters", *counts, _ANOTHER_TRAINING))
    if not found:
        hashes = (then.fingerprint or "none")[:12], workload.fingerprint[:12]
        found.append(_stale("fingerprint of the workload", *hashes, _ANOTHER_TRAINING))
    return tuple(found)


def machine_changes(content: Document, machine: Machine) -> tuple[Change, ...]:
    """Where it is not the machine, or not its software, that the file was made on."""
    then, here = content.machine.model_dump(), asdict(machine)
    then["peers"], here["peers"] = (", ".join(each["peers"]) for each in (then, here))
    if then["device"] != machine.device:
        kinds = f"{then['device']} ({then['device_name']})", f"{machine.device} ({machine.device_name})"
        return (_stale("kind of device", *kinds, _ANOTHER_DEVICE),)
    found = [
        _stale(
            fact.name,
            str(fact.then or "unknown"),
            str(fact.here or "unknown"),
            _ANOTHER_VERSION if fact.field.endswith("_version") else _ANOTHER_DEVICE,
        )
        for fact in changed_facts(then, here, machine.device)
    ]
    for field, name, meaning in (
        ("device_uuid", "device's UUID", "another device of the same kind"),
        ("peers", "UUIDs of the other ranks' devices", "other devices of the same kind"),
        ("python_version", "Python", _NO_MATTER),
        ("platform", "platform", _NO_MATTER),
    ):
        if then[field] != here[field]:
            found.append(_note(name, str(then[field] or "none"), str(here[field] or "none"), meaning))
    return tuple(found)


def budget_changes(content: Document, budget: Budget, batch: int, *, probing: bool) -> tuple[Change, ...]:
    """Whether the job may use as much as it might then.

    Args:
        content: the file.
        budget: as it is now.
        batch: size that is asked about.
        probing: whether a probe will tell if a smaller budget is enough. Without one the peak of the file does, where it
            is that of this batch.
    """
    evidence, now = content.evidence, budget.limit_bytes
    sizes = format_bytes(evidence.budget_bytes), format_bytes(now)
    if now > (1 + GROWTH) * evidence.budget_bytes:
        return (_note("budget", *sizes, "a larger batch may fit"),)
    if now >= evidence.budget_bytes:
        return ()
    if probing:
        return (_note("budget", *sizes, "the probe decides whether it is enough"),)
    peak_bytes = evidence.peak_bytes if batch == content.batch.micro_batch else None
    if peak_bytes is None:
        return (_note("budget", *sizes, "whether it is enough was not probed"),)
    if peak_bytes > now:
        return (_stale("budget", *sizes, f"batch {batch} had a peak of {format_bytes(peak_bytes)}"),)
    return (_note("budget", *sizes, f"more than the {format_bytes(peak_bytes)} of batch {batch}, then; not probed"),)


def other_changes(content: Document, environment: Mapping[str, str] = os.environ) -> tuple[Change, ...]:
    """What else a training should know of: the variables it may start with, and a search that was not through."""
    settings = settings_of(content)
    set_here = {name: environment[name] for name in ALLOCATOR_VARIABLES if environment.get(name)}
    found = [
        _note(
            name,
            settings.allocator or "not set",
            value,
            "the probe runs with what the file says; so must the training",
        )
        for name, value in set_here.items()
        if value != settings.allocator
    ]
    if not content.complete:
        meaning = f"batch {content.batch.micro_batch} is certified; others were not looked for to the end"
        found.append(_note("search", "out of time", "as it was", meaning))
    return tuple(found)


def _parts(then: Mapping[str, str], here: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys([*then, *here]):
        if then.get(name) == here.get(name):
            continue
        if name in then and name in here:
            yield _stale(name, None, None, _ANOTHER_TRAINING)  # hashes tell nobody anything
        else:
            words = (_THERE, _NOT_THERE) if name in then else (_NOT_THERE, _THERE)
            yield _stale(name, *words, _ANOTHER_TRAINING)


def _stale(what: str, then: str | None, here: str | None, meaning: str) -> Change:
    return Change(what=what, then=then, here=here, stale=True, meaning=meaning)


def _note(what: str, then: str, here: str, meaning: str) -> Change:
    return Change(what=what, then=then, here=here, stale=False, meaning=meaning)
