"""Inside a probe process: take an order, do it, answer on the private pipe, end at once.

Whatever the user's code raises becomes a message with the exception chain and the memory state at that moment. Deciding
what it means is the parent's work (``classify``). No SQL, no search, no command line in here.
"""

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from autotune.errors import AutotuneError
from autotune.memory.encoding import encode
from autotune.model import Phase
from autotune.probe import linux
from autotune.probe.describe import describe
from autotune.probe.devices import look_at_device
from autotune.probe.examining import examine
from autotune.probe.group import Alone, Group
from autotune.probe.measure import run_probe
from autotune.probe.meter import make_meter
from autotune.probe.order import Op, Order
from autotune.probe.raised import told
from autotune.probe.recorder import Recorder
from autotune.probe.wire import Channel
from autotune.workload.adapters.held_back import hold_back_trainers
from autotune.workload.load import load as load_workload
from autotune.workload.task import Workload


def main(order_path: str, token: str, fds: list[int], guardian: int) -> NoReturn:
    """Entry point of a spawned probe: load the user's file, then work."""
    linux.die_with_parent(guardian)
    for fd in fds:
        os.set_inheritable(fd, False)
    order = Order.read(order_path)
    channel = Channel(fds[0], token)
    if order.op is Op.LOOK:
        look(order, channel)
    work(order, channel, load(order, channel))


def look(order: Order, channel: Channel) -> NoReturn:
    """Answer what machine this is."""
    try:
        channel.send("answer", described={"machine": asdict(look_at_device(order.device))})
    except AutotuneError as error:
        channel.send("answer", refused=_refusal(error))
    _leave()


def load(order: Order, channel: Channel) -> Workload:
    """Load the user's file; a failure is answered and ends the process."""
    channel.send("mark", phase=Phase.LOAD, step=None)
    set_seed(order.seed)  # a file may make its data while it is imported
    hold_back_trainers()
    try:
        rank, world_size = order.seat
        return load_workload(order.source, rank=rank, world_size=world_size)
    except AutotuneError as error:
        channel.send("answer", refused=_refusal(error))
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is the answer, never lost
        channel.send("answer", phase=Phase.LOAD, step=None, **told(error))
    _leave()


def _refusal(error: AutotuneError) -> dict[str, str]:
    return {"kind": error.kind, "message": error.message, "detail": error.detail, "hint": error.hint}


def work(
    order: Order,
    channel: Channel,
    workload: Workload,
    *,
    step_imports_bytes: int = 0,
    model: nn.Module | None = None,
) -> NoReturn:
    """Do one order (``describe``, ``probe`` or ``examine``), answer, and end the process without running exit handlers.

    Args:
        order: what to do.
        channel: where the answer goes.
        workload: the loaded file.
        step_imports_bytes: memory of what the zygote imported ahead of the first optimizer step.
        model: made by the zygote with the order's seed, random states being as it left them; None = make one.
    """
    started = time.perf_counter()
    os.environ.update(order.job_environment)
    if model is None:
        set_seed(order.seed)
    device = torch.device("cpu" if order.op is Op.DESCRIBE else order.device)
    meter = make_meter(device)
    recorder = Recorder(channel, meter)
    group: Group = Alone()
    try:
        if order.op is Op.DESCRIBE:
            channel.send("answer", described=describe(order, workload, recorder, step_imports_bytes))
        else:
            if order.op is Op.EXAMINE:
                examine(order, workload, device, recorder, model)
            else:
                group = run_probe(order, workload, device, recorder, model)
            _write_trace(order, recorder)
            channel.send("answer", **_seen(recorder, started))
    except AutotuneError as error:
        channel.send("answer", refused=_refusal(error), failed_at=time.monotonic())
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of user code are answers as well
        failed_at = time.monotonic()
        meter.lift_limit()  # reporting needs memory too
        seen = _seen(recorder, started)
        _write_trace(order, recorder)
        channel.send("answer", phase=recorder.phase, step=recorder.step, **seen, failed_at=failed_at, **told(error))
    else:
        group.leave()
    _leave()


def _seen(recorder: Recorder, started: float) -> dict[str, object]:
    """What a probe, or the section of a diagnosis, has seen so far, and the state of memory now."""
    return {
        "memory": recorder.meter.state(),
        "measurement": recorder.measurement(time.perf_counter() - started),
        "batch_size": recorder.batch_size,
        "examined": None if recorder.examiner is None else recorder.examiner.facts(),
    }


def _write_trace(order: Order, recorder: Recorder) -> None:
    """Leave what the allocator did, as far as it got, where the parent looks for it."""
    trace = recorder.history.stop() if recorder.history is not None else None
    if trace is not None:
        with contextlib.suppress(ValueError, OSError):  # too long, or no room: the search does without
            Path(order.trace_path).write_bytes(encode(trace))


def set_seed(seed: int) -> None:
    """Seed what users draw random numbers from: Python, torch, and NumPy if it is there."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def keep_random_states() -> Callable[[], None]:
    """What brings back the states that ``set_seed`` sets as they are now; Python's own is sown anew in a forked child.

    Seeds for CUDA wait in torch until the device is started, and come along.
    """
    python, cpu, numpy = random.getstate(), torch.get_rng_state(), sys.modules.get("numpy")
    of_numpy = numpy.random.get_state() if numpy is not None else None

    def bring_back() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if numpy is not None:
            numpy.random.set_state(of_numpy)

    return bring_back


def _leave() -> NoReturn:
    """End without exit handlers, thread joins or finalisers: a user's hanging atexit must not turn a result into a hang."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or closed by the user's code
            stream.flush()
    os._exit(0)
