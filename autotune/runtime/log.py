"""The guard's log: one JSON object a line, whole lines only, appended to."""

import json
import time
from pathlib import Path
from typing import TextIO

from autotune.errors import EnvironmentTrouble


class Log:
    """A file of lines; None for the path writes nothing."""

    def __init__(self, path: Path | None) -> None:
        """
        Raises:
            EnvironmentTrouble: the file cannot be made.
        """
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                raise EnvironmentTrouble(
                    f"cannot write the log {path}: {error.strerror}", hint="name another file: log=..."
                ) from error

    def write(self, event: str, step: int, **fields: object) -> None:
        """Add a line.

        Raises:
            EnvironmentTrouble: the disk refuses; nothing more is written, so that training can go on.
        """
        if self._file is None:
            return
        line = {"event": event, "time": round(time.time(), 3), "step": step, **fields}
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            file, self._file = self._file, None
            _let_go(file)
            raise EnvironmentTrouble(
                f"cannot write the log {self._path}: {error.strerror}", hint="make room, or name another file: log=..."
            ) from error

    def close(self) -> None:
        """The last line is written."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _let_go(file: TextIO) -> None:
    """Close a file whose last line the disk has refused, and would refuse again."""
    try:
        file.close()
    except OSError:  # the same trouble a second time
        return
