"""A diagnosis of leaks as people and as programs read it."""

import json
from dataclasses import replace

import pytest

from autotune.model import LeakKind
from autotune.report.findings import findings_json, findings_text
from autotune.report.leaks import KINDS, advice, headline
from tests.unit.leak_samples import CLEAN, CYCLES, EVERY_KIND, FINDINGS, LEAKS, SMALL, SUSPECT


def test_the_answer_comes_first_then_what_grows_and_what_to_do() -> None:
    lines = findings_text(FINDINGS).splitlines()
    assert lines[0] == (
        "leak: memory grows by 91 KiB a step (a line explains 99.9% of it, steps 6 to 101),"
        " and would run out at about step 8,159"
    )
    assert lines[2] == "91 KiB a step: autograd graph retained"
    assert lines[3] == "  what     list history of model.py (float32 ())"
    assert lines[4] == "  made at  model.py:23 (phase forward)"
    assert lines[5] == "  kept at  model.py:24"
    assert ".detach()" in lines[6] and "model.py:24" in lines[6]
    assert lines[-1].startswith("model.py at batch 8 (as asked for) on NVIDIA H200 (cuda), budget 40 GiB")


def test_nothing_that_grows_is_said_with_the_steps_that_were_looked_at() -> None:
    assert headline(CLEAN) == "no leak: nothing grows from step to step (29 steps)"
    assert "- reference cycles keep 1 MiB" in findings_text(CYCLES)


def test_a_death_while_looking_is_said_in_place_of_the_end_that_was_foretold() -> None:
    assert headline(replace(LEAKS, died_at_step=77)).endswith("; it ran out in step 77")


def test_what_keeps_little_memory_is_a_leak_all_the_same() -> None:
    assert headline(SMALL) == "leak: little memory is kept of every step"


def test_programs_read_the_same() -> None:
    content = json.loads(findings_json(FINDINGS))
    assert (content["schema_version"], content["clean"], content["batch_size"]) == (1, False, 8)
    leaks = content["leaks"]
    assert leaks["answer"] == headline(LEAKS)
    assert leaks["device"] == {"bytes_per_step": 93184, "fit": 0.9987, "from_step": 6, "to_step": 101}
    (suspect,) = leaks["suspects"]
    assert (suspect["kind"], suspect["made_at"], suspect["kept_at"]) == ("graph", "model.py:23", "model.py:24")
    assert suspect["advice"] == advice(SUSPECT)


def test_a_section_that_was_not_asked_for_is_null() -> None:
    content = json.loads(findings_json(replace(FINDINGS, leaks=None)))
    assert content["leaks"] is None and content["clean"] is True


@pytest.mark.parametrize("kind", LeakKind)
def test_every_kind_has_words_and_advice_with_and_without_a_place(kind: LeakKind) -> None:
    assert KINDS[kind]
    there = advice(replace(SUSPECT, kind=kind))
    nowhere = advice(replace(SUSPECT, kind=kind, made_at="", kept_at=""))
    assert "model.py" not in nowhere and nowhere
    assert ("model.py:2" in there) is (kind is not LeakKind.UNKNOWN)


def test_everything_at_once_can_be_read() -> None:
    text = findings_text(replace(FINDINGS, leaks=EVERY_KIND))
    assert all(words in text for words in KINDS.values())
    assert text.isascii()
