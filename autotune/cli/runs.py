"""``autotune runs``: what the ledger holds."""

from typing import Annotated

import typer

from autotune import api
from autotune.cli.options import Json, Storage, Verbose
from autotune.errors import UsageError

runs = typer.Typer(help="Show earlier searches: ls, show ID.", rich_markup_mode=None)


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
    """List searches, newest first."""
    from autotune.cli.console import Screen
    from autotune.report.records import search_table, to_json

    try:
        records = api.searches(storage=storage, limit=limit)
    except UsageError:
        if storage is not None:
            raise
        records = ()  # the ledger that nobody named comes with the first search
    if not records and not json:
        Screen(stderr=True).say("no searches yet; begin with: autotune search model.py")
        return
    Screen(stderr=False).say(to_json(records) if json else search_table(records))


@runs.command("show")
def show_run(
    search_id: Annotated[str, typer.Argument(metavar="ID", help="As listed by runs ls.", show_default=False)],
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
