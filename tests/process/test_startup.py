"""What is done before the first probe, and beside it: in which order, how often, and what happens when it goes wrong."""

import contextlib
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune import api
from autotune.errors import EnvironmentTrouble, WorkloadError
from autotune.model import Budget, Form, Outcome, Plan, ProbeResult, Question, Reason
from autotune.probe import guarded
from autotune.probe import launcher as launching
from autotune.probe.devices import look_at_device
from autotune.probe.launcher import Launcher
from autotune.probe.order import Op
from autotune.storage.store import Store
from autotune.units import GIB, MIB
from tests.process.support import ASSETS, Tool, alive, wait_for

BUDGET = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=GIB, others_bytes=0, headroom_bytes=0)
SLOWER = "probes start a fresh interpreter each, which is slower: "


class Starting:
    """starting.py on the CPU, what it tells, and what the launcher says."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._folder = folder
        self.said: list[str] = []

    def plan(self, kind: str, **options: Any) -> Plan:
        """A search of one KIND; on the CPU, within 1 GiB, up to batch 2."""
        fixed: dict[str, Any] = {"device": "cpu", "memory_limit": "1GiB", "max_batch": 2, "recommend": False}
        return api.plan(str(ASSETS / "starting.py"), script_args=[kind] if kind else [], **fixed, **options)

    def launcher(self, kind: str = "", timeout_s: float = 60.0) -> Launcher:
        """Closed at the end of the test."""
        source = self.plan(kind).source
        return self._stack.enter_context(Launcher(source, timeout_s=timeout_s, seed=5, say=self.said.append))

    def told(self) -> Counter[str]:
        """What the workload has told, and how often."""
        return Counter((self._folder / "told").read_text().splitlines())

    def close(self) -> None:
        """End every process."""
        self._stack.close()


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starting]:
    monkeypatch.setenv("PLANTED_FOLDER", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with contextlib.closing(Starting(tmp_path)) as starting:
        yield starting


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let zygotes work ahead as they do on CUDA."""
    monkeypatch.setattr(Launcher, "_ahead", True)


def short(launcher: Launcher, batch_size: int = 3) -> ProbeResult:
    """A short probe."""
    return launcher.probe(Question(batch_size=batch_size, form=Form.SHORT, reason=Reason.START), BUDGET, 0)


def losses(probe: ProbeResult) -> tuple[float | None, ...]:
    """Those of a probe that went well."""
    assert probe.outcome is Outcome.FITS, probe.failure
    return probe.measurement.losses


def zygote_and_copy(launcher: Launcher) -> tuple[psutil.Process, psutil.Process]:
    """The zygote that loaded the file, and the copy of it that made a model and serves."""
    guardian = launcher._guarded.process
    assert guardian is not None
    (zygote,) = psutil.Process(guardian.pid).children()
    (copy,) = zygote.children()
    return zygote, copy


def test_the_workload_is_loaded_while_the_ledger_is_opened(
    starting: Starting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Callable[..., Store] = Store.open

    def open_when_loaded(*args: Any, **options: Any) -> Store:
        wait_for((tmp_path / "told").exists, "the file being loaded")
        return opened(*args, **options)

    monkeypatch.setattr(Store, "open", open_when_loaded)
    result = api.search(starting.plan(""), storage=str(tmp_path / "ledger"))
    assert result.answer.max_batch == 2


def test_a_ledger_that_cannot_be_opened_ends_the_loading_at_once_with_its_own_error(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    (tmp_path / "ledger.sqlite3").write_text("this is no database, " * 100)
    file = tmp_path / "holding.py"
    file.write_text(f"import time\ntime.sleep(300)\n{file.read_text()}")
    done = tool.run()
    assert done.returncode == 5, done.stderr
    assert "ledger.sqlite3" in done.stderr and "Traceback" not in done.stderr
    tool.no_process_left(0.0)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pool_at_import", "a forked child of it hangs while computing"),
        ("fork:raise", "a forked child of it cannot compute or start the device"),
        ("fork:die", "a forked child of it cannot compute or start the device"),
        ("no_fork", "forking one failed"),
    ],
)
def test_a_first_forked_child_that_cannot_compute_is_replaced_by_a_fresh_interpreter_and_it_is_said_once(
    starting: Starting, monkeypatch: pytest.MonkeyPatch, kind: str, why: str
) -> None:
    monkeypatch.setattr(launching, "_FIRST_S", 3.0)  # what hangs hangs for ever
    launcher = starting.launcher(kind)
    workload, _ = launcher.describe("cpu", 1)
    assert workload.optimizer == "SGD"
    assert [short(launcher).launcher for _ in range(2)] == ["spawn", "spawn"]
    (said,) = starting.said
    assert said.startswith(SLOWER + why)
    assert starting.told()["child makes"] == 3
    assert "exit handler" not in starting.told()


