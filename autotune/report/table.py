"""A finished search as blocks of plain text. Pure: ``cli`` prints them, and decides on colour."""

from dataclasses import dataclass

from autotune.model import Budget, Parallel, ProbeResult, SearchResult
from autotune.report.advice import advice
from autotune.report.baseline import baseline, throughput
from autotune.report.columns import align
from autotune.report.commands import launch, training_command
from autotune.report.evaluated import evaluation_words
from autotune.report.evidence import certificate
from autotune.report.memory_split import composition_words
from autotune.report.prediction import prediction_words
from autotune.report.probes import failure_lines, probe_table
from autotune.report.ranks import of_all_ranks, rank_words, where_run
from autotune.report.setting_words import OWN, settings_words
from autotune.report.tuning import left_out, settings_rows, settings_table
from autotune.report.words import bound_words, format_rate, format_share, worker_words
from autotune.units import counted, format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A few lines under a title."""

    title: str
    """Empty for the first block, which needs none."""
    lines: tuple[str, ...]


def report(result: SearchResult, *, output: str = "", verbose: bool = False) -> tuple[Block, ...]:
    """The whole answer: what it is, why, what it cost, what to mind, what to do next.

    Args:
        result: a search that ended with an answer.
        output: path of the recommendation that was written; empty for none.
        verbose: also every failure in full.
    """
    blocks = [
        Block(title="", lines=(headline(result), *_facts(result))),
        Block(title="settings", lines=settings_table(result)),
        Block(title="probes", lines=probe_table(result.probes, result.plan.settings if result.plan.space else None)),
    ]
    if verbose:
        failures = [line for probe in result.probes for line in failure_lines(probe)]
        blocks.append(Block(title="failures", lines=tuple(failures)))
    blocks.append(Block(title="mind", lines=tuple(f"- {text}" for text in advice(result))))
    blocks.append(Block(title="not tried here", lines=left_out(result)))
    blocks.append(Block(title="next", lines=_next_step(result, output)))
    return tuple(block for block in blocks if block.lines)


def render(blocks: tuple[Block, ...]) -> str:
    """Blocks as one text, an empty line between them."""
    return "\n\n".join("\n".join([block.title, *block.lines] if block.title else block.lines) for block in blocks)


def headline(result: SearchResult) -> str:
    """The answer and what makes it one, in one line."""
    answer, bound = result.answer, bound_words(result)
    if result.plan.predicted:
        return f"max batch {answer.max_batch} of each of {result.plan.ranks} ranks - predicted, not run; {bound}"
    steps = counted(result.certificate.measurement.steps_executed, "step")
    return f"max batch {answer.max_batch} - certified by {steps} {where_run(result.certificate)}; {bound}"


def _facts(result: SearchResult) -> tuple[str, ...]:
    rows = []
    if result.plan.space:
        rows.append(("settings", _settings(result)))
    if result.plan.recommend:
        rows.append(("recommended", _recommendation(result)))
    prediction = result.answer.prediction
    if prediction is not None:
        rows.append(("predicted", prediction_words(prediction, result.certificate)))
    recommended = certificate(result, result.answer.recommended_batch)
    shown = [result.certificate]
    if recommended is not None and recommended.batch_size != result.answer.max_batch:
        shown.insert(0, recommended)
    rows.append(("throughput", ", ".join(_rate(p, result) for p in shown)))
    rows.append(("evaluation", evaluation_words(result)))
    rows.append(("loading", _loading(result)))
    for probe in shown:
        peak = format_share(probe.measurement.peak_device_bytes, probe.budget_bytes)
        rows.append(("peak", f"{peak} at batch {probe.batch_size}"))
    rows.append(("ranks", rank_words(result.certificate)))
    rows.append(("worst batch", _worst_batch(result)))
    rows.append(("budget", _budget(result.budget)))
    rows.append(("memory", composition_words(result.certificate)))
    rows.append(("cost", _cost(result)))
    return align([row for row in rows if row[1]])


def _recommendation(result: SearchResult) -> str:
    answer = result.answer
    accumulate, world = result.settings.accumulate, result.plan.replicas if result.plan.ranks > 1 else 1
    factors = [f"{accumulate} accumulated"] if accumulate > 1 else []
    factors += [f"on {world} devices"] if world > 1 else []
    samples = answer.recommended_batch * accumulate * world
    held = f", {' '.join(factors)} = {samples} samples a step" if factors else ""
    if result.certificate.samples_per_second is None:
        why = "no step could be timed"
    elif answer.recommended_batch == answer.max_batch:
        why = "no smaller certified batch is within 2 % of the best throughput"
    else:
        why = "the smallest certified batch within 2 % of the best throughput"
    return f"batch {answer.recommended_batch}{held} - {why}"


def _settings(result: SearchResult) -> str:
    """What is recommended, and by how much it is faster."""
    words = settings_words(result.settings, result.plan.settings)
    own, rate = baseline(result), throughput(result)
    base = own.samples_per_second if own else None
    if words == OWN:
        tried = (
            "nothing that was tried is faster and trains the same" if settings_rows(result) else "no others were tried"
        )
        return f"{words} - {tried}"
    return f"{words} - {rate / base:.2f} times as fast as yours" if rate and base else words


def _worst_batch(result: SearchResult) -> str:
    """What was trained on, where real data decides it; what ``make_batch`` makes is the user's own choice."""
    seen = result.certificate.measurement
    if not seen.worst_batch or not (result.workload.varies or result.workload.loader):
        return ""
    among = f", the largest of {seen.candidates} candidates" if seen.candidates > 1 else ""
    return f"{seen.worst_batch}{among}"


