"""Values of the wrong kind in calls from Python: refused by name before anything runs, never taken for another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import api
from autotune.errors import UsageError
from autotune.probe.launcher import Launcher
from autotune.storage.store import Store

FILE = str(Path(__file__).parent.parent.parent / "examples" / "tiny_gpt.py")
RANKS = api.plan(FILE, ranks=2, recommend=False, device="cpu")
ALONE = api.plan(FILE, device="cpu")

CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "plan": (lambda **more: api.plan(FILE, **more), {"recommend": "no", "tune": 1, "seed": 1.5, "trials": "12"}),
    "find_max_batch": (
        lambda **more: api.find_max_batch(FILE, device="cpu", **more),
        {"fresh": "no", "observer": "me", "storage": 5, "executor_options": [1]},
    ),
    "search": (
        lambda **more: api.search(ALONE, **more),
        {"fresh": "no", "observer": print, "storage": 5, "executor_options": None},
    ),
    "search_kinds": (lambda **more: api.search_kinds(ALONE, **more), {"fresh": 1, "observer": "me"}),
    "search_buckets": (lambda **more: api.search_buckets(ALONE, [8], **more), {"fresh": None, "observer": 1}),
    "predict": (
        lambda **more: api.predict(RANKS, **more),
        {"verify": "x", "fresh": 0, "observer": "me", "storage": []},
    ),
    "check": (
        lambda **more: api.check(**{"path": FILE, **more}),
        {"path": 5, "probe": "no", "observer": 1},
    ),
    "searches": (api.searches, {"limit": "all", "storage": 5.0}),
    "explain": (lambda **more: api.explain(**more), {"storage": b"ledger", "batch_size": "8"}),
    "diagnose": (
        lambda **more: api.diagnose(FILE, **more),
        {
            "batch": "4",
            "steps": True,
            "only": 5,
            "output": 5,
            "recommendation": 5,
            "storage": 5,
            "script_args": "x",
            "observer": 1,
            "keep": 1,
        },
    ),
}


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> None:
        raise AssertionError("processes were started")

    monkeypatch.setattr(Launcher, "preload", started)


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        pytest.param(call, name, value, id=f"{function}-{name}")
        for function, (call, wrong) in CALLS.items()
        for name, value in wrong.items()
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(call: Callable[..., object], name: str, value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        call(**{name: value})
    assert raised.value.message.startswith(name.removesuffix("_size"))
    assert repr(value) in raised.value.message
    assert raised.value.hint


def test_a_number_is_no_id_of_a_search(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.sqlite3")
    with Store.open(ledger):
        pass
    for call in (api.show, api.explain, api.report):
        with pytest.raises(UsageError, match="5 is no id of a search"):
            call(5, storage=ledger)  # type: ignore[arg-type]


def test_doctor_tells_of_a_place_that_is_none() -> None:
    (fact,) = [one for one in api.doctor(5).facts if one.section == "ledger"]  # type: ignore[arg-type]
    assert (fact.value, fact.health) == ("storage is 5", "trouble")
