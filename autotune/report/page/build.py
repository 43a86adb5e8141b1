"""A search and its probes become the view of a report. Pure: the clock, the ledger and the files are others' business."""

from collections.abc import Sequence
from dataclasses import replace

from autotune.errors import UsageError
from autotune.knobs import in_words, knob_of
from autotune.knobs.choosing import wanted
from autotune.model import Choice, ProbeResult, Reason, SearchRecord, SearchResult, Settings
from autotune.report.advice import advice
from autotune.report.baseline import baseline, is_own, throughput
from autotune.report.commands import launch, training_command
from autotune.report.evidence import certificate
from autotune.report.page.by_rank import by_rank
from autotune.report.page.claims import claims
from autotune.report.page.ended import no_answer
from autotune.report.page.facts import facts
from autotune.report.page.listed import failures, listed
from autotune.report.page.memory import memory_by_size, memory_in_step
from autotune.report.page.reproduce import reproduction, where_the_ranks_are
from autotune.report.page.speed import Roles, step_times, trades
from autotune.report.page.view import REPORT_VERSION, Answer, Role, Tried, View
from autotune.report.ranks import of_all_ranks
from autotune.report.setting_words import given_words, settings_words
from autotune.report.table import headline
from autotune.report.tuning import SettingsRow, left_out, settings_rows
from autotune.report.words import format_rate, limit_words
from autotune.search.apart import Apart, plain


def build_view(record: SearchRecord, probes: Sequence[ProbeResult]) -> View:
    """Everything a report of a search shows.

    Args:
        record: the search, in whatever state.
        probes: all its answer rests on, oldest first: those of the search it confirms, then its own.
    """
    record = replace(record, plan=replace(record.plan, space=tuple(filter(_is_known, record.plan.space))))
    own = record.plan.settings
    result = _result(record, probes)
    chosen = result.settings if result else own
    batch = result.answer.recommended_batch if result else None
    if result is None:
        batch = max((p.batch_size for p in probes if p.fits and p.reason is not Reason.TRACE), default=None)
    training = Apart.of(probes).training
    roles = Roles(probes, own, chosen if result else None)
    command, note = reproduction(record.plan, record.workload.own)
    shown, hidden = listed(probes, own)
    told, untold = failures(probes)
    rows = settings_rows(result) if result else ()
    by_size = [memory_by_size(record, probes, of, own) for of in dict.fromkeys((plain(chosen), plain(own)))]
    # What the ledger no longer holds cannot be cited: older or damaged ledgers lack the probe of their answer.
    proven = result is not None and certificate(result, result.answer.max_batch) is not None
    return View(
        report_version=REPORT_VERSION,
        search_id=record.id,
        state=record.state,
        created=record.created,
        finished=record.finished,
        version=record.version,
        model=record.workload.ref,
        device=f"{record.machine.device_name} ({record.machine.device})",
        budget_bytes=record.budget.limit_bytes,
        headline=_headline(record, result, proven),
        answer=_answer(result) if result else None,
        no_answer=None if result else no_answer(record, probes, command),
        claims=claims(result) if result else (),
        mind=advice(result) if result and proven else record.workload.notes,
        next_steps=_next_steps(result) if result else (),
        commands=_commands(result) if result else (),
        trades=trades(training, roles),
        memory=tuple(one for one in by_size if one is not None),
        step=memory_in_step(record, probes, chosen, batch),
        times=step_times(training, roles, batch),
        tried=tuple(_tried(row, roles, rows) for row in rows),
        not_tried=left_out(result) if result else (),
        probes=shown,
        probes_left_out=hidden,
        failures=told,
        failures_left_out=untold,
        facts=facts(record, probes),
        reproduce=command,
        reproduce_note=note,
        own_settings=given_words(own),
        ranks=record.plan.ranks,
        predicted=record.plan.predicted,
        by_rank=by_rank(probes, own, result),
    )


def _is_known(choice: Choice) -> bool:
    """Whether it can be told: rows may have been written by a version with other knobs, or by anything."""
    try:
        return bool(wanted(knob_of(choice.knob), choice, Settings()))
    except UsageError:
        return False


