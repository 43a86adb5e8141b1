"""``autotune diagnose``: what a training does with memory over many steps, and what is wrong with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune import api
from autotune.cli.invocation import Invocation
from autotune.cli.options import Device, DeviceWait, Json, MemoryLimit, Model, Quiet, ScriptArgs, Seed, Storage
from autotune.cli.signals import Stopped
from autotune.errors import CheckFailed, Interrupted, UsageError

if TYPE_CHECKING:
    from autotune.model import Findings

_Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        help="Size to train at. Default: that of autotune.json or of the ledger, else a small one.",
        show_default=False,
    ),
]
_Steps = Annotated[
    int | None,
    typer.Option("--steps", metavar="N", min=1, help="Steps to look at. Default: as many as tell.", show_default=False),
]
_Only = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="SECTIONS",
        help="Sections between commas: leaks,composition,fragmentation,snapshot,advice. Default: all.",
        show_default=False,
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for files that a section leaves. Default: none.", show_default=False),
]
_Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of each section.")]


def diagnose(
    context: typer.Context,
    model: Model = None,
    args: ScriptArgs = None,
    batch: _Batch = None,
    steps: _Steps = None,
    only: _Only = None,
    memory_limit: MemoryLimit = None,
    device: Device = "auto",
    timeout: _Timeout = 300.0,
    device_wait: DeviceWait = 600.0,
    seed: Seed = 0,
    output: _Output = None,
    storage: Storage = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find out what is wrong with the memory of a training.

    Trains for some steps and says what leaks, what the peak consists of, what lies in pieces, and what to do. Exit code 0 if nothing is wrong, 6 if memory grows from step to step, lies in pieces, or ran out. If nothing is wrong
    with what was looked at and a section has no answer, that of its error: 3 does not fit, 4 the training fails, 5 it
    crashed or took too long.
    """
    from autotune.cli.asking import verbosity
    from autotune.cli.console import Screen
    from autotune.cli.progress import Progress

    invocation: Invocation = context.obj
    ref, script_args, words = invocation.split(model, args or ())
    if words:
        raise UsageError(
            "a training command cannot be diagnosed: its steps are not autotune's to take",
            hint="give a file with make_model() and make_batch(batch_size): autotune init writes one",
        )
    progress = Progress(Screen(stderr=True), verbosity(quiet=quiet, verbose=False))
    kept: list[Findings] = []
    try:
        with progress:
            findings = api.diagnose(
                ref,
                script_args=script_args,
                batch=batch,
                steps=steps,
                only=() if only is None else (only,),
                output=output,
                storage=storage,
                observer=progress,
                keep=kept.append,
                memory_limit=memory_limit,
                device=device,
                timeout_s=timeout,
                device_wait_s=device_wait,
                seed=seed,
            )
    except (Stopped, KeyboardInterrupt) as stop:
        if not kept:
            raise
        interruption = _interrupted(kept[-1], stop)
        if not json:
            _show(kept[-1], json=False)
        raise interruption from stop
    _show(findings, json=json)
    if not findings.clean:
        raise typer.Exit(CheckFailed.exit_code if findings.wrong else findings.unanswered[0].exit_code)


def _show(findings: "Findings", *, json: bool) -> None:
    from autotune.cli.console import Screen
    from autotune.report.findings import findings_json, findings_text

    Screen(stderr=False).say(findings_json(findings) if json else findings_text(findings))


def _interrupted(findings: "Findings", stop: Stopped | KeyboardInterrupt) -> Interrupted:
    """Ctrl-C or SIGTERM as an error that says how to look at the rest."""
    from autotune.report.findings import findings_json

    name, exit_code = (stop.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", Interrupted.exit_code)
    rest = ",".join(one.section for one in findings.unanswered)
    error = Interrupted(
        f"stopped by {name}; what was found until then is shown",
        exit_code=exit_code,
        hint=f"to look at the rest: the same command with --only {rest}" if rest else "",
    )
    error.document = findings_json(findings)
    return error
