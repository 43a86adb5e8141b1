"""Data as people have it: long tails, token budgets, too few samples, last batches of one, batches of odd forms."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Budget, Cause, Form, Outcome, ProbeResult, Question, Reason, SearchResult
from autotune.probe.launcher import Launcher
from autotune.units import GIB, MIB
from tests.process.conftest import Search
from tests.process.support import ASSETS, clean_environment, run

LIMIT = 512 * MIB
"""Torch's own process takes 216 MiB of it, and 45 MiB more are mapped and never touched."""

BUDGET = Budget(limit_bytes=GIB, source="test", capacity_bytes=GIB, others_bytes=0, headroom_bytes=0)

pytestmark = pytest.mark.usefixtures("one_thread")


def epoch(kind: str, size: int) -> subprocess.CompletedProcess[str]:
    """A shuffled epoch of texts.py in a process of its own under the same limit."""
    argv = [sys.executable, str(ASSETS / "texts.py"), kind, str(LIMIT), str(size)]
    return subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=120, check=False)


def survives_an_epoch(result: SearchResult, kind: str, too_large: int) -> None:
    done = epoch(kind, result.answer.max_batch)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "trained on 1001 texts, the longest of 2000 words\n"
    assert "DefaultCPUAllocator: can't allocate memory" in epoch(kind, too_large).stderr


def test_c10_the_size_found_survives_a_shuffled_epoch_with_the_one_long_sample(search: Search) -> None:
    result = search("padded", file="texts.py", memory_limit=LIMIT, start_batch=3)
    answer = result.answer
    assert answer.refuted_at == answer.max_batch + 1
    assert 2 <= answer.max_batch <= 12
    assert result.certificate.measurement.worst_batch == f"int64[{answer.max_batch}, 2000]"
    survives_an_epoch(result, "padded", 2 * answer.max_batch)


@pytest.mark.parametrize(("kind", "step"), [("budget", 2000), ("short", 100)])
def test_c10_the_token_budget_found_survives_a_shuffled_epoch(search: Search, kind: str, step: int) -> None:
    result = search(kind, file="texts.py", memory_limit=LIMIT, multiple_of=step, start_batch=4 * step)
    answer = result.answer
    assert not result.workload.sized
    assert answer.refuted_at == answer.max_batch + step
    seen = result.certificate.measurement
    assert seen.candidates >= 2, "the longest text and the most texts"
    assert seen.observed_batch is None
    assert any("they count tokens" in warning for warning in result.warnings)
    survives_an_epoch(result, kind, 2 * answer.max_batch)


def probes(form: str, *questions: tuple[int, Form], rows: int = 500) -> list[ProbeResult]:
    """Probes of loaded.py, of these sizes and forms."""
    plan = api.plan(str(ASSETS / "loaded.py"), script_args=[form, str(rows)], device="cpu")
    with Launcher(plan.source, timeout_s=60, seed=0) as launcher:
        launcher.describe("cpu", 1)
        return [
            launcher.probe(Question(batch_size=size, form=kind, reason=Reason.START, settings=plan.settings), BUDGET, 0)
            for size, kind in questions
        ]


@pytest.mark.parametrize("form", ["texts", "time", "scene", "unequal", "stream", "time made"])
def test_c36_samples_are_counted_whatever_form_the_batches_have(form: str) -> None:
    fits, fails = probes(form, (13, Form.SHORT), (14, Form.SHORT))
    assert fits.fits and fits.measurement.observed_batch == 13
    assert fails.outcome is Outcome.OUT_OF_MEMORY and fails.measurement.observed_batch == 14


@pytest.mark.parametrize(("form", "seen"), [("packed", 109), ("time made unsaid", 16)])
def test_c36_a_batch_whose_samples_cannot_be_told_asks_for_a_hint(form: str, seen: int) -> None:
    (probe,) = probes(form, (12, Form.SHORT))
    assert probe.outcome is Outcome.WORKLOAD_ERROR and probe.failure is not None
    assert f"asked for a batch of 12 and got one whose leading dimension is {seen}" in probe.failure.message
    assert "`batch_dim = 1`" in probe.failure.hint and "make_loader" in probe.failure.hint


