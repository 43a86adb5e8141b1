"""The parts of a row, each as its own whole command in fresh processes, and reading what it answered."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotune import api
from autotune.model import Form, ProbeResult
from autotune.tuner import non_pytorch_bytes
from benchmarks.common.documents import Status
from benchmarks.comparison.processes import Ended, run
from benchmarks.comparison.reference import Reference
from benchmarks.comparison.results import Trial
from benchmarks.ranked.cases import RANKS, RankedCase
from benchmarks.ranked.results import NOTHING_FITS, Alone, Found, Limit, Rank, Row, Trained

_TRAIN = "benchmarks.ranked.train"
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What commands are run with."""

    device: str
    """``cuda`` or ``cpu``."""
    timeout_s: float
    """Wall limit of a command."""
    probe_timeout_s: float
    """... and of one probe in it."""
    say: Callable[[str], None]
    """Is told the end of the error output of a command that gave no answer."""


def alone(case: RankedCase, limit_bytes: int, how: How) -> Alone:
    """What autotune says of the same limit with one process."""
    with TemporaryDirectory() as folder:
        command = _max_batch(case, limit_bytes, folder, how)
        ended = run(command, timeout_s=how.timeout_s)
    if ended.exit_code not in (0, NOTHING_FITS):
        return Alone.model_validate({**_unanswered(ended, how), "exit_code": ended.exit_code})
    document = json.loads(ended.stdout)
    message = document["error"]["message"] if ended.exit_code else f"{document['batch']['max_batch']} fit"
    return Alone(status=Status.DONE, seconds=round(ended.seconds, 1), exit_code=ended.exit_code, message=message)


def find(case: RankedCase, limit_bytes: int, how: How) -> Found:
    """Autotune's answer for ranks that train together, each under ``limit_bytes`` (``--memory-limit``)."""
    with TemporaryDirectory() as folder:
        command = _max_batch(case, limit_bytes, folder, how)
        ended = run([*command, "--ranks", str(RANKS), "--parallel", case.parallel], timeout_s=how.timeout_s)
        try:
            document = json.loads(ended.stdout)
        except json.JSONDecodeError:
            return Found.model_validate(_unanswered(ended, how))
        if not document["complete"]:
            told = document["error"]["message"] if "error" in document else "its time ran out"
            return Found.model_validate(_unanswered(ended, how, told))
        config = json.loads(Path(folder, "autotune.json").read_bytes())
        _, probes = api.show(document["search_id"], _storage(folder))
    return _found(config, probes, ended.seconds)


def _found(config: dict[str, Any], probes: tuple[ProbeResult, ...], seconds: float) -> Found:
    """The answer from the file, the probes from the ledger."""
    batch, evidence = config["batch"], config["evidence"]
    answer = batch["max_batch"]
    certified = next(p for p in reversed(probes) if p.batch_size == answer and p.form is Form.LONG and p.fits)
    return Found(
        status=Status.DONE,
        seconds=round(seconds, 1),
        answer=answer,
        refuted_at=batch["refuted_at"],
        limited_by=config["limited_by"],
        trials=tuple(map(_trial, probes)),
        outside_bytes=non_pytorch_bytes(probes),
        cap_bytes=certified.measurement.allocator_cap_bytes,
        ranks=tuple(
            Rank(peak_bytes=rank["peak_bytes"], non_pytorch_bytes=rank["non_pytorch_bytes"])
            for rank in evidence["ranks"]
        ),
        config=config,
    )


def _trial(probe: ProbeResult) -> Trial:
    return Trial(size=probe.batch_size, outcome=str(probe.outcome), seconds=round(probe.seconds, 3))


def brute_force(reference: Reference, row: Row) -> Limit:
    """The true limit around the answer, under the cap that it was certified under.

    Args:
        reference: has loaded the workload.
        row: with an answer.
    """
    assert row.found is not None and row.found.answer is not None and row.found.cap_bytes is not None
    reference.cap_bytes = row.found.cap_bytes
    cell = reference.limit(row.found.answer)
    return Limit(**{name: getattr(cell, name) for name in Limit.model_fields})


def train(case: RankedCase, row: Row, steps: int, how: How) -> Trained:
    """A training of so many steps under ``torchrun`` with the file that the search wrote, under the same cap."""
    assert row.found is not None and row.found.config is not None and row.found.cap_bytes is not None
    with TemporaryDirectory() as folder:
        config = Path(folder, "autotune.json")
        config.write_text(json.dumps(row.found.config))
        script = ["-m", _TRAIN, str(case.case.file), "--config", str(config), "--reports", folder]
        options = ["--steps", str(steps), "--cap-bytes", str(row.found.cap_bytes), "--device", how.device]
        ended = run([sys.executable, *_TORCHRUN, *script, *options], timeout_s=how.timeout_s)
        reports = [json.loads(path.read_bytes()) for path in sorted(Path(folder).glob("rank-*.json"))]
    return judged(ended, reports, how)


def judged(ended: Ended, reports: list[dict[str, Any]], how: How) -> Trained:
    """What the ranks that could say something said: the first that failed ends the others."""
    failed = [report["message"] for report in reports if report["message"]]
    survived = ended.exit_code == 0 and len(reports) == RANKS and not failed
    known: dict[str, Any] = {"status": Status.DONE, "seconds": round(ended.seconds, 1), "message": "; ".join(failed)}
    if not survived and (not failed or ended.exit_code is None):  # not the training's own end: nothing is known
        known = _unanswered(ended, how)
    return Trained(
        **known,
        batch=reports[0]["batch"] if reports else None,
        survived=survived,
        steps=min((report["steps"] for report in reports), default=0),
        ranks=tuple(Rank(peak_bytes=one["peak_reserved_bytes"], retries=one["retries"]) for one in reports),
        nccl=reports[0]["nccl"] if reports else "",
    )


def _max_batch(case: RankedCase, limit_bytes: int, folder: str, how: How) -> list[str]:
    command = [sys.executable, "-m", "autotune", "max-batch", str(case.case.file), "--precision", case.case.precision]
    command += ["--memory-limit", str(limit_bytes), "--device", how.device, "--timeout", f"{how.probe_timeout_s:g}"]
    return [*command, "--json", "--output", str(Path(folder, "autotune.json")), "--storage", _storage(folder)]


def _storage(folder: str) -> str:
    return str(Path(folder, "ledger.sqlite3"))


def _unanswered(ended: Ended, how: How, message: str = "") -> dict[str, Any]:
    """Fields of a part that gave no answer; the end of its error output is told, since nothing keeps it."""
    how.say(f"standard error ends:\n{ended.stderr_tail}")
    return ended.unanswered(message)
