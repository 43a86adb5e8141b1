"""Probes side by side on two devices: the answer of one device, in less time; what each holds is its own."""

from pathlib import Path

import pytest
import torch

from autotune import api
from autotune.model import Form, SearchResult, Settings
from tests.gpu.conftest import ASSETS

pytestmark = pytest.mark.gpu

OPTIONS = {"device": "cuda", "memory_limit": "4GiB", "max_batch": 16, "recommend": False, "tune": True}
FORBIDDEN = ("compile",)  # each would cost half a minute, and is no part of this


@pytest.fixture(scope="module")
def devices() -> int:
    """How many there are; skips below two."""
    number = torch.cuda.device_count()
    if number < 2:
        pytest.skip(f"two CUDA devices are needed, and there are {number}")
    return number


def searched(folder: Path, workers: str | int) -> SearchResult:
    plan = api.plan(str(ASSETS / "paced.py"), forbid=FORBIDDEN, **OPTIONS)  # type: ignore[arg-type]
    return api.search(plan, storage=str(folder / "ledger.sqlite3"), workers=workers)


@pytest.fixture(scope="module")
def alone(devices: int, tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """On one of them, in a worker as well, so that only the number differs."""
    return searched(tmp_path_factory.mktemp("alone"), "cuda:0")


@pytest.fixture(scope="module")
def together(devices: int, tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """On two."""
    return searched(tmp_path_factory.mktemp("together"), 2)


def probing_s(result: SearchResult) -> float:
    """Seconds from the first probe to the end: loading PyTorch before it takes as long with any number of workers."""
    return (result.created - result.probes[0].started_at).total_seconds()


def test_two_devices_find_what_one_finds_in_three_quarters_of_the_time(
    alone: SearchResult, together: SearchResult
) -> None:
    """Eight candidates take 0.6 of the rounds (tests/unit/test_ahead.py). Here rounds are not equally long: the recording,
    which nothing can run beside, and the long probes at the end take more than a candidate."""
    tried = {probe.settings for probe in alone.probes if probe.form is Form.TIMED and probe.settings != Settings()}
    print(f"one device {probing_s(alone):.1f} s, two {probing_s(together):.1f} s; {len(tried)} candidates")
    assert len(tried) >= 3
    assert together.settings.precision is alone.settings.precision
    assert together.answer.max_batch == alone.answer.max_batch
    assert probing_s(together) <= 0.75 * probing_s(alone)


def test_a_search_on_two_devices_holds_for_their_kind_and_each_probe_had_its_device_alone(
    alone: SearchResult, together: SearchResult
) -> None:
    assert alone.machine.device_uuid and not together.machine.device_uuid
    assert together.machine.device_name == alone.machine.device_name
    assert all(probe.fits or not probe.outcome.is_ceiling for probe in together.probes)
    held = [probe.measurement.peak_device_bytes or 0 for probe in together.probes if probe.fits]
    assert max(held) <= together.budget.limit_bytes
    memory = {probe.measurement.others_bytes for probe in together.probes if probe.measurement.others_bytes is not None}
    assert not memory or max(memory) - min(memory) < 1 << 30  # no other probe stood on the same device


def test_one_named_device_is_the_one_that_is_used(devices: int, tmp_path: Path) -> None:
    plan = api.plan(str(ASSETS / "paced.py"), device="cuda", memory_limit="4GiB", max_batch=2, recommend=False)
    found = api.search(plan, storage=str(tmp_path / "ledger.sqlite3"), workers="cuda:1")
    assert found.machine.device_index == 1
    assert found.answer.max_batch == 2
