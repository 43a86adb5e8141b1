"""What the doctor says of machines and installations that are planted, broken ones most of all."""

import os
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from autotune import api
from autotune.front.doctor import ledger_fact
from autotune.model import Fact, Health, Seen, SeenDevice
from autotune.probe import doctor, installation, nvml, sight
from autotune.probe.device_lock import DeviceLock
from autotune.probe.facts import fact
from autotune.probe.visible import Card
from autotune.units import GIB, MIB

GOLDEN = Path(__file__).parents[1] / "contract" / "golden"
CARD = Card(uuid="GPU-aaaa", name="NVIDIA H200")
DEVICE = SeenDevice(
    index=0,
    name="NVIDIA H200, compute capability 9.0",
    uuid="aaaa",
    capacity_bytes=140 * GIB,
    free_bytes=139 * GIB,
    unified=False,
    computes=True,
)
SEEN = Seen(cpu_computes=True, cuda_version="12.8", devices=(DEVICE,))


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One large card that NVML knows, two tenants on it, locks of the test's own."""
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(nvml, "driver_version", lambda: "580.1")
    monkeypatch.setattr(nvml, "trouble", lambda uuid, capacity=None: "")
    monkeypatch.setattr(nvml, "capacity_bytes", lambda uuid: 141 * GIB)
    monkeypatch.setattr(nvml, "used_bytes", lambda uuid: GIB)
    monkeypatch.setattr(nvml, "tenants", lambda uuid: ((os.getpid(), GIB), (1 << 22, None)))


def told(facts: list[Fact], section: str, name: str) -> Fact:
    (found,) = [one for one in facts if (one.section, one.name) == (section, name)]
    return found


def test_a_device_is_told_by_pytorch_by_nvml_and_with_its_tenants() -> None:
    facts = doctor.devices(SEEN, [CARD])
    assert told(facts, "devices", "NVML").value == "driver 580.1; NVIDIA H200"
    device = told(facts, "devices", "cuda:0")
    assert "UUID aaaa; 140 GiB, 139 GiB free; computes" in device.value and device.health is Health.OK
    assert told(facts, "devices", "cuda:0 by NVML").value == "141 GiB, 1 GiB in use"
    tenants = told(facts, "tenants", "cuda:0").value
    assert tenants.startswith(f"pid {os.getpid()} {psutil.Process().name()} (") and tenants.endswith(
        f"pid {1 << 22}, bytes not told"
    )


def test_c25_without_nvml_devices_are_told_all_the_same_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "driver_version", lambda: "")
    monkeypatch.setattr(nvml, "missing", lambda: "nvidia-ml-py is not installed")
    monkeypatch.setattr(nvml, "trouble", lambda uuid, capacity=None: "nvidia-ml-py is not installed")
    monkeypatch.setattr(nvml, "tenants", lambda uuid: None)
    facts = doctor.devices(SEEN, [])
    library = told(facts, "devices", "NVML")
    assert (library.health, library.hint) == (Health.NOTE, "pip install nvidia-ml-py")
    assert "PyTorch's own figures stand in for it" in told(facts, "devices", "cuda:0 by NVML").value
    assert told(facts, "tenants", "cuda:0").value == "not told"
    assert all(one.health is not Health.TROUBLE for one in facts)


def test_a_device_that_does_not_compute_is_trouble() -> None:
    trouble = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    broken = replace(DEVICE, computes=False, trouble=trouble)
    device = told(doctor.devices(replace(SEEN, devices=(broken,)), [CARD]), "devices", "cuda:0")
    assert device.health is Health.TROUBLE and trouble in device.value and "pytorch.org" in device.hint


@pytest.mark.parametrize(("cuda_version", "cure"), [("", "pytorch.org/get-started"), ("12.8", "update the driver")])
def test_a_card_that_only_the_driver_sees_is_trouble_with_the_cure_that_fits(cuda_version: str, cure: str) -> None:
    facts = doctor.devices(replace(SEEN, devices=(), cuda_version=cuda_version), [CARD])
    found = told(facts, "devices", "CUDA")
    assert found.value == "the driver lists 1, PyTorch sees none"
    assert found.health is Health.TROUBLE and cure in found.hint