def test_a_hanging_make_model_is_the_users_and_is_not_tried_again(starting: Starting) -> None:
    with pytest.raises(WorkloadError, match=r"did not finish within --timeout 5 s while it was in phase build"):
        starting.launcher("build_hang", timeout_s=5.0).describe("cpu", 1)
    assert starting.told()["child makes"] == 1
    assert starting.said == []


def test_a_slow_make_model_has_the_whole_timeout(starting: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_FIRST_S", 3.0)
    starting.launcher("build_slowly").describe("cpu", 1)
    assert (starting.told()["child makes"], starting.said) == (1, [])


def test_on_the_cpu_nothing_is_done_ahead(starting: Starting) -> None:
    launcher = starting.launcher("dynamo")
    launcher.describe("cpu", 1)
    assert [short(launcher).launcher for _ in range(2)] == ["fork", "fork"]
    assert starting.told()["loaded, imported: True"] == starting.told()["loaded, frozen: True"] == 1
    assert starting.told()["frozen: True"] == 0 < starting.told()["frozen: False"], "in a probe all is as in a training"
    assert (starting.told()["child makes"], starting.told()["copy makes"]) == (3, 0)


@pytest.mark.usefixtures("ahead")
def test_what_steps_import_is_imported_after_the_file_and_before_the_first_probe(starting: Starting) -> None:
    launcher = starting.launcher("dynamo")
    workload, _ = launcher.describe("cpu", 1)
    assert workload.step_imports_bytes == 0
    assert starting.told()["loaded, imported: False"] == starting.told()["imported: False"] == 1  # to describe
    assert short(launcher).launcher == "fork"
    assert starting.told()["imported: False"] == 1 < starting.told()["imported: True"]


@pytest.mark.parametrize("kind", ["", "seed", "meta"])
def test_a_model_made_ahead_trains_exactly_as_one_that_the_probe_makes(
    starting: Starting, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    plain = starting.launcher(kind)
    plain.describe("cpu", 1)
    wanted = [losses(short(plain, size)) for size in (3, 3, 4)]
    assert wanted[0] == wanted[1] != wanted[2]
    assert (starting.told()["child makes"], starting.told()["copy makes"]) == (4, 0)
    monkeypatch.setattr(Launcher, "_ahead", True)
    launcher = starting.launcher(kind)
    launcher.describe("cpu", 1)
    probes = [short(launcher, size) for size in (3, 3, 4)]
    assert [losses(probe) for probe in probes] == wanted
    assert [probe.launcher for probe in probes] == ["fork"] * 3
    assert (starting.told()["child makes"], starting.told()["copy makes"]) == (4 + 1, 1)  # to describe


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("what", ["raise", "exit", "die", "hang", "thread", "pool", "cuda"])
def test_where_a_model_cannot_be_made_ahead_each_probe_makes_its_own(starting: Starting, what: str) -> None:
    launcher = starting.launcher(f"ahead:{what}", timeout_s=8.0)
    launcher.describe("cpu", 1)
    probes = [short(launcher) for _ in range(3)]
    assert len({losses(probe) for probe in probes}) == 1
    assert [probe.launcher for probe in probes] == ["fork"] * 3
    assert (starting.told()["child makes"], starting.told()["copy makes"]) == (4, 1)
    assert starting.told()["went another way"] == (what == "cuda")
    assert starting.said == []


@pytest.mark.usefixtures("ahead")
def test_a_probe_that_waits_for_a_zygote_to_make_a_model_and_then_hangs_is_timed_out(
    starting: Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SLACK_S", "TERM_GRACE_S", "EXIT_GRACE_S"):
        monkeypatch.setattr(guarded, name, 0.5)
    launcher = starting.launcher("late")
    launcher._guarded.start()
    launcher._load_zygote("cpu")
    launcher._timeout_s = 4.0  # of which the zygote takes half for the model
    launcher.describe("cpu", 1)
    assert short(launcher).outcome is Outcome.TIMED_OUT
    assert starting.said == []


def test_forked_probes_hand_on_no_files_and_run_no_exit_handlers_where_they_cannot_begin(starting: Starting) -> None:
    launcher = starting.launcher("program")
    launcher.machine = look_at_device("cpu")
    assert short(launcher).fits
    files = {name for name in starting.told() if name.isdigit()}
    assert files == {"0", "1", "2", "3"}, "standard files, and the folder that is listed"
    request = launcher._request("broken", Op.PROBE, fork=True, device="cpu")
    ended = launcher._guarded.ask(replace(request, stdout="/nonexistent/out"))
    assert (ended.answer, ended.exit_code, ended.zygote) == (None, 1, True)
    assert "exit handler" not in starting.told()


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("which", [0, 1])
def test_a_zygote_killed_after_it_made_a_model_costs_only_time(starting: Starting, which: int) -> None:
    launcher = starting.launcher()
    launcher.describe("cpu", 1)
    wanted = [losses(short(launcher)) for _ in range(2)]
    assert {path.name for path in launcher._directory.glob("[0-9]*")} == {"3.json", "3.out", "3.err"}, (
        "of the last alone"
    )
    processes = zygote_and_copy(launcher)
    processes[which].kill()
    psutil.wait_procs([processes[1]])
    probe = short(launcher)
    assert (losses(probe), probe.launcher) == (wanted[0], "spawn")
    assert starting.said == [SLOWER + "forking one failed"]
    directory = str(launcher._directory)
    launcher.close()
    assert alive(directory) == {}


@pytest.mark.usefixtures("ahead")
def test_nothing_is_left_of_a_zygote_that_made_a_model_when_the_guardian_is_killed(starting: Starting) -> None:
    launcher = starting.launcher()
    launcher.describe("cpu", 1)
    assert short(launcher).fits and short(launcher).fits
    processes = zygote_and_copy(launcher)
    assert launcher._guarded.process is not None
    launcher._guarded.process.kill()
    psutil.wait_procs(processes, timeout=30)
    assert not any(process.is_running() for process in processes)
    with pytest.raises(EnvironmentTrouble, match="guardian"):
        short(launcher)


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize(("free_mib", "made"), [(390, 0), (800, 1)])
def test_a_model_is_made_ahead_only_within_a_quarter_of_what_the_host_has_left(
    starting: Starting, free_mib: int, made: int
) -> None:
    launcher = starting.launcher("large")  # 100 MiB
    launcher._guarded.start()
    assert launcher._guarded.process is not None
    resource.prlimit(launcher._guarded.process.pid, resource.RLIMIT_DATA, (free_mib * MIB, resource.RLIM_INFINITY))
    launcher.describe("cpu", 1)
    assert short(launcher).fits and short(launcher).fits
    assert (starting.told()["child makes"], starting.told()["copy makes"]) == (3 - 2 * made, 1)
