"""Files between the tool and a worker in a batch job: taken once, and whatever somebody leaves there is read as data."""

from pathlib import Path

import pytest

from autotune.executors.mailbox import Mailbox


def test_a_message_is_taken_once(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path)
    mailbox.write("answer-1", {"kind": "ready"})
    assert (mailbox.take("answer-1"), mailbox.take("answer-1")) == ({"kind": "ready"}, None)


@pytest.mark.parametrize("data", [b"", b"{", b"7", b"\xff\xfe", b"[" * 100_000], ids=range(5))
def test_what_is_no_message_is_one_of_an_unknown_kind(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "answer-1").write_bytes(data)
    assert Mailbox(tmp_path).take("answer-1") == {"kind": "unknown"}
