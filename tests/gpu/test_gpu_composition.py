"""A peak taken apart against the allocator's own count, fragmentation with its verified remedy, and snapshot files."""

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Findings, MemoryKind, Outcome, Peak
from autotune.units import MIB
from tests.gpu.conftest import ASSETS
from tests.process.support import ROOT

pytestmark = pytest.mark.gpu

TOLERANCE = 0.02
VARYING_SAMPLES = (150, 140, 165)
"""In the middle of what native segments do not hold and expandable ones do, then on either side of it."""
LIMIT = "7.75GiB"
STEPS = 14
"""Every length comes twice."""


def diagnose(folder: Path, file: str, *args: str, only: str, batch: int, **options: object) -> Findings:
    return api.diagnose(
        str(ASSETS / file),
        script_args=args,
        batch=batch,
        only=(only,),
        storage=str(folder / "ledger.sqlite3"),
        device="cuda",
        **options,  # type: ignore[arg-type]
    )


def plain(kind: str, batch: int) -> dict[str, int]:
    """What the allocator counts in a training loop that is not ours, in a process of its own."""
    command = [sys.executable, str(ASSETS / "composed.py"), kind, str(batch)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    counted: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counted


def told(peak: Peak) -> dict[str, int]:
    """By kind; what lives for a moment together, which a loop outside cannot tell apart."""
    passing = (MemoryKind.TEMPORARIES, MemoryKind.WORKSPACE, MemoryKind.GRADIENTS)
    found = {kind.value: peak.bytes_of(kind) for kind in MemoryKind if kind not in passing}
    return {**found, "passing": sum(peak.bytes_of(kind) for kind in passing)}


@pytest.mark.parametrize(("kind", "batch"), [("gpt2", 4), ("resnet50", 32), ("lora", 4)])
def test_the_composition_sums_to_the_peak_and_names_the_three_largest(kind: str, batch: int, tmp_path: Path) -> None:
    needed = "timm" if kind == "resnet50" else "transformers"
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    counted = plain(kind, batch)
    peak = diagnose(tmp_path, "composed.py", kind, only="composition", batch=batch).peak
    assert peak is not None
    shown = {one.kind.value: one.size_bytes for one in peak.kinds}
    assert sum(shown.values()) == peak.watched_bytes
    assert abs(peak.watched_bytes / counted["peak"] - 1) < TOLERANCE, (shown, counted)
    assert abs(peak.measured_bytes / counted["peak"] - 1) < TOLERANCE
    assert abs(peak.bytes_of(MemoryKind.UNKNOWN)) < TOLERANCE * peak.watched_bytes, shown
    assert peak.bytes_of(MemoryKind.WEIGHTS) == counted["weights"]
    assert peak.bytes_of(MemoryKind.OPTIMIZER) == pytest.approx(counted["optimizer_state"], rel=0.001)
    assert peak.bytes_of(MemoryKind.GRADIENTS) <= counted["gradients"]
    # The backward pass may have let go of some by then.
    assert 0.3 * counted["saved_activations"] < peak.bytes_of(MemoryKind.ACTIVATIONS)
    assert peak.bytes_of(MemoryKind.ACTIVATIONS) <= 1.02 * counted["saved_activations"]
    assert peak.modules and peak.makers and peak.operators_by_memory
    assert peak.operators_by_time or any("device times" in note for note in peak.notes)
    repeated = "transformer.h.*" if kind != "resnet50" else "layer"
    assert any(one.name.startswith(repeated) and one.count > 1 for one in peak.modules), peak.modules

    # The three largest by the loop outside: what it did not see is there for a moment. Close ones may change places.
    of_loop = {name: counted[name] for name in ("saved_activations", "weights", "optimizer_state")}
    of_loop["passing"] = max(0, counted["peak"] - sum(of_loop.values()))
    ours = told(peak)
    third = sorted(ours.values())[-3]
    largest = sorted(of_loop, key=lambda name: -of_loop[name])[:3]
    assert all(ours[name] >= 0.8 * third for name in largest), (ours, of_loop)
    assert largest[0] == max(ours, key=lambda name: ours[name]) == "saved_activations"


def test_c27_a_fragmented_training_gets_a_setting_that_a_rerun_showed_to_help(tmp_path: Path) -> None:
    for batch in VARYING_SAMPLES:
        found = diagnose(
            tmp_path, "pieces.py", "varying", only="fragmentation", batch=batch, steps=STEPS, memory_limit=LIMIT
        ).fragmentation
        assert found is not None
        if found.flagged:
            break
    assert found is not None and found.flagged, found
    if found.outcome is not Outcome.FITS:
        assert found.evidence.at_failure is not None and found.evidence.requested_bytes is not None
        assert found.evidence.at_failure.unallocated_bytes > 0.05 * (found.evidence.cap_bytes or 0)
    best = found.best
    assert best is not None, found.remedies
    again = diagnose(
        tmp_path,
        "pieces.py",
        "varying",
        only="fragmentation",
        batch=batch,
        steps=STEPS,
        memory_limit=LIMIT,
        allocator=best.allocator,
    ).fragmentation
    assert again is not None and again.outcome is Outcome.FITS
    assert found.outcome is not Outcome.FITS or again.evidence.steady_retries < found.evidence.steady_retries


@pytest.mark.parametrize("batch", [100, 400])
def test_c27_constant_shapes_are_not_flagged_whether_they_fit_or_die(batch: int, tmp_path: Path) -> None:
    findings = diagnose(
        tmp_path, "pieces.py", "constant", only="fragmentation", batch=batch, steps=6, memory_limit=LIMIT
    )
    found = findings.fragmentation
    assert found is not None and not found.flagged, found
    assert found.remedies == ()
    assert (found.outcome is Outcome.FITS) is (batch == 100)


def test_snapshot_files_of_peak_and_out_of_memory_are_what_the_viewer_reads(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    fits = diagnose(
        tmp_path, "mlp.py", only="snapshot", batch=4, memory_limit="4GiB", output=str(folder / "fits")
    ).snapshots
    assert fits is not None and fits.peak and not fits.out_of_memory, fits
    dies = diagnose(
        tmp_path, "mlp.py", only="snapshot", batch=400, memory_limit="4GiB", output=str(folder / "dies")
    ).snapshots
    assert dies is not None and dies.out_of_memory and not dies.peak, dies
    for path, last in ((fits.peak, "alloc"), (dies.out_of_memory, "oom")):
        snapshot = pickle.loads(Path(path).read_bytes())
        assert snapshot["segments"]
        (trace,) = (entries for entries in snapshot["device_traces"] if entries)
        actions = {entry["action"] for entry in trace}
        assert last in actions and "alloc" in actions
        assert any(entry.get("frames") for entry in trace)


def test_advice_has_measured_bytes_and_time_for_each_change(tmp_path: Path) -> None:
    advised = diagnose(tmp_path, "mlp.py", only="advice", batch=8, memory_limit="4GiB").advised
    assert advised is not None and advised.peak_bytes is not None
    measured = {one.change: one for one in advised.advice if one.measured}
    half = measured["batch 4 instead of 8"]
    assert half.saved_bytes is not None and half.saved_bytes > 4 * 16 * MIB
    assert half.time_ratio is not None and half.time_ratio > 0
    compared = "precision=bf16" in measured or any("precision=bf16" in why for why in advised.without)
    assert compared, advised
    assert all(one.saved_bytes and one.saved_bytes > 0 for one in measured.values())
    assert [one.measured for one in advised.advice] == sorted((one.measured for one in advised.advice), reverse=True)
