"""What every store promises, run over each of them."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from autotune.errors import StoreError, UsageError
from autotune.model import Measurement, ProbeResult, SearchState
from autotune.storage.address import parse_address
from autotune.storage.engine import make_engine
from autotune.storage.listing import PROBES, SEARCHES
from autotune.storage.store import Store
from autotune.storage.tables import ProbeRow, SearchRow
from tests.contract.samples import ANSWER, FITTING_PROBE, NOON, PROBE, SEARCH, TRACE, TRACED_PROBE, facts, search

OWNER = SEARCH.owner


def interrupt(store: Store, search_id: str) -> None:
    """End a search of ``OWNER`` as Ctrl-C does."""
    store.finish(search_id, owner=OWNER, state=SearchState.INTERRUPTED, answer=None, message="Ctrl-C", finished=NOON)


def sql(url: str, statement: str, **values: object) -> list[Any]:
    """Run one statement by a connection as the store makes them, without the store."""
    engine = make_engine(parse_address(url))
    with engine.begin() as connection:
        result = connection.execute(text(statement), values)
        rows: list[Any] = [tuple(row) for row in result] if result.returns_rows else []
    engine.dispose()
    return rows


def fields_at_default(value: Any, path: str = "") -> list[str]:
    """Names of all fields, however deep, that a lost column would not change."""
    found = []
    for field in fields(value):
        name, held = f"{path}.{field.name}", getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if held == default:
            found.append(name)
        elif is_dataclass(held):
            found += fields_at_default(held, name)
    return found


def test_the_samples_leave_no_field_at_its_default() -> None:
    assert fields_at_default(SEARCH) == []
    assert fields_at_default(PROBE) == [".trace"]
    assert fields_at_default(TRACED_PROBE) == []


def test_the_list_of_searches_knows_columns_as_the_tables_have_them() -> None:
    for light, mapped in ((SEARCHES, SearchRow), (PROBES, ProbeRow)):
        table = mapped.__table__
        assert light.name == mapped.__tablename__
        assert {one.name: type(one.type) for one in light.c} == {
            one.name: type(table.c[one.name].type) for one in light.c
        }


class TestStoreContract:
    """Runs once per entry of ``conftest.STORES``."""

    def test_a_list_of_searches_says_what_is_in_their_columns_and_of_which_length_bucket_they_were(
        self, store: Store, url: str
    ) -> None:
        quoted = 'python "length_bucket": null {batch}'
        of_all = replace(SEARCH, id="all", plan=replace(SEARCH.plan, length_bucket=None))
        tricky = replace(SEARCH, id="tricky", plan=replace(SEARCH.plan, source=replace(SEARCH.plan.source, ref=quoted)))
        for record in (SEARCH, of_all, tricky, replace(SEARCH, id="damaged")):
            store.begin(record)
        store.add_probe(SEARCH.id, PROBE)
        sql(url, "UPDATE autotune_searches SET plan = '{nonsense' WHERE id = 'damaged'")
        found, damaged = store.summaries()
        assert damaged == ()  # documents are looked at by who shows them
        told = {one.id: one.length_bucket for one in found}
        bucket = SEARCH.plan.length_bucket
        assert bucket is not None
        assert told == {SEARCH.id: bucket, "all": None, "tricky": bucket, "damaged": None}
        predicted = {one.id: one.predicted for one in found}
        assert predicted == {SEARCH.id: True, "all": True, "tricky": True, "damaged": False}
        whole = next(one for one in found if one.id == SEARCH.id)
        for field in fields(whole):
            if hasattr(SEARCH, field.name):
                assert getattr(whole, field.name) == getattr(SEARCH, field.name)
        assert (whole.workload_ref, whole.device_name) == (SEARCH.workload.ref, SEARCH.machine.device_name)
        assert (whole.budget_bytes, whole.probes) == (SEARCH.budget.limit_bytes, 1)
        assert (whole.max_batch, whole.recommended_batch) == (ANSWER.max_batch, ANSWER.recommended_batch)
        assert [one.id for one in store.summaries(2)[0]] == [one.id for one in found[:2]]

    def test_a_full_search_comes_back_equal_but_not_the_same(self, store: Store) -> None:
        store.begin(SEARCH)
        read = store.get(SEARCH.id)
        assert read == SEARCH
        assert read is not SEARCH
        assert type(read.plan) is type(SEARCH.plan)
        assert type(read.workload.recognised) is tuple
        assert type(read.state) is SearchState

    def test_a_full_probe_comes_back_equal_but_not_the_same(self, store: Store) -> None:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, PROBE)
        (read,) = store.probes(SEARCH.id)
        assert read == PROBE
        assert read is not PROBE
        assert read.failure is not PROBE.failure
        assert read.measurement.losses == PROBE.measurement.losses

    def test_instants_come_back_in_utc(self, store: Store) -> None:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, PROBE)
        (read,) = store.probes(SEARCH.id)
        assert PROBE.started_at.tzinfo is not UTC
        assert read.started_at.tzinfo is UTC
        assert read.started_at == NOON

    def test_a_naive_instant_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="no time zone"):
            store.begin(replace(SEARCH, created=datetime(2026, 1, 31)))
        assert store.searches() == ()

    def test_a_loss_that_is_not_a_number_survives(self, store: Store) -> None:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, replace(PROBE, measurement=Measurement(losses=(float("nan"), 1.0))))
        (read,) = store.probes(SEARCH.id)
        assert str(read.measurement.losses) == "(nan, 1.0)"

    def test_text_no_database_takes_is_kept_readable(self, store: Store) -> None:
        assert PROBE.failure is not None
        store.begin(SEARCH)
        text = "a\0b\ud800c"
        store.add_probe(SEARCH.id, replace(PROBE, stdout_tail=text, failure=replace(PROBE.failure, message=text)))
        (read,) = store.probes(SEARCH.id)
        assert read.stdout_tail == "a\ufffdb?c"
        assert read.failure is not None
        assert read.failure.message == "a\ufffdb?c"

    def test_probes_come_back_in_the_order_they_were_added(self, store: Store) -> None:
        store.begin(SEARCH)
        store.begin(search("another"))
        sizes = (8, 2, 32, 4)
        for size in sizes:
            store.add_probe(SEARCH.id, replace(PROBE, batch_size=size))
            store.add_probe("another", replace(PROBE, batch_size=size + 1))
        assert tuple(probe.batch_size for probe in store.probes(SEARCH.id)) == sizes
        assert tuple(probe.batch_size for probe in store.probes("another")) == (9, 3, 33, 5)

    def test_what_was_written_is_there_for_another_store_at_once(self, store: Store, url: str) -> None:
        with Store.open(url) as other:
            store.begin(SEARCH)
            assert other.get(SEARCH.id) == SEARCH
            store.add_probe(SEARCH.id, PROBE)
            assert other.probes(SEARCH.id) == (PROBE,)

    def test_a_search_without_probes_has_none(self, store: Store) -> None:
        store.begin(SEARCH)
        assert store.probes(SEARCH.id) == ()

    @pytest.mark.parametrize(
        "call",
        [
            lambda store: store.get("nosuch"),
            lambda store: store.probes("nosuch"),
            lambda store: store.add_probe("nosuch", PROBE),
            lambda store: store.reopen("nosuch", "me", former_owner="you", lease_s=60),
            lambda store: store.renew("nosuch", "me", lease_s=60),
            lambda store: store.finish(
                "nosuch", owner="me", state=SearchState.INTERRUPTED, answer=None, message="", finished=NOON
            ),
        ],
        ids=["get", "probes", "add_probe", "reopen", "renew", "finish"],
    )
    def test_an_unknown_search_is_an_error_that_says_what_to_type(
        self, store: Store, call: Callable[[Store], object]
    ) -> None:
        with pytest.raises((StoreError, UsageError), match="has no search 'nosuch'") as caught:
            call(store)
        assert "autotune runs ls" in caught.value.hint

    def test_an_id_can_be_used_once(self, store: Store) -> None:
        store.begin(SEARCH)
        with pytest.raises(StoreError, match=f"already has a search '{SEARCH.id}'"):
            store.begin(replace(SEARCH, key="other"))
        assert store.get(SEARCH.id) == SEARCH

    def test_finishing_writes_state_answer_message_and_time(self, store: Store) -> None:
        started = search("s", message="")
        store.begin(started)
        end = NOON + timedelta(minutes=3)
        store.finish("s", owner=OWNER, state=SearchState.ANSWERED, answer=ANSWER, message="done", finished=end)
        expected = replace(
            started, state=SearchState.ANSWERED, answer=ANSWER, message="done", finished=end, lease_until=None
        )
        assert store.get("s") == expected

    @pytest.mark.parametrize(
        ("state", "answer"),
        [(SearchState.RUNNING, None), (SearchState.ANSWERED, None), (SearchState.NO_ANSWER, ANSWER)],
    )
    def test_a_state_that_contradicts_its_answer_is_refused(
        self, store: Store, state: SearchState, answer: Any
    ) -> None:
        store.begin(search("s"))
        with pytest.raises(StoreError, match=f"cannot end as '{state}'"):
            store.finish("s", owner=OWNER, state=state, answer=answer, message="", finished=NOON)
        assert store.get("s") == search("s")

    def test_an_interrupted_search_goes_on_under_a_new_owner_with_its_probes(self, store: Store) -> None:
        store.begin(search("s", message=""))
        store.add_probe("s", PROBE)
        interrupt(store, "s")
        assert store.reopen("s", "host:1:2", former_owner=OWNER, lease_s=60)
        read = store.get("s")
        assert read == search("s", message="", owner="host:1:2", lease_until=read.lease_until)
        store.add_probe("s", FITTING_PROBE)
        assert store.probes("s") == (PROBE, FITTING_PROBE)

    def test_a_search_that_somebody_else_took_meanwhile_is_left_to_them(self, store: Store) -> None:
        store.begin(search("s", message=""))
        assert store.reopen("s", "first", former_owner=OWNER, lease_s=60)
        assert not store.reopen("s", "second", former_owner=OWNER, lease_s=60)
        assert store.get("s").owner == "first"

    @pytest.mark.parametrize("state", [SearchState.ANSWERED, SearchState.NO_ANSWER])
    def test_a_final_search_cannot_be_reopened(self, store: Store, state: SearchState) -> None:
        store.begin(search("s", state=state))
        with pytest.raises(StoreError, match="cannot go on"):
            store.reopen("s", "me", former_owner=OWNER, lease_s=60)
        assert store.get("s").state is state

    def test_the_latest_search_of_a_key_is_the_newest_in_a_wanted_state(self, store: Store) -> None:
        for number, state in enumerate((SearchState.ANSWERED, SearchState.ANSWERED, SearchState.INTERRUPTED)):
            store.begin(search(f"s{number}", key="k", state=state, created=NOON + timedelta(microseconds=number)))
        store.begin(search("s9", key="other", state=SearchState.ANSWERED, created=NOON + timedelta(days=1)))

        def latest(*states: SearchState) -> str | None:
            record = store.latest("k", states)
            return record.id if record else None

        assert latest(SearchState.ANSWERED) == "s1"
        assert latest(SearchState.ANSWERED, SearchState.INTERRUPTED) == "s2"
        assert latest(SearchState.NO_ANSWER) is None
        assert latest() is None

    def test_searches_are_listed_newest_first_whatever_their_time_zone_and_order_of_writing(self, store: Store) -> None:
        for minute in (2, 0, 3, 1):
            store.begin(search(f"s{minute}", created=NOON + timedelta(minutes=minute)))
        east = (NOON + timedelta(minutes=4)).astimezone(PROBE.started_at.tzinfo)
        store.begin(search("s4", created=east))
        assert [record.id for record in store.searches()] == ["s4", "s3", "s2", "s1", "s0"]
        assert [record.id for record in store.searches(limit=2)] == ["s4", "s3"]
        assert store.searches(limit=0) == ()

    def test_the_evidence_of_a_confirmation_begins_with_what_it_confirms_as_far_as_that_is_here(
        self, store: Store
    ) -> None:
        confirming = search("new", based_on="old")
        store.begin(confirming)
        store.add_probe("new", PROBE)
        assert store.evidence(confirming) == (PROBE,)
        store.begin(search("old"))
        store.add_probe("old", FITTING_PROBE)
        assert store.evidence(confirming) == (FITTING_PROBE, PROBE)

    def test_a_search_is_found_by_the_beginning_of_its_id(self, store: Store) -> None:
        for search_id in ("abc1", "abc2", "abc", "Abx"):
            store.begin(search(search_id))
        assert store.get("abc1").id == "abc1"
        assert store.get("abc").id == "abc"
        assert store.get("Ab").id == "Abx"

    @pytest.mark.parametrize("beginning", ["", "%", "_bc1", "ABC1", "abc11"])
    def test_what_begins_no_id_finds_nothing(self, store: Store, beginning: str) -> None:
        store.begin(search("abc1"))
        with pytest.raises(UsageError, match="has no search"):
            store.get(beginning)

    def test_an_ambiguous_beginning_is_an_error_that_lists_the_searches(self, store: Store) -> None:
        for number in range(7):
            store.begin(search(f"abc{number}"))
        with pytest.raises(UsageError, match="7 searches begin with 'ab': abc0, abc1, abc2, abc3, abc4, …") as caught:
            store.get("ab")
        assert "autotune runs ls" in caught.value.hint

    def test_a_number_no_database_takes_is_an_error_of_the_store(self, store: Store) -> None:
        store.begin(SEARCH)
        with pytest.raises(StoreError):
            store.add_probe(SEARCH.id, replace(PROBE, budget_bytes=1 << 70))
        assert store.probes(SEARCH.id) == ()

    def test_an_id_that_is_not_unicode_is_an_error_of_the_store(self, store: Store) -> None:
        with pytest.raises(StoreError):
            store.get("\udce4")

    def test_a_reader_opens_what_a_writer_made(self, store: Store, url: str) -> None:
        store.begin(SEARCH)
        with Store.open(url, create=False) as reader:
            assert reader.get(SEARCH.id) == SEARCH

    def test_closing_twice_is_fine(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_probe_read_back_can_be_added_again(self, store: Store) -> None:
        store.begin(SEARCH)
        store.begin(search("s"))
        store.add_probe(SEARCH.id, PROBE)
        read: ProbeResult = store.probes(SEARCH.id)[0]
        store.add_probe("s", read)
        assert store.probes("s") == (PROBE,)

    def test_a_trace_comes_back_with_its_probe_equal_but_not_the_same(self, store: Store) -> None:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, TRACED_PROBE)
        (read,) = store.probes(SEARCH.id)
        assert facts(read) == facts(TRACED_PROBE)
        assert read.trace is not TRACE

    def test_each_probe_has_its_own_trace_or_none(self, store: Store) -> None:
        store.begin(SEARCH)
        other = replace(TRACED_PROBE, trace=replace(TRACE, passes=()))
        written = (TRACED_PROBE, PROBE, other, FITTING_PROBE)
        for probe in written:
            store.add_probe(SEARCH.id, probe)
        assert facts(*store.probes(SEARCH.id)) == facts(*written)

    def test_a_traced_probe_read_back_can_be_added_again(self, store: Store) -> None:
        store.begin(SEARCH)
        store.begin(search("s"))
        store.add_probe(SEARCH.id, TRACED_PROBE)
        store.add_probe("s", store.probes(SEARCH.id)[0])
        assert facts(*store.probes("s")) == facts(TRACED_PROBE)

    @pytest.mark.parametrize("count", [1, 5])
    def test_probes_are_read_with_their_traces_in_one_query_however_many(self, store: Store, count: int) -> None:
        store.begin(SEARCH)
        for _ in range(count):
            store.add_probe(SEARCH.id, TRACED_PROBE)
        statements: list[str] = []

        def note(*about: Any) -> None:
            statements.append(about[2])

        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert len(store.probes(SEARCH.id)) == count
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert sum("autotune_probes" in statement for statement in statements) == 1
        assert sum("autotune_traces" in statement for statement in statements) == 1

    def test_a_trace_that_breaks_its_rules_is_refused_and_its_probe_with_it(self, store: Store, url: str) -> None:
        store.begin(SEARCH)
        with pytest.raises(StoreError, match=r"events\[0\] is allocation 2"):
            store.add_probe(SEARCH.id, replace(TRACED_PROBE, trace=replace(TRACE, events=(2, 1))))
        assert store.probes(SEARCH.id) == ()
        assert sql(url, "SELECT count(*) FROM autotune_traces") == [(0,)]

    def test_a_damaged_trace_is_told_and_its_search_is_read_without_it(
        self, store: Store, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, TRACED_PROBE)
        store.add_probe(SEARCH.id, TRACED_PROBE)
        ((first,), _) = sql(url, "SELECT probe_id FROM autotune_traces ORDER BY probe_id")
        sql(url, "UPDATE autotune_traces SET data = :data WHERE probe_id = :first", data=b"\x78\x9c", first=first)
        assert facts(*store.probes(SEARCH.id)) == facts(replace(TRACED_PROBE, trace=None), TRACED_PROBE)
        (told,) = caplog.records
        assert (told.name, told.levelname) == ("autotune", "WARNING")
        where = f"autotune_traces, probe_id {first} (search '{SEARCH.id}')"
        assert told.getMessage() == f"{where} is damaged: cut off after 2 bytes; the probe is read without it"

    @pytest.mark.parametrize("table", ["autotune_probes", "autotune_searches"])
    def test_a_trace_goes_with_its_probe_and_that_with_its_search(self, store: Store, url: str, table: str) -> None:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, TRACED_PROBE)
        sql(url, f"DELETE FROM {table}")
        assert sql(url, "SELECT (SELECT count(*) FROM autotune_probes), count(*) FROM autotune_traces") == [(0, 0)]
