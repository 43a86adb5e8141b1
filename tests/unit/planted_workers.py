"""Workers without processes: what a worker would say is said at once, by a prober of this process, in the real documents."""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.executors.documents import plain, read, result_document
from autotune.model import Budget, Machine, Question, WorkloadInfo
from autotune.ports import Prober
from tests.contract.searching import BUDGET, planted, workload
from tests.fakes import MACHINE

GPU = replace(MACHINE, device="cuda", device_name="Planted 40", driver_version="550.1")


@dataclass
class PlantedWorker:
    """How one worker behaves, over all its lives."""

    machine: Machine = GPU
    of: WorkloadInfo = field(default_factory=workload)
    budget: Budget = BUDGET
    prober: Prober = field(default_factory=planted)
    dies: Callable[[Question, int], bool] = lambda question, life: False
    """Whether a question ends the life of this number, from 1."""
    opens: Callable[[int], dict[str, Any] | None] = lambda life: None
    """What it says in place of being ready in this life; None = it is."""
    forges: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
    """What becomes of its answers on the way."""
    lives: int = 0
    asked: list[Question] = field(default_factory=list)

    def link(self) -> "PlantedLink":
        """It begins another life."""
        self.lives += 1
        return PlantedLink(self, self.lives)


class PlantedLink:
    """A ``Link`` by its shape."""

    def __init__(self, worker: PlantedWorker, life: int) -> None:
        self._worker = worker
        self._life = life
        self._here, self._there = socket.socketpair()
        self._said: list[dict[str, Any]] = []
        self._over = False

    def fileno(self) -> int:
        return self._here.fileno()

    def send(self, request: dict[str, Any]) -> None:
        request = json.loads(json.dumps(request))
        worker = self._worker
        if request["kind"] == "open":
            ready = {
                "kind": "ready",
                "host": "planted",
                "workload": plain(worker.of),
                "machine": plain(worker.machine),
                "budget": plain(worker.budget),
            }
            self._say(worker.opens(self._life) or ready)
            return
        question = read(Question, request["question"], "a question")
        worker.asked.append(question)
        if worker.dies(question, self._life):
            self._over = True
            self._say({})
            return
        budget = read(Budget, request["budget"], "a budget")
        result = worker.prober.probe(question, budget, request["reserve_bytes"])
        self._say(worker.forges({"kind": "answer", "result": result_document(result)}))

    def receive(self) -> list[dict[str, Any]] | None:
        os.read(self._here.fileno(), 1 << 10)
        if self._over:
            return None
        said, self._said = self._said, []
        return said

    def last_words(self) -> str:
        return "its process was ended by signal 9"

    def hang_up(self) -> None: ...

    def stop(self) -> None:
        self._here.close()
        self._there.close()

    def _say(self, message: dict[str, Any]) -> None:
        self._said.append(json.loads(json.dumps(message)))
        self._there.send(b"!")
