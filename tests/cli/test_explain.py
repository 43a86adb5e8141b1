"""``autotune explain`` over a real ledger."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import api
from autotune.errors import UsageError
from autotune.model import Reason
from autotune.units import GIB
from tests.cli.conftest import Invoke, Keep
from tests.cli.results import ANSWER, MACHINE, PROBES, RECORD, fitting, later
from tests.unit.planted_passes import Planted, trained

RECORDING = replace(fitting(2, reason=Reason.TRACE), trace=trained(Planted(cache=100_000), (2, 3)))


def test_the_newest_search_with_an_answer_is_explained(invoke: Invoke, keep: Keep) -> None:
    keep(later("old1", 0), RECORDING, *PROBES)
    keep(later("new2", 1), RECORDING, *PROBES)
    keep(later("none3", 2, answer=None), RECORDING)
    ended = invoke("explain", "--storage", "ledger")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("search     new2: model.py on NVIDIA H200 (cuda)\ncertified  27 (28 refuted)\n")
    assert "batch      27, foretold from a record of batches up to 3\n" in ended.out
    assert invoke("explain", "ol", "--storage", "ledger").out.startswith("search     old1: ")


def test_a_confirmed_answer_is_explained_by_the_recording_of_the_search_it_confirms(invoke: Invoke, keep: Keep) -> None:
    keep(later("first", 0), RECORDING, *PROBES)
    keep(later("again", 1, based_on="first"), replace(PROBES[5], reason=Reason.CONFIRM, budget_bytes=39 * GIB))
    ended = invoke("explain", "--storage", "ledger", "--json")
    content = json.loads(ended.out)
    assert content["search_id"] == "again"
    assert content["foretold"]["cap_bytes"] == 38 * GIB


def test_another_size_can_be_explained(invoke: Invoke, keep: Keep) -> None:
    keep(RECORD, RECORDING, *PROBES)
    assert json.loads(invoke("explain", "--batch", "5", "--storage", "ledger", "--json").out)["batch_size"] == 5


def test_programs_read_the_same_as_people(invoke: Invoke, keep: Keep) -> None:
    keep(RECORD, RECORDING, *PROBES)
    content = json.loads(invoke("explain", "--storage", "ledger", "--json").out)
    foretold = content["foretold"]
    assert sum(part["size_bytes"] for part in foretold["parts"]) == foretold["allocated_bytes"]
    assert foretold["phase"] == "backward"
    assert "allocated in the backward pass" in invoke("explain", "--storage", "ledger").out


def test_a_cpu_search_is_explained_by_what_was_measured(invoke: Invoke, keep: Keep) -> None:
    keep(replace(RECORD, machine=replace(MACHINE, device="cpu")), *PROBES)
    ended = invoke("explain", "--storage", "ledger")
    assert ended.code == 0
    assert "batch      27, as its long probe measured it: fits\n" in ended.out
    assert "foretold   nothing: the CPU keeps no record of its allocations\n" in ended.out
    assert "\nactivations and temporaries " in ended.out


def test_what_cannot_be_explained_is_a_usage_error_with_a_next_step(invoke: Invoke, keep: Keep) -> None:
    keep(later("none", 0, answer=None), *PROBES[2:3])
    keep(later("some", 1, answer=ANSWER), *PROBES)
    for argv, message, hint in (
        (["zz"], "has no search 'zz'", "autotune runs ls"),
        (["none"], "search none has no answer to explain", "autotune explain none --batch 1"),
        (["--batch", "5"], "search some did not run batch 5", "sizes that ran: 4, 16, 24, 27, 28, 32"),
        (["--batch", "0"], "'--batch'", "autotune explain --help"),
        (["--batch", "many"], "'--batch'", "autotune explain --help"),
    ):
        ended = invoke("explain", *argv, "--storage", "ledger")
        assert (ended.code, ended.out) == (2, "")
        assert message in ended.err.splitlines()[0]
        assert hint in ended.err.splitlines()[1]


def test_a_ledger_without_an_answer_says_what_to_do(invoke: Invoke, keep: Keep) -> None:
    keep(later("none", 0, answer=None), *PROBES[2:3])
    ended = invoke("explain", "--storage", "ledger")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: the ledger holds no search with an answer\nhint: begin with: autotune search")
    missing = invoke("explain", "--storage", "elsewhere")
    assert missing.code == 2
    assert "no ledger at" in missing.err


def test_from_python_it_is_the_same(keep: Keep, tmp_path: Path) -> None:
    keep(RECORD, RECORDING, *PROBES)
    storage = str(tmp_path / "ledger")
    explained = api.explain(RECORD.id, batch_size=24, storage=storage)
    assert explained.foretold is not None
    assert (explained.batch_size, explained.measured) == (24, PROBES[6])
    with pytest.raises(UsageError, match="did not run batch 4800"):
        api.explain(batch_size=4800, storage=storage)
