"""The main job on a CUDA device: real out-of-memory events, the limit kept, the caller untouched."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from autotune.errors import NothingFits, WorkloadError
from autotune.model import Cause, Form, Outcome, Phase, Question, Reason, SearchResult
from autotune.probe import nvml
from autotune.probe.launcher import Launcher
from autotune.units import GIB, MIB
from tests.gpu.conftest import ASSETS, Search

pytestmark = pytest.mark.gpu


def used_bytes() -> int:
    """Device-wide use now, by NVML where there is one."""
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    used = nvml.used_bytes(uuid)
    assert used is not None, "NVML does not answer for this device"
    return used


def test_the_limit_is_found_by_real_out_of_memory_and_kept_device_wide(found: SearchResult) -> None:
    result = found
    assert result.machine.device == "cuda" and result.machine.device_uuid
    assert result.answer.refuted_at == result.answer.max_batch + 1
    assert result.refutation is not None and result.refutation.outcome in (Outcome.OUT_OF_MEMORY, Outcome.UNSAFE)
    assert any(p.outcome is Outcome.OUT_OF_MEMORY for p in result.probes)
    peak = result.certificate.measurement.peak_device_bytes
    assert peak is not None and 1.5 * GIB < peak <= 2 * GIB
    assert {p.launcher for p in result.probes} == {"fork"}


def test_non_pytorch_memory_is_measured_and_left_out_of_the_allocators_cap(found: SearchResult) -> None:
    measured = found.certificate.measurement
    assert measured.non_pytorch_bytes is not None and 100 * MIB < measured.non_pytorch_bytes < 2 * GIB
    assert measured.allocator_cap_bytes is not None
    assert abs(measured.allocator_cap_bytes + measured.non_pytorch_bytes - 2 * GIB) < 64 * MIB


def test_phases_have_peaks_and_steps_have_times(found: SearchResult) -> None:
    measured = found.certificate.measurement
    peaks = {p.phase: p.peak_allocated_bytes for p in measured.phases}
    assert peaks[Phase.BACKWARD] >= peaks[Phase.BUILD] > 0
    assert len(measured.step_seconds) == 7 and all(0 < s < 10 for s in measured.step_seconds)
    assert measured.composition.parameters_bytes == 4 * (1024 * 1024 + 1024) * 4
    assert measured.composition.optimizer_bytes is not None
    assert measured.composition.optimizer_bytes >= 2 * measured.composition.parameters_bytes


def test_bf16_fits_more_than_the_default(search: Search, found: SearchResult) -> None:
    bf16 = search("mlp.py", precision="bf16", start_batch=found.answer.max_batch, max_batch=found.answer.max_batch + 4)
    assert bf16.answer.max_batch > found.answer.max_batch


def test_fp16_counts_only_steps_the_scaler_took(search: Search) -> None:
    result = search("mlp.py", precision="fp16", max_batch=4)
    assert result.certificate.measurement.steps_executed >= 8


def test_an_allocator_configuration_takes_effect_in_a_forked_probe(search: Search) -> None:
    result = search("mlp.py", allocator="expandable_segments", max_batch=4)
    assert result.answer.max_batch == 4
    assert {p.launcher for p in result.probes} == {"fork"}


def test_a_lost_context_is_no_out_of_memory_and_the_next_probe_works(search: Search) -> None:
    result = search("mlp.py", "assert", max_batch=16)
    assert result.answer.max_batch == 3
    failed = [p for p in result.probes if not p.fits]
    assert failed and all(p.outcome is Outcome.CRASHED for p in failed)
    assert all(p.failure is not None and p.failure.cause is Cause.CONTEXT_LOST for p in failed)


def test_an_output_kept_from_every_step_is_a_leak(search: Search) -> None:
    with pytest.raises(WorkloadError, match="grows by"):
        search("mlp.py", "leak", max_batch=2, memory_limit="8GiB")


def test_a_file_that_starts_cuda_at_import_is_probed_by_spawn(search: Search) -> None:
    result = search("mlp.py", "cuda_at_import", max_batch=1)
    assert result.answer.max_batch == 1
    assert {p.launcher for p in result.probes} == {"spawn"}


def test_nothing_fits_below_the_weights_and_says_where_memory_went(search: Search) -> None:
    with pytest.raises(NothingFits) as raised:
        search("mlp.py", memory_limit="600MiB")
    assert "weights" in raised.value.detail


def test_brute_force_agrees_with_the_answer_on_both_sides(found: SearchResult) -> None:
    plan, at = found.plan, found.answer.max_batch
    outside = max(p.measurement.non_pytorch_bytes or 0 for p in found.probes)
    with Launcher(plan.source, timeout_s=120, seed=1) as launcher:
        launcher.describe("cuda", 1)
        sizes = range(at - 2, at + 4)
        asked = (
            Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=plan.settings) for size in sizes
        )
        fits = [launcher.probe(question, found.budget, outside).fits for question in asked]
    assert fits == [True, True, True, False, False, False]


def test_find_max_batch_leaves_the_caller_without_a_device_context(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys, torch
        from torch import nn
        from autotune import find_max_batch
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024))
        model.eval()
        before = [p.clone() for p in model.parameters()], torch.get_rng_state()
        found = find_max_batch(model, lambda n: (torch.randn(n, 1024), torch.randn(n, 1024)), device="cuda",
                               memory_limit="2GiB", max_batch=64, storage={str(tmp_path / "l.sqlite3")!r})
        assert int(found) == 64, found
        assert found.evidence.machine.device == "cuda"
        assert not torch.cuda.is_initialized()
        assert all(torch.equal(a, b) for a, b in zip(before[0], model.parameters()))
        assert torch.equal(before[1], torch.get_rng_state()) and not model.training
        print("left as found")
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "left as found", done.stderr


def test_a_killed_tool_leaves_no_process_and_no_memory_on_the_device(tmp_path: Path) -> None:
    before = used_bytes()
    code = "import sys; from autotune.cli.app import main; sys.exit(main())"
    arguments = [
        "max-batch",
        str(ASSETS / "mlp.py"),
        "--memory-limit",
        "4GiB",
        "--storage",
        str(tmp_path / "l.sqlite3"),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as tool:
        try:
            assert tool.stderr is not None
            tool.stderr.readline()
            while used_bytes() - before < 256 * MIB:
                assert tool.poll() is None, "the tool ended before a probe was on the device"
        finally:
            tool.kill()
    deadline = time.monotonic() + 5
    while used_bytes() - before >= 32 * MIB:
        assert time.monotonic() < deadline, "a probe still holds device memory 5 s after the tool was killed"
        time.sleep(0.05)


def test_an_answer_at_a_bound_is_certified_by_the_long_form(search: Search) -> None:
    """... and the device's memory is given back."""
    before = used_bytes()
    result = search("mlp.py", max_batch=3)
    assert result.certificate.form is Form.LONG
    assert result.answer.limited_by == "max_batch"
    assert used_bytes() - before < 32 * MIB


def test_fused_adamw_counts_only_steps_the_scaler_let_through(search: Search) -> None:
    """Fused kernels skip by themselves, so that counting the optimizer's calls would not do."""
    with pytest.raises(WorkloadError, match="scaler skipped"):
        search("mlp.py", "fused_nan", precision="fp16", max_batch=2)


def test_c25_without_nvml_the_answer_is_the_same_and_it_is_said(found: SearchResult, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('planted')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "autotune", "max-batch", str(ASSETS / "mlp.py"), "--device", "cuda", "--json"]
    # what others hold counts as ours there, and this process holds a context if tests before this one needed one
    limit = found.budget.limit_bytes + used_bytes()
    done = subprocess.run(
        [*command, "--memory-limit", str(limit), "--storage", str(tmp_path / "ledger.sqlite3")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["batch"]["max_batch"] == found.answer.max_batch
    assert any("nvidia-ml-py is not installed" in text for text in document["warnings"])
