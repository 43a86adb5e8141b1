"""``autotune search``: the answer with all its evidence, and ``autotune.json``."""

from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cli.options import Asked, searching

if TYPE_CHECKING:
    from autotune.model import KindFailed, SearchResult


def run(asked: Asked) -> None:
    """Find the fastest safe settings and batch; write autotune.json.

    Your own settings are measured first; others are only recommended if they are faster and train the same. With
    --allow none the batch alone is searched.
    """
    from autotune.cli.asking import ask_kinds, keep

    result, others = ask_kinds(asked, recommend=True)
    try:
        keep(asked, result)
    finally:  # the answer took long to find: it is shown also if the file cannot be written
        if not asked.json:
            show(result, asked.output, verbose=asked.verbose)
    for other in others:
        show_other_kind(asked, other)


def show_other_kind(asked: Asked, found: "SearchResult | KindFailed") -> None:
    """Tell the answer for another kind of machine, apart: on stderr, where stdout has the document of the first."""
    from autotune.cli.asking import give_up_kind, keep_other_kind
    from autotune.cli.console import Screen
    from autotune.model import KindFailed
    from autotune.units import format_bytes

    screen = Screen(stderr=asked.json)
    machine = found.machine
    facts = [machine.device, format_bytes(machine.capacity_bytes)]
    if machine.driver_version:
        facts.append(f"driver {machine.driver_version}")
    kind = f"{machine.device_name} ({', '.join(facts)})"
    if isinstance(found, KindFailed):
        moved = give_up_kind(asked, found)
        screen.say(f"\nfor {kind} there is no answer: {found.error.message}", "bold")
        screen.say("\n".join(line for line in (found.error.hint, moved) if line))
        return
    path = keep_other_kind(asked, found)
    where = f", in {path}" if path else ""
    screen.say(f"\nfor {kind}, apart{where}:", "bold")
    if not asked.json:
        show(found, path, verbose=asked.verbose)


def show(result: "SearchResult", output: Path | None, *, verbose: bool) -> None:
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
