"""Rows of grids that were never run."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from autotune.model import Cause, Form, OptimizerKind, Outcome, Settings, Traits
from benchmarks.common.documents import Run
from benchmarks.grid.recording import Recording, Row

CAP = 40 << 30
GIVEN = Settings()
FUSED = Settings(optimizer=OptimizerKind.FUSED)
RUN = Run(
    command="python benchmarks/settings.py",
    created="2026-11-30T00:00:00+00:00",
    device="NVIDIA H200",
    driver="580",
    capacity_bytes=141 << 30,
    cuda="13.0",
    python="3.12.3",
    versions={"torch": "2.11.0"},
)


def row(
    settings: Settings = GIVEN, batch: int = 2, rate: float = 10.0, *, form: Form = Form.TIMED, seconds: float = 2.0
) -> Row:
    """A probe that fits."""
    return Row(
        form=form,
        settings={name: getattr(value, "value", value) for name, value in settings.changes(Settings()).items()},
        batch=batch,
        outcome=Outcome.FITS,
        samples_per_second=rate,
        step_seconds=(batch / rate,) * 8,
        first_step_seconds=0.5,
        seconds=seconds,
    )


def failed(settings: Settings, batch: int, outcome: Outcome = Outcome.OUT_OF_MEMORY, form: Form = Form.TIMED) -> Row:
    causes = {Outcome.OUT_OF_MEMORY: Cause.DEVICE_MEMORY, Outcome.CHANGES_TRAINING: Cause.GRADIENTS_DIFFER}
    fitting = row(settings, batch, form=form).model_dump(mode="json")
    told = {"outcome": outcome, "cause": causes.get(outcome, Cause.NOT_SUPPORTED), "seconds": 1.0}
    gone = {"samples_per_second": None, "step_seconds": (), "first_step_seconds": None}
    return Row.model_validate_json(json.dumps({**fitting, **told, **gone}))


def recorded(*rows: Row, workload: str = "tiny", runs: tuple[Run, ...] = ()) -> Recording:
    return Recording(
        workload=workload,
        parameters=100,
        traits=Traits(),
        device="cuda",
        device_name="NVIDIA H200",
        cap_bytes=CAP,
        runs=runs,
        rows=rows,
    )
