"""Whole searches on a ledger: whose they are, how they go on after a death, what is said of them. See ``searching``."""

import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune import held
from autotune.errors import StoreError, TakenOver
from autotune.identity import search_key
from autotune.model import Budget, Form, ProbeResult, Question, Reason, SearchRecord, SearchState
from autotune.storage import owners
from autotune.storage.store import Store
from tests.contract import searching
from tests.contract.searching import LARGEST, Notes, asked_for, plan, planted, search, undisturbed, workload
from tests.contract.test_store import sql
from tests.fakes import MACHINE, FakeProber

ROOT = Path(__file__).parents[2]


@dataclass
class Between:
    """A prober in the middle of whose first probe something happens."""

    happens: Callable[[], None]
    prober: FakeProber

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        result = self.prober.probe(question, budget, reserve_bytes)
        if len(self.prober.asked) == 1:
            self.happens()
        return result


class Stopped(BaseException):
    """As a signal stops a search."""

    name = "SIGTERM"


def record_of() -> SearchRecord:
    """A search that begins."""
    asked = plan()
    return SearchRecord(
        id="0rphan",
        key=search_key(asked, workload(), MACHINE),
        state=SearchState.RUNNING,
        created=datetime.now(UTC),
        owner="elsewhere:17:1.00",
        version="0",
        plan=asked,
        workload=workload(),
        machine=MACHINE,
        budget=searching.BUDGET,
    )


def begun(store: Store, probes: int, **changes: object) -> SearchRecord:
    """A search of which some probes are finished, which nobody has ended, and which belongs to nobody alive here."""
    record = replace(record_of(), **changes)  # type: ignore[arg-type]
    store.begin(record)
    prober = planted()
    for size, form in undisturbed()[:probes]:
        question = Question(batch_size=size, form=form, reason=Reason.GROW)
        store.add_probe(record.id, prober.probe(question, searching.BUDGET, 0))
    return record