def _loading(result: SearchResult) -> str:
    loading = result.answer.loading
    if loading is None:
        return ""
    verdict = "data-bound: training waits for data" if loading.data_bound else "fast enough"
    return f"{format_rate(loading.samples_per_second)} samples/s with {worker_words(loading.workers)} - {verdict}"


def _rate(probe: ProbeResult, result: SearchResult) -> str:
    words = f"{format_rate(probe.samples_per_second)} samples/s at batch {probe.batch_size}"
    together = of_all_ranks(probe.samples_per_second, result.plan, probe.settings)
    return words if together is None else f"{words} in each rank, {format_rate(together)} in all"


def _budget(budget: Budget) -> str:
    limit = format_bytes(budget.limit_bytes)
    if budget.source == "--memory-limit":
        return f"{limit}, set by --memory-limit (the device has {format_bytes(budget.capacity_bytes)})"
    return (
        f"{limit} = {format_bytes(budget.capacity_bytes)} ({budget.source}) "
        f"- {format_bytes(budget.others_bytes)} held by others - {format_bytes(budget.headroom_bytes)} headroom"
    )


def _cost(result: SearchResult) -> str:
    failed = sum(not probe.fits for probe in result.probes)
    reused = len(result.probes) - result.new_probes
    words = f"{len(result.probes)} probes, {failed or 'none'} failed"
    words += f", {reused} reused from the ledger" if reused else ""
    confirmed = "; an earlier answer, confirmed" if result.from_ledger else ""
    return f"{words}; {format_seconds(result.seconds)}{confirmed}; search {result.search_id}"


def _next_step(result: SearchResult, output: str) -> tuple[str, ...]:
    where = f" (batch.micro_batch in {output})" if output else ""
    lines = [f"train with batch size {result.answer.recommended_batch}{where}"]
    command = training_command(result)
    if command is not None:
        return (*lines, command)
    if result.plan.ranks > 1:
        lines.append(f"start it as the probes trained, one process a device: {launch(result.plan)}")
    if (result.settings.changes(result.plan.settings) or result.settings.parallel is not Parallel.DEFAULT) and output:
        lines.append(
            f'apply the settings as they were probed: tuned = autotune.load("{output}") in your training script'
        )
    if result.settings.allocator:
        lines.append(f"set PYTORCH_CUDA_ALLOC_CONF={result.settings.allocator} for the training as well")
    if not output:
        lines.append("to keep the answer in a file: the same command with --output autotune.json")
    return tuple(lines)
