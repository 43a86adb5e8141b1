"""A prediction for devices that are not there, as text and as a document. Each number says whether the ranks ran. Pure."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from autotune.errors import NothingFits
from autotune.model import Parallel, Predicted, PredictedWay, ProbeResult, SearchResult
from autotune.report.advice import advice
from autotune.report.columns import NOTHING, align
from autotune.report.fields import Machine
from autotune.report.filled import answer_fields, error_fields, workload_fields
from autotune.report.memory_split import activations_bytes, composition_words
from autotune.report.prediction_fields import PredictedMemory, PredictionDocument, RealRanks
from autotune.report.prediction_fields import PredictedWay as WayFields
from autotune.report.words import bound_words, format_share
from autotune.units import format_bytes

NOT_RUN = "predicted, not run"
_HEADINGS = ("parallel", "largest batch", "samples a step", "peak on each", "limit")
_NUMBERS = (1, 2)


def prediction_report(found: Predicted) -> str:
    """The whole prediction as lines of text: what each way holds, where its memory goes, what to mind."""
    given = format_bytes(found.budget.limit_bytes)
    head = (
        f"{found.plan.ranks} ranks, each on a device like {found.machine.device_name}, with {given} each: {_how(found)}"
    )
    blocks: list[tuple[str, ...]] = [
        (head,),
        align([_HEADINGS, *(_row(found, way) for way in found.ways)], right=_NUMBERS),
        ("memory of one rank", *align(list(_memory(found)))),
        ("mind", *(f"- {text}" for text in prediction_advice(found))),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if len(lines) > 1 or lines == (head,))


def prediction_lines(found: Predicted) -> tuple[str, ...]:
    """For scripts, a line for each way: its name, its batch or ``-``, and ``predicted`` or ``verified``."""
    return tuple(
        f"{way.parallel} {NOTHING if best is None else best} {'verified' if way.verified else 'predicted'}"
        for way in found.ways
        for best in (_batch(way),)
    )


def prediction_advice(found: Predicted) -> tuple[str, ...]:
    """What the user should know, most important first."""
    return tuple(dict.fromkeys(_advice(found)))


def prediction_document(found: Predicted, created: datetime) -> PredictionDocument:
    """What ``--json`` prints. It is no recommendation: nothing that reads ``autotune.json`` takes it for one."""
    return PredictionDocument(
        schema_version=1,
        kind="prediction",
        created=created,
        workload=workload_fields(found.workload),
        machine=Machine(**asdict(found.machine)),
        ranks=found.plan.ranks,
        accumulate=found.plan.settings.accumulate,
        budget_bytes=found.budget.limit_bytes,
        communicators_bytes=found.communicators.size_bytes,
        communicators_told_by=found.communicators.told_by,
        ways=tuple(_way(found, way) for way in found.ways),
        warnings=prediction_advice(found),
    )


def no_way(found: Predicted) -> NothingFits:
    """The error where no way has an answer."""
    ranks = found.plan.ranks
    enough = [f"{way.enough} with --parallel {way.parallel}" for way in found.ways if way.enough is not None]
    hint = f"predicted to be enough for the smallest batch: {', '.join(enough)}" if enough else ""
    error = found.error
    return NothingFits(
        f"{NOT_RUN}: with {ranks} ranks nothing fits in {format_bytes(found.budget.limit_bytes)} each",
        detail="\n".join(f"{way.parallel}: {_limit(way)}" for way in found.ways)
        + (f"\n\n{error.detail}" if error else ""),
        hint=hint or (error.hint if error else ""),
    )


def _how(found: Predicted) -> str:
    if not any(way.verified for way in found.ways):
        return NOT_RUN
    every = all(way.verified for way in found.ways)
    return "predicted by one, then verified by running all of them" + ("" if every else ", where a line says so")


def _row(found: Predicted, way: PredictedWay) -> tuple[str, ...]:
    batch, probe = _batch(way), _proof(way)
    return (
        way.parallel.value,
        NOTHING if batch is None else str(batch),
        NOTHING if batch is None else str(batch * found.plan.settings.accumulate * found.plan.world),
        format_share(probe.measurement.peak_device_bytes, probe.budget_bytes) if probe else NOTHING,
        f"{_limit(way)}; {_status(found, way)}",
    )


def _status(found: Predicted, way: PredictedWay) -> str:
    """Whether the ranks ran, and how the prediction stands then."""
    if not way.verified:
        return NOT_RUN
    ran = f"verified on {found.plan.ranks} {'GPUs' if found.machine.device == 'cuda' else 'processes'}"
    predicted = way.result.answer.max_batch if way.result is not None else None
    if way.real is None:
        return f"{ran}: {predicted} was predicted"
    real = way.real.answer.max_batch
    if predicted == real:
        return f"{ran}: as predicted"
    assert predicted is not None  # the ranks begin with it
    return f"{ran}: {predicted} was predicted ({100 * (predicted - real) / real:+.1f} %)"


def _batch(way: PredictedWay) -> int | None:
    """What to believe: what ran, where it ran."""
    result = _believed(way)
    return None if result is None else result.answer.max_batch


def _believed(way: PredictedWay) -> SearchResult | None:
    return way.real if way.verified else way.result


def _proof(way: PredictedWay) -> ProbeResult | None:
    result = _believed(way)
    return None if result is None else result.certificate


def _limit(way: PredictedWay) -> str:
    result, error = _believed(way), way.real_error or way.error
    if result is None:
        assert error is not None
        enough = f"; {way.enough} ranks are predicted to hold the smallest batch" if way.enough else ""
        what = error.message.splitlines()[0]
        if isinstance(error, NothingFits):  # what ran out and where; what the allocator said is in the error itself
            what = ": ".join(what.split(": ")[:2])
        return f"{what}{enough}"
    return bound_words(result)


def _memory(found: Predicted) -> Iterator[tuple[str, str]]:
    for way in found.ways:
        probe = _proof(way)
        if probe is not None:
            yield way.parallel.value, composition_words(probe)


def _advice(found: Predicted) -> Iterator[str]:
    ranks, held = found.plan.ranks, found.communicators
    missing = [way for way in found.ways if not way.verified]
    if missing:
        yield (
            f"{ranks} ranks did not run: one process trained as one of them and nothing was exchanged, so that the memory is"
            " that of a rank, and loss and speed are not"
        )
    if held.size_bytes:
        yield (
            f"{format_bytes(held.size_bytes)} of each device are taken to be for communicators between the ranks (NCCL):"
            f" {held.told_by}"
        )
    if missing and found.machine.device == "cpu":
        yield "on the CPU the buffers of gloo are left out, and all ranks are taken to have as much memory as this process"
    if missing and found.machine.device != "cpu":
        yield (
            "every rank is taken to have a device like this one; for other GPUs give their memory with --memory-limit, and"
            " expect libraries to take other amounts there"
        )
    if any(way.parallel is Parallel.DDP for way in found.ways) and len(found.ways) > 1:
        yield "a training that wraps its model in DistributedDataParallel by itself (--parallel default) needs what ddp needs"
    if missing:
        yield f"where the GPUs are: autotune max-batch {found.workload.ref} --ranks {ranks}"
    yield from _of_ways(found)


def _of_ways(found: Predicted) -> Iterator[str]:
    """What each search has to say; what is not the same in all says which it is of."""
    answered = {way.parallel: result for way in found.ways if (result := _believed(way)) is not None}
    said: dict[str, list[str]] = {}
    for parallel, result in answered.items():
        for text in advice(result):
            said.setdefault(text, []).append(parallel.value)
    for text, ways in said.items():
        yield text if len(ways) == len(answered) else f"{', '.join(ways)}: {text}"


def _way(found: Predicted, way: PredictedWay) -> WayFields:
    predicted, real = way.result, way.real
    batch = None if predicted is None else predicted.answer.max_batch
    return WayFields(
        parallel=way.parallel,
        status=f"verified on {found.plan.ranks} ranks" if way.verified else NOT_RUN,
        **answer_fields(predicted),
        effective=None if batch is None else batch * found.plan.settings.accumulate * found.plan.world,
        peak_bytes=None if way.certificate is None else way.certificate.measurement.peak_device_bytes,
        memory=None if way.certificate is None else _kinds(way.certificate),
        error=error_fields(way.error),
        enough_ranks=way.enough,
        real=None
        if not way.verified
        else RealRanks(
            **answer_fields(real),
            peak_bytes=None if real is None else real.certificate.measurement.peak_device_bytes,
            error=error_fields(way.real_error),
        ),
    )


def _kinds(probe: ProbeResult) -> PredictedMemory:
    seen = probe.measurement.composition
    return PredictedMemory(
        **asdict(seen),
        activations_bytes=activations_bytes(probe),
        non_pytorch_bytes=probe.measurement.non_pytorch_bytes,
    )
