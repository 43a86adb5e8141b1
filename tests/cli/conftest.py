"""The command line with a fake ``api`` behind it."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autotune import api
from autotune.cli.app import run
from autotune.cli.signals import Stopped
from autotune.errors import (
    AutotuneError,
    EnvironmentTrouble,
    NothingFits,
    StoreError,
    TimeRanOut,
    UsageError,
    WorkloadError,
)
from autotune.model import (
    Bucketed,
    Form,
    Machine,
    Plan,
    ProbeResult,
    Question,
    Reason,
    SearchRecord,
    SearchResult,
    SearchState,
    WorkloadInfo,
)
from autotune.ports import SearchObserver
from autotune.recommended.checked import Checked
from autotune.storage.store import Store
from tests.cli.bucketed import BUCKETED
from tests.cli.checked import CHECKED
from tests.cli.results import BUDGET, MACHINE, NOON, PLAN, PROBES, RECORD, RESULT, WORKLOAD


def ends() -> list[tuple[BaseException, int, str]]:
    """What goes wrong, anew for each test file, since errors keep notes; and the exit code and kind it ends with."""
    return [
        (AutotuneError("it failed"), 1, "error"),
        (UsageError("it failed"), 2, "usage"),
        (NothingFits("it failed"), 3, "nothing_fits"),
        (WorkloadError("it failed"), 4, "workload"),
        (EnvironmentTrouble("it failed"), 5, "environment"),
        (StoreError("it failed"), 5, "store"),
        (TimeRanOut("it failed"), 124, "time_ran_out"),
        (Stopped(signal.SIGINT), 130, "interrupted"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Stopped(signal.SIGTERM), 143, "interrupted"),
    ]


@dataclass
class FakeApi:
    """Stands in for ``autotune.api``: remembers how it was called, and answers or raises what a test wants."""

    result: SearchResult = RESULT
    bucketed: Bucketed = BUCKETED
    error: BaseException | None = None
    """Raised by ``search`` after the first probe was shown."""
    plan_error: BaseException | None = None
    check_error: BaseException | None = None
    checked: Checked = CHECKED
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    def plan(self, ref: str, **options: Any) -> Plan:
        """As ``api.plan``."""
        self.calls["plan"] = {"ref": ref, **options}
        if self.plan_error is not None:
            raise self.plan_error
        return replace(PLAN, recommend=options.get("recommend", True))

    def search(
        self, plan: Plan, *, storage: str | None = None, fresh: bool = False, observer: SearchObserver | None = None
    ) -> SearchResult:
        """As ``api.search``."""
        self.calls["search"] = {"plan": plan, "storage": storage, "fresh": fresh}
        assert observer is not None
        observer.found(WORKLOAD, MACHINE, BUDGET)
        observer.note("fork is unsafe because of threads; using spawn")
        for number, probe in enumerate(PROBES[:3], start=1):
            observer.asked(Question(batch_size=probe.batch_size, form=Form.SHORT, reason=Reason.GROW), number)
            observer.answered(probe, number)
        if self.error is not None:
            raise self.error
        return replace(self.result, plan=plan)

    def examine(self, path: Path, workload: object = None, **options: Any) -> Checked:
        """As ``api.examine``."""
        self.calls["examine"] = {"path": path, "workload": workload, **options}
        observer: SearchObserver = options["observer"]
        if self.check_error is not None:
            raise self.check_error
        observer.found(WORKLOAD, MACHINE, BUDGET)
        return replace(self.checked, path=path)

    def search_buckets(
        self,
        plan: Plan,
        buckets: Sequence[int],
        *,
        storage: str | None = None,
        fresh: bool = False,
        observer: SearchObserver | None = None,
    ) -> Bucketed:
        """As ``api.search_buckets``."""
        self.calls["search_buckets"] = {"plan": plan, "buckets": buckets, "storage": storage, "fresh": fresh}
        if self.error is not None:
            raise self.error
        return self.bucketed

    def inspect(self, plan: Plan) -> tuple[WorkloadInfo, Machine]:
        """As ``api.inspect``."""
        self.calls["inspect"] = {"plan": plan}
        if self.error is not None:
            raise self.error
        return WORKLOAD, MACHINE

    def show(self, search_id: str, storage: str | None = None) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
        """As ``api.show``."""
        self.calls["show"] = {"search_id": search_id, "storage": storage}
        if self.error is not None:
            raise self.error
        return RECORD, PROBES


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


Invoke = Callable[..., Ended]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """The fake that the command line talks to."""
    it = FakeApi()
    for name in ("plan", "search", "search_buckets", "examine", "inspect", "show"):
        monkeypatch.setattr(api, name, getattr(it, name))
    return it


@pytest.fixture
def invoke(
    fake: FakeApi, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Invoke:
    """Run one command line in an empty folder, as from a pipe."""
    monkeypatch.chdir(tmp_path)
    for variable in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):  # CI itself may be one
        monkeypatch.delenv(variable, raising=False)
    for variable in ("AUTOTUNE_STORAGE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)

    def invoked(*argv: str) -> Ended:
        code = run(argv)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return invoked


Keep = Callable[..., None]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Put a search and its probes into the ledger ``ledger`` of the working folder."""

    def kept(record: SearchRecord, *probes: ProbeResult) -> None:
        unanswered = record.state is SearchState.ANSWERED and record.answer is None
        state = SearchState.NO_ANSWER if unanswered else record.state
        with Store.open(str(tmp_path / "ledger")) as store:
            store.begin(replace(record, state=SearchState.RUNNING, answer=None, finished=None, message=""))
            for probe in probes:
                store.add_probe(record.id, probe)
            if state is not SearchState.RUNNING:
                store.finish(
                    record.id,
                    owner=record.owner,
                    state=state,
                    answer=record.answer,
                    message=record.message,
                    finished=NOON,
                )

    return kept