def test_c10_steps_go_from_candidate_to_candidate_the_worst_first() -> None:
    """Candidates: the largest picture and the most boxes together, the largest samples, those with the most boxes."""
    short, timed = probes("boxes", (12, Form.SHORT), (12, Form.TIMED), rows=40)
    assert short.outcome is Outcome.OUT_OF_MEMORY and short.failure is not None
    assert ("many boxes" in short.failure.message, short.failure.step) == (True, 3)
    assert timed.fits, "what is compared by its times is the same batch in every step"


@pytest.mark.usefixtures("certified_in_forks")
@pytest.mark.parametrize("form", ["drop", "stream"])
def test_c02_a_real_loader_over_ten_rows_ends_the_search_at_ten(search: Search, form: str) -> None:
    result = search(form, 10, file="loaded.py")
    assert (result.answer.max_batch, result.answer.limited_by) == (10, "data_set")
    assert len(result.probes) <= 8
    assert all(p.measurement.observed_batch == p.batch_size for p in result.probes if p.fits)


@pytest.mark.usefixtures("certified_in_forks")
def test_c16_a_last_batch_of_one_is_warned_of_with_the_cure(search: Search) -> None:
    result = search("norm set", 65, file="loaded.py", start_batch=63)
    assert (result.answer.max_batch, result.answer.refuted_at) == (64, 65)
    (warning,) = (text for text in result.warnings if "last batch" in text)
    assert "65 samples in batches of 64 leave a last batch of 1 (65 % 64 == 1)" in warning
    assert "drop_last=True" in warning


PRIVATE_MOUNT = "mount -t tmpfs -o size=64m tmpfs /dev/shm && "


def private_mount() -> list[str]:
    """A command that runs another with 64 MiB of shared memory of its own; skips where that is not permitted."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1) here")
    tried = subprocess.run([*command, PRIVATE_MOUNT + "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mounts of one's own here: {tried.stderr.strip()}")
    return command


def test_c22_full_shared_memory_is_no_limit_of_the_device_and_workers_that_ran_are_recommended(tmp_path: Path) -> None:
    command = private_mount()
    search = f"exec {sys.executable} -m autotune max-batch {ASSETS / 'large_samples.py'} --device cpu --storage ledger"
    options = " --memory-limit 2GiB --max-batch 16 --start-batch 16 --json"
    done = run([*command, PRIVATE_MOUNT + search + options], tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["batch"]["max_batch"] == document["batch"]["micro_batch"] == 16
    assert document["limited_by"] == "max_batch"
    assert document["settings"]["loader_workers"] == 0
    (warning,) = (text for text in document["warnings"] if "shared" in text)
    assert "does not run with 2 or 1 workers, but with 0" in warning
    assert "the shared-memory mount /dev/shm has 64 MiB in all" in warning
    assert "the limit 16 is that of the device, found without workers" in warning
    (record,) = api.searches(str(tmp_path / "ledger"))
    loading = [p for p in api.show(record.id, str(tmp_path / "ledger"))[1] if p.form is Form.LOADING]
    assert [p.settings.loader_workers for p in loading] == [2, 1, 0]
    assert [p.fits for p in loading] == [False, False, True]
    for probe in loading[:2]:
        assert probe.outcome is Outcome.HOST_OUT_OF_MEMORY
        assert probe.failure is not None and probe.failure.cause is Cause.SHARED_MEMORY
        assert "/dev/shm has 64 MiB" in probe.failure.message


def test_c22_the_workers_of_the_users_loader_are_kept_where_they_run(search: Search) -> None:
    result = search(1, file="large_samples.py", max_batch=2, memory_limit="2GiB")
    assert result.answer.loading is not None
    assert result.answer.loading.workers == 1
    (loading,) = (p for p in result.probes if p.form is Form.LOADING)
    assert loading.measurement.workers_bytes is not None
    assert loading.measurement.workers_bytes > 8_000_000, "the worker makes samples of 8 MB"