def _result(record: SearchRecord, probes: Sequence[ProbeResult]) -> SearchResult | None:
    if record.answer is None:
        return None
    return SearchResult(
        search_id=record.id,
        plan=record.plan,
        workload=record.workload,
        machine=record.machine,
        budget=record.budget,
        answer=record.answer,
        probes=tuple(probes),
        new_probes=len(probes),
        seconds=sum(probe.seconds for probe in probes),
        created=record.created,
        from_ledger=record.based_on is not None,
    )


def _headline(record: SearchRecord, result: SearchResult | None, proven: bool) -> str:
    if result is not None and proven:
        return headline(result)
    if result is not None:
        return f"max batch {result.answer.max_batch}; {limit_words(result.answer.limited_by)}"
    return record.message.rstrip(".") or f"no answer: {record.state.value.replace('_', ' ')}"


def _answer(result: SearchResult) -> Answer:
    answer, settings, world = result.answer, result.settings, result.plan.replicas
    rate, base = _throughput(result), baseline(result)
    own = base.samples_per_second if base else None
    same = is_own(result)
    proof = certificate(result, answer.recommended_batch)
    return Answer(
        batch_size=answer.recommended_batch,
        accumulate=settings.accumulate,
        world=world,
        effective=answer.recommended_batch * settings.accumulate * world,
        max_batch=answer.max_batch,
        refuted_at=answer.refuted_at,
        bound=limit_words(answer.limited_by),
        settings=settings_words(settings, result.plan.settings),
        changes=in_words(settings, replace(result.plan.settings, accumulate=settings.accumulate)),
        samples_per_second=rate,
        own_samples_per_second=rate if same else own,
        own_batch=answer.recommended_batch if same else base.batch_size if base else None,
        speedup=1.0 if same and rate else rate / own if rate and own else None,
        peak_bytes=proof.measurement.peak_device_bytes if proof else None,
        budget_bytes=result.budget.limit_bytes,
        ranks=result.plan.ranks,
        all_ranks_samples_per_second=of_all_ranks(rate, result.plan, settings),
    )


def _throughput(result: SearchResult) -> float | None:
    """As ``throughput``, and None where the ledger does not hold the probe that certified the answer."""
    sizes = (result.answer.recommended_batch, result.answer.max_batch)
    return throughput(result) if any(certificate(result, size) for size in sizes) else None


def _next_steps(result: SearchResult) -> tuple[str, ...]:
    settings = result.settings
    if result.plan.predicted:
        return ("Find out whether it holds where the devices are, with the command below.",)
    each = " on each device" if result.plan.world > 1 else ""
    steps = [f"Train with batch size {result.answer.recommended_batch}{each}."]
    if settings.accumulate > 1:
        steps.append(f"Accumulate {settings.accumulate} micro-batches for each optimizer step.")
    if result.plan.source.command:
        return tuple(steps)
    if settings.changes(result.plan.settings):
        steps.append('Apply the settings as they were probed: autotune.load("autotune.json") in the training script.')
    if result.plan.ranks > 1:
        steps.append("Start it as the probes trained, one process on each device, with the command below.")
    if settings.allocator:
        steps.append(f"Set PYTORCH_CUDA_ALLOC_CONF={settings.allocator} for the training.")
    return tuple(steps)


def _commands(result: SearchResult) -> tuple[str, ...]:
    if result.plan.predicted:
        return (where_the_ranks_are(result.plan, result.workload.own),)
    command = training_command(result)
    return tuple(words for words in (command, launch(result.plan) if command is None else "") if words)


def _tried(row: SettingsRow, roles: Roles, rows: Sequence[SettingsRow]) -> Tried:
    role: Role = roles.of(row.settings)
    verdict = row.verdict
    best = next((other.rate for other in rows if roles.of(other.settings) is Role.RECOMMENDED), None)
    if role in (Role.OTHER, Role.YOURS) and row.rate and best and row.trains_same:
        verdict = "; ".join([_lost(row.rate, best), *([verdict] if verdict else [])])
    return Tried(
        settings=row.words,
        role=role,
        batch_size=row.shown.batch_size,
        samples_per_second=row.rate,
        gain=row.gain,
        peak_bytes=row.shown.measurement.peak_device_bytes,
        verdict=verdict,
    )


def _lost(rate: float, best: float) -> str:
    percent = 100 * (1 - rate / best)
    if percent >= 1:
        return f"{percent:.0f} % slower than recommended"
    return "not faster by more than noise" if percent >= -2 else f"{format_rate(rate)} samples/s, not certified"
