"""A time budget is wall time of the command, by a planted clock: whatever runs beside, between or before its probes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.errors import TimeRanOut
from autotune.knobs import choices
from autotune.model import Budget, Form, Plan, Precision, ProbeResult, Question, SearchResult, Settings
from autotune.ports import Prober
from autotune.session import Session
from autotune.storage.store import Store
from tests.contract.searching import BUDGET, Notes, plan, planted, workload
from tests.fakes import MACHINE, OUT_OF_MEMORY, Evaluating, Fault
from tests.unit.planted_bench import PlantedBench
from tests.unit.planted_settings import TRAITS, PlantedMachine, space_of

PROBE_S = 5.0
GPU = replace(MACHINE, device="cuda")


@dataclass
class Clock:
    """Only counts."""

    now: Callable[[], float] = lambda: 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The session's."""
    planted = Clock()
    monkeypatch.setattr("autotune.session.time", SimpleNamespace(monotonic=lambda: planted.now()))
    return planted


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "ledger.db")) as opened:
        yield opened


@dataclass
class Lasting:
    """A prober of which every probe lasts as long as it is told, and says that it did."""

    prober: Prober
    lasts: Callable[[Question], float] = lambda question: PROBE_S
    between_s: float = 0.0
    """Gone by before each probe."""
    now: float = 0.0

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        seconds = self.lasts(question)
        self.now += self.between_s + seconds
        return replace(self.prober.probe(question, budget, reserve_bytes), seconds=seconds)


def machine() -> PlantedMachine:
    return PlantedMachine(
        space=space_of(forbid=("compile",)),
        speed={("precision", "tf32"): 0.2, ("precision", "bf16"): 0.5, ("optimizer", "fused"): 0.05},
        memory={("precision", "bf16"): -0.3},
    )


def asked(time_budget_s: float | None) -> Plan:
    space = choices((), (), ("compile",), Settings())
    return replace(plan(), device="cuda", space=space, time_budget_s=time_budget_s)


def searched(
    store: Store, prober: object, time_budget_s: float | None, *, started: float = 0.0, evaluates: bool = False
) -> SearchResult:
    of = replace(workload(), traits=TRAITS, evaluates=evaluates)
    session = Session(asked(time_budget_s), store, prober, Notes(), of, GPU, machine().budget, started)  # type: ignore[arg-type]
    return session.run(fresh=False)


def on_workers(store: Store, clock: Clock, width: int, time_budget_s: float) -> tuple[SearchResult, PlantedBench]:
    bench = PlantedBench(Lasting(machine()), width=width, takes=lambda question: PROBE_S)
    clock.now = lambda: bench.clock
    return searched(store, bench, time_budget_s), bench


def test_workers_that_run_side_by_side_use_the_time_up_together(tmp_path: Path, clock: Clock) -> None:
    probes = []
    for width in (1, 4):
        with Store.open(str(tmp_path / f"{width}.db")) as store:
            found, bench = on_workers(store, clock, width, 60.0)
        assert bench.clock <= 60.0 + PROBE_S
        assert found.answer.settings is not None and found.answer.settings.precision is Precision.BF16
        probes.append(found.probes)
    alone, together = probes
    assert sum(p.seconds for p in alone) <= 60.0 + PROBE_S
    assert sum(p.seconds for p in together) >= 60.0 + 3 * PROBE_S, "four do more in a minute than one"


def test_evaluations_count_as_all_else(store: Store, clock: Clock) -> None:
    """They are looked for beside the settings, which must be certified before the time is up all the same."""
    prober = Lasting(
        Evaluating(machine(), lambda settings: 4),
        lasts=lambda question: 15.0 if question.form is Form.EVALUATE else PROBE_S,
    )
    clock.now = lambda: prober.now
    found = searched(store, prober, 90.0, evaluates=True)
    assert any(p.form is Form.EVALUATE for p in found.probes)
    assert prober.now <= 90.0 + 15.0
    assert found.answer.settings is not None and found.answer.settings.precision is Precision.BF16


def test_what_goes_by_between_probes_counts(store: Store, clock: Clock) -> None:
    prober = Lasting(machine(), between_s=PROBE_S / 4)
    clock.now = lambda: prober.now
    found = searched(store, prober, 75.0)
    assert prober.now <= 75.0 + 2 * PROBE_S
    assert found.answer.settings is not None and found.answer.settings.precision is Precision.BF16


def test_who_goes_on_with_a_search_has_the_whole_of_a_new_budget(store: Store, clock: Clock) -> None:
    prober = Lasting(machine())
    clock.now = lambda: prober.now
    with pytest.raises(TimeRanOut):
        searched(store, prober, PROBE_S)
    before = prober.now
    found = searched(store, prober, 80.0, started=before)
    assert found.new_probes < len(found.probes), "the first command's are used again"
    assert 40.0 < prober.now - before <= 80.0 + PROBE_S
    assert found.answer.settings is not None and found.answer.settings.precision is Precision.BF16


def _fails_in_long_form(size: int, form: Form, _: int, *, above: int) -> Fault | None:
    return OUT_OF_MEMORY if form is Form.LONG and size > above else None


def of_the_batch(store: Store, clock: Clock, time_budget_s: float, *, recommend: bool) -> SearchResult:
    """The long form fails where its peaks do not foretell it: batch 9 is certified, by the seventh probe, before the limit, 11."""
    fails = partial(_fails_in_long_form, above=11)
    prober = Lasting(replace(planted(), fault=fails))
    clock.now = lambda: prober.now
    asked = replace(plan(), recommend=recommend, time_budget_s=time_budget_s)
    return Session(asked, store, prober, Notes(), workload(), MACHINE, BUDGET, 0.0).run(fresh=True)


def test_a_search_of_the_batch_alone_has_the_best_that_is_certified_when_time_is_up(store: Store, clock: Clock) -> None:
    found = of_the_batch(store, clock, 7 * PROBE_S, recommend=True)
    assert (found.answer.max_batch, found.answer.refuted_at, found.answer.complete) == (9, 12, False)
    assert any("time ran out before the search was complete" in warning for warning in found.warnings)


def test_where_the_limit_alone_is_asked_for_what_is_certified_is_said_and_is_no_answer(
    store: Store, clock: Clock
) -> None:
    with pytest.raises(TimeRanOut, match=r"before an answer; batch 9 is certified, and may not be the largest$"):
        of_the_batch(store, clock, 7 * PROBE_S, recommend=False)
    with pytest.raises(TimeRanOut, match=r"before an answer$"):
        of_the_batch(store, clock, PROBE_S, recommend=False)
