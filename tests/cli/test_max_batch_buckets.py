"""``autotune max-batch --buckets``: what is asked, printed, written, and the exit code where a bucket has no answer."""

import json
import sys
from pathlib import Path

import pytest

from autotune.report.document import read
from tests.cli.bucketed import BUCKETED, PARTLY
from tests.cli.conftest import FakeApi, Invoke


def test_a_pipe_gets_a_line_for_each_bucket(invoke: Invoke, fake: FakeApi) -> None:
    ended = invoke("max-batch", "model.py", "--buckets", "64,512, 2048", "--fresh", "--storage", "l")
    assert (ended.code, ended.out) == (0, "64 -\n512 27\n2048 24\n")
    assert fake.calls["search_buckets"]["buckets"] == (64, 512, 2048)
    assert (fake.calls["search_buckets"]["fresh"], fake.calls["search_buckets"]["storage"]) == (True, "l")
    assert fake.calls["plan"]["recommend"] is False
    assert "search" not in fake.calls
    assert "- length bucket 64 has no batch: no sample is at most 64 long\n" in ended.err


def test_a_terminal_gets_a_table(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    ended = invoke("max-batch", "model.py", "--buckets", "64,512,2048")
    assert ended.out.startswith("length  samples  longest  max batch")
    assert len(ended.out.splitlines()) == 4


def test_json_and_the_file_are_the_document_with_the_buckets(invoke: Invoke) -> None:
    ended = invoke("max-batch", "model.py", "--buckets", "64,512,2048", "--json", "-q", "--output", "o.json")
    assert ended.code == 0
    assert ended.out == Path("o.json").read_text()
    content = read(ended.out)
    assert [(row.max_length, row.max_batch) for row in content.buckets] == [(64, None), (512, 27), (2048, 24)]
    assert content.batch.max_batch == 24


def test_where_a_bucket_fits_nothing_the_others_are_shown_and_the_exit_code_is_3(invoke: Invoke, fake: FakeApi) -> None:
    fake.bucketed = PARTLY
    Path("o.json").write_text("{}")
    ended = invoke("max-batch", "model.py", "--buckets", "64,512,2048", "--output", "o.json")
    assert (ended.code, ended.out) == (3, "64 -\n512 27\n2048 -\n")
    assert "error: length bucket 2048: nothing fits: batch 1 is out of memory" in ended.err
    assert "hint: a smaller model" in ended.err
    assert not Path("o.json").exists() and Path("o.json.stale").exists()


def test_then_json_has_the_error_and_the_answers_there_are(invoke: Invoke, fake: FakeApi) -> None:
    fake.bucketed = PARTLY
    ended = invoke("max-batch", "model.py", "--buckets", "64,512,2048", "--json")
    assert ended.code == 3
    content = json.loads(ended.out)
    assert content["error"]["kind"] == "nothing_fits"
    assert [row["max_batch"] for row in content["buckets"]] == [None, 27, None]
    assert content["machine"]["device_name"] == BUCKETED.machine.device_name


@pytest.mark.parametrize("text", ["", "128,,512", "128,a", "12.5", "-128", "128 512", "0x80", "²"])
def test_what_is_no_list_of_numbers_is_refused(invoke: Invoke, fake: FakeApi, text: str) -> None:
    ended = invoke("max-batch", "model.py", f"--buckets={text}")
    assert ended.code == 2
    assert f"error: --buckets {text!r}: " in ended.err
    assert "hint: give whole numbers, for example --buckets 128,512,2048" in ended.err
    assert "search_buckets" not in fake.calls


def test_an_interruption_says_how_to_go_on(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = KeyboardInterrupt()
    ended = invoke("max-batch", "model.py", "--buckets", "64,512")
    assert ended.code == 130
    assert "to continue: autotune max-batch model.py --buckets 64,512" in ended.err


def test_a_search_of_settings_has_no_such_option(invoke: Invoke) -> None:
    ended = invoke("search", "model.py", "--buckets", "64,512")
    assert ended.code == 2
    assert "--buckets" in ended.err