def program(*words: str) -> subprocess.CompletedProcess[str]:
    """``searching.py`` in a process of its own."""
    argv = [sys.executable, "-m", searching.__name__, *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def keys(store: Store, search_id: str) -> list[tuple[int, Form]]:
    return [(probe.batch_size, probe.form) for probe in store.probes(search_id)]


def test_c21_a_search_killed_at_every_point_loses_nothing_and_repeats_nothing(url: str) -> None:
    done = program("die", url, "dying.py")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > searching.STEPS, "each step of a life was the last one once"
    with Store.open(url) as store:
        (record,) = store.searches()
        assert (record.state, record.lease_until) == (SearchState.ANSWERED, None)
        assert record.answer is not None and record.answer.max_batch == LARGEST
        assert keys(store, record.id) == undisturbed()


def test_a_search_left_by_the_dead_is_read_as_interrupted_before_anybody_writes_that_down(
    store: Store, url: str
) -> None:
    record = begun(store, 2, owner=dead_owner())
    assert sql(url, "SELECT state FROM autotune_searches") == [("running",)]
    (summary,), _ = store.summaries()
    for read in (store.get(record.id), store.searches()[0], summary):
        assert read.state is SearchState.INTERRUPTED
        assert "ended without a word" in read.message


def dead_owner() -> str:
    """Of a process of this machine that is over."""
    code = "from autotune.storage.owners import new_owner; print(new_owner())"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def test_orphans_are_marked_interrupted_at_the_start_of_any_search(store: Store, url: str) -> None:
    record = begun(store, 2, owner=dead_owner(), key="another question", lease_until=datetime.now(UTC))
    search(store, planted())
    assert sql(url, "SELECT state, lease_until FROM autotune_searches WHERE id = '0rphan'") == [("interrupted", None)]
    read = store.get(record.id)
    assert "ended without a word" in read.message
    assert read.finished is not None


def test_a_living_process_elsewhere_keeps_its_search(store: Store) -> None:
    begun(store, 2, lease_until=datetime.now(UTC) + timedelta(hours=1))
    notes, prober = Notes(), planted()
    search(store, prober, notes=notes)
    assert asked_for(prober) == undisturbed()
    assert "search 0rphan of the same workload is running elsewhere; this one is separate" in notes.said
    assert store.get("0rphan").state is SearchState.RUNNING


def test_a_search_whose_lease_is_over_is_gone_on_with_and_nothing_is_repeated(store: Store) -> None:
    begun(store, 3, lease_until=datetime.now(UTC) - timedelta(seconds=1))
    notes, prober = Notes(), planted()
    result = search(store, prober, notes=notes)
    assert (result.search_id, result.answer.max_batch) == ("0rphan", LARGEST)
    assert asked_for(prober) == undisturbed()[3:]
    assert notes.said == ["going on with search 0rphan: 3 finished probes are used again"]


def test_a_running_search_has_a_lease_for_its_turn_its_probe_and_more(store: Store) -> None:
    leases: list[timedelta] = []

    def look() -> None:
        (record,) = store.searches()
        assert record.lease_until is not None
        leases.append(record.lease_until - datetime.now(UTC))

    search(store, Between(look, planted()), asked=replace(plan(), timeout_s=1000.0, device_wait_s=500.0))
    assert timedelta(seconds=1500) < leases[0] <= timedelta(seconds=1620)
    assert store.searches()[0].lease_until is None


def test_the_lease_is_renewed_with_each_result_and_before_a_probe_that_begins_long_after_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 0.0
    monkeypatch.setattr(held, "time", SimpleNamespace(monotonic=lambda: clock_s))
    mine = held.Held.begin(store, record_of())
    prober = mine.leased(planted())
    question = Question(batch_size=1, form=Form.SHORT, reason=Reason.START)

    def lease_until() -> datetime:
        lease = store.get(mine.record.id).lease_until
        assert lease is not None
        return lease

    leases = [lease_until()]
    result = prober.probe(question, searching.BUDGET, 0)
    assert lease_until() == leases[-1], "it was renewed a moment ago"
    clock_s += held.SLACK_S / 2 + 1
    prober.probe(question, searching.BUDGET, 0)
    leases.append(lease_until())
    mine.add(result)
    leases.append(lease_until())
    assert leases[0] < leases[1] < leases[2]
    mine.finish(SearchState.NO_ANSWER, None, "")


def test_another_process_of_this_machine_does_not_touch_a_search_in_mid_probe(store: Store, url: str) -> None:
    def another() -> None:
        done = program("run", url, "planted.py")
        assert done.returncode == 0, done.stderr

    result = search(store, Between(another, planted()))
    newer, older = store.searches()
    assert older.id == result.search_id
    for record in (newer, older):
        assert record.state is SearchState.ANSWERED
        assert keys(store, record.id) == undisturbed()


def test_another_search_of_this_very_process_does_not_touch_it_either(store: Store) -> None:
    inner = planted()

    def another() -> None:
        search(store, inner)

    result = search(store, Between(another, planted()))
    assert asked_for(inner) == undisturbed()
    assert keys(store, result.search_id) == undisturbed()


def test_a_search_taken_over_stops_before_its_next_probe_and_loses_none(store: Store) -> None:
    prober = planted()

    def taken() -> None:
        (record,) = store.searches()
        assert store.reopen(record.id, "elsewhere:17:1.00", former_owner=record.owner, lease_s=3600)

    with pytest.raises(TakenOver, match=r"is being gone on with by process 17 on elsewhere") as caught:
        search(store, Between(taken, prober))
    assert "run the same command again" in caught.value.hint
    (record,) = store.searches()
    assert (record.state, record.owner) == (SearchState.RUNNING, "elsewhere:17:1.00")
    assert keys(store, record.id) == undisturbed()[:1]


def test_a_search_thought_dead_that_lives_goes_on(store: Store, url: str) -> None:
    def thought_dead() -> None:
        sql(url, "UPDATE autotune_searches SET state = 'interrupted', message = 'gone'")

    result = search(store, Between(thought_dead, planted()))
    record = store.get(result.search_id)
    assert (record.state, keys(store, record.id)) == (SearchState.ANSWERED, undisturbed())


@pytest.mark.parametrize("runs", [False, True])
def test_a_search_that_was_begun_beside_another_does_not_hide_what_that_measured(store: Store, runs: bool) -> None:
    measured = begun(store, 3, lease_until=datetime.now(UTC) - timedelta(seconds=1))
    lease = timedelta(hours=1 if runs else -1)
    newer = replace(
        measured, id="beside", created=measured.created + timedelta(seconds=1), lease_until=datetime.now(UTC) + lease
    )
    store.begin(newer)
    prober = planted()
    assert search(store, prober).search_id == measured.id
    assert asked_for(prober) == undisturbed()[3:]


def test_what_stopped_a_search_is_told_in_its_record(store: Store) -> None:
    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        search(store, Between(stop, planted()))
    (record,) = store.searches()
    assert (record.state, record.message) == (SearchState.INTERRUPTED, "stopped by SIGTERM")


def test_a_ledger_that_fails_does_not_hide_what_stopped_the_search(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        monkeypatch.setattr(store, "finish", fail)
        raise Stopped

    def fail(*_: object, **named: object) -> None:
        raise StoreError("the disk is full")

    with pytest.raises(Stopped) as caught:
        search(store, Between(stop, planted()))
    assert caught.value.__notes__ == ["the ledger could not be told, and needs not be: the disk is full"]
    assert store.searches()[0].state is SearchState.INTERRUPTED, "nobody runs it any more"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": replace(MACHINE, torch_version="2.14.0")}, "torch version 2.13.0 -> 2.14.0"),
        ({"asked": replace(plan(), memory_limit_bytes=2 << 30)}, "memory limit 1 GiB -> 2 GiB"),
        ({"asked": replace(plan(), seed=1)}, "seed 0 -> 1"),
        ({"of": replace(workload(), fingerprint="beef")}, "the workload's code, or what it imports"),
    ],
)
def test_a_search_that_begins_anew_says_what_changed(store: Store, change: dict[str, object], words: str) -> None:
    first = search(store, planted())
    notes = Notes()
    search(store, planted(), notes=notes, **change)  # type: ignore[arg-type]
    assert notes.said == [f"changed since search {first.search_id} of the same workload: {words}: searching anew"]


