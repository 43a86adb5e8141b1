"""What the ledger holds and what ``inspect`` found, as text and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime

from autotune.model import Answer, Machine, ProbeResult, SearchRecord, SearchState, Trace, WorkloadInfo, owner_words
from autotune.report.columns import NOTHING, align, instant_words
from autotune.report.evaluated import NOT_PROBED
from autotune.report.probes import failure_lines, probe_table
from autotune.report.ranks import rank_words, together_words
from autotune.report.setting_words import OWN, given_words, settings_words
from autotune.report.words import format_count, limit_words, worker_words
from autotune.search.apart import plain
from autotune.units import format_bytes


def to_json(value: object) -> str:
    """Nouns of ``autotune.model``, alone or within dicts and sequences, as indented ASCII JSON; instants in ISO 8601.

    A trace is summed up: it has tens of thousands of events.
    """
    return json.dumps(value, indent=2, default=_plain)


def search_lines(record: SearchRecord, probes: Sequence[ProbeResult], *, verbose: bool = False) -> str:
    """One search in full: what was asked, what came out, every probe; ``verbose`` adds every failure."""
    answer = record.answer
    own = record.plan.settings
    settings = (answer.settings if answer else None) or own
    rows = [
        ("search", record.id),
        ("state", record.state.value + (f": {record.message}" if record.message else "")),
        ("created", instant_words(record.created)),
        ("finished", instant_words(record.finished)),
        ("autotune", record.version),
        ("model", f"{record.workload.ref} ({format_count(record.workload.parameters)} parameters)"),
        ("device", _device(record.machine)),
        ("torch", record.machine.torch_version),
        ("budget", f"{format_bytes(record.budget.limit_bytes)} ({record.budget.source})"),
        ("settings", given_words(own) or OWN),
        ("changed", settings_words(settings, own) if plain(settings) != plain(own) else ""),
        ("accumulate", str(settings.accumulate)),
    ]
    if record.state is SearchState.RUNNING:
        rows.append(("runs as", owner_words(record.owner)))
    if record.plan.predicted:
        rows.append(("predicted", f"for {record.plan.ranks} ranks, which were not run"))
    if record.plan.length_bucket is not None:
        rows.append(("length bucket", str(record.plan.length_bucket)))
    if record.plan.ranks > 1:
        rows.append(("ranks", _ranks(record, probes)))
    if record.based_on:
        rows.append(("confirms", record.based_on))
    if answer is not None:
        refuted = str(answer.refuted_at) if answer.refuted_at is not None else NOTHING
        rows += [
            ("max batch", str(answer.max_batch)),
            ("refuted at", refuted),
            ("recommended", str(answer.recommended_batch)),
            ("limited by", limit_words(answer.limited_by)),
            ("evaluation", _evaluation(answer)),
        ]
    lines = [
        *align([row for row in rows if row[1]]),
        "",
        *(probe_table(probes, own if record.plan.space else None) if probes else ["no probes"]),
    ]
    for probe in probes if verbose else ():
        lines += failure_lines(probe)
    return "\n".join(lines)


def _device(machine: Machine) -> str:
    """With what tells it from another kind of the same name."""
    driver = f", driver {machine.driver_version}" if machine.driver_version else ""
    return f"{machine.device_name} ({machine.device}), {format_bytes(machine.capacity_bytes)}{driver}"


def _ranks(record: SearchRecord, probes: Sequence[ProbeResult]) -> str:
    """With the peak of each, in the newest probe that fits at the largest batch."""
    largest = record.answer.max_batch if record.answer else None
    proof = next((p for p in reversed(probes) if p.fits and p.ranks and p.batch_size == largest), None)
    return rank_words(proof) if proof is not None else together_words(record.plan)


def _evaluation(answer: Answer) -> str:
    evaluation = answer.evaluation
    if evaluation is None or (evaluation.max_batch is None and not evaluation.fits_nothing):
        return NOT_PROBED
    end = limit_words(evaluation.limited_by)
    if evaluation.max_batch is None:
        return f"fits at no batch: {end}"
    refuted = f", {evaluation.refuted_at} refuted" if evaluation.refuted_at else ""
    return f"max batch {evaluation.max_batch}{refuted}: {end}"


def inspection_lines(workload: WorkloadInfo, machine: Machine) -> str:
    """What was recognised and why, sizes, batch shapes, device."""
    trainable = ""
    if workload.trainable_parameters != workload.parameters:
        count, size = format_count(workload.trainable_parameters), format_bytes(workload.trainable_bytes)
        trainable = f", {count} of them trained ({size})"
    rows = [
        (
            "parameters",
            f"{format_count(workload.parameters)} ({format_bytes(workload.parameters_bytes)}){trainable}",
        ),
        ("optimizer", workload.optimizer),
        ("batch", workload.batch),
        (
            "data set",
            f"{workload.data_set_size} samples" if workload.data_set_size is not None else "none, or no length",
        ),
        *(() if any(item.what == "command" for item in workload.recognised) else _of_file(workload)),
        ("device", f"{machine.device_name} ({machine.device}), {format_bytes(machine.capacity_bytes)}"),
        ("torch", machine.torch_version),
        ("fingerprint", workload.fingerprint),
    ]
    rows = [row for row in rows if row[1]]
    recognised = [(f"  {item.what}", item.found, item.why) for item in workload.recognised]
    notes = [f"- {note}" for note in workload.notes]
    return "\n".join([workload.ref, *align(recognised), *align(rows), *notes])


def _loader(workload: WorkloadInfo) -> str:
    """The user's own data loader; empty where there is none."""
    loader = workload.loader
    if loader is None:
        return ""
    last = "the last batch is left out unless it is whole" if loader.drop_last else "the last batch may be smaller"
    return f"{worker_words(loader.workers)}, {last}"


def _of_file(workload: WorkloadInfo) -> tuple[tuple[str, str], ...]:
    """What a workload file may say of itself, and a command cannot."""
    varies = "vary: the long form trains on shorter batches as well"
    return (
        ("evaluation", "probed" if workload.evaluates else "not probed: no evaluate(model, batch)"),
        ("lengths", varies if workload.varies else "taken to be equal: no shorten(batch, share)"),
        ("loader", _loader(workload)),
    )


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Trace):
        return {"events": len(value.events), "allocations": len(value.sizes), "passes": value.passes}
    if is_dataclass(value) and not isinstance(value, type):
        # Not asdict, which would copy whole traces: what is within comes here by itself.
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form")
