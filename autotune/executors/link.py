"""One worker as the tool sees it: a process of this host that is the worker, or stands between it and the tool.

Requests go out as lines on its standard input, answers come back on a pipe in the frames of ``probe.wire``. When the tool
ends, in whatever way, standard input ends there; when the process ends, in whatever way, the worker is lost. So everything
that can go wrong elsewhere (a driver that exits with its cluster, a job that is preempted) has one form here.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import EnvironmentTrouble
from autotune.executors.host import TOKEN, Message
from autotune.probe.ended import tail
from autotune.probe.interpreter import interpreter
from autotune.probe.wire import Decoder

_STOP_S = 20.0
"""For a worker to end its probes and itself."""
_MODULES = {"local": "host", "slurm": "on_slurm", "ray": "on_ray"}


class Link:
    """A started worker process."""

    def __init__(self, executor: str, options: Mapping[str, str], log: Path) -> None:
        """Start it.

        Args:
            executor: which kind of worker.
            options: of that executor.
            log: file for what it prints.

        Raises:
            EnvironmentTrouble: no process can be started.
        """
        reading, writing = os.pipe()
        more = f", {dict(options)!r}" if executor != "local" else ""
        # Whoever waits for the device is told who holds it by the command: that of the tool.
        words = f"import sys; sys.argv[:] = {sys.argv!r}"
        call = f"{words}; from autotune.executors.{_MODULES[executor]} import main; main({writing}{more})"
        self._log = log
        with log.open("ab") as stream:
            try:
                self._process = subprocess.Popen(
                    interpreter(call),
                    stdin=subprocess.PIPE,
                    stdout=stream,
                    stderr=stream,
                    pass_fds=[writing],
                    start_new_session=True,
                )
            except OSError as error:
                os.close(reading)
                raise EnvironmentTrouble(f"a worker process cannot be started: {error}") from error
            finally:
                os.close(writing)
        self._reading = reading
        self._decoder = Decoder(TOKEN)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def fileno(self) -> int:
        """What becomes readable when there is something to ``receive``."""
        return self._reading

    def send(self, request: Message) -> None:
        """Hand over a request; if nobody is there any more, ``receive`` will say so."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> list[dict[str, Any]] | None:
        """What has come by now; waits if nothing has. None = the process is gone."""
        data = os.read(self._reading, 1 << 16)
        return [dict(message) for message in self._decoder.feed(data)] if data else None

    def last_words(self) -> str:
        """How it ended, and the end of what it printed, once it is gone."""
        code = self._process.wait()
        how = f"its process was ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"
        lines = [line for line in tail(self._log).splitlines() if line.strip()]
        return f"{how}: {lines[-1].strip()}" if lines else how

    def stop(self) -> None:
        """Have it end, with all that runs below; wait until it has."""
        self.hang_up()
        try:
            self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._reading)

    def hang_up(self) -> None:
        """Have it end, without waiting."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