def test_what_a_search_that_was_told_where_to_begin_found_answers_who_asks_without(store: Store) -> None:
    told, asks, starts = planted(), planted(), planted()
    found = search(store, told, guess=LARGEST)
    assert asked_for(told)[0] == (LARGEST, Form.SHORT)
    again = search(store, asks)
    assert asked_for(asks) == [(LARGEST, Form.LONG)] and again.from_ledger
    assert again.answer.max_batch == found.answer.max_batch == LARGEST
    assert not search(
        store, starts, asked=replace(plan(), start_batch=LARGEST)
    ).from_ledger  # a person's own is another


def test_a_guess_is_where_a_search_begins_whatever_else_was_asked(store: Store) -> None:
    told = planted()
    search(store, told, asked=replace(plan(), start_batch=2), guess=LARGEST - 1)
    assert asked_for(told)[0] == (LARGEST - 1, Form.SHORT)


def test_the_record_of_a_prediction_certifies_nothing(store: Store) -> None:
    asked = replace(plan(), ranks=8, world=8, predicted=True)
    found, again = search(store, planted(), asked=asked), search(store, planted(), asked=asked)
    first, second = (store.get(one.search_id).message for one in (found, again))
    assert first.startswith(f"Batch {LARGEST} is predicted for 8 ranks (not run) and {LARGEST + 1} is refuted")
    assert second == f"Batch {LARGEST} from a prediction in the ledger fits again."
    assert store.get(search(store, planted()).search_id).message.startswith(f"Batch {LARGEST} is certified and ")


def test_a_first_search_and_a_fresh_one_have_nothing_to_say(store: Store) -> None:
    notes = Notes()
    search(store, planted(), notes=notes)
    search(store, planted(), notes=notes, fresh=True)
    elsewhere = replace(plan(), source=replace(plan().source, directory="/home/you"), seed=3)
    search(store, planted(), notes=notes, asked=elsewhere)
    assert notes.said == []


def test_a_damaged_search_is_passed_over_and_told(store: Store, url: str, caplog: pytest.LogCaptureFixture) -> None:
    first = search(store, planted())
    sql(url, "UPDATE autotune_searches SET machine = 'null'")
    prober = planted()
    result = search(store, prober)
    assert result.search_id != first.search_id
    assert asked_for(prober) == undisturbed()
    assert f"autotune_searches, id '{first.search_id}' is damaged" in caplog.messages[0]


