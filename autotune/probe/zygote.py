"""The process that has torch and the user's file loaded and forks one probe after another. Linux only.

It never touches the device and runs no step. On the CPU it does nothing between two forks but wait. On CUDA it makes
what probes need while the first child looks at the workload: PyTorch's late imports, and the model.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.probe import linux, nvml
from autotune.probe.host import host_limit, own_data_bytes
from autotune.probe.order import Op, Order
from autotune.probe.wire import Channel

if TYPE_CHECKING:
    from torch import nn

    from autotune.workload.task import Workload

_MODEL_ROOM = 4
"""Free host memory, in models, for one to be kept here while others are made."""
_Handler = Callable[[int, FrameType | None], Any] | int | None


def main(order_path: str, token: str, fds: list[int], guardian: int) -> NoReturn:
    """Load the user's file, say whether it may be forked, then serve fork requests until the guardian is gone."""
    linux.die_with_parent(guardian)
    answer_fd, control_fd = fds
    for fd in fds:
        os.set_inheritable(fd, False)
    channel = Channel(answer_fd, token)
    order = Order.read(order_path)
    with _no_collections() if order.device.startswith("cuda") else _no_full_collections():
        from autotune.probe import worker  # brings torch
    ahead = _works_ahead(order)
    step_imports_bytes = 0
    if not ahead:
        before = own_data_bytes()
        with _no_full_collections():
            import_what_steps_import()  # before the user's file, which may change defaults and add hooks
        step_imports_bytes = own_data_bytes() - before
    gc.freeze()  # collections while the file is imported, and the one after it, need not look at all of torch
    workload = worker.load(order, channel)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a file that ignores or reaps children would take ours
    from autotune.probe.forking import why_fork_is_unsafe

    unsafe = why_fork_is_unsafe()
    channel.send("ready", fork_safe=not unsafe, why=unsafe)
    if unsafe:
        os._exit(0)  # without the user's exit handlers, here and below
    gc.collect()
    gc.freeze()  # keeps the children's collector from copying every page of what is shared
    try:
        Zygote(workload, channel, socket.socket(fileno=control_fd), handler, step_imports_bytes).serve(ahead=ahead)
    except BaseException:  # noqa: BLE001 - in this process or in any copy of it, which must not run on from here
        traceback.print_exc()
        _flush()
        os._exit(1)
    os._exit(0)


def import_what_steps_import() -> None:
    """Bring in what PyTorch imports at the first optimizer step (some 800 modules), so that no probe pays for it again.

    Measured: 1 s on the CPU build of 2.13, 4 s with 2.11 on an H200 host. Only imported, not run: an optimizer's step
    asks CUDA whether a graph is being captured, which starts the driver and spoils every later fork.
    """
    with contextlib.suppress(ImportError):  # a private module: without it, probes are slower to start
        importlib.import_module("torch._dynamo")


