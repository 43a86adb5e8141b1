"""Frames survive garbage on the same descriptor."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.probe.wire import Channel, Decoder, Message, new_token


def sent(token: str, *messages: tuple[str, dict[str, object]]) -> bytes:
    """Bytes a channel writes for these messages."""
    reading, writing = os.pipe()
    channel = Channel(writing, token)
    for kind, fields in messages:
        channel.send(kind, **fields)
    channel.close()
    with os.fdopen(reading, "rb") as file:
        return file.read()


def decoded(decoder: Decoder, data: bytes) -> list[Message]:
    return list(decoder.feed(data))


def test_a_message_arrives_as_it_was_sent() -> None:
    token = new_token()
    data = sent(token, ("answer", {"value": 1.5, "text": "line\nbreak", "none": None}))
    assert decoded(Decoder(token), data) == [{"kind": "answer", "value": 1.5, "text": "line\nbreak", "none": None}]


def test_a_long_message_is_cut_into_atomic_lines_and_joined_again() -> None:
    token, text = new_token(), "x" * 20_000
    data = sent(token, ("answer", {"text": text}))
    assert max(len(line) for line in data.split(b"\n")) < 4096
    assert decoded(Decoder(token), data) == [{"kind": "answer", "text": text}]


@given(garbage=st.lists(st.binary(max_size=300), min_size=3, max_size=3), cut=st.integers(1, 64))
def test_garbage_around_messages_is_skipped_however_the_reads_are_cut(garbage: list[bytes], cut: int) -> None:
    token = new_token()
    first, second = sent(token, ("mark", {"step": 1})), sent(token, ("answer", {"ok": True}))
    stream = garbage[0] + first + garbage[1] + second + garbage[2] + b"\n"
    decoder = Decoder(token)
    messages = [m for i in range(0, len(stream), cut) for m in decoder.feed(stream[i : i + cut])]
    assert [m["kind"] for m in messages] == ["mark", "answer"]
    assert decoder.garbage_bytes == sum(len(line) for g in garbage for line in g.split(b"\n"))


def test_a_line_with_a_wrong_checksum_is_garbage() -> None:
    token = new_token()
    data = sent(token, ("answer", {"ok": True})).replace(b"true", b"null")
    decoder = Decoder(token)
    assert decoded(decoder, data) == []
    assert decoder.garbage_bytes > 0


def test_an_endless_line_of_garbage_does_not_fill_memory() -> None:
    decoder = Decoder(new_token())
    for _ in range(40):
        assert decoded(decoder, b"x" * 10_000) == []
    assert len(decoder._buffer) < 100_000


def test_a_closed_descriptor_is_an_error_for_the_sender() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    channel = Channel(writing, new_token())
    with pytest.raises(BrokenPipeError):
        channel.send("answer", ok=True)
    channel.close()


def test_messages_of_several_writers_are_told_apart_however_their_lines_mix() -> None:
    token = new_token()
    reading, writing = os.pipe()
    first = Channel(writing, token, "1-")
    second = first.of_writer("2-")
    texts = {"first": "a" * 10_000, "second": "b" * 10_000}
    first.send("answer", text=texts["first"])
    second.send("answer", text=texts["second"])
    first.close()
    with os.fdopen(reading, "rb") as file:
        lines = [line for line in file.read().split(b"\n") if line]
    half = len(lines) // 2
    mixed = b"".join(b"\n" + line + b"\n" for pair in zip(lines[:half], lines[half:], strict=True) for line in pair)
    assert sorted(str(m["text"]) for m in decoded(Decoder(token), mixed)) == sorted(texts.values())
