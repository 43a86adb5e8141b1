"""One search for each length bucket: their order, what the ledger knows of each, and what ends them all."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autotune.errors import NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.front.buckets import search_buckets
from autotune.identity import search_key
from autotune.model import (
    Bucketed,
    Budget,
    Form,
    LengthBucket,
    Plan,
    ProbeResult,
    Question,
    Reason,
    SearchState,
    WorkloadInfo,
)
from autotune.session import Session
from autotune.storage.store import Store
from tests.cli.results import MACHINE, PLAN
from tests.cli.results import WORKLOAD as EVALUATED
from tests.fakes import BUDGET, FakeProber

SHORT = LengthBucket(max_length=10, longest=10, samples=100, longer=60, batch="int64[1, 10]", data_set_size=100)
MIDDLE = LengthBucket(max_length=50, longest=40, samples=150, longer=10, data_set_size=150, varies=True)
LONG = LengthBucket(max_length=200, longest=200, samples=160, longer=0, data_set_size=160, varies=True)
WORKLOAD = replace(EVALUATED, evaluates=False)
CPU = replace(MACHINE, device="cpu")
"""Nothing is recorded there."""
EMPTY = LengthBucket(max_length=5, longest=0, samples=0, longer=160)


@dataclass
class Lengthy:
    """Needs a byte a token of the longest sample in a bucket, and says what it was asked."""

    longest: dict[int, int]
    """Bucket -> longest sample."""
    stops_at: tuple[int, int] | None = None
    """(bucket, number of its probes) at which somebody stops the search."""
    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        assert question.length_bucket is not None
        same = [q for q in self.asked if q.length_bucket == question.length_bucket]
        if self.stops_at == (question.length_bucket, len(same)):
            raise KeyboardInterrupt
        self.asked.append(question)
        assert len(self.asked) < 100, "it goes on for ever"
        prober = FakeProber(fixed_bytes=0, per_sample_bytes=self.longest[question.length_bucket])
        return prober.probe(question, budget, reserve_bytes)

    @property
    def buckets(self) -> list[int]:
        """Buckets in the order they were first probed."""
        return list(dict.fromkeys(q.length_bucket for q in self.asked if q.length_bucket is not None))

    def sizes(self, bucket: int) -> list[int]:
        return [q.batch_size for q in self.asked if q.length_bucket == bucket]


@dataclass
class Heard:
    notes: list[str] = field(default_factory=list)

    def found(self, *_: object) -> None: ...

    def asked(self, *_: object) -> None: ...

    def answered(self, *_: object) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "ledger.sqlite3")) as opened:
        yield opened


Find = Callable[..., Bucketed]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def find(store: Store, heard: Heard) -> Find:
    """``find(prober, bucket, ...)``: the answers of these buckets under the budget of 1,000 bytes."""

    def run(prober: Lengthy, *buckets: LengthBucket, budget_s: float | None = None, fresh: bool = False) -> Bucketed:
        plan = replace(PLAN, recommend=False, time_budget_s=budget_s)
        workload = replace(WORKLOAD, buckets=buckets)
        started = time.monotonic()

        def session(plan: Plan, workload: WorkloadInfo) -> Session:
            return Session(plan, store, prober, heard, workload, CPU, BUDGET, started)

        return search_buckets(plan, workload, CPU, session, heard, fresh=fresh)

    return run


def by_length(*buckets: LengthBucket) -> Lengthy:
    return Lengthy(longest={bucket.max_length: bucket.longest for bucket in buckets})


def answers(found: Bucketed) -> list[int | None]:
    return [row.result.answer.max_batch if row.result else None for row in found.rows]


def test_each_bucket_has_an_answer_of_its_own_shortest_first(find: Find, heard: Heard) -> None:
    prober = by_length(SHORT, MIDDLE, LONG)
    found = find(prober, SHORT, MIDDLE, LONG)
    assert answers(found) == [100, 25, 5]
    assert [row.result.answer.refuted_at for row in found.rows if row.result] == [None, 26, 6]
    assert prober.buckets == [10, 50, 200]
    assert found.error is None
    assert found.widest is found.rows[-1].result
    assert found.rows[0].result is not None
    assert found.rows[0].result.plan.length_bucket == 10
    assert found.rows[0].result.answer.limited_by == "data_set", "all 100 samples of it fit"
    assert found.rows[0].result.workload == replace(
        WORKLOAD, batch="int64[1, 10]", data_set_size=100, notes=(), buckets=(SHORT,)
    )
    assert "length bucket 50: 150 samples, the longest 40" in heard.notes
    assert "length bucket 50: max batch 25, 26 refuted: out of memory in forward" in heard.notes


def test_a_bucket_without_samples_is_said_so_and_costs_nothing(find: Find, heard: Heard) -> None:
    prober = by_length(LONG)
    found = find(prober, EMPTY, LONG)
    assert answers(found) == [None, 5]
    assert prober.buckets == [200]
    assert found.error is None
    assert "length bucket 5: no sample is at most 5 long" in heard.notes


def test_no_sample_in_any_bucket_is_a_mistake_of_the_user(find: Find) -> None:
    with pytest.raises(UsageError, match="all 160 that were looked at are longer than 5") as raised:
        find(by_length(), EMPTY)
    assert raised.value.hint == "give --buckets larger lengths"


def test_two_buckets_with_the_same_samples_are_searched_once(find: Find, store: Store, heard: Heard) -> None:
    wider = replace(LONG, max_length=300)
    prober = by_length(LONG)
    found = find(prober, LONG, wider)
    assert answers(found) == [5, 5]
    assert prober.buckets == [200]
    assert len(store.searches(10)) == 1
    assert "length bucket 300: the same samples as in length bucket 200, and so its answer" in heard.notes


def test_the_same_length_is_another_question_in_another_bucket() -> None:
    keys = {search_key(replace(PLAN, length_bucket=length), WORKLOAD, MACHINE) for length in (None, 10, 50)}
    assert len(keys) == 3


def test_answered_buckets_are_confirmed_by_one_probe_each(find: Find, heard: Heard) -> None:
    first = find(by_length(SHORT, MIDDLE, LONG), SHORT, MIDDLE, LONG)
    again = by_length(SHORT, MIDDLE, LONG)
    found = find(again, SHORT, MIDDLE, LONG)
    assert answers(found) == answers(first)
    assert [again.sizes(length) for length in (10, 50, 200)] == [[100], [25], [5]]
    assert {question.form for question in again.asked} == {Form.LONG}
    assert {question.reason for question in again.asked} == {Reason.CONFIRM}
    assert all(row.result is not None and row.result.from_ledger for row in found.rows)


def test_an_interrupted_search_goes_on_in_the_bucket_it_was_in(find: Find, store: Store) -> None:
    undisturbed = by_length(SHORT, MIDDLE, LONG)
    expected = answers(find(undisturbed, SHORT, MIDDLE, LONG, fresh=True))
    stopped = by_length(SHORT, MIDDLE, LONG)
    stopped.stops_at = (50, 3)
    with pytest.raises(KeyboardInterrupt):
        find(stopped, SHORT, MIDDLE, LONG, fresh=True)
    assert stopped.sizes(50) == undisturbed.sizes(50)[:3]
    again = by_length(SHORT, MIDDLE, LONG)
    assert answers(find(again, SHORT, MIDDLE, LONG)) == expected
    assert len(again.sizes(10)) == 1, "answered: confirmed"
    assert again.sizes(50) == undisturbed.sizes(50)[3:], "interrupted: not one probe is repeated"
    assert again.sizes(200) == [5], "answered by the first search of all"
    assert all(record.state is SearchState.ANSWERED for record in store.searches(20))


def test_fresh_searches_every_bucket_anew(find: Find) -> None:
    first, again = by_length(SHORT, LONG), by_length(SHORT, LONG)
    find(first, SHORT, LONG)
    find(again, SHORT, LONG, fresh=True)
    assert again.asked == first.asked


def test_where_nothing_fits_the_longer_ones_are_not_searched_and_the_shorter_ones_keep_their_answers(
    find: Find, heard: Heard
) -> None:
    huge, larger = (
        LengthBucket(max_length=length, longest=length, samples=161 + length, longer=0, data_set_size=161 + length)
        for length in (5000, 9000)
    )
    prober = by_length(SHORT, huge, larger)
    found = find(prober, SHORT, huge, larger)
    assert answers(found) == [100, None, None]
    assert prober.buckets == [10, 5000]
    assert isinstance(found.error, NothingFits)
    assert found.error.message.startswith("length bucket 5000: nothing fits: batch 1 is out of memory")
    assert found.rows[1].error is found.rows[2].error
    assert found.widest is found.rows[0].result
    assert "length bucket 9000: nothing fits" in heard.notes


def test_when_time_is_out_what_was_answered_by_then_stands(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time budget is that of all buckets together; a probe takes a second here."""
    whole = by_length(SHORT, MIDDLE, LONG)
    find(whole, SHORT, MIDDLE, LONG, fresh=True)
    prober = by_length(SHORT, MIDDLE, LONG)
    monkeypatch.setattr(time, "monotonic", lambda: float(len(prober.asked)))
    found = find(prober, SHORT, MIDDLE, LONG, budget_s=len(whole.sizes(10)) + 2.0, fresh=True)
    assert answers(found) == [100, None, None]
    assert prober.buckets == [10, 50] and len(prober.sizes(50)) == 2
    assert [row.error is None for row in found.rows] == [True, False, False]
    assert isinstance(found.error, TimeRanOut)
    assert re.match(r"length bucket 50: the time budget of \d+ s ended after 2 probes", found.error.message)
    assert "run the same command again" in found.error.hint


def test_an_error_of_the_workload_ends_it_at_once(find: Find) -> None:
    @dataclass
    class Broken(Lengthy):
        def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
            raise WorkloadError("shorten(batch, 0.5) returned None")

    with pytest.raises(WorkloadError):
        find(Broken(longest={}), SHORT, LONG)
