"""What a guard sees of a training's memory, how seldom it looks, and what it does at the limit."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import autotune
from autotune.errors import EnvironmentTrouble, MemoryStop, MemoryWarning
from autotune.runtime import Guard, load_checkpoint
from autotune.runtime.log import Log
from autotune.runtime.readings import HostMeter, default_limit, make_meter
from autotune.runtime.watch import AGAIN_AFTER_S
from autotune.units import GIB, MIB
from tests.unit.planted_trainings import CAPACITY, Clock, Failing, PlantedMeter, make_batch, make_model, mean_square


@pytest.fixture
def meter() -> PlantedMeter:
    return PlantedMeter()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def only_expected_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def guarded(meter: PlantedMeter, **options: Any) -> Guard:
    model = make_model()
    options = {"every": 1, "least_seconds": 0.0, **options}
    return autotune.guard(model, torch.optim.SGD(model.parameters(), lr=0.1), meter=meter, **options)


def steps(guard: Guard, number: int) -> None:
    for _ in range(number):
        guard.after_step()


def lines(path: Path, event: str) -> list[dict[str, Any]]:
    return [line for text in path.read_text().splitlines() if (line := json.loads(text))["event"] == event]


# --- looking ----------------------------------------------------------------------------------------------------------


def test_the_device_is_asked_every_so_many_steps_and_no_more_often_than_every_so_many_seconds(
    meter: PlantedMeter, clock: Clock
) -> None:
    guard = guarded(meter, every=10, least_seconds=0.5, clock=clock)
    for _ in range(1000):
        clock.now += 0.001
        guard.after_step()
    assert meter.asked == 1 + 1  # the first step, and one after half a second; the next is due after another
    clock.now += 10
    guard.after_step()
    assert meter.asked == 3
    clock.now += 10
    steps(guard, 9)
    assert meter.asked == 3
    guard.after_step()
    assert meter.asked == 4


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what PyTorch computes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_guarded_step_computes_two_small_operations_more_and_waits_for_nothing(meter: PlantedMeter) -> None:
    def plain() -> list[str]:
        model, batch = make_model(), make_batch(mean_square, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Counting() as alone:
            optimizer.zero_grad()
            torch.autograd.backward(mean_square(model, batch))
            optimizer.step()
        names: list[str] = alone.names
        return names

    model, batch = make_model(), make_batch(mean_square, 8)
    guard = autotune.guard(model, torch.optim.SGD(model.parameters(), lr=0.1), meter=meter)
    with Counting() as counting:
        guard.train_step(mean_square, [batch])
    more = sorted(set(counting.names) - set(plain()))
    assert len(counting.names) - len(plain()) <= 3, "the loss is let go of its graph, copied, and divided"
    assert not any("item" in name or "_local_scalar_dense" in name for name in more)


def test_the_log_has_a_line_a_look_and_a_summary(meter: PlantedMeter, clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "made" / "memory.jsonl"
    guard = guarded(meter, every=2, log=path, clock=clock, splittable=True)

    def train() -> None:
        for number in range(5):
            clock.now += 0.25
            meter.retries = min(number, 2)
            guard.train_step(Failing(mean_square, 4), [make_batch(mean_square, 8)])
        guard.close()

    with pytest.warns(MemoryWarning, match="step 3: 2 allocator retries"):
        train()
    seen = lines(path, "memory")
    assert [line["step"] for line in seen] == [1, 3, 5]
    assert seen[1] | {"time": 0} == {
        "event": "memory",
        "time": 0,
        "step": 3,
        "allocated_bytes": 5 * GIB,
        "reserved_bytes": 9 * GIB,
        "device_used_bytes": 10 * GIB,
        "device_capacity_bytes": CAPACITY,
        "host_rss_bytes": GIB,
        "retries": 2,
        "step_seconds": 0.25,
    }
    (failure,) = lines(path, "out_of_memory")
    assert (failure["step"], failure["failed_at"]) == (1, 8)
    assert failure["proposed"] == {"micro_batch": 4, "accumulate": 2}
    (summary,) = lines(path, "summary")
    assert (summary["steps"], summary["micro_batches_split"], summary["retries"]) == (5, 5, 2)
    assert summary["proposal"] == {"micro_batch": 4, "accumulate": 2}


def test_a_log_that_the_disk_refuses_is_told_once_and_training_goes_on(
    meter: PlantedMeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Log, event: str, step: int, **fields: object) -> None:
        monkeypatch.setattr(Log, "write", lambda *args, **kwargs: None)
        raise EnvironmentTrouble("cannot write the log a.jsonl: No space left on device", hint="make room")

    monkeypatch.setattr(Log, "write", full)
    with (
        guarded(meter, log=tmp_path / "a.jsonl") as guard,
        pytest.warns(MemoryWarning, match="No space left on device; training goes on without") as caught,
    ):
        steps(guard, 3)
    assert (len(caught), guard.step) == (1, 3)


def test_a_full_disk_closes_the_log_and_says_which() -> None:
    log = Log(Path("/dev/full"))
    with pytest.raises(EnvironmentTrouble, match="cannot write the log /dev/full: No space left on device"):
        log.write("memory", 1)
    log.write("memory", 2)
    log.close()


def test_a_log_in_a_folder_that_is_a_file_is_refused_at_once(meter: PlantedMeter, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentTrouble, match="cannot write the log"):
        guarded(meter, log=tmp_path / "file" / "log.jsonl")


# --- the limit --------------------------------------------------------------------------------------------------------


def test_above_the_limit_a_checkpoint_is_written_and_training_goes_on(
    meter: PlantedMeter, clock: Clock, tmp_path: Path
) -> None:
    path, log = tmp_path / "emergency.pt", tmp_path / "log.jsonl"
    guard = guarded(meter, limit="70GiB", checkpoint=path, log=log, clock=clock)
    steps(guard, 2)
    assert not path.exists()
    meter.used = 71 * GIB
    with pytest.warns(MemoryWarning) as caught:
        steps(guard, 3)
    assert [str(warning.message).splitlines()[0] for warning in caught] == [
        f"step 3: 71 GiB of 80 GiB in use, above the limit of 70 GiB; checkpoint {path}"
    ]
    assert load_checkpoint(path).step == 3
    assert [line["step"] for line in lines(log, "checkpoint")] == [3]
    clock.now += AGAIN_AFTER_S
    guard.after_step()
    assert load_checkpoint(path).step == 6
    guard.close()
    assert guard.summary().checkpoints == 2 and guard.summary().peak_used_bytes == 71 * GIB


@pytest.mark.parametrize("limit", ["90%", 0.9, 72 * GIB, "72GiB"])
def test_a_limit_is_bytes_or_a_share_and_stops_the_training_where_that_is_asked(
    meter: PlantedMeter, tmp_path: Path, limit: Any
) -> None:
    guard = guarded(meter, limit=limit, on_limit="stop", checkpoint=tmp_path / "emergency.pt")
    meter.used = 72 * GIB
    guard.after_step()
    meter.used += MIB
    with pytest.warns(MemoryWarning), pytest.raises(MemoryStop, match=r"72 GiB of 80 GiB in use, above") as raised:
        guard.after_step()
    assert "step 2" in raised.value.message and "emergency.pt" in raised.value.message
    assert "load_checkpoint" in raised.value.hint
    assert load_checkpoint(tmp_path / "emergency.pt").step == 2


def test_without_a_limit_the_headroom_of_a_search_is_kept_free(meter: PlantedMeter) -> None:
    guard = guarded(meter)
    guard.after_step()
    assert guard.summary().limit_bytes == default_limit(CAPACITY) == CAPACITY - int(0.02 * CAPACITY)
    assert (default_limit(4 * GIB), default_limit(GIB // 2)) == (4 * GIB - 256 * MIB, 384 * MIB)


def test_a_training_does_not_stop_while_its_checkpoint_cannot_be_written(
    meter: PlantedMeter, clock: Clock, tmp_path: Path
) -> None:
    guard = guarded(meter, limit="9GiB", on_limit="stop", checkpoint=tmp_path / "file" / "emergency.pt", clock=clock)
    (tmp_path / "file").rmdir()
    (tmp_path / "file").touch()
    with pytest.warns(MemoryWarning) as caught:
        steps(guard, 3)
    told = [str(warning.message) for warning in caught]
    assert "above the limit of 9 GiB, and cannot write the checkpoint" in told[0]
    assert (len(told), guard.step) == (2, 3)
    (tmp_path / "file").unlink()
    clock.now += AGAIN_AFTER_S
    with pytest.raises(MemoryStop, match="step 4"):
        guard.after_step()


# --- retries and what was certified -----------------------------------------------------------------------------------


class Certified:
    """As much of a Tuned as tells what was certified."""

    accumulate = 1
    scaler = None
    certified_bytes = 8 * GIB


def test_retries_and_more_than_was_certified_are_warned_of(meter: PlantedMeter) -> None:
    guard = guarded(meter, tuned=Certified())
    with pytest.warns(MemoryWarning, match="step 1: the allocator holds 9 GiB, more than the 8 GiB that was certified"):
        guard.after_step()
    meter.retries = 2
    with pytest.warns(MemoryWarning, match="step 2: 2 allocator retries since the training began"):
        guard.after_step()
    steps(guard, 3)
    assert guard.summary().retries == 2


# --- leaks ------------------------------------------------------------------------------------------------------------


def test_c28_losses_that_are_kept_with_their_graph_are_named_with_rate_and_end(
    meter: PlantedMeter, tmp_path: Path
) -> None:
    losses = []

    def keeping(model: Any, batch: Any) -> torch.Tensor:
        losses.append(mean_square(model, batch))
        meter.allocated += MIB
        meter.used += MIB
        return losses[-1]

    log = tmp_path / "log.jsonl"
    guard = guarded(meter, log=log)

    def train() -> None:
        for number in range(70):
            guard.train_step(keeping, [make_batch(mean_square, 4, number)])
        guard.close()

    with pytest.warns(MemoryWarning) as caught:
        train()
    (warning,) = caught
    text = str(warning.message)
    assert "memory grows by 1 MiB a step, over 47 steps (100% of all looks above the earlier ones)" in text
    assert (
        "and if it goes on so, runs out at about step 71,680; 15 losses of earlier steps are kept with their autograd graph"
        in text
    )
    assert text.endswith("keep loss.item() or loss.detach(), not the loss itself")
    (line,) = lines(log, "leak")
    assert (line["bytes_per_step"], line["graphs_kept"], line["ends_at_step"]) == (MIB, 15, 70 * 1024)
    assert guard.summary().growth_bytes_per_step == MIB


@pytest.mark.parametrize("keeps", ["detached", "numbers"])
def test_c28_losses_that_are_kept_without_their_graph_are_no_leak(meter: PlantedMeter, keeps: str) -> None:
    kept: list[object] = []

    def keeping(model: Any, batch: Any) -> torch.Tensor:
        loss = mean_square(model, batch)
        kept.append(loss.detach() if keeps == "detached" else loss.item())
        meter.allocated += 512  # what a block of the allocator holds
        return loss

    guard = guarded(meter)
    for number in range(120):
        guard.train_step(keeping, [make_batch(mean_square, 4, number)])
    assert guard.summary().growth_bytes_per_step is None
    assert guard._graphs_kept() == 0


# --- meters -----------------------------------------------------------------------------------------------------------


def test_the_host_is_read_against_what_is_nearest_to_its_end() -> None:
    reading = make_meter(torch.device("cpu")).read()
    assert reading.allocated_bytes is None and reading.reserved_bytes is None
    assert 0 < reading.used_bytes <= reading.capacity_bytes
    assert reading.held_bytes == reading.host_rss_bytes > 50 * MIB


def test_bytes_on_the_host_are_of_this_process() -> None:
    reading = HostMeter(GIB).read()
    assert (reading.capacity_bytes, reading.used_bytes) == (GIB, reading.host_rss_bytes)
