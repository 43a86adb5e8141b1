"""Records what the allocator does while a workload trains: the material that the memory model is tested on.

    python benchmarks/record.py benchmarks/workloads/gpt2.py --precision bf16 --allocator-gib 40 --sizes 26 --out gpt2.json.gz

Runs the recording probe of a search (several small sizes in one process), then one recording probe for each of
``--sizes``, each in a fresh process, and one long probe without recording for each of ``--outcomes``. Writes one
gzipped JSON document.
"""

import argparse
import gzip
import json
import shlex
import sys
from base64 import b64encode
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from autotune import api
from autotune.memory.encoding import encode
from autotune.model import Budget, Form, ProbeResult, Question, Reason
from autotune.probe.launcher import Launcher
from autotune.units import GIB, MIB


def row(probe: ProbeResult) -> dict[str, object]:
    """A probe as it is kept; the trace in the ledger's encoding."""
    fields = asdict(replace(probe, trace=None, stdout_tail="", started_at=probe.started_at))
    fields["started_at"] = probe.started_at.isoformat()
    fields["trace"] = b64encode(encode(probe.trace)).decode() if probe.trace else None
    return fields


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--precision", default="default")
    parser.add_argument("--allocator", default="")
    parser.add_argument("--allocator-gib", type=float, default=40)
    parser.add_argument("--non-pytorch-mib", type=int, default=900, help="added to the allocator's share")
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--outcomes", type=int, nargs="*", default=[])
    parser.add_argument("--no-ladder", action="store_true", help="leave the probe with several small sizes out")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    reserve = asked.non_pytorch_mib * MIB
    limit = int(asked.allocator_gib * GIB) + reserve
    plan = api.plan(asked.workload, precision=asked.precision, allocator=asked.allocator, memory_limit=limit)
    budget = Budget(limit_bytes=limit, source="--memory-limit", capacity_bytes=limit, others_bytes=0, headroom_bytes=0)
    probes = []
    with Launcher(plan.source, timeout_s=plan.timeout_s, seed=plan.seed, say=print) as launcher:
        _, machine = launcher.describe("auto", 2)
        recorded = partial(Question, form=Form.SHORT, reason=Reason.TRACE, settings=plan.settings)
        ladder = [] if asked.no_ladder else [recorded(batch_size=2, trace_unit=1, trace_largest=1 << 20)]
        alone = [recorded(batch_size=size, trace_unit=size, trace_largest=size) for size in asked.sizes]
        outcomes = [
            Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=plan.settings)
            for size in asked.outcomes
        ]
        for question in (*ladder, *alone, *outcomes):
            probe = launcher.probe(question, budget, reserve)
            probes.append(row(probe))
            passes = probe.trace.passes if probe.trace else ()
            print(
                f"{asked.workload} {probe.batch_size} {probe.form} {probe.outcome} {probe.seconds:.1f} s"
                f" build {probe.measurement.build_seconds} loop {probe.measurement.loop_seconds}"
                f" retries {probe.measurement.retries_per_step} reserved {probe.measurement.peak_reserved_bytes}"
                f" outside {probe.measurement.non_pytorch_bytes}"
                f" events {len(probe.trace.events) if probe.trace else None}"
                f" passes {[(p.batch_size, p.steps, p.allocated_bytes >> 20, p.reserved_bytes >> 20) for p in passes]}",
                flush=True,
            )
            if probe.failure is not None:
                print(f"   {probe.failure.cause}: {probe.failure.message[:300]}", flush=True)
    document = {
        "created": datetime.now(UTC).isoformat(),
        "command": shlex.join(["python", *sys.argv]),
        "machine": asdict(machine),
        "settings": asdict(plan.settings),
        "probes": probes,
    }
    asked.out.write_bytes(gzip.compress(json.dumps(document).encode()))


if __name__ == "__main__":
    main()
