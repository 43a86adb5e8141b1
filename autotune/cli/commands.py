"""The commands under their names, and the one that a command line names being run."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from autotune.cli import (
    check,
    diagnose,
    doctor,
    explain,
    export,
    init,
    inspect,
    max_batch,
    predict,
    report,
    runs,
    schema,
    search,
    watch,
)
from autotune.cli.invocation import Invocation

_COMPLETION = "_AUTOTUNE_COMPLETE"
"""Set by the shell's completion function."""
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[1]
"""The base of everything wrong with a command line; typer gives it no public name."""

app = typer.Typer(
    help="Find the largest safe training batch of a PyTorch model, by short isolated probes of your own code.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: no boxes in pipes, and nothing to import
    context_settings={"help_option_names": ["--help", "-h"]},  # of all commands
)
app.command("search")(search.search)
app.command("max-batch")(max_batch.max_batch)
app.command("predict")(predict.predict)
app.command("check")(check.check)
app.command("inspect")(inspect.inspect)
app.command("init")(init.init)
app.add_typer(runs.runs, name="runs")
app.command("explain")(explain.explain)
app.command("diagnose")(diagnose.diagnose)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("schema")(schema.schema)
app.command("doctor")(doctor.doctor)
app.command("watch")(watch.watch)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"autotune {version_of('autotune-torch')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def invoke(argv: Sequence[str], program: str) -> int:
    """Run a command line, without the name of the program, which the user started as ``program``; returns its exit code.

    Raises:
        AutotuneError: whatever the command raises, or the command line cannot be read.
    """
    command = get_command(app)
    if _COMPLETION in os.environ:
        command.main(prog_name="autotune")  # answers the shell and exits
    try:
        # Not command.main(): it would silently turn any closed pipe, also one to a probe, into exit code 1.
        with command.make_context(program, list(argv), obj=Invocation(program, tuple(argv))) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except _CommandLineError as error:
        from autotune.cli.misuse import misused

        raise misused(error, program, argv) from error
    return 0