def _works_ahead(order: Order) -> bool:
    """Whether there is a CUDA device; on the CPU the memory of a probe's process is what is measured, so it does not."""
    import torch

    if order.ahead is not None:
        return order.ahead
    if order.device == "cpu" or not nvml.driver_version():
        return False  # without NVML a mere is_available(), here or in the user's code, would start the driver
    return order.device != "auto" or torch.cuda.is_available()


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Imports make a million objects and hardly any garbage; looking for it takes a sixth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def _no_full_collections() -> Iterator[None]:
    """Where memory is what is measured: young garbage goes as ever, so that the heap is that of a training's own imports.

    Measured with the CPU build of 2.13: an eighth of the time, the same objects, 0.2 MiB more of 295.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], (1 << 31) - 1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Zygote:
    """Serves fork requests; when it has made a model, as a copy of itself, so that it can go back to the time before."""

    def __init__(
        self, workload: "Workload", channel: Channel, control: socket.socket, handler: _Handler, step_imports_bytes: int
    ) -> None:
        """
        Args:
            workload: the loaded file.
            channel: has said that this process is ready; closed in the children.
            control: where requests come from and replies go to.
            handler: what the user's file set for SIGCHLD.
            step_imports_bytes: memory of what was imported ahead of the first optimizer step.
        """
        self._workload = workload
        self._channel = channel
        self._control = control
        self._handler = handler
        self._step_imports_bytes = step_imports_bytes
        self._model: nn.Module | None = None
        """Made as a probe makes it."""
        self._bring_back_random_states: Callable[[], None] = lambda: None
        """As they were when it was made."""
        self._threads: int | None = None
        """What probes set the number of torch's threads to, since it was changed for making the model."""

    def serve(self, *, ahead: bool) -> None:
        """Fork what is asked for until the guardian is gone. ``ahead``: use the time while a child works."""
        while True:
            data, received, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
            if not data:
                return
            while not data.endswith(b"\n"):
                data += self._control.recv(1 << 16)
            wanted = json.loads(data)
            order = Order.read(wanted["order"])
            os.set_inheritable(received[0], False)  # or programs that a probe starts would have the pipe as well
            self._fork(wanted, order, received[0])
            if ahead and order.op is Op.DESCRIBE:
                self._import_ahead()
                if order.prebuild_s is not None and self._workload.same_model:
                    self._hand_over(order, order.prebuild_s)

    def _import_ahead(self) -> None:
        import torch

        from autotune.probe.forking import why_fork_is_unsafe

        with torch.device("cpu"), _no_collections():  # whatever default device the user's file has set
            import_what_steps_import()
        gc.freeze()
        if why_fork_is_unsafe():
            os._exit(0)  # the launcher sees that there is nobody to fork from, and spawns

    def _hand_over(self, order: Order, within_s: float) -> None:
        """Have a copy of this process make the model; if it can still be forked from then, it serves from here on.

        Returns in the process that serves: in this one only if the copy failed, hung or died.
        """
        me = os.getpid()
        _flush()
        mine, its = socket.socketpair()
        successor = os.fork()
        if successor == 0:
            serves = False
            try:
                linux.die_with_parent(me)
                mine.close()
                if self._make_model(order):
                    its.sendall(b"!")
                    serves = its.recv(1) == b"!"  # not given up meanwhile
                    its.close()
            finally:
                if not serves:
                    os._exit(1)  # whatever was raised: probes make the model themselves, and show what is wrong
            return
        its.close()
        with mine:
            mine.settimeout(within_s)
            with contextlib.suppress(OSError):  # too late, or dead
                if mine.recv(1) == b"!":
                    self._control.close()  # so that the guardian notices if the successor dies
                    mine.sendall(b"!")
                    os.waitpid(successor, 0)
                    os._exit(0)
        os.kill(successor, signal.SIGKILL)
        os.waitpid(successor, 0)

    def _make_model(self, order: Order) -> bool:
        """Make the model with one thread, without the device and within a share of the host's memory.

        Returns:
            Whether this process may be forked after it.
        """
        import torch

        from autotune.probe import worker
        from autotune.probe.forking import cuda_refused, tasks, why_fork_is_unsafe

        before, threads = tasks(), torch.get_num_threads()
        torch.set_num_threads(1)
        signal.signal(signal.SIGCHLD, self._handler or signal.SIG_DFL)
        with cuda_refused() as attempts, _within(host_limit().free_bytes // _MODEL_ROOM):
            worker.set_seed(order.seed)
            model = self._workload.make_model()
            bring_back = worker.keep_random_states()
        self._handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.collect()
        if attempts or tasks() > before or why_fork_is_unsafe():
            return False
        gc.freeze()
        self._model, self._bring_back_random_states = model, bring_back
        self._threads = threads if torch.get_num_threads() == 1 else None  # else the user's code has set another
        return True

    def _fork(self, wanted: dict[str, str], order: Order, answer_fd: int) -> None:
        """Fork twice, so that the probe becomes the guardian's child, and tell the guardian which process it is."""
        _flush()
        reading, writing = os.pipe()
        middle = os.fork()
        if middle == 0:
            os.setsid()
            probe = os.fork()
            if probe == 0:
                os.close(reading)
                os.close(writing)
                self._control.close()
                self._channel.close()
                signal.signal(signal.SIGCHLD, self._handler or signal.SIG_DFL)  # None: set by native code, unknown
                self._become_probe(wanted, order, answer_fd)
            os.write(writing, str(probe).encode())
            os._exit(0)
        os.close(writing)
        os.close(answer_fd)
        pid = int(os.read(reading, 32))
        os.close(reading)
        os.waitpid(middle, 0)
        self._control.sendall(json.dumps({"pid": pid}).encode() + b"\n")

    def _become_probe(self, wanted: dict[str, str], order: Order, answer_fd: int) -> None:
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
        if self._threads is not None:
            import torch

            torch.set_num_threads(self._threads)
        self._bring_back_random_states()
        worker.work(
            order,
            Channel(answer_fd, wanted["token"]),
            self._workload,
            step_imports_bytes=self._step_imports_bytes,
            model=self._model,
        )


@contextlib.contextmanager
def _within(free_bytes: int) -> Iterator[None]:
    """Let this process take so much more memory; beyond it allocations fail, as they do where there is none left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    room = own_data_bytes() + free_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (room if soft == resource.RLIM_INFINITY else min(room, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _flush() -> None:
    """Leave nothing in buffers that a fork would copy."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed by the user's file
            stream.flush()
