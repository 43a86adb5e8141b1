"""A device whose memory is the host's, planted: what counts as others', as this job's, and as free."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from autotune.model import WorkloadInfo
from autotune.probe import meter, nvml, others
from autotune.probe.devices import has_unified_memory
from autotune.probe.meter import CudaMeter
from autotune.probe.others import with_others
from autotune.units import GIB
from tests.cli.results import WORKLOAD
from tests.unit.test_budget import machine

TOTAL = 120 * GIB


class Planted:
    """The driver counts page cache as used, the kernel knows better; NVML does not support such devices."""

    def __init__(self, patch: pytest.MonkeyPatch, *, unified: bool) -> None:
        self.available, self.free, self.reserved = 100 * GIB, 60 * GIB, 0
        properties = SimpleNamespace(is_integrated=int(unified))
        patch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        patch.setattr(torch.cuda, "mem_get_info", lambda device=None: (self.free, TOTAL))
        patch.setattr(torch.cuda, "memory_reserved", lambda device=None: self.reserved)
        patch.setattr(meter, "available_bytes", lambda: self.available)
        patch.setattr(others, "available_bytes", lambda: self.available)


def test_what_the_host_has_in_use_is_others_and_what_is_taken_later_is_this_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = Planted(monkeypatch, unified=True)
    cuda = CudaMeter(torch.device("cuda:0"))
    cuda.leave_out(None, planted.available)
    assert cuda.others_bytes == 20 * GIB
    assert cuda.non_pytorch() == 0, "page cache is nobody's"
    planted.available, planted.reserved, planted.free = 89 * GIB, 10 * GIB, 0
    assert cuda.non_pytorch() == GIB


def test_a_card_with_memory_of_its_own_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(monkeypatch, unified=False)
    cuda = CudaMeter(torch.device("cuda:0"))
    cuda.leave_out(59 * GIB, planted.available)
    assert (cuda.others_bytes, cuda.non_pytorch()) == (59 * GIB, GIB)


@pytest.mark.parametrize("unified", [True, False])
def test_the_device_says_of_what_kind_it_is(monkeypatch: pytest.MonkeyPatch, unified: bool) -> None:
    Planted(monkeypatch, unified=unified)
    assert has_unified_memory(0) is unified
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    assert not has_unified_memory(0), "an older PyTorch does not say"


def described(unified: bool) -> WorkloadInfo:
    return with_others(WORKLOAD, replace(machine(), unified=unified, device_uuid="aaaa"))


def test_a_note_says_where_the_figures_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(monkeypatch, unified=True)
    monkeypatch.setattr(nvml, "trouble", lambda uuid, capacity=None: "Not Supported")
    own, shared = described(False), described(True)
    assert own.device_used_bytes == TOTAL - planted.free and "Not Supported" in own.notes[-1]
    assert shared.device_used_bytes == TOTAL - planted.available
    assert shared.notes[-1].startswith("the device's memory is the host's")
    monkeypatch.setattr(nvml, "trouble", lambda uuid, capacity=None: "")
    assert described(False) == WORKLOAD
