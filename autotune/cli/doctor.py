"""``autotune doctor``: what is installed, which devices work, who else is there; one block for bug reports."""

import os

import typer

from autotune import api
from autotune.cli.options import Json, Storage
from autotune.errors import EnvironmentTrouble


def doctor(storage: Storage = None, json: Json = False) -> None:
    """Show versions, devices and what is missing, for bug reports.

    Also who uses the devices, and what limits memory. Exit code 5 if no search can run here: PyTorch does not load, no device computes, or the ledger cannot be used.
    """
    from autotune.cli.console import Screen
    from autotune.report.diagnosis import diagnosis_json, diagnosis_text

    diagnosis = api.doctor(storage=storage)
    home = os.path.expanduser("~")
    Screen(stderr=False).say(diagnosis_json(diagnosis, home) if json else diagnosis_text(diagnosis, home))
    if not diagnosis.usable:
        raise typer.Exit(EnvironmentTrouble.exit_code)