def test_a_search_with_a_damaged_probe_is_not_used_and_told(store: Store, url: str) -> None:
    begun(store, 3, lease_until=datetime.now(UTC) - timedelta(seconds=1))
    sql(url, "UPDATE autotune_probes SET measurement = '7' WHERE number = 2")
    notes, prober = Notes(), planted()
    search(store, prober, notes=notes)
    assert asked_for(prober) == undisturbed()
    assert "(search '0rphan') is damaged" in notes.said[0]
    assert notes.said[0].endswith("it is not used: searching anew")


def test_a_search_whose_base_was_removed_is_not_used(store: Store, url: str) -> None:
    first = search(store, planted())
    search(store, planted())  # confirms it
    sql(url, f"DELETE FROM autotune_searches WHERE id = '{first.search_id}'")
    prober = planted()
    search(store, prober)
    assert asked_for(prober) == undisturbed()


class TestOwners:
    """Who is alive, told by more than the wall clock."""

    NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
    FAR = "elsewhere:17:1.00"

    def test_a_search_of_this_process_runs_until_it_is_done_whatever_the_clock_says(self) -> None:
        owner = owners.new_owner()
        owners.at_work(owner)
        lease = self.NOW + timedelta(minutes=7)
        for jump in (timedelta(0), timedelta(hours=-9), timedelta(hours=9)):
            assert owners.why_ended(owner, lease, self.NOW + jump) == ""
        owners.done(owner)
        assert "ended without a word" in owners.why_ended(owner, lease, self.NOW)

    def test_a_living_process_that_forgot_its_search_for_over_a_day_lost_it(self) -> None:
        owner = owners.new_owner()
        owners.at_work(owner)
        words = owners.why_ended(owner, self.NOW - timedelta(days=1, seconds=1), self.NOW)
        owners.done(owner)
        assert "has not gone on with it for over a day" in words

    @pytest.mark.parametrize(
        ("lease", "runs"),
        [
            (timedelta(seconds=0), True),
            (timedelta(minutes=7), True),
            (timedelta(seconds=-1), False),
            (timedelta(days=8), False),  # the clock was set back: nobody has a lease as long
        ],
    )
    def test_elsewhere_the_lease_decides(self, lease: timedelta, runs: bool) -> None:
        assert (owners.why_ended(self.FAR, self.NOW + lease, self.NOW) == "") == runs

    def test_elsewhere_without_a_lease_nothing_shows_that_it_runs(self) -> None:
        assert owners.why_ended(self.FAR, None, self.NOW) == "nothing shows that its process 17 on elsewhere still runs"

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_a_process_is_told_by_its_start_since_the_machine_s_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        code = "from autotune.storage.owners import new_owner; print(new_owner(), flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdin is not None
            owner = process.stdout.readline().decode().strip()
            assert owners.why_ended(owner, self.NOW, self.NOW) == ""
            host, pid, start = owner.rsplit(":", 2)
            machine, boot, namespace, ticks, run = start.split("-")
            for other, says in {
                (machine, boot, namespace, "1"): "ended without a word",  # the number was given again
                (machine, "00000000", namespace, ticks): "ended without a word",  # the machine was started again
                ("ffffffff", boot, namespace, ticks): "has not been heard of",  # another machine of this name
                (machine, boot, "1", ticks): "has not been heard of",  # a container of this name
            }.items():
                if machine == "0" and other[1] == "00000000":
                    continue  # here nothing tells machines apart
                changed = f"{host}:{pid}:{'-'.join((*other, run))}"
                assert says in owners.why_ended(changed, self.NOW, self.NOW + timedelta(minutes=1))
            process.stdin.close()
        assert "ended without a word" in owners.why_ended(owner, self.NOW, self.NOW)

    @pytest.mark.parametrize(
        "owner",
        [
            *("", "nonsense", "a:b:c", ":::", f"{'9' * 30}:1", "x:99999999999999999999:1-2"),
            *(f"{platform.node()}:{pid}:1-2-3-4-5" for pid in ("9" * 5000, "9" * 20, "\u0661", "\u00b2")),
        ],
        ids=range(10),
    )
    def test_an_owner_that_is_none_belongs_to_nobody(self, owner: str) -> None:
        assert owners.why_ended(owner, None, self.NOW)
        assert owners.why_ended(owner, self.NOW - timedelta(days=2), self.NOW)