def test_cards_that_were_hidden_on_purpose_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    facts = doctor.devices(replace(SEEN, devices=()), [CARD])
    assert told(facts, "devices", "CUDA").value == "none; searches run on the CPU"


def test_a_device_on_which_a_probe_runs_is_left_alone_and_its_holder_is_told(tmp_path: Path) -> None:
    holder = DeviceLock("aaaa", tmp_path)
    assert holder.take()
    with doctor.standing_back([CARD]) as (busy, facts):
        assert busy == [CARD.uuid]
        assert f"held by {holder.holder().text}" in facts[0].value  # type: ignore[union-attr]
    holder.release()
    with doctor.standing_back([CARD]) as (busy, facts):
        assert (busy, facts[0].health) == ([], Health.OK)
        assert not holder.take()
    holder.release()


def test_where_no_locks_can_be_made_it_is_said_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path / "missing"))
    with doctor.standing_back([CARD]) as (busy, facts):
        assert busy == [] and facts[0].health is Health.TROUBLE and "AUTOTUNE_LOCK_DIR" in facts[0].hint


LOOKS = "import types, sys, os, pathlib; main = "


@pytest.mark.parametrize(
    ("main", "why"),
    [
        ("lambda path, busy: os.kill(os.getpid(), 11)", "a process that loads it was killed by SIGSEGV"),
        ("lambda path, busy: sys.exit(3)", "a process that loads it ended with exit code 3"),
        ("lambda path, busy: 1 / 0", "ZeroDivisionError: division by zero"),
        ("lambda path, busy: pathlib.Path(path).write_text('{}')", "answered in an unknown form"),
        ("lambda path, busy: print('hello')", "ended with exit code 0"),
    ],
)
def test_a_torch_that_breaks_is_one_line(main: str, why: str) -> None:
    found = doctor.look_by_torch([], call=LOOKS + main)
    assert isinstance(found, str) and why in found


def test_a_torch_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TORCH_S", 0.2)
    found = doctor.look_by_torch([], call="import time; main = lambda path, busy: time.sleep(600)")
    assert found == "a process that loads it and starts the devices did not end within 0.2 s"


def test_what_torch_sees_here_comes_from_a_process_of_its_own() -> None:
    found = sight.look()
    assert found.cpu_computes
    assert {one.name for one in found.facts} >= {"built with", "CUDA devices", "threads", "computes on the CPU"}
    assert sight._trouble_computing("cpu", lambda device: 7.0) == "a product of ones came out as 7.0, not 262144"
    assert "RuntimeError" in sight._trouble_computing("nowhere")


def test_what_breaks_while_a_fact_is_looked_for_is_a_fact_itself() -> None:
    def broken() -> str:
        raise KeyError("x" * 1000)

    found = fact("limits", "something", broken)
    assert found.health is Health.NOTE and found.value.startswith("cannot be told: KeyError: 'xxx")
    assert len(found.value) == 300


def test_two_allocator_settings_that_differ_are_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert [one.value for one in doctor.allocator()] == ["PyTorch's default"]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert [one.health for one in doctor.allocator()] == [Health.OK]
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    found = doctor.allocator()
    assert found[-1].health is Health.TROUBLE and found[-1].hint.startswith("unset all but one: unset PYTORCH_")


def test_variables_are_told_without_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TOKEN", "geheim")
    monkeypatch.setenv("TORCH_HOME", "https://anna:geheim@host/hub")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    facts = {one.name: one.value for one in doctor.environment()}
    assert (facts["NCCL_TOKEN"], facts["TORCH_HOME"]) == ("***", "https://***@host/hub")
    assert facts["CUDA_VISIBLE_DEVICES"] == "(empty)" and "SOMETHING_ELSE" not in facts


@pytest.mark.parametrize(("size", "health"), [(64 * MIB, Health.NOTE), (GIB, Health.OK), (None, Health.OK)])
def test_little_shared_memory_is_worth_a_note(
    monkeypatch: pytest.MonkeyPatch, size: int | None, health: Health
) -> None:
    monkeypatch.setattr(doctor, "shared_memory_bytes", lambda: size)
    found = told(doctor.limits(), "limits", "shared memory")
    assert found.health is health and bool(found.hint) is (health is Health.NOTE)


