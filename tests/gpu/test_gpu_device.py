"""A card that is shared: which one it is, whose turn it is, and what the doctor says of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from autotune import api
from autotune.errors import EnvironmentTrouble
from autotune.model import Form, Health, Outcome, ProbeResult, SearchResult
from autotune.probe import nvml
from autotune.probe.device_lock import DeviceLock
from autotune.probe.spill import may_spill
from autotune.probe.turns import bare
from autotune.probe.visible import visible
from tests.gpu.conftest import ASSETS, Search

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of the test's own, so that what else runs on the card is not waited for."""
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(folder))
    return folder


@pytest.fixture
def held(found: SearchResult, locks: Path) -> Iterator[DeviceLock]:
    """The card's lock, held as another search's probe holds it."""
    lock = DeviceLock(bare(found.machine.device_uuid), locks)
    assert lock.take()
    yield lock
    lock.release()


def test_c24_the_environment_tells_the_card_that_torch_then_finds(found: SearchResult) -> None:
    cards = nvml.cards()
    assert cards, nvml.missing()
    uuids = visible(cards, os.environ)
    assert uuids is None or bare(uuids[found.machine.device_index]) == bare(found.machine.device_uuid)
    assert nvml.trouble(found.machine.device_uuid, found.machine.capacity_bytes) == ""


@pytest.mark.parametrize("form", ["uuid", "beginning of the uuid"])
def test_c24_a_card_named_by_its_uuid_is_the_card_that_is_measured(
    found: SearchResult, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (uuid,) = [card.uuid for card in nvml.cards() if bare(card.uuid) == bare(found.machine.device_uuid)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid if form == "uuid" else uuid[:16])
    info, machine = api.inspect(api.plan(str(ASSETS / "mlp.py"), device="cuda"))
    assert bare(machine.device_uuid) == bare(uuid)
    assert info.device_used_bytes is None, info.notes


def test_a_data_centre_card_has_memory_of_its_own_that_does_not_spill(found: SearchResult) -> None:
    assert not found.machine.unified
    assert not may_spill(found.machine)


def test_while_anothers_probe_runs_none_of_ours_touches_the_card(search: Search, held: DeviceLock) -> None:
    with pytest.raises(EnvironmentTrouble) as caught:
        search("mlp.py", max_batch=2, device_wait_s=0.2)
    assert "cuda is busy" in caught.value.message and f"(pid {os.getpid()}, " in caught.value.message
    assert caught.value.exit_code == 5
    held.release()
    assert search("mlp.py", max_batch=2, device_wait_s=0.2).answer.max_batch == 2


def test_two_searches_for_more_than_half_of_the_card_each_both_end_right(found: SearchResult, tmp_path: Path) -> None:
    limit = int(0.55 * found.machine.capacity_bytes)
    argv = [sys.executable, "-m", "autotune", "max-batch", str(ASSETS / "vast.py"), "--device", "cuda"]
    environment = {**os.environ, "AUTOTUNE_STORAGE": str(tmp_path / "unused")}

    def start(name: str) -> subprocess.Popen[str]:
        options = ["--memory-limit", str(limit), "--json", "--storage", str(tmp_path / name)]
        return subprocess.Popen(
            [*argv, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def answer(started: subprocess.Popen[str]) -> int:
        out, err = started.communicate(timeout=300)
        assert started.returncode == 0, err
        return int(json.loads(out)["batch"]["max_batch"])

    alone = answer(start("alone"))
    both = [start(name) for name in ("one", "other")]
    assert [answer(started) for started in both] == [alone, alone]
    probes: list[ProbeResult] = []
    for name in ("one", "other"):
        (record,) = api.searches(str(tmp_path / name))
        probes += api.show(record.id, str(tmp_path / name))[1]
    assert all(probe.outcome is not Outcome.UNRELIABLE for probe in probes)
    large = [p for p in probes if p.form is Form.LONG and p.fits]
    assert all((p.measurement.peak_device_bytes or 0) > 0.9 * limit for p in large if p.batch_size == alone)
    spans = sorted((p.started_at, p.started_at + timedelta(seconds=p.seconds)) for p in probes)
    assert all(end <= begin + timedelta(seconds=0.05) for (_, end), (begin, _) in pairwise(spans)), "never both at once"


def test_the_doctor_sees_the_card_as_torch_and_the_driver_do(found: SearchResult, tmp_path: Path) -> None:
    diagnosis = api.doctor(storage=str(tmp_path / "ledger.sqlite3"))
    assert diagnosis.usable
    facts = {(one.section, one.name): one for one in diagnosis.facts}
    card = facts["devices", "cuda:0"]
    assert card.health is Health.OK and found.machine.device_uuid in card.value and "computes" in card.value
    assert "in use" in facts["devices", "cuda:0 by NVML"].value
    assert facts["devices", "NVML"].value.startswith(f"driver {nvml.driver_version()}")
    assert facts["tenants", "cuda:0"].value
    assert all(one.health is not Health.TROUBLE for one in diagnosis.facts if one.section in ("devices", "PyTorch"))


def test_the_doctor_leaves_a_card_alone_on_which_a_probe_runs(held: DeviceLock, tmp_path: Path) -> None:
    diagnosis = api.doctor(storage=str(tmp_path / "ledger.sqlite3"))
    assert diagnosis.usable
    (lock,) = [one for one in diagnosis.facts if one.section == "locks"]
    assert f"(pid {os.getpid()}, " in lock.value
    (card,) = [one for one in diagnosis.facts if (one.section, one.name) == ("devices", "cuda:0")]
    assert "not tried: a probe runs there" in card.value
