"""What the user should know beside the number: every warning is derived from the result, its text is made here."""

from collections.abc import Callable, Iterator

from autotune.model import Cause, Form, Outcome, ProbeResult, SearchResult
from autotune.report.evaluated import evaluation_advice
from autotune.report.evidence import certificate
from autotune.report.words import OUTCOMES, failure_words, format_rate, short_type
from autotune.units import format_seconds

SPREAD_LIMIT = 0.20
"""Step times whose quartiles lie farther apart than this share of their median make a throughput doubtful."""


def advice(result: SearchResult) -> tuple[str, ...]:
    """All warnings, most important first, each once."""
    found = [*result.warnings, *result.workload.notes]
    for rule in _RULES:
        found.extend(rule(result))
    return tuple(dict.fromkeys(found))


def _limited_by_something_else(result: SearchResult) -> Iterator[str]:
    """The limit is not memory, so that more memory or another precision would not raise it."""
    answer, refutation = result.answer, result.refutation
    if refutation is None:
        return
    size = f"batch {refutation.batch_size}"
    match refutation.outcome:
        case Outcome.TIMED_OUT:
            yield (
                f"{size} was stopped after {format_seconds(result.plan.timeout_s)}, not by memory: "
                "a larger --timeout may give a larger batch"
            )
        case Outcome.WORKLOAD_ERROR:
            yield f"{size} failed in the workload's own code, not by memory: {_reason(refutation)}"
        case Outcome.CRASHED | Outcome.UNSTABLE | Outcome.SIZE_LIMIT | Outcome.UNSUPPORTED:
            yield f"the limit {answer.max_batch} is not one of memory: {size} {failure_words(refutation)}"
        case _:
            return


def _holes(result: SearchResult) -> Iterator[str]:
    for size in result.answer.holes:
        failed = [p for p in result.probes if p.batch_size == size and not p.fits]
        why = failure_words(failed[-1]) if failed else "failed"
        yield f"do not train at batch {size}: {why}, although larger batches run"


def _legal_step(result: SearchResult) -> Iterator[str]:
    step = result.answer.step
    if step <= result.plan.multiple_of:
        return
    refused = {
        p.batch_size: p for p in result.probes if p.outcome is Outcome.WORKLOAD_ERROR and p.batch_size % step != 0
    }
    sizes = sorted(refused)
    names = sorted({short_type(p.failure) for p in refused.values() if p.failure and p.failure.error_type})
    witness = f": {_listed(sizes)} failed{' with ' + _listed(names) if names else ''}" if sizes else ""
    yield f"sizes must be multiples of {step}{witness}"


def _last_batch_of_one(result: SearchResult) -> Iterator[str]:
    samples, batch, loader = result.workload.data_set_size, result.answer.recommended_batch, result.workload.loader
    if samples is None or samples % batch != 1 or batch == 1 or (loader is not None and loader.drop_last):
        return
    refused = any(p.batch_size == 1 and p.outcome is Outcome.WORKLOAD_ERROR for p in result.probes)
    if not refused and not result.workload.traits.batch_norm:
        return
    others = [
        p.batch_size
        for p in result.probes
        if p.form is Form.LONG and p.fits and p.batch_size < batch and samples % p.batch_size != 1
    ]
    other = f", or train at batch {max(others)}, which is certified too" if others else ""
    yield (
        f"{samples} samples in batches of {batch} leave a last batch of 1 ({samples} % {batch} == 1), on which "
        f"{'training fails here' if refused else 'BatchNorm fails in training'}: "
        f"give the data loader drop_last=True{other}"
    )


def _not_compared(result: SearchResult) -> Iterator[str]:
    if result.plan.source.command and result.settings.changes(result.plan.settings):
        yield (
            "that these settings train the same was not checked: a command cannot be asked for it; look at the first losses"
        )


def _skipped_steps(result: SearchResult) -> Iterator[str]:
    probe = certificate(result, result.answer.recommended_batch)
    if probe is not None and probe.measurement.steps_skipped:
        seen = probe.measurement
        yield (
            f"the gradient scaler skipped {seen.steps_skipped} of {seen.steps_skipped + seen.steps_executed} steps "
            f"at batch {probe.batch_size}; the executed ones are what certifies it"
        )


_HAIR = 0.02
"""Of the limit: by so much the long form may need more than the short one, without any luck (7 MiB of 500)."""


def _by_a_hair(probe: ProbeResult) -> bool:
    return (probe.measurement.peak_allocated_bytes or 0) > (1 - _HAIR) * probe.budget_bytes


def _by_chance(result: SearchResult) -> Iterator[str]:
    """A size that fits or not by the luck of the heap; of evaluations and lengths that vary the long form needs more anyway."""
    if result.machine.device != "cpu" or result.workload.evaluates or result.workload.traits.varies:
        return
    probes = [p for p in result.probes if p.settings == result.settings]
    failed = {p.batch_size for p in probes if p.outcome is Outcome.OUT_OF_MEMORY}
    fitted = {p.batch_size for p in probes if p.fits and not _by_a_hair(p)}
    sizes = sorted(failed & fitted)
    if sizes:
        yield (
            f"batch {sizes[0]} fitted in one probe and ran out of memory in another: chance cuts up the heap of a CPU process, "
            "and training may have less luck than its probe; MALLOC_MMAP_THRESHOLD_=131072 in the environment of both, if it "
            "is not there yet, takes that away"
        )


