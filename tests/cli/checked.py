"""Checks of the finished search of ``results``: one that it passed, one that it did not, one that found it stale."""

from dataclasses import replace
from pathlib import Path

from autotune.errors import CheckFailed
from autotune.model import Form, Reason
from autotune.recommended.checked import Checked
from autotune.report.document import document
from autotune.report.fields import Change, Check
from autotune.units import GIB
from tests.cli.results import BUDGET, MACHINE, NOON, PLAN, RESULT, WORKLOAD, fitting

NOTE = Change(what="Python", then="3.12.3", here="3.13.1", stale=False, meaning="no matter")
STALE = Change(what="driver", then="570.1", here="580.2", stale=True, meaning="another version")
PROBE = fitting(24, Form.LONG, Reason.CONFIRM)
FOUND = Check(
    created=NOON,
    changes=(NOTE,),
    batch=24,
    outcome="fits",
    steps=8,
    peak_bytes=PROBE.measurement.peak_device_bytes,
    budget_bytes=40 * GIB,
    search_id="c0ffee",
)
CHECKED = Checked(
    path=Path("autotune.json"),
    document=document(RESULT).model_copy(update={"check": FOUND}),
    plan=PLAN,
    workload=WORKLOAD,
    machine=MACHINE,
    budget=BUDGET,
    probes=(PROBE,),
    failure=None,
)
UNSAFE = replace(
    CHECKED,
    failure=CheckFailed("autotune.json does not hold here: batch 24 is not safe", detail="a split", hint="next"),
)
"""Its batch is not safe any more."""
OUTDATED = replace(
    CHECKED,
    document=document(RESULT).model_copy(
        update={
            "check": FOUND.model_copy(
                update={
                    "changes": (STALE, NOTE),
                    "batch": None,
                    "outcome": None,
                    "steps": None,
                    "peak_bytes": None,
                    "budget_bytes": None,
                    "search_id": None,
                }
            )
        }
    ),
    budget=None,
    probes=(),
    failure=CheckFailed("autotune.json does not hold here: driver: 570.1 in the file, 580.2 here"),
)
"""It was made for another driver."""
