"""Real memory on the CPU: limits against an exhaustive sweep, lazy optimizer state, skipped steps, a real cgroup."""

import json
import sys
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from autotune import api
from autotune.errors import WorkloadError
from autotune.model import Cause, Form, Outcome, Phase, Question, Reason, SearchResult
from autotune.probe import linux
from autotune.probe.launcher import Launcher
from autotune.units import GIB, MIB
from tests.process.conftest import Search
from tests.process.support import ASSETS, run

TIGHT = "360MiB"
"""Torch's own process takes 216 MiB of it, and 45 MiB more are mapped and never touched."""

pytestmark = pytest.mark.usefixtures("one_thread")


def sweep(result: SearchResult, monkeypatch: pytest.MonkeyPatch) -> int:
    """The largest size that fits in the long form, each probed from the smallest up to the first failure above the answer."""
    monkeypatch.setattr(linux, "IS_LINUX", False)  # long probes are spawned anyway: no zygote to fork from
    plan, answer, fitting = result.plan, result.answer, 0
    with Launcher(plan.source, timeout_s=60, seed=plan.seed) as launcher:
        launcher.machine = result.machine
        for size in count(plan.multiple_of, plan.multiple_of):
            question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=plan.settings)
            if launcher.probe(question, result.budget, 0).fits:
                fitting = size
            elif size > answer.max_batch:
                break
    return fitting


@pytest.mark.parametrize(("kind", "step"), [("quadratic", 2), ("flat", 8)])
def test_c06_memory_that_is_not_linear_gives_the_limit_of_an_exhaustive_sweep(
    search: Search, monkeypatch: pytest.MonkeyPatch, kind: str, step: int
) -> None:
    result = search(kind, file="memory.py", memory_limit=TIGHT, multiple_of=step)
    answer = result.answer.max_batch
    assert result.answer.refuted_at == answer + step
    assert answer > step
    assert result.certificate.batch_size == answer
    assert answer == sweep(result, monkeypatch)


