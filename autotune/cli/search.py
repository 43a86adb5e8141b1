"""``autotune search``: the answer with all its evidence, and ``autotune.json``."""

from pathlib import Path

from autotune.cli.options import Asked, searching
from autotune.model import SearchResult


def run(asked: Asked) -> None:
    """Find the fastest safe settings with their batch and write autotune.json.

    Your own settings are measured first; others are only recommended if they are faster and train the same. With
    --allow none the batch alone is searched.
    """
    from autotune.cli.asking import ask, keep

    result = ask(asked, recommend=True)
    try:
        keep(asked, result)
    finally:  # the answer took long to find: it is shown also if the file cannot be written
        if not asked.json:
            show(result, asked.output, verbose=asked.verbose)


def show(result: SearchResult, output: Path | None, *, verbose: bool) -> None:
    """Print the whole answer."""
    from autotune.cli.console import Screen
    from autotune.report.table import report

    stdout = Screen(stderr=False)
    for number, block in enumerate(report(result, output=str(output or ""), verbose=verbose)):
        if number > 0:
            stdout.say("")
        if block.title:
            stdout.say(block.title, "bold")
        stdout.say("\n".join(block.lines))


search = searching(run, default_output=Path("autotune.json"), tune=True)
