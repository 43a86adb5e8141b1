"""``autotune inspect``: what would be trained, and why autotune thinks so."""

from autotune import api
from autotune.cli.options import Device, Json, Model, ScriptArgs


def inspect(model: Model, args: ScriptArgs = None, device: Device = "auto", json: Json = False) -> None:
    """Show what was recognised in MODEL and why, without training it."""
    from autotune.cli.console import Screen
    from autotune.report.records import inspection_lines, to_json

    workload, machine = api.inspect(api.plan(model, script_args=tuple(args or ()), device=device))
    text = to_json({"workload": workload, "machine": machine}) if json else inspection_lines(workload, machine)
    Screen(stderr=False).say(text)
