"""``autotune inspect``: what would be trained, and why autotune thinks so."""

import typer

from autotune import api
from autotune.cli.invocation import Invocation
from autotune.cli.options import Device, Json, Model, ScriptArgs, Templates


def inspect(
    context: typer.Context,
    model: Model = None,
    args: ScriptArgs = None,
    templates: Templates = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show what was recognised in MODEL and why, without training it. A training command is run for two steps."""
    from autotune.cli.console import Screen
    from autotune.report.records import inspection_lines, to_json

    invocation: Invocation = context.obj
    ref, script_args, words = invocation.split(model, args or ())
    plan = api.plan(ref, script_args=script_args, command=words, templates=tuple(templates or ()), device=device)
    workload, machine = api.inspect(plan)
    text = to_json({"workload": workload, "machine": machine}) if json else inspection_lines(workload, machine)
    Screen(stderr=False).say(text)
