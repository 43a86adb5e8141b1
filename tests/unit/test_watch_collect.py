"""One look: planted cards with their tenants, instances, locks, and the ledger's searches."""

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event

import psutil
import pytest

from autotune import published
from autotune.errors import StoreError
from autotune.held import Held
from autotune.model import SearchState
from autotune.probe import nvml
from autotune.probe.device_lock import DeviceLock
from autotune.probe.host import host_limit
from autotune.storage.store import Store
from autotune.units import GIB
from autotune.watch import devices
from autotune.watch.collect import Collector
from autotune.watch.document import snapshot_json
from autotune.watch.searches import Running, Searches
from tests.cli.results import RECORD
from tests.planted_nvml import LARGE, SLICE, SMALL, Planted
from tests.planted_watch import SNAPSHOT, publish, status


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing but what the test puts there."""
    monkeypatch.delenv(published.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("AUTOTUNE_STORAGE", str(tmp_path / "ledger.sqlite3"))
    monkeypatch.setattr(nvml, "_pynvml", None)
    return tmp_path


def plant(monkeypatch: pytest.MonkeyPatch, **options: object) -> Planted:
    planted = Planted(pids=(os.getpid(), 2**22 + 1), **options)  # type: ignore[arg-type]
    monkeypatch.setattr(nvml, "_pynvml", planted.module())
    return planted


def test_cards_are_numbered_as_by_the_driver_and_instances_stand_for_a_divided_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = plant(monkeypatch)
    snapshot = Collector().look()
    assert library.open == 0, "closed again"
    assert (snapshot.driver, snapshot.notes) == ("580.1", ())
    assert [(one.device, one.uuid, one.name) for one in snapshot.devices[:-1]] == [
        ("gpu0", LARGE, "card a"),
        ("gpu1", SMALL, "card b"),
        ("gpu2.0", SLICE, "card c, an instance"),
    ]
    large, _, part, host = snapshot.devices
    assert (large.used_bytes, large.total_bytes, large.utilisation) == (20 * GIB, 24 * GIB, 0.87)
    assert (large.temperature_celsius, large.power_watts) == (61, 312.5)
    assert (part.used_bytes, part.utilisation, part.power_watts) == (1 * GIB, None, None)
    assert (host.device, host.uuid, host.tenants) == ("host", "", None)


def test_tenants_have_a_name_where_they_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    mine = psutil.Process()
    found, hidden = Collector().look().devices[0].tenants or ()
    assert (found.pid, found.user, found.used_bytes) == (mine.pid, mine.username(), GIB)
    assert found.name == mine.name()[:15] and found.command.startswith(mine.cmdline()[0][:100])
    assert (hidden.pid, hidden.user, hidden.command, hidden.used_bytes) == (2**22 + 1, "", "", None)


def test_without_nvml_the_host_is_seen_and_why_is_said() -> None:
    snapshot = Collector().look()
    (host,) = snapshot.devices
    assert host.total_bytes == host_limit(rlimits=False).total_bytes
    assert 0 < (host.used_bytes or 0) < (host.total_bytes or 0)
    assert snapshot.notes == ("NVML cannot be asked, so that only the host is seen: nvidia-ml-py is not installed",)


def test_whose_probe_runs_is_seen_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    plant(monkeypatch)
    assert [one.probed_by for one in Collector().look().devices] == [None] * 4
    assert list(place.iterdir()) == []
    lock = DeviceLock("aaaa-24")
    assert lock.take()
    large, small, *_ = Collector().look().devices
    assert large.probed_by is not None and large.probed_by.pid == os.getpid()
    assert small.probed_by is None
    lock.release()


def test_a_lock_that_cannot_be_asked_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: DeviceLock) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(DeviceLock, "held_by", refuse)
    plant(monkeypatch)
    snapshot = Collector().look()
    assert not any(one.lock_told for one in snapshot.devices[:3])
    assert "whether probes run cannot be told" in snapshot.notes[-1]


def test_trainings_and_searches_are_in_one_snapshot(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    plant(monkeypatch)
    publish("1-a.json", status())
    with Store.open(str(place / "ledger.sqlite3")) as store:
        predicts = replace(RECORD, state=SearchState.RUNNING, plan=replace(RECORD.plan, ranks=2, predicted=True))
        running, over = (Held.begin(store, predicts) for _ in range(2))
        over.finish(SearchState.INTERRUPTED, None, "stopped")
        snapshot = Collector().look()
        assert [(one.device, one.status.step) for one in snapshot.trainings] == [("gpu0", 1200)]
        (search,) = snapshot.searches
        assert (search.id, search.probes, search.predicted) == (running.record.id, 0, True)
        assert search.owner.startswith(f"process {os.getpid()} on ")
        running.finish(SearchState.INTERRUPTED, None, "stopped")
    assert Collector().look().searches == ()


def test_a_ledger_is_asked_every_five_seconds_and_what_is_wrong_with_it_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def refuse(storage: str | None) -> None:
        asked.append(now[0])
        raise StoreError("cannot reach postgresql://***@host/db")

    monkeypatch.setattr("autotune.ledger.running", refuse)
    now = [0.0]
    searches = Searches(None, lambda: now[0])
    for now[0] in (0.0, 2.0, 4.0, 6.0, 8.0, 12.0):
        assert searches.running() == Running(notes=("searches are not seen: cannot reach postgresql://***@host/db",))
    assert asked == [0.0, 6.0, 12.0]


def test_a_ledger_that_does_not_answer_keeps_no_look_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = Event(), []

    def hang(storage: str | None) -> tuple[object, ...]:
        asked.append(storage)
        answers.wait(60)
        return ()

    monkeypatch.setattr("autotune.ledger.running", hang)
    now = [0.0]
    searches = Searches(None, lambda: now[0], patience_s=0.0)
    for now[0] in (0.0, 10.0, 20.0):
        assert searches.running().notes == ("searches are not seen: the ledger has not answered yet",)
    assert asked == [None], "not asked again before it has answered"
    answers.set()
    assert searches._asking is not None
    searches._asking.join(60)
    assert searches.running() == Running()


def test_a_ledger_that_was_named_and_is_not_there_is_a_note_and_the_usual_one_comes_later(place: Path) -> None:
    assert Searches(None).running() == Running()
    (note,) = Searches(str(place / "other.sqlite3")).running().notes
    assert note.startswith("searches are not seen: no ledger at ")
    assert list(place.iterdir()) == [], "who looks makes nothing"


def test_an_older_ledger_is_left_as_it_is(place: Path) -> None:
    old = (Path(__file__).parents[1] / "contract" / "golden" / "schema_0003.sql").read_text()
    path = place / "old.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(old)
    before = path.read_bytes()
    (note,) = Searches(str(path)).running().notes
    assert "was written by another version of autotune" in note
    assert path.read_bytes() == before


def test_the_name_of_the_host_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "box\x1b[2J")
    assert devices.host_name() == "box?[2J"


def test_the_document_has_every_field_and_is_ascii() -> None:
    text = snapshot_json(replace(SNAPSHOT, host="größer"))
    content = json.loads(text)
    assert text.isascii()
    assert (content["schema_version"], content["host"], content["taken"]) == (1, "größer", "2026-11-30T10:20:31+00:00")
    assert content["devices"][0]["tenants"][1]["user"] == "anna"
    assert content["devices"][0]["probed_by"]["since"] == "2026-11-30T10:20:31+00:00"
    assert [one["status"]["headroom_bytes"] for one in content["trainings"]] == [3 * GIB, -GIB, 3 * GIB]
    assert content["searches"][0]["id"] == "3ca48fb993e7"
