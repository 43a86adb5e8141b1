"""Which earlier probes count under another budget, and which search is the newest."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from autotune import session
from autotune.model import Cause, Form, ProbeResult, SearchState
from autotune.reuse import still_valid
from autotune.session import Session
from autotune.storage.store import Store
from tests.cli.results import BUDGET, MACHINE, NOON, PLAN, WORKLOAD
from tests.fakes import OUT_OF_MEMORY, SEGFAULT, result

LIMIT = 1000


def measured(probe: ProbeResult, *, reserved_bytes: int | None, peak_bytes: int) -> ProbeResult:
    figures = replace(probe.measurement, peak_reserved_bytes=reserved_bytes, peak_device_bytes=peak_bytes)
    return replace(probe, measurement=figures)


def kept(probe: ProbeResult, limit_bytes: int) -> bool:
    return still_valid([probe], limit_bytes) == (probe,)


def test_a_fit_counts_under_a_larger_budget() -> None:
    assert kept(result(4, Form.LONG, budget_bytes=LIMIT), LIMIT + 1)


def test_a_fit_counts_under_a_smaller_budget_only_if_the_allocator_says_it_held_less() -> None:
    fit = result(4, Form.LONG, budget_bytes=LIMIT)
    assert kept(measured(fit, reserved_bytes=800, peak_bytes=900), 900)
    assert not kept(measured(fit, reserved_bytes=800, peak_bytes=901), 900)
    assert not kept(measured(fit, reserved_bytes=None, peak_bytes=500), 900), "resident memory is less than mapped"


def test_an_out_of_memory_counts_under_a_smaller_budget_only() -> None:
    failed = result(8, fault=OUT_OF_MEMORY, budget_bytes=LIMIT)
    assert failed.failure is not None and failed.failure.cause is Cause.DEVICE_MEMORY
    assert kept(failed, LIMIT) and kept(failed, LIMIT - 1)
    assert not kept(failed, LIMIT + 1)


def test_other_failures_count_under_any_budget() -> None:
    assert kept(result(8, fault=SEGFAULT, budget_bytes=LIMIT), 10 * LIMIT)


def test_a_search_that_begins_after_the_clock_was_set_back_is_the_newest_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        time = NOON

        @classmethod
        def now(cls, zone: object) -> datetime:
            return cls.time

    monkeypatch.setattr(session, "datetime", Clock)
    with Store.open(str(tmp_path / "ledger.sqlite3")) as store:
        nothing = cast(Any, None)
        one = Session(PLAN, store, nothing, nothing, WORKLOAD, MACHINE, BUDGET, 0.0)
        before = one._begin().record
        Clock.time = NOON - timedelta(days=1)
        after = one._begin().record
        newest = store.latest(before.key, frozenset(SearchState))
    assert newest is not None and newest.id == after.id
    assert after.created - before.created == timedelta(microseconds=1)
