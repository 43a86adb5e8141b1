"""Passwords stay out of everything that is printed, however they are written."""

import logging
from dataclasses import replace
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.api import LogObserver
from autotune.cli.console import printable
from autotune.masked import without_passwords, without_secrets
from tests.cli.results import BUDGET, MACHINE, WORKLOAD

SECRETS = [
    "postgresql://me:s3cret@db.example:5433/runs",
    "postgresql+psycopg://me:s3cret@db.example/x?connect_timeout=5",
    "postgres://me:s3/cret@db.example/s3cret@x",
    "postgresql://me:s3%2Fcret%40@db.example/x",
    "postgresql://db.example/x?user=me&password=s3cret&sslmode=require",
    "postgresql://db.example/x?sslpassword=s3cret",
    "https://me:s3cret@host/path",
    "host=db.example user=me password=s3cret dbname=x",
    "hint: to continue: autotune search model.py --storage 'postgresql://me:s3cret@h/d' --seed 1",
    '{"message": "cannot open redis://:s3cret@h/0"}',
    "API_TOKEN=s3cret python train.py",
]
HARMLESS = [
    "postgresql+psycopg://me@db.example:5433/runs",
    "https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    "mail me@example.org: it fails at 12:30",
    "C:\\models\\a.py:Task",
    "batch=4, peak=2 GiB @ batch 3",
    "http://localhost:8080/path@version",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_password_is_masked(text: str) -> None:
    found = without_passwords(text)
    assert "cret" not in found.replace("s3cret@x", "")
    assert "***" in found
    assert without_passwords(found) == found


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_passwords(text) == text


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    password=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'\"\\"), min_size=8).map(
        lambda text: f"<{text}>"
    ),
    user=st.text("abcxyz0", max_size=6),
)
def test_whatever_stands_between_colon_and_host_is_masked(password: str, user: str) -> None:
    told = f"cannot open postgresql+psycopg://{user}:{password}@db/x, sorry"
    assert password not in without_passwords(told)
    assert password not in without_secrets(told)


@pytest.mark.parametrize("password", ["s3cret", "s3/cret", "s3@cret", "s3:cret"])
def test_what_other_users_may_read_names_neither_user_nor_password(password: str) -> None:
    """As in the note of who holds a device, and in the block for bug reports."""
    told = without_secrets(f"autotune search m.py --storage postgresql://anna:{password}@db/runs --token t0p")
    assert told == "autotune search m.py --storage postgresql://***@db/runs --token ***"


@pytest.mark.parametrize("text", ["a." * 50_000, "postgres" * 20_000, "http://" * 20_000, "http://a:" + "b" * 200_000])
def test_long_texts_are_quick_to_look_through(text: str) -> None:
    started = perf_counter()
    without_passwords(text + "@=")
    assert perf_counter() - started < 5  # quadratic ways take minutes


def test_what_is_printed_has_neither_passwords_nor_control_characters() -> None:
    text = "\x1b]0;owned\x07\x1b[2J\r\x9b31mmodel\u202egpj.py\u2066 postgres://me:s3cret@h/d\x00"
    assert printable(text) == "31mmodelgpj.py postgres://me:***@h/d"


def test_the_log_has_no_passwords(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "autotune")
    LogObserver().found(replace(WORKLOAD, ref="python train.py --db postgres://me:s3cret@h/d"), MACHINE, BUDGET)
    assert "postgres://me:***@h/d" in caplog.text
