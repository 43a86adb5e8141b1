"""``autotune diagnose`` by its sections other than leaks, as users type it, in real processes on the CPU."""

import json
import sys
from pathlib import Path

from tests.process.support import ASSETS, clean_environment, run

WORDS, WIDTH, LENGTH, BLOCKS, BATCH, FLOAT = 4000, 128, 64, 3, 16, 4


def test_a_peak_is_taken_apart_and_what_a_cpu_cannot_show_is_said(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "autotune", "diagnose", str(ASSETS / "tied.py"), "--device", "cpu"]
    argv += ["--batch", str(BATCH), "--only", "composition,fragmentation,snapshot", "--output", str(tmp_path / "files")]
    done = run([*argv, "--json"], tmp_path, clean_environment())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    peak = found["composition"]
    kinds = {one["kind"]: one["size_bytes"] for one in peak["kinds"]}
    weights = FLOAT * (WORDS * WIDTH + BLOCKS * (WIDTH * WIDTH + WIDTH))
    assert kinds["weights"] == weights
    assert kinds["buffers"] == FLOAT * 500 * 500
    assert 2 * weights <= kinds["optimizer_state"] <= 2 * weights + 1000
    assert kinds["batch"] == 2 * 8 * BATCH * LENGTH
    assert sum(kinds.values()) == peak["watched_bytes"]
    assert abs(peak["watched_bytes"] / peak["measured_bytes"] - 1) < 0.25  # of a process of mostly libraries
    logits = FLOAT * BATCH * LENGTH * WORDS
    assert {one["name"]: one["size_bytes"] for one in peak["modules"]}[""] == logits
    pieces = found["fragmentation"]
    assert not pieces["flagged"] and "no caching allocator" in pieces["evidence"]["note"]
    assert "the CPU has none" in found["snapshot"]["note"]
    assert not (tmp_path / "files").exists()
