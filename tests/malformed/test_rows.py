"""Rows of the ledger, which anything may have written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune.storage.convert import probe_from_row, probe_to_row, search_from_row, search_to_row
from autotune.storage.tables import ProbeRow, SearchRow
from tests.contract.samples import PROBE, SEARCH
from tests.malformed.inputs import VALUES, clear, inputs

CELLS = st.one_of(VALUES, st.binary(max_size=30), st.just("[" * 5_000), st.just('{"a": NaN}'), st.just("1" * 5000))


def damage(row: Any, cells: dict[str, Any]) -> Any:
    for name, cell in cells.items():
        setattr(row, name, cell)
    return row


def columns(kind: type[ProbeRow] | type[SearchRow]) -> st.SearchStrategy[dict[str, Any]]:
    names = [column.name for column in kind.__table__.columns if column.name != "id"]
    return st.dictionaries(st.sampled_from(names), CELLS, min_size=1, max_size=3)


@inputs(100)
@given(cells=columns(SearchRow))
def test_a_damaged_search_is_a_search_or_refused_by_its_field(cells: dict[str, Any]) -> None:
    clear(search_from_row, damage(search_to_row(SEARCH), cells))


@inputs(100)
@given(cells=columns(ProbeRow))
def test_a_damaged_probe_is_a_probe_or_refused_by_its_field(cells: dict[str, Any]) -> None:
    clear(probe_from_row, damage(probe_to_row("s", 1, PROBE), cells))
