"""Every example does what it says, on the CPU, with real out-of-memory events."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Cause, Form, Outcome, Question, Reason, SearchResult
from autotune.probe.launcher import Launcher
from autotune.units import parse_bytes

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def search(name: str, storage: str, **options: object) -> SearchResult:
    plan = api.plan(str(EXAMPLES / name), device="cpu", **options)  # type: ignore[arg-type]
    return api.search(plan, storage=storage)


def train_alone(name: str, batch_size: int, limit: str) -> subprocess.CompletedProcess[str]:
    """The example's own training in a fresh process under the same limit on its data segment."""
    code = (
        "import resource, runpy, sys, torch\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({parse_bytes(limit)}, resource.RLIM_INFINITY))\n"
        f"sys.argv = [{name!r}, '{batch_size}']\n"
        f"runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False)


def test_tiny_gpt_is_limited_by_real_memory_and_trains_alone_at_the_answer(storage: str) -> None:
    result = search("tiny_gpt.py", storage, memory_limit="512MiB", recommend=False)
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.outcome is Outcome.OUT_OF_MEMORY
    assert "DefaultCPUAllocator" in result.refutation.failure.message
    assert result.answer.refuted_at == result.answer.max_batch + 1
    alone = train_alone("tiny_gpt.py", result.answer.max_batch, "512MiB")
    assert alone.returncode == 0, alone.stderr
    assert "loss after 50 steps" in alone.stdout


def test_tiny_gpt_answer_equals_an_exhaustive_sweep_or_is_one_step_below(storage: str) -> None:
    """Every multiple of 4 in the long form; below 4 samples the heap's luck decides (a sample is 2.3 MiB)."""
    result = search("tiny_gpt.py", storage, memory_limit="512MiB", recommend=False, multiple_of=4)
    answer = result.answer.max_batch
    plan = result.plan
    fits = []
    with Launcher(plan.source, timeout_s=60, seed=plan.seed) as launcher:
        launcher.describe("cpu", 4)
        for size in range(4, answer + 13, 4):
            question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=plan.settings)
            if launcher.probe(question, result.budget, 0).fits:
                fits.append(size)
    assert fits[-1] - 4 <= answer <= fits[-1]
    assert fits == list(range(4, fits[-1] + 1, 4)), "no holes below the limit"


def test_convnet_is_searched_with_its_evaluation(storage: str) -> None:
    result = search("convnet.py", storage, memory_limit="512MiB", recommend=False, multiple_of=8)
    assert result.certificate.measurement.evaluated
    assert result.answer.max_batch % 8 == 0
    assert result.answer.limited_by in (Cause.HOST_MEMORY, Cause.DEVICE_MEMORY)


def test_long_tail_text_survives_a_shuffled_epoch_with_the_long_sample(storage: str) -> None:
    result = search("long_tail_text.py", storage, memory_limit="384MiB", recommend=False)
    assert result.workload.data_set_size == 200
    assert result.answer.max_batch < 200
    alone = train_alone("long_tail_text.py", result.answer.max_batch, "384MiB")
    assert alone.returncode == 0, alone.stderr


def test_in_python_finds_a_batch_and_trains_in_the_same_process(storage: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "in_python.py")],
        env={**os.environ, "AUTOTUNE_STORAGE": storage},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "largest safe batch:" in done.stdout and "one step at that size: done" in done.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_is_run_by_a_test(name: str) -> None:
    assert f'"{name}"' in Path(__file__).read_text()
