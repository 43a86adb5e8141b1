"""The parts of a row, each as its own whole command in fresh processes, and reading what it answered."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotune import api
from autotune.model import ProbeResult
from benchmarks.comparison.processes import Ended, run
from benchmarks.comparison.reference import Reference
from benchmarks.comparison.results import Status, Trial
from benchmarks.ranked.cases import RANKS, RankedCase
from benchmarks.ranked.results import NOTHING_FITS, Alone, Found, Limit, Rank, Row, Trained

_TRAIN = "benchmarks.ranked.train"
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")
Say = Callable[[str], None]


def alone(
    row: RankedCase, limit_bytes: int, *, device: str, timeout_s: float, probe_timeout_s: float, say: Say
) -> Alone:
    """What autotune says of the same limit with one process."""
    with TemporaryDirectory() as folder:
        command = _max_batch(row, limit_bytes, folder, device, probe_timeout_s)
        ended = run(command, timeout_s=timeout_s)
    if ended.exit_code not in (0, NOTHING_FITS):
        return Alone.model_validate({**_unanswered(ended, say), "exit_code": ended.exit_code})
    document = json.loads(ended.stdout)
    message = document["error"]["message"] if ended.exit_code else f"{document['batch']['max_batch']} fit"
    return Alone(status=Status.DONE, seconds=round(ended.seconds, 1), exit_code=ended.exit_code, message=message)


def find(
    row: RankedCase, limit_bytes: int, *, device: str, timeout_s: float, probe_timeout_s: float, say: Say
) -> Found:
    """Autotune's answer for ranks that train together.

    Args:
        row: the workload and how they share it.
        limit_bytes: ``--memory-limit``, for each rank.
        device: ``cuda`` or ``cpu``.
        timeout_s: wall limit of the command.
        probe_timeout_s: ... and of one probe.
        say: is told the end of the command's error output where it gave no answer.
    """
    with TemporaryDirectory() as folder:
        command = _max_batch(row, limit_bytes, folder, device, probe_timeout_s)
        ended = run([*command, "--ranks", str(RANKS), "--parallel", row.parallel], timeout_s=timeout_s)
        try:
            document = json.loads(ended.stdout)
        except json.JSONDecodeError:
            return Found.model_validate(_unanswered(ended, say))
        if not document["complete"]:
            told = document["error"]["message"] if "error" in document else "its time ran out"
            return Found.model_validate(_unanswered(ended, say, told))
        config = json.loads(Path(folder, "autotune.json").read_bytes())
        _, probes = api.show(document["search_id"], _storage(folder))
    return _found(config, probes, ended.seconds)


def _found(config: dict[str, Any], probes: tuple[ProbeResult, ...], seconds: float) -> Found:
    """The answer from the file, the probes from the ledger."""
    batch, evidence = config["batch"], config["evidence"]
    outside = [rank.non_pytorch_bytes or 0 for probe in probes for rank in probe.ranks]
    return Found(
        status=Status.DONE,
        seconds=round(seconds, 1),
        answer=batch["max_batch"],
        refuted_at=batch["refuted_at"],
        limited_by=config["limited_by"],
        trials=tuple(map(_trial, probes)),
        outside_bytes=max(outside, default=0),
        ranks=tuple(
            Rank(peak_bytes=rank["peak_bytes"], non_pytorch_bytes=rank["non_pytorch_bytes"])
            for rank in evidence["ranks"]
        ),
        config=config,
    )


def _trial(probe: ProbeResult) -> Trial:
    return Trial(size=probe.batch_size, outcome=str(probe.outcome), seconds=round(probe.seconds, 3))


def brute_force(reference: Reference, row: Row) -> Limit:
    """The true limit around the answer, under the cap that the search left the allocator.

    Args:
        reference: has loaded the workload.
        row: with an answer.
    """
    assert row.found is not None and row.found.answer is not None and row.cap_bytes is not None
    reference.cap_bytes = row.cap_bytes
    cell = reference.limit(row.found.answer)
    return Limit(
        status=cell.status,
        seconds=cell.seconds,
        message=cell.message,
        answer=cell.answer,
        trials=cell.trials,
        exact=cell.exact,
    )


def train(case: RankedCase, row: Row, steps: int, *, device: str, timeout_s: float, say: Say) -> Trained:
    """A training of so many steps under ``torchrun`` with the file that the search wrote, under the same cap."""
    assert row.found is not None and row.found.config is not None and row.cap_bytes is not None
    with TemporaryDirectory() as folder:
        config = Path(folder, "autotune.json")
        config.write_text(json.dumps(row.found.config))
        script = ["-m", _TRAIN, str(case.case.file), "--config", str(config), "--reports", folder]
        options = ["--steps", str(steps), "--cap-bytes", str(row.cap_bytes), "--device", device]
        ended = run([sys.executable, *_TORCHRUN, *script, *options], timeout_s=timeout_s)
        reports = [json.loads(path.read_bytes()) for path in sorted(Path(folder).glob("rank-*.json"))]
    return _trained(ended, reports, steps, say)


def _trained(ended: Ended, reports: list[dict[str, Any]], steps: int, say: Say) -> Trained:
    """What the ranks that could say something said: the first that failed ends the others."""
    failed = [report["message"] for report in reports if report["message"]]
    survived = ended.exit_code == 0 and len(reports) == RANKS and not failed
    known: dict[str, Any] = {"status": Status.DONE, "seconds": round(ended.seconds, 1), "message": "; ".join(failed)}
    if not survived and (not failed or ended.exit_code is None):  # not the training's own end: nothing is known
        known = _unanswered(ended, say)
    return Trained(
        **known,
        batch=reports[0]["batch"] if reports else None,
        survived=survived,
        steps=min((report["steps"] for report in reports), default=0),
        ranks=tuple(Rank(peak_bytes=one["peak_reserved_bytes"], retries=one["retries"]) for one in reports),
        nccl=reports[0]["nccl"] if reports else "",
    )


def _max_batch(row: RankedCase, limit_bytes: int, folder: str, device: str, probe_timeout_s: float) -> list[str]:
    command = [sys.executable, "-m", "autotune", "max-batch", str(row.case.file), "--precision", row.case.precision]
    command += ["--memory-limit", str(limit_bytes), "--device", device, "--timeout", f"{probe_timeout_s:g}"]
    return [*command, "--json", "--output", str(Path(folder, "autotune.json")), "--storage", _storage(folder)]


def _storage(folder: str) -> str:
    return str(Path(folder, "ledger.sqlite3"))


def _unanswered(ended: Ended, say: Say, message: str = "") -> dict[str, Any]:
    """Fields of a part that gave no answer; the end of its error output is told, since nothing keeps it."""
    say(f"standard error ends:\n{ended.stderr_tail}")
    seconds = round(ended.seconds, 1)
    if ended.exit_code is None:
        return {"status": Status.TIMED_OUT, "seconds": seconds, "message": f"ended after {seconds:.0f} s"}
    return {"status": Status.FAILED, "seconds": seconds, "message": message or ended.last_word}
