"""How fast batches come from the workload's data set: what training cannot be faster than. Nothing is trained."""

import math
import os
import time
from itertools import islice, pairwise

from autotune.apply import Unsupported
from autotune.model import Phase
from autotune.probe.meter import children_bytes
from autotune.probe.order import Order
from autotune.probe.recorder import Recorder
from autotune.workload.batch import batch_bytes, describe
from autotune.workload.task import Workload


def load_batches(order: Order, workload: Workload, recorder: Recorder) -> None:
    """Take batches from a data loader with the settings' workers, as fast as they come.

    Worker processes hand out their batches in rounds, one each. The first round, in which they start, is left out, and
    there are two more at least. ``step_seconds`` has one entry for each of them: its seconds per batch.

    Raises:
        Unsupported: the workload has no data set, or one that ends too soon.
    """
    workers, asked = order.settings.loader_workers or 0, order.form.steps
    turn = max(1, workers)
    rounds = max(2, math.ceil((asked - 1) / turn))
    batches = (1 + rounds) * turn
    with recorder.during(Phase.DATA):
        loader = workload.load(order.batch_size, batches, workers, order.settings.pin_memory)
    if loader is None:
        raise Unsupported("the workload has no data set, so there is nothing to load: its batches come from make_batch")
    ends: list[float] = []
    held = 0
    with recorder.during(Phase.DATA):
        began = time.perf_counter()
        for batch in islice(loader, batches):
            if not recorder.executed:
                recorder.facts["observed_batch"] = order.batch_size if workload.sized else None  # whole ones only
                recorder.facts["worst_batch"] = describe(batch)
                recorder.composition["batch_bytes"] = batch_bytes(batch)
            recorder.executed += 1
            if workers and recorder.executed == turn:  # before the rounds that are timed
                held = children_bytes(os.getpid())
            if recorder.executed % turn == 0:
                ends.append(time.perf_counter())
            if workers and recorder.executed == batches:  # and after them
                held = max(held, children_bytes(os.getpid()))
    if len(ends) < 2:
        raise Unsupported(
            f"the data set ends after {recorder.executed} whole batches of {order.batch_size}: too soon to measure loading"
        )
    recorder.facts["workers_bytes"] = held
    recorder.facts["steps_asked"] = min(asked, recorder.executed)
    recorder.facts["loop_seconds"] = ends[-1] - began
    recorder.facts["first_step_seconds"] = ends[0] - began
    recorder.facts["step_seconds"] = [(end - start) / turn for start, end in pairwise(ends)]
