"""How long a benchmark may run, and how it ends where something is left."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import AutotuneError
from benchmarks.common.documents import BadResults


class OutOfTime(Exception):
    """The time limit was reached before everything was run."""


@dataclass(kw_only=True)
class Clock:
    """Time since the command began, and when no more is begun."""

    limit_s: float
    began: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """See that there is time left.

        Raises:
            OutOfTime: there is none.
        """
        if time.monotonic() - self.began > self.limit_s:
            raise OutOfTime

    def say(self, text: str) -> None:
        """Progress, on stderr."""
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def to_be_gone_on_with(out: Path | None) -> Iterator[None]:
    """Run what is missing in this file; say how to go on where that is stopped or its time is up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is ended then, too
    try:
        yield
    except BadResults as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(f"stopped: the same command goes on from {out}")
    except OutOfTime:
        print(f"time is up: the same command goes on from {out}", file=sys.stderr)
    except AutotuneError as error:
        sys.exit(f"{error.message}\n{error.hint}")
