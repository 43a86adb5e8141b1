"""Running one finder on one workload as its own whole command, and reading what it answered."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotune import api
from autotune.model import Form
from benchmarks.common.documents import Status
from benchmarks.comparison.cases import AUTOTUNE, PEERS, Case
from benchmarks.comparison.processes import run
from benchmarks.comparison.results import Cell, Prediction, Survival, Trial

_SURVIVAL = "benchmarks.comparison.survival"


def warm_up(finder: str) -> None:
    """Import what the finder imports once, so that no finder's time holds the first reading of files from the disk."""
    arguments = ("autotune", "max-batch") if finder == AUTOTUNE else (PEERS[finder].module,)
    run([sys.executable, "-m", *arguments, "--help"], timeout_s=300)


def autotune_cell(case: Case, *, device: str, limit_bytes: int | None, timeout_s: float) -> Cell:
    """Autotune's command with a ledger of its own.

    Args:
        case: the workload.
        device: ``cuda`` or ``cpu``.
        limit_bytes: device-wide limit; None = none.
        timeout_s: wall limit of the command.
    """
    with TemporaryDirectory() as folder:
        storage = str(Path(folder, "ledger.sqlite3"))
        command = [sys.executable, "-m", "autotune", "max-batch", str(case.file), "--precision", case.precision]
        if limit_bytes is not None:
            command += ["--memory-limit", str(limit_bytes)]
        ended = run([*command, "--device", device, "--json", "--storage", storage], timeout_s=timeout_s)
        try:
            document = json.loads(ended.stdout)
        except json.JSONDecodeError:
            return Cell(**ended.unanswered())
        if not document["complete"]:
            return Cell(**ended.unanswered(document["error"]["message"]))
        return _from_document(document, storage, ended.seconds)


def _from_document(document: dict[str, Any], storage: str, seconds: float) -> Cell:
    """The answer from the document, the probes from the ledger."""
    answer = document["batch"]["max_batch"]
    _, probes = api.show(document["search_id"], storage)
    certificate = next(p.measurement for p in probes if p.batch_size == answer and p.fits and p.form is Form.LONG)
    told = document["evidence"].get("prediction")
    return Cell(
        status=Status.DONE,
        answer=answer,
        seconds=round(seconds, 1),
        trials=tuple(Trial(size=p.batch_size, outcome=p.outcome, seconds=round(p.seconds, 3)) for p in probes),
        prediction=None if told is None else Prediction.model_validate(told),
        measured_allocated_bytes=certificate.peak_allocated_bytes,
        measured_reserved_bytes=certificate.peak_reserved_bytes,
    )


def peer_cell(finder: str, case: Case, *, device: str, cap_bytes: int, timeout_s: float) -> Cell:
    """Another project's finder."""
    peer = PEERS[finder]
    if find_spec(peer.package) is None:
        return Cell(status=Status.NOT_INSTALLED, message=f"pip install {peer.package}")
    ended = run(_child(peer.module, case, device, cap_bytes, *peer.arguments), timeout_s=timeout_s)
    if ended.exit_code != 0:
        return Cell(**ended.unanswered())
    answered = json.loads(ended.last_line)
    return Cell(
        status=Status.DONE,
        answer=answered["answer"],
        seconds=round(ended.seconds, 1),
        trials=tuple(Trial.model_validate(trial) for trial in answered["trials"]),
    )


def survive(case: Case, batch: int, steps: int, *, device: str, cap_bytes: int, timeout_s: float) -> Survival | str:
    """Train for many steps at this size; a text says why that could not be told."""
    arguments = ("--batch", str(batch), "--steps", str(steps))
    ended = run(_child(_SURVIVAL, case, device, cap_bytes, *arguments), timeout_s=timeout_s)
    if ended.exit_code != 0:
        return str(ended.unanswered()["message"])
    return Survival.model_validate_json(ended.last_line)


def _child(module: str, case: Case, device: str, cap_bytes: int, *more: str) -> list[str]:
    command = [sys.executable, "-m", module, str(case.file), "--precision", case.precision]
    return [*command, "--cap-bytes", str(cap_bytes), "--device", device, *more]
