"""What the hook makes of what happens around the steps of a command: memory that runs out unseen, evaluations. The device
is planted."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune.model import Phase
from autotune.probe.command import watch
from autotune.probe.command.orders import HookOrder
from autotune.probe.command.watch import Watch
from autotune.probe.meter import CpuMeter
from autotune.probe.wire import Channel

SIZE = 4
LOADER = SimpleNamespace(_dataset=range(100))


class Ended(BaseException):
    """Stands for the end of the process."""


class Device(CpuMeter):
    """Of which a test says how often its memory ran out."""

    times = 0

    def exhausted(self) -> int:
        return self.times


class Said(Channel):
    """Keeps what was said."""

    def __init__(self) -> None:
        super().__init__(-1, "token")
        self.answers: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: object) -> None:
        if kind == "answer":
            self.answers.append(fields)


class Training:
    """A training under the eyes of the hook, step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int = 2) -> None:
        self.device, self.said = Device(), Said()
        monkeypatch.setattr(watch, "make_meter", lambda device: self.device)
        monkeypatch.setattr(os, "_exit", self._end)
        order = HookOrder(roots={}, pipe="", token="", trouble="", batch_size=SIZE, device="cpu", steps=steps)
        self.watch = Watch(order, self.said)
        self.watch.begin()
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.watch.made(self.optimizer)

    def _end(self, code: int) -> None:
        raise Ended(code)

    def fetch(self) -> None:
        self.watch.before_batch()
        self.watch.after_batch(LOADER, torch.zeros(SIZE, 3))

    def whole_step(self) -> None:
        self.fetch()
        self.backward()
        self.step()

    def evaluate(self, loader: bool) -> None:
        self.model.eval()
        with torch.no_grad():
            if loader:
                self.fetch()
            self.model(torch.zeros(SIZE, 3))
        self.model.train()

    def backward(self) -> None:
        loss = self.model(torch.zeros(SIZE, 3)).sum()
        with self.watch.backward(loss):
            loss.backward()

    def step(self, exhausted: int = 0) -> None:
        self.watch.before_step(self.optimizer)
        self.optimizer.step()
        self.device.times += exhausted
        self.watch.after_step(self.optimizer)


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Training:
    """One whose first step is done."""
    training = Training(monkeypatch)
    training.whole_step()
    return training


def failed(training: Training) -> tuple[Any, Any, Any]:
    """What the one answer says was raised, and where."""
    (answer,) = training.said.answers
    return answer["raised"][0]["type"], answer["phase"], answer["step"]


def test_memory_that_ran_out_in_a_batch_that_was_left_is_an_error_that_was_caught(training: Training) -> None:
    training.fetch()
    training.device.times += 1
    with pytest.raises(Ended, match="1"):
        training.fetch()
    assert failed(training) == ("autotune.probe.command.watch.CaughtOutOfMemory", "forward", 2)


def test_memory_that_ran_out_in_a_step_of_the_optimizer_that_did_not_end_is_one_too(training: Training) -> None:
    training.fetch()
    training.backward()
    training.watch.before_step(training.optimizer)
    training.device.times += 1
    with pytest.raises(Ended, match="1"):
        training.fetch()
    assert failed(training) == ("autotune.probe.command.watch.CaughtOutOfMemory", "optimizer", 2)


@pytest.mark.parametrize("when", ["forward", "backward", "optimizer"])
def test_memory_that_ran_out_in_a_batch_that_was_trained_on_is_what_pytorch_copes_with(
    training: Training, when: str
) -> None:
    training.fetch()
    training.device.times += when == "forward"
    training.backward()
    training.device.times += when == "backward"
    with pytest.raises(Ended, match="0"):
        training.step(exhausted=when == "optimizer")
    assert training.device.times == 1
    (answer,) = training.said.answers
    assert "raised" not in answer
    assert answer["measurement"]["steps_executed"] == 2


def test_a_batch_that_was_left_without_memory_running_out_is_none_of_the_tools_business(training: Training) -> None:
    training.device.times += 1  # before it came
    training.fetch()
    training.fetch()
    training.backward()
    with pytest.raises(Ended, match="0"):
        training.step()
    assert "raised" not in training.said.answers[0]


@pytest.mark.parametrize("loader", [True, False])
@pytest.mark.parametrize(("evaluates_before", "timed"), [((), 4), ((3,), 3), ((2, 4), 2), ((2, 3, 4, 5), 4)])
def test_the_time_of_a_step_is_without_the_evaluation_before_it_unless_there_is_always_one(
    monkeypatch: pytest.MonkeyPatch, evaluates_before: tuple[int, ...], timed: int, loader: bool
) -> None:
    training = Training(monkeypatch, steps=5)
    with pytest.raises(Ended, match="0"):
        for number in range(1, 6):
            if number in evaluates_before:
                training.evaluate(loader)
            training.whole_step()
    (answer,) = training.said.answers
    assert answer["measurement"]["steps_executed"] == 5
    assert len(answer["measurement"]["step_seconds"]) == timed
    assert answer["measurement"]["evaluated"] is bool(evaluates_before)


def test_a_model_that_is_called_in_evaluation_mode_without_gradients_evaluates_until_it_trains_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(monkeypatch)
    seen = training.watch._recorder
    assert seen is not None
    training.evaluate(loader=False)
    phases = [seen.phase]
    training.model(torch.zeros(SIZE, 3))
    phases.append(seen.phase)
    with torch.no_grad():  # as of one network that makes samples for the other
        training.model(torch.zeros(SIZE, 3))
    phases.append(seen.phase)
    assert phases == [Phase.EVALUATE, Phase.FORWARD, Phase.FORWARD]


def test_a_closure_that_is_called_several_times_a_step_trains_on_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch)
    with pytest.raises(Ended, match="0"):
        for _ in range(2):
            training.watch.before_step(training.optimizer)
            for _ in range(5):
                training.backward()
            training.watch.after_step(training.optimizer)
    (answer,) = training.said.answers
    assert answer["measurement"]["steps_executed"] == 2
    assert answer["measurement"]["micro_batches"] == 1
