"""Ranks that train together on the CPU, in real processes: the first to fail decides, and nothing is left of the others."""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from autotune import api
from autotune.errors import WorkloadError
from autotune.model import Budget, Cause, Form, Outcome, Phase, Plan, ProbeResult, Question, Reason, SearchResult
from autotune.probe import launcher as launching
from autotune.units import GIB, MIB
from tests.process.support import ASSETS, Staying, alive

VERDICT_S = 10.0
"""From the failure of one rank to the verdict, at most."""


class Kept(Staying):
    """A launcher of ranked.py that serves one probe or search after another."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.arguments = folder / "arguments"
        self.use("fine", 0, 0)
        plan = planned(f"@{self.arguments}")
        super().__init__(plan.source, timeout_s=60, seed=3, ranks=ranks)

    def use(self, kind: str, limit: int, rank: int) -> None:
        """What later children do."""
        self.arguments.write_text(json.dumps([kind, limit, rank]))

    def ask(self, batch_size: int, form: Form = Form.SHORT, limit_bytes: int = GIB) -> ProbeResult:
        """One probe."""
        budget = Budget(
            limit_bytes=limit_bytes, source="--memory-limit", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0
        )
        if self.machine is None:
            self.describe("cpu", 1)
        return self.probe(Question(batch_size=batch_size, form=form, reason=Reason.GROW), budget, 0)


def planned(*args: object, **options: object) -> Plan:
    """A search of ranked.py on the CPU."""
    options = {"device": "cpu", "timeout_s": 60.0, "memory_limit": "1GiB", "recommend": False, **options}
    return api.plan(str(ASSETS / "ranked.py"), script_args=[str(arg) for arg in args], **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def marker() -> str:
    """In the environment of all that the tests start."""
    return f"ranked-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def kept(marker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Kept]]:
    """``kept(RANKS)``: with ranked.py loaded once."""
    made: dict[int, Kept] = {}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PLANTED_MARKER", marker)
        patch.setenv("PLANTED_FILE", str(tmp_path_factory.mktemp("removed") / "file"))

        def launcher(ranks: int) -> Kept:
            if ranks not in made:
                made[ranks] = Kept(tmp_path_factory.mktemp(f"ranks-{ranks}"), ranks)
                stack.callback(made[ranks].close)
            return made[ranks]

        yield launcher
    assert alive(marker) == {}


Search = Callable[..., SearchResult]


@pytest.fixture
def search(kept: Callable[[int], Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """``search(RANKS, KIND, LIMIT, RANK, option=value...)``."""

    def run(ranks: int, kind: str, limit: int, rank: int, **options: object) -> SearchResult:
        launcher = kept(ranks)
        launcher.use(kind, limit, rank)
        monkeypatch.setattr(launching, "Launcher", lambda *_, **__: launcher)
        plan = planned(f"@{launcher.arguments}", ranks=ranks, **options)
        return api.search(plan, storage=str(tmp_path / "ledger.sqlite3"))

    return run


def listening(marker: str) -> list[object]:
    """Ports on which something of the tests listens."""
    found: list[object] = []
    for pid in alive(marker):
        found += [one for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return found


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER])
def test_c34_out_of_memory_in_one_rank_is_the_verdict_within_seconds_and_nothing_is_left(
    kept: Callable[[int], Kept], marker: str, phase: Phase, ranks: int
) -> None:
    launcher = kept(ranks)
    assert launcher.ask(8).fits  # loaded before the clock runs
    launcher.use(f"oom:{phase}", 10, 1)
    began = time.monotonic()
    result = launcher.ask(11)
    assert time.monotonic() - began < VERDICT_S
    failure = result.failure
    assert failure is not None and result.outcome is Outcome.OUT_OF_MEMORY
    assert (failure.cause, failure.phase, failure.step, failure.rank) == (Cause.DEVICE_MEMORY, phase, 2, 1)
    assert failure.message.startswith(f"rank 1 of {ranks}, step 2: ")
    assert [one.rank for one in result.ranks] == list(range(ranks))
    assert [one.outcome for one in result.ranks if one.rank != 1] == [None] * (ranks - 1)  # they only followed
    assert all((one.peak_device_bytes or 0) > 50 * MIB for one in result.ranks)
    left = alive(marker)
    assert len(left) <= 4, left  # a guardian and a zygote for each number of ranks
    assert listening(marker) == []


@pytest.mark.parametrize("place", ["", ":backward"])
def test_c34_the_answer_is_the_batch_that_every_rank_trains(search: Search, place: str) -> None:
    result = search(2, f"oom{place}", 10, 1)
    assert (result.answer.max_batch, result.answer.refuted_at) == (10, 11)
    assert len(result.certificate.ranks) == 2 and all(one.steps_executed == 8 for one in result.certificate.ranks)
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.failure.rank == 1


def test_c34_a_file_that_both_ranks_remove_is_the_workload_s_own_error(search: Search) -> None:
    Path(os.environ["PLANTED_FILE"]).write_text("")
    with pytest.raises(WorkloadError, match=r"rank [01] of 2, step [12]: .*No such file") as caught:
        search(2, "removed", 0, 1)
    assert "os.remove" in caught.value.detail


def test_the_answer_under_a_real_limit_is_that_of_a_sweep_and_of_the_rank_that_needs_most(
    search: Search, kept: Callable[[int], Kept]
) -> None:
    limit_bytes = 448 * MIB
    found = search(2, "heavy", 32, 1, memory_limit=limit_bytes).answer
    sizes = range(found.max_batch - 1, found.max_batch + 3)
    assert [size for size in sizes if _long(kept(2), size, limit_bytes).fits] == [found.max_batch - 1, found.max_batch]
    result = _long(kept(2), found.max_batch, limit_bytes)
    light, heavy = (one.peak_device_bytes or 0 for one in result.ranks)
    assert result.measurement.peak_device_bytes == heavy > light + 30 * found.max_batch * MIB


def _long(launcher: Kept, size: int, limit_bytes: int) -> ProbeResult:
    return launcher.ask(size, Form.LONG, limit_bytes)


def test_a_rank_that_is_killed_is_named_and_not_the_one_that_lost_contact(kept: Callable[[int], Kept]) -> None:
    launcher = kept(2)
    launcher.use("sigkill:backward", 1, 0)
    result = launcher.ask(2)
    assert result.outcome is Outcome.CRASHED and result.failure is not None
    assert (result.failure.cause, result.failure.signal, result.failure.rank) == (Cause.SIGNAL, "SIGKILL", 0)
    assert (result.failure.phase, result.failure.step) == (Phase.BACKWARD, 2)


def test_the_deadline_tells_which_rank_did_not_arrive(
    kept: Callable[[int], Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = kept(2)
    assert launcher.ask(1).fits
    monkeypatch.setattr(launcher, "_timeout_s", 3.0)
    launcher.use("hang:forward", 1, 1)
    result = launcher.ask(2)
    assert result.outcome is Outcome.TIMED_OUT and result.failure is not None and result.failure.rank == 1
    assert result.failure.message == (
        "no answer within the time limit: rank 1 was in phase forward of step 2, and was waited for:"
        " rank 0 was in phase forward of step 2 and had called the model"
    )
    assert result.seconds < 3 + VERDICT_S


def test_an_error_of_one_rank_shows_that_rank_s_traceback(search: Search) -> None:
    with pytest.raises(WorkloadError, match=r"rank 3 of 4, step 2: name 'lable' is not defined") as caught:
        search(4, "error:optimizer", 0, 3)
    assert "lable" in caught.value.detail


def test_a_rank_whose_data_ends_earlier_limits_all(kept: Callable[[int], Kept]) -> None:
    launcher = kept(2)
    launcher.use("unequal", 10, 1)
    assert launcher.ask(10).fits
    result = launcher.ask(12)
    assert result.outcome is Outcome.SIZE_LIMIT and result.failure is not None and result.failure.rank == 1


def test_a_rank_that_leaves_out_the_model_in_one_step_ends_the_probe_at_once(kept: Callable[[int], Kept]) -> None:
    launcher = kept(2)
    launcher.use("bypass", 0, 1)
    began = time.monotonic()
    with pytest.raises(WorkloadError, match=r"rank 1 of 2: loss\(\) did not call the model"):
        launcher.ask(2)
    assert time.monotonic() - began < VERDICT_S


def test_every_probe_finds_a_free_port_for_groups_of_the_user_s_own(kept: Callable[[int], Kept]) -> None:
    launcher = kept(2)
    launcher.use("fine", 0, 0)
    launcher.ask(1)
    orders = [json.loads(path.read_text()) for path in sorted(launcher._directory.glob("[0-9]*.json"))]
    together = [order for order in orders if order["meeting"]]
    by_rank = {rank: [order["job_environment"] for order in together if order["rank"] == rank] for rank in (0, 1)}
    assert by_rank[0] and len(by_rank[0]) == len(by_rank[1])
    for first, second in zip(*by_rank.values(), strict=True):
        assert (first["RANK"], second["LOCAL_RANK"], first["WORLD_SIZE"]) == ("0", "1", "2")
        assert first["MASTER_ADDR"] == "127.0.0.1" and first["MASTER_PORT"] == second["MASTER_PORT"] != "0"
