"""Training commands on a CUDA device: scripts that know nothing of autotune, tuned as they are."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Cause, Form, Outcome, Phase, ProbeResult, Question, Reason, SearchResult, Settings
from autotune.probe.command.launcher import CommandLauncher
from tests.gpu.conftest import ASSETS

pytestmark = pytest.mark.gpu

PLAIN = (str(ASSETS.parents[2] / "examples" / "train_script.py"), "--batch-size", "{batch}", "--epochs", "200")
TRAINER = (str(ASSETS / "train_texts.py"), "--per_device_train_batch_size", "{batch}", "--output_dir", "{scratch}")
SCRIPTS = [
    pytest.param((*PLAIN, "--output", "{scratch}"), "1GiB", 32, id="plain"),
    pytest.param(
        TRAINER,
        "3200MiB",  # under 3 GiB the answer ends 0.4 MiB below the limit, and what is outside PyTorch varies by 3 MiB
        32,
        id="trainer",
        marks=pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
    ),
]
CAPPED = """
import runpy, sys, torch
torch.cuda.set_per_process_memory_fraction(int(sys.argv[1]) / torch.cuda.get_device_properties(0).total_memory)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def sweep(result: SearchResult, sizes: list[int], cap_bytes: int) -> dict[int, ProbeResult]:
    """The long form at each size, started anew, under the search's own limit and with the cap that the certificate ran
    with: what probes hold outside PyTorch's allocator is not alike from one to the next."""
    reserve_bytes = result.budget.limit_bytes - cap_bytes
    launcher = CommandLauncher(result.plan.source, timeout_s=120, seed=1).__enter__()
    try:
        launcher.machine = result.machine
        launcher.preload(result.plan.device)
        asked = {
            size: Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=Settings())
            for size in sizes
        }
        return {size: launcher.probe(question, result.budget, reserve_bytes) for size, question in asked.items()}
    finally:
        launcher.close()


def told(probe: ProbeResult) -> str:
    """What a probe ran with and how it ended, for a test that fails far from where it was written."""
    seen = probe.measurement
    words = (probe.batch_size, probe.form, probe.outcome, seen.allocator_cap_bytes, seen.non_pytorch_bytes)
    return f"{words}, peak {seen.peak_device_bytes}, {probe.failure.message[:200] if probe.failure else ''}"


@pytest.mark.parametrize(("script", "limit", "step"), SCRIPTS)
def test_a_training_command_is_tuned_unchanged_and_its_answer_is_that_of_a_sweep(
    script: tuple[str, ...], limit: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = api.plan(
        "",
        command=(sys.executable, *script),
        device="cuda",
        memory_limit=limit,
        multiple_of=step,
        recommend=False,
    )
    result = api.search(plan, storage=str(tmp_path / "ledger.sqlite3"))
    answer = result.answer.max_batch
    certificate = result.certificate
    assert (certificate.launcher, certificate.form) == ("command", Form.LONG)
    assert result.answer.refuted_at == answer + step
    assert result.refutation is not None and result.refutation.outcome in (Outcome.OUT_OF_MEMORY, Outcome.UNSAFE)
    measured = certificate.measurement
    assert measured.observed_batch == answer and measured.steps_executed >= 8
    assert {Phase.BUILD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER} <= {phase.phase for phase in measured.phases}
    assert measured.peak_device_bytes is not None and measured.allocator_cap_bytes is not None
    assert 0.8 * result.budget.limit_bytes < measured.peak_device_bytes <= result.budget.limit_bytes
    failed = [probe.failure.cause for probe in result.probes if probe.failure]
    assert failed and set(failed) <= {Cause.DEVICE_MEMORY, Cause.THRASHING, Cause.OVER_BUDGET}

    swept = sweep(result, [answer - step, answer, answer + step], measured.allocator_cap_bytes)
    fitted = [size for size, probe in swept.items() if probe.outcome is Outcome.FITS]
    assert fitted == [answer - step, answer], [told(probe) for probe in (*result.probes, *swept.values())]

    words = [word.format(batch=answer, scratch=tmp_path / "trained") for word in script]
    words = ["20" if before == "--epochs" else word for before, word in zip(["", *words], words, strict=False)]
    capped = [sys.executable, "-c", CAPPED, str(measured.allocator_cap_bytes), *words]
    trained = subprocess.run(capped, capture_output=True, text=True, timeout=200, check=False)
    assert trained.returncode == 0, trained.stderr[-2000:]
