"""A Ray cluster of one node on loopback, with everything it writes in a folder of its own; started again under its address.

As a program it is the head: it starts the cluster, prints its address, and ends it when standard input ends.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Self

import psutil

from tests.process.support import clean_environment

_MARK = "RAY_PLANTED_CLUSTER"


class Cluster:
    """Use as a context manager."""

    def __init__(self, **variables: str) -> None:
        """``variables``: what workers find in their environment beside the usual."""
        self.folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets in it: their paths must be short
        self._mark = uuid.uuid4().hex
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        self.environment = clean_environment(
            HOME=str(self.folder),  # Ray writes there
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=uuid.uuid4().hex,
            RAY_TMPDIR=str(self.folder),
            RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # its way to bind to loopback alone
            RAY_GCS_SERVER_PORT=str(self._port),
            RAY_USAGE_STATS_ENABLED="0",
            **{_MARK: self._mark},
            **variables,
        )
        self._head: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the head, and wait until it can be reached."""
        self._head = subprocess.Popen(
            [sys.executable, "-m", "tests.process.ray_cluster", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        assert self._head.stdout is not None
        assert self._head.stdout.readline().strip() == self.address

    def kill(self) -> None:
        """Kill all processes of the cluster at once, workers as well."""
        if self._head is None:
            return
        found = {process for process in psutil.process_iter() if self._is_ours(process)}
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(found, timeout=10)
        self._head.wait(10)
        for pipe in (self._head.stdin, self._head.stdout):
            assert pipe is not None
            pipe.close()
        self._head = None

    def _is_ours(self, process: psutil.Process) -> bool:
        """A process of the cluster: not the tool, nor one of its drivers, which are given its variables as well."""
        try:
            if process.environ().get(_MARK) != self._mark or process.status() == psutil.STATUS_ZOMBIE:
                return False
            words = " ".join([process.name(), *process.cmdline()])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        return "ray_cluster" in words or "/ray/" in words or "ray::" in words


def main(folder: str) -> None:
    """Be the head."""
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=80_000_000,
        _temp_dir=folder,
        log_to_driver=False,
    )
    sys.stdout.write(f"{ray.get_runtime_context().gcs_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