def test_c11_training_and_evaluation_have_the_limits_of_two_sweeps(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation holds every output, with its graph: six steps of it take about three times what training takes."""
    result = search("keeps:6", file="memory.py", memory_limit=TIGHT, multiple_of=4)
    trains, evaluation = result.answer.max_batch, result.answer.evaluation
    assert evaluation is not None and evaluation.max_batch is not None and evaluation.refuted_at is not None
    assert evaluation.max_batch < trains
    assert (result.certificate.batch_size, result.certificate.evaluated_at) == (trains, evaluation.max_batch)
    monkeypatch.setattr(linux, "IS_LINUX", False)  # long probes are spawned anyway: no zygote to fork from
    with Launcher(result.plan.source, timeout_s=60, seed=result.plan.seed) as launcher:
        launcher.machine = result.machine

        def fits(batch_size: int, evaluate_at: int) -> bool:
            question = Question(batch_size=batch_size, form=Form.LONG, reason=Reason.CERTIFY, evaluate_at=evaluate_at)
            return launcher.probe(question, result.budget, 0).fits

        sizes = range(trains - 8, trains + 5, 4)
        assert [fits(size, 0) for size in sizes] == [True, True, True, False]
        sizes = range(4, evaluation.refuted_at + 1, 4)
        assert [fits(trains, size) for size in sizes] == [True] * (evaluation.max_batch // 4) + [False]


def test_c07_adamw_fits_less_than_sgd_because_its_state_is_measured(search: Search) -> None:
    sgd, adamw = (
        search(f"{kind}:16", file="memory.py", memory_limit=TIGHT, multiple_of=8) for kind in ("sgd", "adamw")
    )
    assert adamw.answer.max_batch < sgd.answer.max_batch
    for result, states in ((sgd, 0), (adamw, 2)):
        composition = result.certificate.measurement.composition
        assert composition.parameters_bytes == 16 * MIB + 4
        assert composition.optimizer_bytes is not None
        assert abs(composition.optimizer_bytes - states * 16 * MIB) < 1024  # beside the moments: step counts


@pytest.mark.parametrize(
    ("kind", "limit", "phase", "part"),
    [
        pytest.param("rows", "64MiB", "build", "process and libraries", id="below what a process needs"),
        pytest.param("sgd:512", TIGHT, "build", "weights", id="below the weights"),
        pytest.param("adamw:192", "800MiB", "optimizer", "optimizer state", id="below the optimizer's state"),
    ],
)
def test_c04_nothing_fits_leaves_no_recommendation_and_says_where_memory_goes(
    tmp_path: Path, kind: str, limit: str, phase: str, part: str
) -> None:
    (tmp_path / "autotune.json").write_text("{}")
    argv = [
        "search",
        str(ASSETS / "memory.py"),
        "--allow",
        "none",
        "--device",
        "cpu",
        "--memory-limit",
        limit,
        "--json",
    ]
    done = run([sys.executable, "-m", "autotune", *argv, "--storage", "ledger", "--", kind], tmp_path)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert (document["complete"], document["batch"]["max_batch"]) == (False, None)
    assert document["error"]["kind"] == "nothing_fits"
    assert f"batch 1 is out of memory in phase {phase}" in document["error"]["message"]
    assert document["error"]["hint"]
    assert f"largest part: {part}\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "autotune.json").exists()
    assert (tmp_path / "autotune.json.stale").read_text() == "{}"


def test_c09_accumulation_is_measured_with_the_batch_it_is_recommended_for(search: Search) -> None:
    once, often = (search("sgd:64", file="memory.py", accumulate=number, max_batch=1) for number in (1, 4))
    assert [probe.settings.accumulate for probe in often.probes] == [4] * len(often.probes)
    forward = [
        next(m.peak_allocated_bytes for m in result.certificate.measurement.phases if m.phase is Phase.FORWARD)
        for result in (once, often)
    ]
    # The gradients of the first micro-batch stay while the second one goes forward.
    assert forward[1] - forward[0] > 0.75 * 64 * MIB
    peaks = [result.certificate.measurement.peak_allocated_bytes for result in (once, often)]
    assert peaks[0] is not None and peaks[1] is not None
    assert peaks[1] >= peaks[0]


@pytest.mark.usefixtures("certified_in_forks")
def test_c08_steps_skipped_by_the_scaler_are_waited_for_and_reported(search: Search) -> None:
    result = search(14, file="overflow.py", precision="fp16", max_batch=2)
    assert result.answer.max_batch == 2
    for probe in result.probes:
        measurement = probe.measurement
        assert 5 <= measurement.steps_skipped <= 15
        assert measurement.steps_executed == measurement.steps_asked
        # weights and biases: two moments each
        assert measurement.composition.optimizer_bytes is not None
        assert measurement.composition.optimizer_bytes >= 2 * 4 * (64 * 64 + 64)


def test_c08_a_loss_that_overflows_in_every_step_is_unstable(search: Search, storage: str) -> None:
    with pytest.raises(WorkloadError, match=r"the gradient scaler skipped 30 of 30 steps"):
        search(60, file="overflow.py", precision="fp16", max_batch=2)
    (record,) = api.searches(storage)
    probes = api.show(record.id, storage)[1]
    assert probes
    for probe in probes:
        assert probe.outcome is Outcome.UNSTABLE
        assert probe.failure is not None and probe.failure.cause is Cause.STEPS_SKIPPED


def test_a_caller_that_holds_much_memory_does_not_show_in_the_peaks(search: Search) -> None:
    ballast = bytearray(b"\1") * GIB
    result = search("rows", file="memory.py", max_batch=1)
    assert len(ballast) == GIB
    for probe in result.probes:
        peak = probe.measurement.peak_allocated_bytes
        assert peak is not None
        assert 0 < peak < GIB // 2, "torch itself is a quarter of a GiB"


@pytest.fixture
def limited_cgroup() -> Iterator[Path]:
    """A memory cgroup of 1 GiB below this process's own."""
    folder = _make_cgroup(GIB)
    yield folder
    folder.rmdir()


def _make_cgroup(limit_bytes: int) -> Path:
    refusals = []
    for own, file in _own_memory_cgroups():
        folder = own / f"autotune-test-{uuid.uuid4().hex}"
        try:
            folder.mkdir()
        except OSError as error:
            refusals.append(f"{folder.parent}: {error.strerror}")
            continue
        try:
            (folder / file).write_text(str(limit_bytes))
        except OSError as error:
            refusals.append(f"{folder / file}: {error.strerror}")
            folder.rmdir()
            continue
        return folder
    pytest.skip(f"no memory cgroup can be made here ({'; '.join(refusals) or 'no cgroups'})")


def _own_memory_cgroups(root: Path = Path("/sys/fs/cgroup")) -> list[tuple[Path, str]]:
    """Folder and name of the limit's file: version 1, then version 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    entries = [line.split(":", 2) for line in lines]
    first = [root / "memory" / path.lstrip("/") for _, names, path in entries if "memory" in names.split(",")]
    second = [root / path.lstrip("/") for _, names, path in entries if names == ""]
    places = [(folder, "memory.limit_in_bytes") for folder in first] + [(folder, "memory.max") for folder in second]
    return [(folder, file) for folder, file in places if folder.is_dir()]


def test_c23_a_probe_killed_at_the_limit_of_a_cgroup_is_out_of_memory(tmp_path: Path, limited_cgroup: Path) -> None:
    argv = ["max-batch", str(ASSETS / "memory.py"), "--device", "cpu", "--storage", "ledger", "--json", "--", "shared"]
    join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    done = run(["sh", "-c", join, str(limited_cgroup), sys.executable, "-m", "autotune", *argv], tmp_path)
    assert done.returncode == 0, done.stderr
    batch = json.loads(done.stdout)["batch"]
    assert (batch["max_batch"], batch["refuted_at"]) == (5, 6)
    (record,) = api.searches(str(tmp_path / "ledger"))
    assert record.budget.source == "cgroup"
    assert record.budget.capacity_bytes == GIB
    killed = [probe for probe in api.show(record.id, str(tmp_path / "ledger"))[1] if probe.batch_size > 5]
    assert killed
    for probe in killed:
        assert probe.outcome is Outcome.OUT_OF_MEMORY
        assert probe.failure is not None
        assert (probe.failure.cause, probe.failure.signal) == (Cause.HOST_MEMORY, "SIGKILL")
        assert probe.failure.message.endswith("the kernel counted an out-of-memory kill")
