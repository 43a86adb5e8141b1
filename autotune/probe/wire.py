"""Messages between processes: framed JSON that survives garbage on the same descriptor.

A user's code may write to any descriptor it finds, the answer pipe included. So each message is cut into lines short
enough for the kernel to write atomically (PIPE_BUF), each line carries a secret token and a checksum, and the reader
skips everything else. No validation here: the parent checks contents against its dataclasses (``answers.py``).
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
            _write_all(self._fd, line)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class Decoder:
    """Reading end: bytes in, messages out, garbage counted and dropped."""

    def __init__(self, token: str) -> None:
        self._token = token.encode() + b" "
        self._buffer = b""
        self._parts: dict[bytes, dict[int, str]] = {}
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
        number, index, count, text = body.split(b" ", 3)
        parts = self._parts.setdefault(number, {})
        parts[int(index)] = text.decode()
        if len(parts) == int(count):
            del self._parts[number]
            message = json.loads("".join(parts[i] for i in range(len(parts))))
            yield message
