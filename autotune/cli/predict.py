"""``autotune predict``: would so many GPUs do? Answered on one, before they are there."""

from autotune.cli.options import Asked, searching


def run(asked: Asked) -> None:
    """Predict on one device what --ranks N would hold.

    One process trains as one of N ranks, the others are stood in for: buckets, shards and gathered blocks are real, nothing
    is exchanged. Compares ddp, fsdp and zero unless --parallel names one. Where the host has N GPUs, they run as well.
    When piped or with -q a line for each way: its name, the batch of one rank, and predicted or verified.
    """
    from datetime import UTC, datetime

    from autotune import api
    from autotune.cli.asking import carry_out
    from autotune.cli.console import Screen
    from autotune.cli.progress import Progress
    from autotune.model import Plan, Predicted
    from autotune.report.document import to_text
    from autotune.report.predicted import no_way, prediction_document, prediction_lines, prediction_report

    def predict(plan: Plan, progress: Progress) -> Predicted:
        return api.predict(plan, storage=asked.storage, fresh=asked.fresh, observer=progress)

    found = carry_out(asked, predict, recommend=False)
    stdout = Screen(stderr=False)
    document = to_text(prediction_document(found, datetime.now(UTC))).rstrip("\n")
    if asked.json:
        if found.error is None:
            stdout.say(document)
    elif asked.quiet or not stdout.is_terminal:
        stdout.say("\n".join(prediction_lines(found)))
        if not asked.quiet:
            Screen(stderr=True).say(prediction_report(found))
    else:
        stdout.say(prediction_report(found))
    if found.error is not None:
        error = no_way(found)
        error.document = document
        raise error


_WITHOUT = frozenset({"templates", "buckets", "executor", "workers", "executor_option", "output", "output_file"})
"""Options of a search: of a training command, of lengths, of several workers, and of a recommendation."""

predict = searching(run, default_output=None, tune=False, without=_WITHOUT)