def _uneven_steps(result: SearchResult) -> Iterator[str]:
    probe = certificate(result, result.answer.recommended_batch)
    if probe is None:
        return
    typical_s, spread_s = probe.measurement.median_step_seconds, probe.measurement.spread_step_seconds
    if typical_s and spread_s is not None and spread_s > SPREAD_LIMIT * typical_s:
        yield (
            f"step times at batch {probe.batch_size} differ by {100 * spread_s / typical_s:.0f} %: "
            "the throughput is uncertain, something else may be using the machine"
        )


def _spawned(result: SearchResult) -> Iterator[str]:
    told = any("spawn" in text for text in (*result.warnings, *result.workload.notes))
    if not told and any(p.launcher == "spawn" and p.form is Form.SHORT for p in result.probes):
        yield "probes ran in fresh interpreters (spawn) instead of forks, which costs the start of torch each time"


def _incomplete(result: SearchResult) -> Iterator[str]:
    if not result.answer.complete:
        yield (
            "time ran out before the search was complete; this is the best that was certified by then, and the same "
            "command with a larger --time-budget goes on"
        )


def _accumulation(result: SearchResult) -> Iterator[str]:
    """Where micro-batches do not add up to one large batch."""
    settings = result.settings
    if settings.accumulate == 1:
        return
    compared = [p for p in result.probes if p.form is Form.COMPARE and p.settings.accumulate > 1]
    differs = [p for p in compared if p.outcome is Outcome.CHANGES_TRAINING]
    if differs:
        yield (
            f"accumulation is not equivalent here: {settings.accumulate} micro-batches train something else than one "
            f"batch of all their samples ({_reason(differs[-1])})"
        )
    elif result.workload.traits.batch_norm:
        yield (
            "accumulation is not equivalent: batch norm takes its statistics of "
            f"{result.answer.recommended_batch} samples at a time, not of all {settings.accumulate} micro-batches"
        )


def _learning_rate(result: SearchResult) -> Iterator[str]:
    """Advice, no action: what the user's learning rate was chosen for is not known here."""
    if not result.plan.space or result.plan.effective_batch is not None:
        return
    samples = result.answer.recommended_batch * result.settings.accumulate * result.plan.replicas
    yield (
        f"an optimizer step sees {samples} samples: if your learning rate was chosen for another number, hold that "
        "number with --effective-batch N, or scale the rate (in proportion for SGD, by the square root for Adam)"
    )


def _loader_failed(result: SearchResult) -> Iterator[str]:
    """The limit was found without loader workers; whether they run beside it is another matter."""
    loading, batch = result.answer.loading, result.answer.recommended_batch
    failed: dict[str, list[int]] = {}
    for probe in result.probes:
        workers, held = probe.settings.loader_workers or 0, probe.measurement.workers_bytes or 0
        if probe.form is not Form.LOADING or probe.batch_size != batch:
            continue
        if probe.failure is not None and probe.failure.cause is Cause.SHARED_MEMORY:
            why = f"no room in shared memory: {probe.failure.message.splitlines()[-1]}; {probe.failure.hint}"
        elif not probe.fits:
            why = f"failed: {_reason(probe)}"
        elif loading and workers > loading.workers and _beyond(result, held):
            why = "more host memory than the budget leaves beside the training"
        else:
            continue
        failed.setdefault(why, []).append(workers)
    runs = f", but with {loading.workers}" if loading else ""
    for why, numbers in failed.items():
        tried = sorted(set(numbers), reverse=True)
        many = f"{' or '.join(map(str, tried))} worker{'' if tried == [1] else 's'}"
        yield (
            f"at batch {batch} the data loader does not run with {many}{runs}: {why}; the limit "
            f"{result.answer.max_batch} is that of the device, found without workers"
        )


def _beyond(result: SearchResult, held_bytes: int) -> bool:
    proof = certificate(result, result.answer.recommended_batch)
    peak = proof.measurement.peak_device_bytes if proof is not None else None
    return result.machine.device == "cpu" and (peak or 0) + held_bytes > result.budget.limit_bytes


def _data_bound(result: SearchResult) -> Iterator[str]:
    loading = result.answer.loading
    if loading is not None and loading.data_bound:
        yield (
            f"data-bound: the data set gives {format_rate(loading.samples_per_second)} samples/s with {loading.workers} "
            f"workers, training takes {format_rate(loading.training_samples_per_second)}: faster settings gain nothing "
            "until loading is faster"
        )


_RULES: tuple[Callable[[SearchResult], Iterator[str]], ...] = (
    _incomplete,
    _limited_by_something_else,
    _accumulation,
    _loader_failed,
    _data_bound,
    _holes,
    _legal_step,
    _last_batch_of_one,
    evaluation_advice,
    _not_compared,
    _skipped_steps,
    _by_chance,
    _uneven_steps,
    _learning_rate,
    _spawned,
)


def _reason(probe: ProbeResult) -> str:
    failure = probe.failure
    if failure is None:
        return OUTCOMES[probe.outcome]
    first = failure.message.splitlines()[0] if failure.message else failure_words(probe)
    return f"{short_type(failure)}: {first}" if failure.error_type and failure.cause is Cause.USER_CODE else first


def _listed(items: list[int] | list[str]) -> str:
    """``1``, ``1 and 3``, ``1, 3 and 5``."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
