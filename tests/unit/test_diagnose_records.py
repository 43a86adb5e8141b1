"""Observers of a diagnosis where there is no CUDA: what they say instead, and the allocator's own record, planted."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from autotune.diagnose.composition.blocks import Event, Sighting
from autotune.diagnose.composition.records import AllocatorRecord, Unrecordable, address_of, events_of
from autotune.diagnose.fragmentation.examiner import STEPS, FragmentationExaminer
from autotune.diagnose.out_of_memory import OutOfMemoryWatch
from autotune.diagnose.snapshots import SnapshotExaminer
from autotune.model import NO_CUDA, NO_FOLDER, NO_POOL, MemoryKind
from autotune.workload.task import Workload
from tests.unit.stepped import HELD, Stepped

CUDA = torch.device("cuda", 0)


def training() -> Stepped:
    return Stepped(nn.Linear(4, 4), lambda: torch.ones(2, 4), lambda model, batch: model(batch).sum())


@pytest.fixture
def snapshot(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the planted allocator says; ``events`` counts its allocations and frees."""
    said: dict[str, Any] = {"segments": [], "device_traces": [[]], "events": 0}
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *args, **kwargs: None)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: said)
    monkeypatch.setattr(
        torch.cuda.memory,
        "memory_stats_as_nested_dict",
        lambda device: {"active": {"all": {"allocated": said["events"], "freed": 0}}},
    )
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", None, raising=False)
    yield said


def entry(action: str, address: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size}


def test_blocks_in_use_are_known_from_the_start_and_events_follow(snapshot: dict[str, Any]) -> None:
    blocks = [
        {"state": "active_allocated", "size": 1024, "requested_size": 1000},
        {"state": "inactive", "size": 512},
        {"state": "active_pending_free", "size": 2048, "requested_size": 2000},
    ]
    snapshot["segments"] = [
        {"device": 0, "address": 0x1000, "blocks": blocks},
        {"device": 1, "address": 1, "blocks": blocks},
    ]
    snapshot["events"] = 7
    record = AllocatorRecord(CUDA)
    assert record.before == {0x1000: 1000, 0x1000 + 1536: 2000}
    assert record.position() == 0
    snapshot["events"] = 9
    snapshot["device_traces"] = [
        [
            entry("alloc", 5, 300),
            entry("free_requested", 5, 300),
            entry("snapshot", 0, 0),
            entry("free_completed", 5, 300),
        ]
    ]
    assert record.finish() == ([Event(5, 300), Event(5, 0)], [])


def test_what_clearing_the_workspaces_frees_was_one_of_cublas(
    snapshot: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def clear() -> None:
        snapshot["device_traces"][0].append(entry("free_completed", 9, 4096))
        snapshot["events"] += 1

    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", clear, raising=False)
    record = AllocatorRecord(CUDA)
    snapshot["device_traces"][0].append(entry("alloc", 5, 300))
    snapshot["events"] += 1
    events, held = record.finish()
    assert events == [Event(5, 300), Event(9, 0)]
    assert held == [Sighting(1, 9, MemoryKind.WORKSPACE, "cuBLAS")]


def test_a_record_that_lost_events_is_none(snapshot: dict[str, Any]) -> None:
    record = AllocatorRecord(CUDA)
    snapshot["events"] = 3
    snapshot["device_traces"] = [[entry("alloc", 5, 300)]]
    with pytest.raises(Unrecordable, match="3 events happened and 1 were recorded"):
        record.finish()


@pytest.mark.usefixtures("snapshot")
def test_another_allocator_or_another_form_of_the_record_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", dict)
    with pytest.raises(Unrecordable, match="another form"):
        AllocatorRecord(CUDA)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    with pytest.raises(Unrecordable, match="cudaMallocAsync"):
        AllocatorRecord(CUDA)


def test_other_entries_of_the_record_are_no_events() -> None:
    assert events_of([entry("segment_alloc", 1, 2), entry("oom", 1, 2), entry("free_requested", 1, 2)]) == []


def test_a_tensor_without_memory_of_its_own_has_no_address() -> None:
    assert address_of(torch.eye(3).to_sparse()) == 0
    assert address_of(torch.empty(0)) == 0
    whole = torch.ones(6)
    assert address_of(whole[3:]) == whole.data_ptr()


def observer(monkeypatch: pytest.MonkeyPatch, keep: Callable[..., dict[str, object]]) -> tuple[OutOfMemoryWatch, Any]:
    attached: list[Any] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attached.append, raising=False)
    watch = OutOfMemoryWatch(CUDA, keep)
    return watch, attached[0]


