"""Are the answers the true limits? Searches a workload under a cap on the allocator, then tries sizes around by brute force.

    python benchmarks/limits.py benchmarks/workloads/gpt2.py --precision bf16 --allocator-gib 40 --step 1 --out gpt2.json

The cap is meant for PyTorch's allocator: the non-PyTorch memory that a first probe measures is added to it to give the
device-wide ``--memory-limit`` of the search. Writes one JSON document: answer, every probe with its times, and the
brute-force outcomes in the long form, each in a fresh process.
"""

import argparse
import json
import platform
import shlex
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from autotune import api
from autotune.model import Form, ProbeResult, Question, Reason
from autotune.probe.launcher import Launcher
from autotune.units import GIB


def row(probe: ProbeResult) -> dict[str, object]:
    """What is worth keeping of a probe; seconds."""
    measured = probe.measurement
    inside = (measured.build_seconds or 0) + (measured.loop_seconds or 0)
    return {
        "batch": probe.batch_size,
        "form": probe.form,
        "reason": probe.reason,
        "outcome": probe.outcome,
        "cause": probe.failure.cause if probe.failure else None,
        "seconds": round(probe.seconds, 3),
        "build_seconds": measured.build_seconds,
        "loop_seconds": measured.loop_seconds,
        "overhead_seconds": round(probe.seconds - inside, 3) if measured.loop_seconds else None,
        "samples_per_second": probe.samples_per_second,
        "peak_reserved_bytes": measured.peak_reserved_bytes,
        "peak_allocated_bytes": measured.peak_allocated_bytes,
        "non_pytorch_bytes": measured.non_pytorch_bytes,
        "allocator_cap_bytes": measured.allocator_cap_bytes,
        "retries_per_step": measured.retries_per_step,
        "launcher": probe.launcher,
    }


def outside_bytes(workload: str, precision: str, folder: str) -> int:
    """Non-PyTorch memory of this workload's process at a small batch."""
    plan = api.plan(workload, precision=precision, max_batch=8, start_batch=8, recommend=False)
    probes = api.search(plan, storage=f"{folder}/first.sqlite3").probes
    return max(p.measurement.non_pytorch_bytes or 0 for p in probes)


def main() -> None:
    """Measure, search, sweep, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--precision", default="default")
    parser.add_argument("--allocator-gib", type=float, default=40)
    parser.add_argument(
        "--memory-limit", type=int, help="bytes, instead of the allocator's share plus what is measured"
    )
    parser.add_argument("--step", type=int, default=1, help="distance of the brute-force sizes")
    parser.add_argument("--around", type=int, default=2, help="how many sizes on each side of the answer")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        limit = asked.memory_limit or int(asked.allocator_gib * GIB) + outside_bytes(
            asked.workload, asked.precision, folder
        )
        plan = api.plan(asked.workload, precision=asked.precision, memory_limit=limit, recommend=False)
        began = time.monotonic()
        result = api.search(plan, storage=f"{folder}/ledger.sqlite3")
        wall = time.monotonic() - began
        at = result.answer.max_batch
        outside = max(p.measurement.non_pytorch_bytes or 0 for p in result.probes)
        low = max(1, at // asked.step - asked.around) * asked.step
        sweep = []
        with Launcher(plan.source, timeout_s=plan.timeout_s, seed=plan.seed + 1) as launcher:
            launcher.describe("auto", 1)
            for size in range(low, low + (2 * asked.around + 2) * asked.step, asked.step):
                question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=plan.settings)
                sweep.append(row(launcher.probe(question, result.budget, outside)))
    rows = [row(p) for p in result.probes]
    document = {
        "created": datetime.now(UTC).isoformat(),
        "command": shlex.join(["python", *sys.argv]),
        "device": result.machine.device_name,
        "torch": result.machine.torch_version,
        "cuda": result.machine.cuda_version,
        "driver": result.machine.driver_version,
        "python": platform.python_version(),
        "memory_limit_bytes": limit,
        "max_batch": at,
        "refuted_at": result.answer.refuted_at,
        "limited_by": result.answer.limited_by,
        "wall_seconds": round(wall, 1),
        "probes": rows,
        "brute_force": sweep,
    }
    asked.out.write_text(json.dumps(document, indent=1))
    fits = [s["batch"] for s in sweep if s["outcome"] == "fits"]
    print(
        f"{asked.workload}: max batch {at}, refuted {result.answer.refuted_at}, {len(result.probes)} probes, {wall:.0f} s"
    )
    print(f"brute force fits: {fits}; fails: {[s['batch'] for s in sweep if s['outcome'] != 'fits']}")
    overheads = [r["overhead_seconds"] for r in rows if r["overhead_seconds"] is not None]
    print(f"overhead beyond building and steps: {overheads}")


if __name__ == "__main__":
    main()
