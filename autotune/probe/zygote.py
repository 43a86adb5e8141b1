"""The process that has torch and the user's file loaded and forks one probe after another. Linux only.

It never touches the device, runs no step, and does nothing between two forks but wait.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.probe import linux
from autotune.probe.host import own_data_bytes
from autotune.probe.order import Order
from autotune.probe.wire import Channel

if TYPE_CHECKING:
    from autotune.workload.task import Workload

_CANARY_S = 10.0  # a healthy fork answers in milliseconds; a dead-locked one never
_CANARY_DEVICE_S = 60.0  # starting the driver takes a second, on a host with many devices several


def main(order_path: str, token: str, fds: list[int], guardian: int) -> None:
    """Load the user's file, say whether it may be forked, then serve fork requests until the guardian is gone."""
    linux.die_with_parent(guardian)
    answer_fd, control_fd = fds
    for fd in fds:
        os.set_inheritable(fd, False)
    channel = Channel(answer_fd, token)
    from autotune.probe import worker  # brings torch

    before = own_data_bytes()
    import_what_steps_import()  # before the user's file, which may change defaults and add hooks
    step_imports_bytes = own_data_bytes() - before
    order = Order.read(order_path)
    workload = worker.load(order, channel)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a file that ignores or reaps children would take ours
    unsafe = why_fork_is_unsafe(order.device)
    channel.send("ready", fork_safe=not unsafe, why=unsafe)
    if unsafe:
        return
    gc.collect()
    gc.freeze()  # keeps the children's collector from copying every page of what is shared
    control = socket.socket(fileno=control_fd)
    while True:
        data, received, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not data:
            return
        while not data.endswith(b"\n"):
            data += control.recv(1 << 16)
        _fork(json.loads(data), received[0], control, channel, workload, handler, step_imports_bytes)


def import_what_steps_import() -> None:
    """Bring in what PyTorch imports at the first optimizer step (some 800 modules), so that no probe pays for it again.

    Measured: 1 s on the CPU build of 2.13, 4 s with 2.11 on an H200 host. Only imported, not run: an optimizer's step
    asks CUDA whether a graph is being captured, which starts the driver and spoils every later fork.
    """
    with contextlib.suppress(ImportError):  # a private module: without it, probes are slower to start
        importlib.import_module("torch._dynamo")


def why_fork_is_unsafe(device: str) -> str:
    """Empty if children of this process can compute; else the reason, for the user.

    Python threads and an initialised device are known to break in a forked child. Native thread pools may or may not
    (an OpenMP pool that was used hangs, OpenBLAS restarts its own), and a driver may have been started behind torch's
    back: so a canary child tries a parallel computation and, unless ``device`` is the CPU, starts the device.
    """
    import torch

    if not linux.IS_LINUX:
        return f"forking is not safe on {sys.platform}"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "the file starts CUDA while it is imported"
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"the file starts threads while it is imported ({', '.join(others)})"
    canary = os.fork()
    if canary == 0:
        _sing(device)
    deadline = time.monotonic() + (_CANARY_S if device == "cpu" else _CANARY_DEVICE_S)
    while time.monotonic() < deadline:
        pid, status = os.waitpid(canary, os.WNOHANG)
        if pid:
            return "" if status == 0 else "a forked child of it cannot compute or start the device"
        time.sleep(0.005)
    os.kill(canary, signal.SIGKILL)
    os.waitpid(canary, 0)
    return "a forked child of it hangs while computing (a thread pool was used while the file was imported)"


def _sing(device: str) -> NoReturn:
    """The canary: end with 0 only if parallel computation and the device work in this child."""
    import torch

    try:
        matrix = torch.ones(512, 512, device="cpu")
        works = float((matrix @ matrix).sum()) > 0
        if device != "cpu" and torch.cuda.is_available():
            torch.zeros(1, device="cuda")
        os._exit(0 if works else 1)
    finally:
        os._exit(2)  # whatever was raised, only the exit code is asked for


def _fork(
    wanted: dict[str, str],
    answer_fd: int,
    control: socket.socket,
    mine: Channel,
    workload: "Workload",
    handler: Callable[[int, FrameType | None], Any] | int | None,
    step_imports_bytes: int,
) -> None:
    """Fork twice, so that the probe becomes the guardian's child, and tell the guardian its process and group."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed by the user's file
            stream.flush()
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        probe = os.fork()
        if probe == 0:
            os.close(reading)
            os.close(writing)
            control.close()
            mine.close()
            signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)  # None: set by native code, unknown
            _become_probe(wanted, answer_fd, workload, step_imports_bytes)
        os.write(writing, str(probe).encode())
        os._exit(0)
    os.close(writing)
    os.close(answer_fd)
    pid = int(os.read(reading, 32))
    os.close(reading)
    os.waitpid(middle, 0)
    control.sendall(json.dumps({"pid": pid, "group": middle}).encode() + b"\n")


def _become_probe(wanted: dict[str, str], answer_fd: int, workload: "Workload", step_imports_bytes: int) -> None:
    """Turn the forked child into a probe process; never returns."""
    from autotune.probe import worker

    guardian = int(wanted["guardian"])
    deadline = time.monotonic() + 5
    while os.getppid() != guardian and time.monotonic() < deadline:
        time.sleep(0.0005)  # the middle process ends in a moment; the death signal must be tied to the guardian
    linux.die_with_parent(guardian)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        file = os.open(wanted[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, fd)
        os.close(file)
    gc.unfreeze()
    worker.work(
        Order.read(wanted["order"]),
        Channel(answer_fd, wanted["token"]),
        workload,
        launcher="fork",
        step_imports_bytes=step_imports_bytes,
    )