@pytest.mark.usefixtures("snapshot")
def test_the_last_out_of_memory_of_the_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def keep(snapshot: object, index: int) -> dict[str, object]:
        seen.append(index)
        return {"number": len(seen)}

    watch, call = observer(monkeypatch, keep)
    assert watch.kept is None
    call(0, 1, 2, 3)
    call(1, 1, 2, 3)
    call(0, 1, 2, 3)
    assert watch.kept == {"number": 2} and seen == [0, 0] and not watch.trouble


@pytest.mark.usefixtures("snapshot")
def test_an_observer_that_fails_does_not_hide_the_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(snapshot: object, index: int) -> dict[str, object]:
        raise OSError("no space left")

    watch, call = observer(monkeypatch, full)
    call(0, 1, 2, 3)
    assert watch.kept is None and "no space left" in watch.trouble


def test_a_pytorch_without_observers_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_cuda_attach_out_of_memory_observer", raising=False)
    assert OutOfMemoryWatch(CUDA, lambda snapshot, index: {}).trouble


def test_fragmentation_takes_its_steps_on_lengths_as_they_vary() -> None:
    varying = training()
    varying.workload = cast(Workload, SimpleNamespace(varies=True))
    examiner = FragmentationExaminer()
    examiner.begin(torch.device("cpu"))
    examiner.run(varying)
    assert len(varying.shares) == STEPS and varying.shares[:4] == [0.36, 0.81, 1.0, 0.74]
    facts = examiner.facts()
    assert facts["steps"] == STEPS and facts["note"] == NO_POOL
    assert (facts["peak_allocated_bytes"], facts["peak_reserved_bytes"]) == (2 * HELD, 3 * HELD)
    constant = training()
    FragmentationExaminer(3).run(constant)
    assert constant.shares == [1.0, 1.0, 1.0]


def test_a_step_that_fails_is_not_counted_as_taken() -> None:
    failing = training()
    failing.step()

    def fail(share: float = 1.0) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    failing.step = fail  # type: ignore[method-assign]
    examiner = FragmentationExaminer()
    examiner.begin(torch.device("cpu"))
    with pytest.raises(torch.OutOfMemoryError):
        examiner.run(failing)
    facts = examiner.facts()
    assert facts["steps"] == 0 and facts["retries_per_step"] == ()


def test_no_snapshot_without_cuda_or_a_folder() -> None:
    for output, why in (("/out", NO_CUDA), ("", NO_CUDA)):
        examiner, idle = SnapshotExaminer(output), training()
        examiner.begin(torch.device("cpu"))
        examiner.run(idle)
        assert examiner.facts() == {"peak": "", "out_of_memory": "", "note": why, "unwritten": ""} and idle.shares == []
    nowhere = SnapshotExaminer("")
    nowhere.begin(CUDA)
    assert nowhere.facts()["note"] == NO_FOLDER


def test_a_disk_that_is_full_is_told_as_that_and_leaves_no_half_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def dump(name: str) -> None:
        Path(name).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", None)

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    examiner = SnapshotExaminer(str(tmp_path))
    examiner.run(training())
    facts = examiner.facts()
    assert (facts["peak"], list(tmp_path.iterdir())) == ("", [])
    path = tmp_path / f"peak-batch-{training().batch_size}.pickle"
    assert facts["unwritten"] == f"{path} could not be written: No space left on device"
