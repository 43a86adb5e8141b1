"""Whole searches without probe processes: the real session, strategy and ledger, and a prober that answers at once.

As a program, ``python -m tests.contract.searching``: ``run URL NAME`` makes one search; ``die URL NAME`` makes one, and
dies by SIGKILL at every point where it touches the ledger; ``many URL COUNT`` makes COUNT searches in each of
``PROCESSES`` processes at once.
"""

import gc
import itertools
import os
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory

from autotune.model import Budget, Form, Machine, Plan, ProbeResult, Question, SearchResult, Source, WorkloadInfo
from autotune.ports import Prober
from autotune.session import Session
from autotune.storage.address import parse_address
from autotune.storage.engine import make_engine
from autotune.storage.store import Store
from tests.fakes import MACHINE, WORKLOAD, FakeProber

GIB = 1 << 30
PER_SAMPLE_BYTES = 64 << 20
PROCESSES = 8
STEPS = 7
"""Of a life that is killed: coming to the ledger and leaving it count one each. A start takes four, a probe two, then
comes the end, so that the longest life ends there or in its second probe."""
LARGEST = 15
"""What fits the budget of these searches."""
BUDGET = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=16 * GIB, others_bytes=0, headroom_bytes=0)


@dataclass
class Notes:
    """An observer that remembers what was said."""

    said: list[str] = field(default_factory=list)

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None: ...

    def asked(self, question: Question, number: int) -> None: ...

    def answered(self, result: ProbeResult, number: int) -> None: ...

    def note(self, text: str) -> None:
        self.said.append(text)


def plan(name: str = "planted.py") -> Plan:
    """Of a workload of this name."""
    return Plan(source=Source(ref=name, directory="/home/me"), memory_limit_bytes=GIB)


def workload(name: str = "planted.py") -> WorkloadInfo:
    """A small model, another one for another name."""
    return replace(WORKLOAD, ref=name, fingerprint=name)


def planted() -> FakeProber:
    """A prober that fits ``LARGEST`` and not more."""
    return FakeProber(fixed_bytes=GIB - LARGEST * PER_SAMPLE_BYTES - (4 << 20), per_sample_bytes=PER_SAMPLE_BYTES)


def search(
    store: Store,
    prober: Prober,
    *,
    notes: Notes | None = None,
    fresh: bool = False,
    asked: Plan | None = None,
    of: WorkloadInfo | None = None,
    machine: Machine = MACHINE,
    guess: int | None = None,
) -> SearchResult:
    """Search as ``api`` does after it has looked at workload and machine."""
    asked = asked or plan()
    now, of = time.monotonic(), of or workload(asked.source.ref)
    session = Session(asked, store, prober, notes or Notes(), of, machine, BUDGET, now, guess)
    return session.run(fresh=fresh)


def asked_for(prober: FakeProber) -> list[tuple[int, Form]]:
    """What a prober was asked, in order."""
    return [(question.batch_size, question.form) for question in prober.asked]


def undisturbed() -> list[tuple[int, Form]]:
    """What a search asks that nothing disturbs, without a ledger."""
    from autotune.composing import CPU_NOISE_BYTES
    from autotune.search.batch import BatchFinder
    from tests.fakes import drive

    prober = planted()
    drive(BatchFinder(noise_bytes=CPU_NOISE_BYTES), prober, BUDGET)
    return asked_for(prober)


class Mortal:
    """A store that kills its process at the n-th time somebody comes to it to write, or leaves with it done."""

    def __init__(self, store: Store, n: int) -> None:
        self._store = store
        self._left = n

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)
        if name not in ("begin", "reopen", "renew", "add_probe", "finish", "close_orphans"):
            return found

        def call(*args: object, **named: object) -> object:
            self._step()
            result = found(*args, **named)
            self._step()
            return result

        return call

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def import_all(url: str) -> None:
    """Import what a search imports late, so that not every child does."""
    with TemporaryDirectory() as folder, Store.open(f"{folder}/ledger.db") as store:
        search(store, planted())
        search(store, planted())
    make_engine(parse_address(url)).dispose()
    gc.freeze()


def die(url: str, name: str) -> int:
    """Search in one child after another, each killed a step later than the one before in a cycle, until one is through.

    Returns:
        How many were killed.
    """
    import_all(url)
    for deaths in itertools.count():
        child = os.fork()
        if child == 0:
            with Store.open(url) as store:
                search(Mortal(store, deaths % STEPS), planted(), asked=plan(name))  # type: ignore[arg-type]
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            return deaths if os.WEXITSTATUS(status) == 0 else -1
    raise AssertionError("unreachable")


def many(url: str, count: int) -> list[int]:
    """Search in several processes that all begin at once; returns their exit codes."""
    import_all(url)
    waiting, go = os.pipe()
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(waiting, 1)  # ends when the parent closes its end
            with Store.open(url) as store:
                for seed in range(count):
                    search(store, planted(), asked=replace(plan(f"worker{number}.py"), seed=seed))
            os._exit(0)
        children.append(child)
    os.close(go)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    _, _what, _url, _word = sys.argv
    if _what == "die":
        print(die(_url, _word))
    elif _what == "many":
        print(many(_url, int(_word)))
    else:
        with Store.open(_url) as _store:
            search(_store, planted(), asked=plan(_word))