def test_another_distribution_with_a_package_of_the_name_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"autotune": ["autotune-torch", "llm-autotune"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)
    found = told(installation.collisions(), "command", "package")
    assert found.health is Health.TROUBLE and "llm-autotune" in found.value
    assert found.hint.startswith("pip uninstall -y llm-autotune && pip install --force-reinstall")
    owners["autotune"] = ["autotune_torch"]
    assert told(installation.collisions(), "command", "package").health is Health.OK


def entry(name: str, value: str) -> Any:
    return SimpleNamespace(value=value, dist=SimpleNamespace(name=name))


@pytest.mark.parametrize(
    ("script", "others", "health", "value"),
    [
        ("from autotune.cli.app import main", [], Health.OK, "/autotune"),
        ("from llm_autotune.cli import main", ["llm-autotune"], Health.TROUBLE, "is another program's of llm-autotune"),
        ("echo", [], Health.TROUBLE, "is another program's"),
        (
            "from autotune.cli.app import main",
            ["llm-autotune"],
            Health.NOTE,
            "may be overwritten by the one of llm-autotune",
        ),
        (None, [], Health.NOTE, "'autotune' is not on PATH"),
    ],
)
def test_a_command_of_the_name_is_ours_or_another_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, others: list[str], health: Health, value: str
) -> None:
    if script is not None:
        (tmp_path / "autotune").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "autotune").chmod(0o755)
    entries = [entry("autotune-torch", "autotune.cli.app:main"), *(entry(name, "cli:main") for name in others)]
    monkeypatch.setattr(metadata, "entry_points", lambda **_: entries)
    found = told(installation.collisions(str(tmp_path)), "command", "script")
    assert (found.health, found.value.endswith(value)) == (health, True)
    assert (f"{sys.executable} -m autotune" in found.hint) is (health is not Health.OK)


def test_what_is_missing_comes_with_the_command_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: ["optuna>=5,<6", "pytest; extra == 'dev'"])
    facts = installation.versions()
    assert told(facts, "versions", "optuna").hint == "pip install optuna"
    assert all(one.name != "pytest" for one in facts)
    assert told(facts, "versions", "autotune").value.startswith("not installed: a checkout in ")
    optional = told(installation.optional(), "optional", "psycopg")
    assert optional.hint == 'pip install "autotune-torch[postgres]"' and optional.health is Health.OK


@pytest.mark.parametrize(
    ("seen", "ledger", "usable"),
    [
        (SEEN, "ledger.sqlite3", True),
        (replace(SEEN, cpu_computes=False), "ledger.sqlite3", True),
        (replace(SEEN, cpu_computes=False, devices=()), "ledger.sqlite3", False),
        ("ImportError: libcudart.so.12", "ledger.sqlite3", False),
        (SEEN, "folder", False),
        (SEEN, "redis://:geheim@host/0", False),
    ],
)
def test_usable_is_what_can_load_torch_compute_and_keep_a_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: Seen | str, ledger: str, usable: bool
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(doctor, "look_by_torch", lambda busy: seen)
    monkeypatch.setattr(nvml, "cards", lambda: (CARD,))
    found = api.doctor(storage=ledger if "://" in ledger else str(tmp_path / ledger))
    assert found.usable is usable
    assert all("geheim" not in one.value for one in found.facts)
    assert not (tmp_path / "ledger.sqlite3").exists(), "looking makes nothing"


def test_a_ledger_of_an_older_version_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite3"
    with sqlite3.connect(ledger) as connection:
        connection.executescript((GOLDEN / "schema_0001.sql").read_text())
    connection.close()
    before = ledger.read_bytes()
    found = ledger_fact(str(ledger))
    assert found.value.endswith("schema 0001, of an older autotune; the next search brings it up to date")
    assert ledger.read_bytes() == before


def test_a_new_ledger_is_told_with_its_searches(tmp_path: Path) -> None:
    from autotune.storage.store import Store

    look: Callable[[], Fact] = lambda: ledger_fact(str(tmp_path / "ledger.sqlite3"))
    assert look().value.endswith("none yet; the first search makes it")
    with Store.open(str(tmp_path / "ledger.sqlite3")):
        pass
    assert look().value.endswith(", 0 searches") and look().health is Health.OK
