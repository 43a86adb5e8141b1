"""Training commands are tuned unchanged: real runs of real scripts, under real memory limits where memory is the subject."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune import api, find_max_batch
from autotune.errors import WorkloadError
from autotune.model import (
    Budget,
    Cause,
    Form,
    Machine,
    Outcome,
    Phase,
    ProbeResult,
    Question,
    Reason,
    SearchResult,
    SearchState,
    Settings,
)
from autotune.probe.command.launcher import CommandLauncher
from autotune.probe.devices import look_at_device
from autotune.units import MIB
from autotune.workload.command import parse_command
from tests.process.support import ROOT, Tool, guardian_of, run

SCRIPTS = ROOT / "tests" / "assets" / "commands"
PYTHON = sys.executable
BEHAVING = (PYTHON, str(SCRIPTS / "behaving.py"))
TIGHT_BYTES = 392 * MIB
"""Torch takes 265 MiB of it, a sample 1.2: the limit, 104, is far from the sizes tried, multiples of 16."""

Probe = Callable[..., ProbeResult]


@pytest.fixture(autouse=True)
def ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, and a heap that does not depend on chance (see docs/memory.md): memory is the same from run to run."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def machine() -> Machine:
    """This one."""
    return look_at_device("cpu")


@pytest.fixture
def probe(machine: Machine, tmp_path: Path) -> Iterator[Probe]:
    """``probe(WORDS, SIZE)``: one run of a command, in a folder of its own."""
    launchers: list[CommandLauncher] = []

    def once(
        words: tuple[str, ...],
        size: int,
        *templates: str,
        form: Form = Form.SHORT,
        limit_bytes: int = 2048 * MIB,
        timeout_s: float = 120.0,
    ) -> ProbeResult:
        source = parse_command(words, templates, tmp_path)
        launcher = CommandLauncher(source, timeout_s=timeout_s, seed=0).__enter__()
        launchers.append(launcher)
        launcher.machine = machine
        launcher.preload("cpu")
        budget = Budget(
            limit_bytes=limit_bytes, source="test", capacity_bytes=limit_bytes, others_bytes=0, headroom_bytes=0
        )
        question = Question(batch_size=size, form=form, reason=Reason.CERTIFY, settings=Settings())
        return launcher.probe(question, budget, 0)

    yield once
    for launcher in launchers:
        launcher.close()


def behaving(mode: str, *rest: str) -> tuple[str, ...]:
    return (*BEHAVING, mode, "{batch}", *rest)


def outcome(result: ProbeResult) -> tuple[Outcome, Cause | None, Phase | None]:
    """What a run ended in, why and where."""
    failure = result.failure
    return result.outcome, failure.cause if failure else None, failure.phase if failure else None


FITS = Outcome.FITS, None, None


def equals_a_sweep(result: SearchResult, sizes: range, probe: Probe) -> None:
    """Every one of these sizes is run in the long form."""
    plan, answer = result.plan, result.answer.max_batch
    templates = [f"{name}={template}" for name, template in plan.source.templates]
    fits = [
        size
        for size in sizes
        if probe(plan.source.command, size, *templates, form=Form.LONG, limit_bytes=result.budget.limit_bytes).fits
    ]
    assert fits == [size for size in sizes if size <= answer]
    assert sizes[0] <= answer < sizes[-1]


def test_a_plain_script_with_a_data_loader_is_tuned_unchanged_and_the_answer_is_that_of_a_sweep(
    tmp_path: Path, storage: str, probe: Probe
) -> None:
    words = (PYTHON, str(SCRIPTS / "plain.py"), "--batch-size", "{batch}", "--output", "{scratch}")
    plan = api.plan(
        "", command=words, device="cpu", memory_limit=TIGHT_BYTES, multiple_of=16, start_batch=96, recommend=False
    )
    result = api.search(plan, storage=storage)
    answer = result.answer.max_batch
    assert (result.answer.refuted_at, result.answer.limited_by) == (answer + 16, str(Cause.HOST_MEMORY))
    assert result.workload.data_set_size == 1000
    assert result.workload.optimizer == "SGD"
    certificate = result.certificate
    assert (certificate.launcher, certificate.form) == ("command", Form.LONG)
    measurement = certificate.measurement
    assert (measurement.steps_executed, measurement.observed_batch, measurement.micro_batches) == (8, answer, 1)
    assert all(loss is not None for loss in measurement.losses)
    assert certificate.samples_per_second is not None
    assert {Phase.BUILD, Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER} <= {
        phase.phase for phase in measurement.phases
    }
    refuted = next(one for one in result.probes if one.batch_size == answer + 16 and not one.fits)
    assert refuted.failure is not None
    assert "DefaultCPUAllocator" in refuted.failure.message
    assert "plain.py" in refuted.failure.traceback and "autotune" not in refuted.failure.traceback
    equals_a_sweep(result, range(answer - 16, answer + 17, 16), probe)


def test_a_script_of_a_shell_that_no_one_can_import_is_tuned_unchanged_and_the_answer_is_that_of_a_sweep(
    tmp_path: Path, storage: str, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", PYTHON)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    script = str(SCRIPTS / "train.sh")
    own = [
        "--device",
        "cpu",
        "--memory-limit",
        str(TIGHT_BYTES),
        "--multiple-of",
        "64",
        "--start-batch",
        "64",
        "--storage",
        storage,
    ]
    done = run(
        [PYTHON, "-m", "autotune", "search", *own, "--set", "batch=env:TRAIN_BATCH", "--", script],
        tmp_path,
        dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "autotune.json").read_text())
    micro_batch, answer = document["batch"]["micro_batch"], document["batch"]["max_batch"]
    assert document["workload"]["command"] == f"TRAIN_BATCH={micro_batch} {script}"
    assert (
        f"next\ntrain with batch size {micro_batch} (batch.micro_batch in autotune.json)\nTRAIN_BATCH=" in done.stdout
    )
    assert document["batch"]["refuted_at"] == answer + 64
    assert document["evidence"]["samples_per_second"] > 0
    (record,) = api.searches(storage)
    plan = api.plan("", command=[script], templates=["batch=env:TRAIN_BATCH"], memory_limit=TIGHT_BYTES)
    for size, fits in ((answer, True), (answer + 64, False)):
        again = probe(plan.source.command, size, "batch=env:TRAIN_BATCH", form=Form.LONG, limit_bytes=TIGHT_BYTES)
        assert again.fits is fits
    assert record.answer is not None


def test_a_command_from_python_is_searched_to_its_planted_limit_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    ballast = bytearray(b"\1") * (64 * MIB)
    words = list(behaving("planted", "2", "{scratch}"))
    found = find_max_batch(words, device="cpu", memory_limit="1GiB", storage=tmp_path / "ledger", max_batch=4)
    assert (int(found), found.refuted_at) == (2, 3)
    assert found.evidence.budget.limit_bytes == 1024 * MIB, "what the caller holds is not missing in another process"
    assert len(ballast) == 64 * MIB
    left = {path.name for path in (tmp_path / "tmp").iterdir()}
    assert not {name for name in left if not name.startswith("torchinductor_")}, "that is PyTorch's own cache"
    assert {path.name.partition(".")[0].partition("-")[0] for path in tmp_path.iterdir()} == {"tmp", "ledger"}


def test_an_unwatched_command_is_searched_to_its_planted_limit(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = 'if [ "$0" -gt 5 ]; then echo "CUDA error: out of memory: std::bad_alloc" >&2; exit 1; fi'
    plan = api.plan("", command=["sh", "-c", script, "{batch}"], device="cpu", memory_limit="1GiB", recommend=False)
    result = api.search(plan, storage=storage)
    assert (result.answer.max_batch, result.answer.refuted_at) == (5, 6)
    assert {one.launcher for one in result.probes} == {"unwatched command"}
    assert any("not watched from within (no Python with torch was seen)" in note for note in result.workload.notes)


def test_a_command_that_ignores_its_option_is_told_so(tmp_path: Path) -> None:
    words = [PYTHON, str(SCRIPTS / "plain.py"), "--samples", "{batch}00", "--batch-size", "32"]
    argv = ["max-batch", "--device", "cpu", "--memory-limit", "1GiB", "--storage", "ledger", "--json", "--", *words]
    done = run([PYTHON, "-m", "autotune", *argv], tmp_path, dict(os.environ))
    assert done.returncode == 4, done.stderr
    error = json.loads(done.stdout)["error"]
    assert "told a batch of 1 and trains on 32" in error["message"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("drop_last", [True, False])
def test_c02_a_data_set_smaller_than_the_batch_is_the_limit(probe: Probe, drop_last: bool) -> None:
    words = (PYTHON, str(SCRIPTS / "plain.py"), "--batch-size", "{batch}", "--samples", "6", "--epochs", "3")
    result = probe((*words, "--drop-last") if drop_last else words, 8)
    assert outcome(result) == (Outcome.SIZE_LIMIT, Cause.DATA_SET, Phase.DATA)
    assert result.failure is not None and "got 6" in result.failure.message


@pytest.mark.parametrize("mode", ["gives_up", "skips", "halves"])
def test_memory_that_ran_out_is_seen_though_the_script_catches_it(probe: Probe, mode: str) -> None:
    result = probe(behaving(mode), 1200, limit_bytes=TIGHT_BYTES)
    assert outcome(result)[:2] == (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY)
    assert result.failure is not None and "DefaultCPUAllocator" in result.failure.message


def test_two_optimizers_make_one_step_and_accumulated_batches_are_counted(probe: Probe) -> None:
    both = probe(behaving("two_optimizers"), 2)
    assert outcome(both) == FITS
    assert (both.measurement.steps_executed, both.measurement.micro_batches) == (3, 1)
    words = (PYTHON, str(SCRIPTS / "plain.py"), "--batch-size", "{batch}", "--accumulate", "3")
    many = probe(words, 2)
    assert outcome(many) == FITS
    assert (many.measurement.micro_batches, many.measurement.observed_batch) == (3, 2)
    assert many.samples_per_second == pytest.approx(6 / (many.measurement.median_step_seconds or 0))


def test_workers_of_a_loader_are_no_trainings_and_are_not_left_behind(probe: Probe) -> None:
    words = (PYTHON, str(SCRIPTS / "plain.py"), "--batch-size", "{batch}", "--workers", "1")
    for more in ((), ("--spawn",)):
        result = probe((*words, *more), 4)
        assert outcome(result) == FITS
        assert result.measurement.observed_batch == 4


def test_processes_that_a_script_forks_or_a_launcher_starts_are_watched(probe: Probe) -> None:
    assert outcome(probe(behaving("forked"), 2)) == FITS
    torchrun = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", BEHAVING[1], "rank")
    both = probe((*torchrun, "{batch}"), 4)
    assert outcome(both) == FITS
    assert (both.measurement.steps_executed, both.measurement.observed_batch) == (3, 4)


def test_c34_a_rank_that_runs_out_of_memory_is_what_the_run_says(probe: Probe) -> None:
    torchrun = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", BEHAVING[1], "rank")
    result = probe((*torchrun, "{batch}", "1"), 4)
    assert outcome(result)[:2] == (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY)
    assert result.failure is not None and "of a rank" in result.failure.message


def test_a_compiled_model_is_neither_broken_up_nor_compiled_again(probe: Probe) -> None:
    assert outcome(probe(behaving("compiled"), 2, form=Form.LONG)) == FITS


def test_a_users_own_start_up_file_and_search_path_stay_in_force(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sitecustomize", "users_own"):
        (tmp_path / f"{name}.py").write_text('NAME = "the user\'s"\n')
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    assert outcome(probe(behaving("environment"), 2)) == FITS


def test_an_error_of_the_script_is_shown_and_ends_as_without_the_hook(probe: Probe) -> None:
    alone = subprocess.run([*BEHAVING, "fails", "2"], capture_output=True, text=True, check=False)
    result = probe(behaving("fails"), 2)
    assert (result.outcome, alone.returncode) == (Outcome.WORKLOAD_ERROR, 1)
    assert result.stderr_tail == alone.stderr
    assert result.failure is not None
    assert result.failure.exit_code == 1
    assert result.failure.traceback == alone.stderr.rstrip()


def test_an_exit_code_is_that_of_the_script_and_a_deadline_holds_though_it_goes_quietly(probe: Probe) -> None:
    failed = probe(behaving("exits"), 2)
    assert failed.failure is not None
    assert (failed.failure.cause, failed.failure.exit_code) == (Cause.NO_ANSWER, 3)
    assert probe(behaving("hangs"), 2, timeout_s=8.0).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (PYTHON, "-c", "import torch, sys; sys.exit('no such option: {batch}')"),
            "with exit code 1, and did not train",
        ),
        (("sh", "-c", "echo no such option: {batch} >&2; exit 2"), "with exit code 2, and did not train"),
        ((PYTHON, "-c", "import torch; {batch}"), "with exit code 0, and did not train"),
    ],
)
def test_a_command_that_does_not_train_is_refused_at_once(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    source = parse_command(words, (), tmp_path)
    with CommandLauncher(source, timeout_s=60, seed=0) as launcher, pytest.raises(WorkloadError) as caught:
        launcher.describe("cpu", 1)
    assert message in caught.value.message
    assert caught.value.hint.startswith("try it by itself: ")
    assert "exit code 0" in message or "no such option" in caught.value.detail


def test_c21_a_search_of_a_command_killed_and_stopped_leaves_nothing_alive_and_goes_on(tmp_path: Path) -> None:
    tool = CommandTool(tmp_path)
    hold = tmp_path / "hold-2"
    hold.touch()
    with tool.running() as running:
        tool.wait_until_held(running)
        assert guardian_of(running).is_running()
        running.kill()
        tool.no_process_left()
    killed, finished = tool.search()
    assert (killed.state, [one.batch_size for one in finished]) == (SearchState.INTERRUPTED, [1])
    for path in tmp_path.glob("held-*"):
        path.unlink()
    with tool.running() as running:
        tool.wait_until_held(running)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 130
        tool.no_process_left(0.0)
    (command,) = (line for line in tool.stderr.splitlines() if line.startswith("hint: to continue: "))
    assert shlex.split(command.partition(" -- ")[2]) == list(tool.words)
    hold.unlink()
    done = tool.run()
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert f"going on with search {killed.id}: 1 finished probes are used again" in done.stderr
    tool.no_process_left(0.0)
    assert not list((tmp_path / "tmp").glob("autotune-*"))


class CommandTool(Tool):
    """``autotune max-batch`` over a command that waits where it is told to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.folder / "tmp").mkdir()

    @property
    def words(self) -> tuple[str, ...]:
        return behaving("holding", str(self.folder))

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "TMPDIR": str(self.folder / "tmp")}

    def argv(self, *options: str) -> list[str]:
        fixed = ["--device", "cpu", "--storage", self.storage, "--memory-limit", "1GiB", "--max-batch", "2"]
        return [PYTHON, "-m", "autotune", "max-batch", *fixed, *options, "--", *self.words]
