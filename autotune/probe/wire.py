"""Messages between processes: framed JSON that survives garbage on the same descriptor.

A user's code may write to any descriptor it finds, the answer pipe included. So each message is cut into lines short
enough for the kernel to write atomically (PIPE_BUF), each line carries a secret token and a checksum, and the reader
skips everything else. No validation here: the parent checks contents against its dataclasses (``ended.py``).
"""

import json
import os
import secrets
import zlib
from collections.abc import Iterator
from typing import TypeAlias

Message: TypeAlias = dict[str, object]
"""One decoded message; ``kind`` is always a string."""

_PIPE_BUF = 4096  # writes up to this are atomic on a pipe (POSIX guarantees 512, Linux 4096, see pipe(7))
_CHUNK = 3800
_LONGEST_LINE = 1 << 16
_LONGEST_MESSAGE = 1 << 24
"""Characters. No message of ours has more than a few ten thousand: texts of exceptions are cut where they are sent."""
_PART = 100
"""What a part takes beside its text, about."""
_DEEPEST_MESSAGE = 32
"""Lists and objects within each other; ours have six."""


def new_token() -> str:
    """A token that garbage will not contain by chance."""
    return secrets.token_hex(8)


class Channel:
    """Writing end, used by a worker; several processes may share the pipe."""

    def __init__(self, fd: int, token: str, writer: str = "") -> None:
        """
        Args:
            fd: a pipe.
            token: what the reader knows our messages by.
            writer: tells this process's messages from those of others that write to the same pipe; no blanks.
        """
        self._fd = fd
        self._token = token
        self._writer = writer
        self._number = 0

    def of_writer(self, writer: str) -> "Channel":
        """The same pipe for another process."""
        return Channel(self._fd, self._token, writer)

    def close(self) -> None:
        """Close the descriptor in this process."""
        os.close(self._fd)

    def send(self, kind: str, **fields: object) -> None:
        """Send one message.

        Raises:
            OSError: the descriptor was closed (by the user's code, or because the parent is gone).
        """
        text = json.dumps({"kind": kind, **fields}, allow_nan=True)
        self._number += 1
        parts = [text[i : i + _CHUNK] for i in range(0, len(text), _CHUNK)]
        for index, part in enumerate(parts):
            body = f"{self._writer}{self._number} {index} {len(parts)} {part}"
            line = f"\n{self._token} {zlib.crc32(body.encode()):08x} {body}\n".encode()
            assert len(line) <= _PIPE_BUF
            write_all(self._fd, line)


def write_all(fd: int, data: bytes) -> None:
    """Write to the end: a signal may cut a single write short."""
    while data:
        data = data[os.write(fd, data) :]


class Decoder:
    """Reading end: bytes in, messages out, garbage counted and dropped."""

    def __init__(self, token: str) -> None:
        self._token = token.encode() + b" "
        self._buffer = b""
        self._parts: dict[bytes, dict[int, str]] = {}
        self._waiting = 0
        """Characters of incomplete messages."""
        self.garbage_bytes = 0
        """Bytes seen that belong to no message."""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take what was read from the pipe; yield each message that is complete with it."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _LONGEST_LINE:
            self.garbage_bytes += len(self._buffer)
            self._buffer = b""
        for line in lines:
            if line:
                yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[Message]:
        checksum, _, body = line.removeprefix(self._token).partition(b" ")
        if not line.startswith(self._token) or checksum != f"{zlib.crc32(body):08x}".encode():
            self.garbage_bytes += len(line)
            return
        try:
            message = self._message(body)
        except (ValueError, LookupError, RecursionError):  # forged: the token is no secret to code in the same process
            self.garbage_bytes += len(line)
            return
        if message is not None:
            yield message

    def _message(self, body: bytes) -> Message | None:
        """The message that is complete with this line; None if it is not yet.

        Raises:
            ValueError, LookupError, RecursionError: it is none of ours, or one of those that wait is not.
        """
        number, index, count, text = body.split(b" ", 3)
        place, num_parts = int(index), int(count)
        if not 0 <= place < num_parts <= _LONGEST_MESSAGE // _CHUNK:
            raise ValueError(f"part {place} of {num_parts}")
        parts = self._parts.setdefault(number, {})
        self._waiting += len(text) + _PART
        if self._waiting > _LONGEST_MESSAGE:
            self._parts.clear()
            self._waiting = 0
            raise ValueError("too much that is never complete")
        parts[place] = text.decode()
        if len(parts) != num_parts:
            return None
        del self._parts[number]
        self._waiting = sum(len(part) + _PART for others in self._parts.values() for part in others.values())
        message = json.loads("".join(parts[i] for i in range(num_parts)))
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str) or _is_deep(message):
            raise ValueError("no message")
        return message


def _is_deep(value: object, levels: int = _DEEPEST_MESSAGE) -> bool:
    """Whether lists and objects lie in each other for more than so many levels."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(item, levels - 1) for item in inner)
