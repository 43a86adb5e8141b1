"""The compared parts, each as its own whole command in a fresh process, and reading what it answered."""

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotune import api
from autotune.model import Form, Outcome, ProbeResult, Settings
from autotune.search.settings.spending import compile_seconds, spent
from benchmarks.common.documents import Status
from benchmarks.comparison.processes import run
from benchmarks.grid.cases import GridCase
from benchmarks.grid.results import Check, Peer, Search, Trial

_PEER = "benchmarks.grid.peer"
_TRAIN = "benchmarks.grid.train"
_PEER_PACKAGE, _PEER_DISTRIBUTION = "pytorch_autotune", "pytorch-autotune"


def cold(folder: str, command: Sequence[str]) -> list[str]:
    """The command with empty caches of the compiler, and of the peer, in this folder: none profits from the one before."""
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
        "PYTORCH_AUTOTUNE_CACHE": "peer.json",
    }
    return ["env", *(f"{name}={Path(folder, place)}" for name, place in caches.items()), *command]


def search(case: GridCase, allow: Sequence[str], *, device: str, limit_bytes: int | None, timeout_s: float) -> Search:
    """Autotune's command.

    Args:
        case: the workload.
        allow: what ``--allow`` is given; empty = the whole default space.
        device: ``cuda`` or ``cpu``.
        limit_bytes: device-wide limit; None = none.
        timeout_s: wall limit of the command.
    """
    with TemporaryDirectory() as folder:
        storage, output = str(Path(folder, "ledger.sqlite3")), str(Path(folder, "autotune.json"))
        command = [sys.executable, "-m", "autotune", "search", str(case.file), "--device", device]
        command += ["--json", "--output", output, "--storage", storage]
        if limit_bytes is not None:
            command += ["--memory-limit", str(limit_bytes)]
        for item in allow:
            command += ["--allow", item]
        ended = run(cold(folder, command), timeout_s=timeout_s)
        try:
            document = json.loads(ended.stdout)
        except json.JSONDecodeError:
            return Search.model_validate(ended.unanswered())
        if document["evidence"] is None:
            return Search.model_validate(ended.unanswered(document["error"]["message"]))
        return _found(document, storage, ended.seconds)


def _found(document: dict[str, Any], storage: str, seconds: float) -> Search:
    """The answer from the document, the probes from the ledger."""
    record, probes = api.show(document["search_id"], storage)
    batch, evidence, own = document["batch"], document["evidence"], record.plan.settings
    certified = [p.batch_size for p in probes if p.form is Form.LONG and p.fits and p.settings == own]
    return Search(
        status=Status.DONE,
        seconds=round(seconds, 1),
        settings=document["changes"],
        batch=batch["micro_batch"],
        accumulate=batch["accumulate"],
        samples_per_second=evidence["samples_per_second"],
        baseline_samples_per_second=evidence["baseline_samples_per_second"],
        baseline_batch=max(certified, default=None),
        probe_seconds=round(spent(probes), 1),
        compile_seconds=round(sum(map(compile_seconds, probes)), 1),
        out_of_memory=sum(p.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) for p in probes),
        trials=tuple(map(_trial, probes)),
        config=document,
    )


def _trial(probe: ProbeResult) -> Trial:
    return Trial(
        settings=json.loads(json.dumps(probe.settings.changes(Settings()))),
        batch=probe.batch_size,
        form=probe.form,
        reason=probe.reason,
        outcome=probe.outcome,
        seconds=round(probe.seconds, 3),
        samples_per_second=probe.samples_per_second,
        first_step_seconds=probe.measurement.first_step_seconds,
    )


def peer(case: GridCase, batch: int, *, budget: str, device: str, cap_bytes: int, timeout_s: float) -> Peer:
    """The other project's tuner, with one of its own budgets of time: ``fast``, ``balanced``, ``max``, or seconds."""
    if find_spec(_PEER_PACKAGE) is None:
        return Peer(status=Status.NOT_INSTALLED, message=f"pip install {_PEER_DISTRIBUTION}")
    with TemporaryDirectory() as folder:
        command = [*_child(_PEER, case, device, cap_bytes), "--batch", str(batch), "--budget", budget]
        ended = run(cold(folder, command), timeout_s=timeout_s)
    known: dict[str, Any] = {
        "version": version(_PEER_DISTRIBUTION),
        "seconds": round(ended.seconds, 1),
        "budget": budget,
    }
    if ended.exit_code != 0:
        return Peer.model_validate({**ended.unanswered(), **known, "batch": batch})
    answered = json.loads(ended.last_line)
    status = Status.FAILED if answered["message"] else Status.DONE
    return Peer.model_validate_json(json.dumps({**answered, **known, "status": status}))


def check(
    case: GridCase,
    config: dict[str, Any] | None,
    *,
    batch: int,
    steps: int,
    device: str,
    cap_bytes: int,
    timeout_s: float,
) -> Check:
    """A training with a recommendation, or without one at this batch."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "autotune.json")
        if config is not None:
            path.write_text(json.dumps(config))
        command = [*_child(_TRAIN, case, device, cap_bytes), "--config", str(path)]
        ended = run(cold(folder, [*command, "--batch", str(batch), "--steps", str(steps)]), timeout_s=timeout_s)
    if ended.exit_code != 0:
        return Check.model_validate({**ended.unanswered(), "batch": batch})
    return Check.model_validate_json(json.dumps({**json.loads(ended.last_line), "status": Status.DONE}))


def _child(module: str, case: GridCase, device: str, cap_bytes: int) -> list[str]:
    return [sys.executable, "-m", module, str(case.file), "--cap-bytes", str(cap_bytes), "--device", device]
