"""``autotune search``: the answer with all its evidence, and ``autotune.json``."""

from pathlib import Path

from autotune.cli.options import Asked, searching


def run(asked: Asked) -> None:
    """Find the largest safe batch and write autotune.json.

    The report says which batch is recommended, what certified it and what refuted the next size.
    """
    from autotune.cli.asking import ask, keep
    from autotune.cli.console import Screen
    from autotune.report.table import report

    result = ask(asked, recommend=True)
    try:
        keep(asked, result)
    finally:  # the answer took long to find: it is shown also if the file cannot be written
        if not asked.json:
            stdout = Screen(stderr=False)
            blocks = report(result, output=str(asked.output or ""), verbose=asked.verbose)
            for number, block in enumerate(blocks):
                if number > 0:
                    stdout.say("")
                if block.title:
                    stdout.say(block.title, "bold")
                stdout.say("\n".join(block.lines))


search = searching(run, default_output=Path("autotune.json"))
