"""How the zygote imports: with fewer collections, and with the collector as it was once it is through."""

import gc

import pytest

from autotune.probe.zygote import _no_full_collections


def test_what_imports_make_is_looked_at_while_it_is_young_and_never_in_full() -> None:
    before, full = gc.get_threshold(), gc.get_stats()[2]["collections"]
    young = gc.get_stats()[0]["collections"]
    with _no_full_collections():
        kept = [[number] for number in range(300_000)]
        assert gc.get_stats()[2]["collections"] == full
    assert len(kept) == 300_000 and gc.get_stats()[0]["collections"] > young
    assert gc.get_threshold() == before


def test_the_collector_is_as_it_was_after_an_import_that_failed() -> None:
    before = gc.get_threshold()
    with pytest.raises(ImportError), _no_full_collections():
        raise ImportError("planted")
    assert gc.get_threshold() == before
