"""No password of a URL reaches a stream, whichever way the text with it came."""

import json
from dataclasses import replace

import pytest

from autotune.cli.console import printable
from autotune.cli.signals import Stopped
from autotune.errors import StoreError
from tests.cli.conftest import FakeApi, Invoke
from tests.cli.results import PROBES, RESULT

URL = "postgresql+psycopg://me:s3cr3t@db.example/runs"
MASKED = "postgresql+psycopg://me:***@db.example/runs"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, MASKED),
        (f"ledger '{URL}': it failed", f"ledger '{MASKED}': it failed"),
        ("postgres://me:p%40ss/w:rd?@h/d", "postgres://me:***@h/d"),
        ("postgres://me:p@ss@h/d", "postgres://me:***@h/d"),
        ("two: https://a:b@c and redis://:x@y", "two: https://a:***@c and redis://:***@y"),
        (f"{URL}?sslpassword=s3cr3t&schema=a", f"{MASKED}?sslpassword=***&schema=a"),
        ("https://h/d?a=1&access_token=abc#top", "https://h/d?a=1&access_token=***"),
        ("postgresql://me@db/runs", "postgresql://me@db/runs"),
        ("https://pytorch.org/docs: see torch@2.13", "https://pytorch.org/docs: see torch@2.13"),
        ("at 12:30 mail me@home", "at 12:30 mail me@home"),
        ('{"url": "http://u:p@h"}', '{"url": "http://u:***@h"}'),
    ],
)
def test_a_password_in_a_url_is_masked_and_the_rest_is_left(text: str, shown: str) -> None:
    assert printable(text) == shown


def assert_silent(invoke: Invoke, *argv: str) -> str:
    """Run a command; nothing of it holds the password. Returns all it printed."""
    ended = invoke(*argv, "--storage", URL)
    assert "s3cr3t" not in ended.out + ended.err
    return ended.out + ended.err


@pytest.mark.parametrize("command", ["search", "max-batch"])
def test_the_command_that_goes_on_is_shown_without_it(invoke: Invoke, fake: FakeApi, command: str) -> None:
    fake.error = Stopped(2)
    assert f"hint: to continue: autotune {command} model.py --storage {MASKED}\n" in assert_silent(
        invoke, command, "model.py"
    )


@pytest.mark.parametrize("options", [(), ("--json",), ("--verbose",)])
def test_an_error_is_shown_without_it(invoke: Invoke, fake: FakeApi, options: tuple[str, ...]) -> None:
    fake.error = StoreError(f"cannot reach {URL}", hint=f"psql {URL}", detail=f"tried {URL}")
    text = assert_silent(invoke, "search", "model.py", *options)
    assert f"error: cannot reach {MASKED}\n" in text
    assert f"hint: psql {MASKED}\n" in text


def test_a_bug_is_shown_without_it(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = RuntimeError(f"unexpected: {URL}")
    assert f"this is a bug in autotune: RuntimeError: unexpected: {MASKED}" in assert_silent(
        invoke, "search", "model.py"
    )


def test_a_wrong_command_line_is_shown_without_it(invoke: Invoke) -> None:
    assert MASKED in assert_silent(invoke, "search", "model.py", "--storage", URL, "--hidden", "3")


def test_what_a_training_wrote_is_shown_without_it(invoke: Invoke, fake: FakeApi) -> None:
    probes = [
        replace(
            probe, stderr_tail=f"Error: {URL}", failure=probe.failure and replace(probe.failure, message=f"no {URL}")
        )
        for probe in PROBES
    ]
    fake.result = replace(RESULT, probes=tuple(probes), warnings=(f"see {URL}",))
    assert_silent(invoke, "search", "model.py", "--verbose")
    document = invoke("search", "model.py", "--json").out
    assert "s3cr3t" not in document and MASKED in document
    json.loads(document)
