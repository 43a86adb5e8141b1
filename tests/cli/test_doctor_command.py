"""``autotune doctor``: one block of text, JSON, and an exit code."""

import json

import pytest

from autotune import api
from autotune.model import Diagnosis, Fact, Health
from tests.cli.conftest import Invoke

FINE = Fact(section="versions", name="torch", value="2.13.0")
NOTED = Fact(section="optional", name="triton", value="not installed", health=Health.NOTE, hint="pip install triton")
BROKEN = Fact(
    section="devices", name="cuda:0", value=f"no kernels \x1b[2J {'word ' * 60}", health=Health.TROUBLE, hint="update"
)


@pytest.fixture
def diagnosed(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    """What ``api.doctor`` finds: the last of the list."""
    found = [Diagnosis(facts=(FINE, NOTED), usable=True)]
    monkeypatch.setattr(api, "doctor", lambda storage=None: found[-1])
    monkeypatch.setenv("HOME", "/home/anna")
    return found


def test_what_works_ends_well_in_one_block(invoke: Invoke, diagnosed: list[Diagnosis]) -> None:
    ended = invoke("doctor")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "versions",
        "  torch   2.13.0",
        "optional",
        "- triton  not installed",
        "          -> pip install triton",
        "searches can run here; nothing is wrong",
    ]


def test_what_is_wrong_comes_once_more_at_the_end_and_no_line_is_too_long(
    invoke: Invoke, diagnosed: list[Diagnosis]
) -> None:
    diagnosed.append(Diagnosis(facts=(FINE, BROKEN), usable=True))
    ended = invoke("doctor")
    assert ended.code == 0
    assert ended.out.splitlines()[-2:] == ["searches can run here; 1 thing to repair:", "! devices, cuda:0: update"]
    assert "\x1b" not in ended.out and max(map(len, ended.out.splitlines())) <= 118


def test_where_no_search_can_run_the_exit_code_is_that_of_the_environment(
    invoke: Invoke, diagnosed: list[Diagnosis]
) -> None:
    diagnosed.append(Diagnosis(facts=(BROKEN,), usable=False))
    for options in ((), ("--json",)):
        ended = invoke("doctor", *options)
        assert (ended.code, ended.err) == (5, "")
    assert json.loads(ended.out)["usable"] is False


def test_json_has_every_fact_and_paths_are_told_without_the_users_name(
    invoke: Invoke, diagnosed: list[Diagnosis]
) -> None:
    place = Fact(section="ledger", name="place", value="/home/anna/.local/ledger.sqlite3: größer")
    diagnosed.append(Diagnosis(facts=(FINE, place), usable=True))
    ended = invoke("doctor", "--json")
    assert ended.out.isascii()
    content = json.loads(ended.out)
    assert content["schema_version"] == 1 and content["usable"] is True
    assert content["facts"][1] == {
        "section": "ledger",
        "name": "place",
        "value": "~/.local/ledger.sqlite3: größer",
        "health": "ok",
        "hint": "",
    }
    assert "anna" not in invoke("doctor").out
