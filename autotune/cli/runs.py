"""``autotune runs``: what the ledger holds."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune import api, ledger
from autotune.cli.options import Json, Storage, Verbose, argument, optional
from autotune.errors import EnvironmentTrouble, UsageError
from autotune.units import counted, parse_duration

runs = typer.Typer(help="Earlier searches: ls, show ID, compare A B, rm, export, import.", rich_markup_mode=None)

_Id = Annotated[str, argument(metavar="ID", help="As listed by runs ls.")]
_Ids = Annotated[list[str] | None, argument(metavar="ID", help="As listed by runs ls; a unique beginning is enough.")]


@runs.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@runs.command("ls")
def list_runs(
    storage: Storage = None,
    limit: Annotated[int, typer.Option(min=1, help="Show no more than this many.")] = 50,
    json: Json = False,
) -> None:
    """List searches, newest first.

    On a terminal models and commands are shortened to its width; see runs show, or --json.
    """
    from autotune.cli.console import Screen

    try:
        summaries, damaged = ledger.runs(storage=storage, limit=limit)
    except UsageError:
        if storage is not None:
            raise
        summaries = damaged = ()  # the ledger that nobody named comes with the first search
    stderr, stdout = Screen(stderr=True), Screen(stderr=False)
    if json:
        from autotune.report.records import to_json

        stdout.say(to_json(summaries))
    elif summaries:
        from autotune.report.runs import runs_table

        stdout.say(runs_table(summaries, stdout.width if stdout.is_terminal else None))
    elif not damaged:
        stderr.say("no searches yet; begin with: autotune search model.py")
    for one in damaged:
        stderr.say(f"- {one.why}; drop it with: autotune runs rm {one.search_id}", "yellow")


@runs.command("show")
def show_run(
    search_id: _Id,
    storage: Storage = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show one search and all its probes."""
    from autotune.cli.console import Screen
    from autotune.report.records import search_lines, to_json

    record, probes = api.show(search_id, storage=storage)
    Screen(stderr=False).say(
        to_json({"search": record, "probes": probes}) if json else search_lines(record, probes, verbose=verbose)
    )


@runs.command("compare")
def compare_runs(
    first: Annotated[str, argument(metavar="A", help="ID of a search.")],
    second: Annotated[str, argument(metavar="B", help="ID of another.")],
    storage: Storage = None,
    json: Json = False,
) -> None:
    """Show what differs between two searches."""
    from autotune.cli.console import Screen
    from autotune.report.differences import comparison_lines
    from autotune.report.records import to_json

    found = ledger.compare(first, second, storage=storage)
    Screen(stderr=False).say(to_json(found) if json else comparison_lines((first, second), found))


@runs.command("rm")
def remove_runs(
    search_ids: _Ids = None,
    older_than: Annotated[str | None, optional(metavar="TIME", help="All that ended longer ago: 30d, 12h, 2w.")] = None,
    keep: Annotated[int | None, optional(metavar="N", min=0, help="All but the newest N.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage: Storage = None,
) -> None:
    """Remove searches with their probes.

    Never one that runs. One that others confirmed goes only together with them.
    """
    from autotune.cli.console import Screen

    try:
        older_than_s = None if older_than is None else parse_duration(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}", hint="autotune runs rm --older-than 30d") from error
    removal = ledger.to_remove(tuple(search_ids or ()), older_than_s=older_than_s, keep=keep, storage=storage)
    stderr = Screen(stderr=True)
    for search_id, why in removal.kept:
        stderr.say(f"- search {search_id} is kept: {why}")
    if not removal.search_ids:
        stderr.say("nothing to remove")
        return
    what = f"{counted(len(removal.search_ids), 'search', 'searches')} with {counted(removal.probes, 'probe')}"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{what} would be removed, and nobody can be asked", hint="add --yes")
        stderr.say(f"{what}: {', '.join(removal.search_ids)}")
        if not typer.confirm("Remove them for good?", err=True):
            stderr.say("nothing was removed")
            return
    removed = ledger.remove(removal, storage=storage)
    Screen(stderr=False).say(f"removed {counted(len(removed), 'search', 'searches')}")


@runs.command("export")
def export_runs(search_ids: _Ids = None, storage: Storage = None) -> None:
    """Print searches with their probes, one JSON line each.

    Without an ID all of them, oldest first.
    """
    from autotune.cli.console import Screen

    stdout = Screen(stderr=False)
    for line in ledger.export_runs(tuple(search_ids or ()), storage=storage):
        stdout.say(line)


@runs.command("import")
def import_runs(
    file: Annotated[Path, argument(metavar="FILE", help="What runs export printed; - for stdin.")],
    storage: Storage = None,
) -> None:
    """Add exported searches to a ledger."""
    from autotune.cli.console import Screen

    try:
        if str(file) == "-":
            added, there = ledger.import_runs(sys.stdin, storage=storage)
        else:
            with file.open(encoding="utf-8", errors="replace") as lines:
                added, there = ledger.import_runs(lines, storage=storage)
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot read {file}: {error.strerror}", hint="give the file that `autotune runs export > FILE` made"
        ) from error
    already = f"; {there} were there already" if there else ""
    Screen(stderr=False).say(f"added {counted(added, 'search', 'searches')}{already}")
