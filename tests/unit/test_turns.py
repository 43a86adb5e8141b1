"""Whose turn it is at a device: which lock stands for it, how long one waits, and what is said meanwhile."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import EnvironmentTrouble, TimeRanOut
from autotune.model import Machine, Stop
from autotune.probe import nvml, turns
from autotune.probe.device_lock import DeviceLock
from autotune.probe.host import HostLimit
from autotune.probe.turns import Turns
from autotune.probe.visible import Card
from autotune.tuner import tune
from tests.fakes import BUDGET, FakeProber
from tests.unit.test_budget import machine as machine_of

UUID = "aaaa-bbbb"


def machine(device: str = "cuda", uuid: str = UUID) -> Machine:
    return replace(machine_of(device), device_uuid=uuid)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of the test's own."""
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "cards", lambda: (Card(uuid=f"GPU-{UUID.upper()}", name="card"),))
    return tmp_path


def locked(folder: Path) -> set[str]:
    """Devices somebody holds or has held."""
    return {path.name.removeprefix("autotune-device-").removesuffix(".lock") for path in folder.glob("*.lock")}


def test_before_and_after_torch_has_seen_it_a_device_is_the_same(folder: Path) -> None:
    mine = Turns(wait_s=0)
    with mine.before("cuda"), pytest.raises(EnvironmentTrouble, match="cuda:0 is busy"), Turns(wait_s=0).at(machine()):
        pass
    with mine.at(machine()):
        pass
    assert locked(folder) == {UUID}


@pytest.mark.parametrize(
    ("device", "visible", "key"),
    [
        ("auto", None, UUID),
        ("cuda:0", "0", UUID),
        ("cuda:0", f"GPU-{UUID.upper()}", UUID),
        ("cuda:1", None, None),
        ("auto", "", None),
        ("cpu", None, None),
        ("mps", None, None),
        ("cuda:0", "7", "cuda-0"),
    ],
)
def test_c24_the_lock_is_that_of_the_card_which_the_device_will_be(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, visible: str | None, key: str | None
) -> None:
    monkeypatch.setattr(turns, "_DRIVERS", (str(folder),))
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with Turns(wait_s=0).before(device):
        pass
    assert locked(folder) == ({key} if key else set())


def test_c25_without_nvml_searches_meet_by_the_devices_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "cards", lambda: ())
    monkeypatch.setattr(turns, "_DRIVERS", (str(folder),))
    mine = Turns(wait_s=0)
    with mine.before("auto"):
        pass
    with mine.at(machine()), pytest.raises(EnvironmentTrouble), Turns(wait_s=0).before("cuda:0"):
        pass
    monkeypatch.setattr(turns, "_DRIVERS", (str(folder / "none"),))
    with mine.at(machine()), Turns(wait_s=0).before("auto"):
        pass


def test_on_the_cpu_only_searches_for_all_that_is_free_take_turns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit(shared_by: str) -> None:
        found = HostLimit(free_bytes=1, total_bytes=1, source="", shared_by=shared_by)
        monkeypatch.setattr(turns, "host_limit", lambda: found)

    limit("host")
    with Turns(wait_s=0).at(machine("cpu")):
        pass
    assert locked(folder) == set()
    alone = Turns(wait_s=0, host_alone=True)
    with alone.at(machine("cpu")), Turns(wait_s=0).at(machine("cpu")):
        with pytest.raises(EnvironmentTrouble, match="the host's memory is busy"), alone.at(machine("cpu")):
            pass
        limit("/sys/fs/cgroup/job")
        with alone.at(machine("cpu")):
            pass
        limit("")
        with alone.at(machine("cpu")), alone.at(machine("cpu")):
            pass
    assert locked(folder) == {"host-host", "host-_sys_fs_cgroup_job"}


def test_a_wait_that_ends_in_nothing_says_who_holds_the_device_and_what_to_do(folder: Path) -> None:
    other = DeviceLock(UUID, folder)
    assert other.take()
    with pytest.raises(EnvironmentTrouble) as caught, Turns(wait_s=0.1).at(machine()):
        pass
    other.release()
    assert caught.value.exit_code == 5
    assert "still held it after a wait of 1" in caught.value.message and "pid " in caught.value.message
    assert "--device-wait" in caught.value.hint


def test_while_one_waits_it_is_said_once_for_whom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_TELL_AFTER_S", 0.0)
    other, said = DeviceLock(UUID, folder), list[str]()
    assert other.take()
    holder = other.holder()
    assert holder is not None
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            other.release()

    monkeypatch.setattr(time, "sleep", sleep)
    with Turns(wait_s=60, say=said.append).at(machine()):
        assert not other.take()
    other.release()
    assert said == [f"waiting for cuda:0: {holder.text} runs a probe there"]
    assert len(looks) == 3


def test_the_searchs_time_ends_a_wait(folder: Path) -> None:
    other = DeviceLock(UUID, folder)
    assert other.take()
    ended = pytest.raises(TimeRanOut, match="time budget ended while waiting for cuda:0")
    with ended, Turns(wait_s=60, until=time.monotonic()).at(machine()):
        pass
    other.release()


def test_what_was_certified_by_then_is_the_answer_of_a_search_whose_time_ends_in_a_wait() -> None:
    class Waiting(FakeProber):
        def probe(self, *asked: object) -> object:  # type: ignore[override]
            if len(self.asked) == 2:
                raise TimeRanOut("the time budget ended while waiting")
            return super().probe(*asked)  # type: ignore[arg-type]

    from autotune.search.batch import BatchFinder

    seen: list[int] = []

    def conclude(history: object) -> Stop | None:
        seen.append(len(history))  # type: ignore[arg-type]
        return None

    class Nothing:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

    prober = Waiting(fixed_bytes=10, per_sample_bytes=10)
    found = tune(BatchFinder(), prober, Nothing(), Nothing(), BUDGET, conclude=conclude)  # type: ignore[arg-type]
    assert (found[0], len(found[1]), seen) == (None, 2, [2])


def test_where_no_lock_can_be_made_searches_go_on_and_say_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path / "missing"))
    said: list[str] = []
    mine = Turns(wait_s=0, say=said.append)
    for _ in range(2):
        with mine.at(machine()):
            pass
    (text,) = said
    assert "are not waited for" in text and "AUTOTUNE_LOCK_DIR" in text


@pytest.mark.parametrize("within", [lambda: pytest.raises(KeyError), nullcontext])
def test_a_turn_ends_with_what_it_was_for_however_that_ends(
    folder: Path, within: Callable[[], AbstractContextManager[object]]
) -> None:
    with within() as raised, Turns(wait_s=0).at(machine()):
        if raised is not None:
            raise KeyError
    lock = DeviceLock(UUID, folder)
    assert lock.take()
    lock.release()
