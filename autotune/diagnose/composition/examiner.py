"""The observer of a composition: warms a training up, measures a plain step, takes the next one apart, profiles another."""

import gc
from contextlib import nullcontext
from dataclasses import asdict, replace

import torch

from autotune.diagnose.composition.blocks import AtPeak, at_peak, with_rest
from autotune.diagnose.composition.operators import dearest, profile_step
from autotune.diagnose.composition.records import Unrecordable, make_record
from autotune.diagnose.composition.watching import Watch, is_compiled, known_tensors
from autotune.diagnose.examiner import Training
from autotune.memory.allocator_config import BLOCK_BYTES
from autotune.model import Peak

WARM_UP = 3
"""Steps before: the first makes optimizer state and workspaces, the second chooses kernels again, the third has both."""
_CPU_NOTE = (
    "the CPU keeps no record of allocations: tensors are counted from the operator that returns them until they are let go; "
    "what operators use inside is in not_attributed, with everything else that the process touched in this step"
)
_COMPILED_NOTE = (
    "the model is compiled, and what a compiled graph makes cannot be told apart: activations and temporaries are in "
    "not_attributed; without torch.compile they are told"
)


class CompositionExaminer:
    """See ``Examiner``."""

    def __init__(self) -> None:
        self._peak: Peak | None = None

    def begin(self, device: torch.device) -> None:
        """Nothing to do before the model is made."""

    def run(self, training: Training) -> None:
        for _ in range(WARM_UP):
            training.step()
        gc.collect()
        training.step()
        measured = training.peak_bytes()
        self._peak = take_apart(training, measured)
        self._profile(training)

    def _profile(self, training: Training) -> None:
        assert self._peak is not None
        ended = True

        def step() -> None:
            nonlocal ended
            ended = False
            training.step()
            ended = True

        try:
            by_time, by_memory = dearest(profile_step(step, training.device))
        except RuntimeError as error:
            if not ended:  # the training failed, not the profiler
                raise
            note = f"the profiler does not run here: {str(error).splitlines()[0]}"
            self._peak = replace(self._peak, notes=(*self._peak.notes, note))
        else:
            self._peak = replace(self._peak, operators_by_time=by_time, operators_by_memory=by_memory)
            if not by_time:  # CUPTI is missing, or refused to users
                note = "the profiler saw no device times"
                self._peak = replace(self._peak, notes=(*self._peak.notes, note))

    def facts(self) -> dict[str, object]:
        return {"peak": None if self._peak is None else asdict(self._peak)}


def take_apart(training: Training, measured_bytes: int) -> Peak:
    """Take one step and say what its peak consists of.

    ``measured_bytes``: peak of a step like it that nobody watched.
    """
    on_cpu = training.device.type == "cpu"
    notes = [_CPU_NOTE] if on_cpu else []
    compiled = training.compiled or is_compiled(training.model)
    if compiled:
        notes.append(_COMPILED_NOTE)
    gc.collect()
    held = training.allocated_bytes()
    found, watched = AtPeak(None, 0, 0, 0, (), (), ()), measured_bytes
    process = None
    try:
        record = make_record(training.device, (tensor for _, _, tensor in known_tensors(training)))
        if on_cpu:
            process = max(0, held - sum(record.before.values()))
        watch = Watch(training, record)
        watch.look()
        with nullcontext() if compiled else watch.watching():
            _step(training)
        watch.look()
        watched = training.peak_bytes()
        events, more = record.finish()
        # On the CPU blocks are what was asked for, as far as anybody knows.
        found = at_peak(
            record.before, events, [*watch.sightings, *more], watch.windows, block_bytes=1 if on_cpu else BLOCK_BYTES
        )
    except Unrecordable as error:
        notes.append(f"the peak could not be taken apart: {error}")
    return Peak(
        batch_size=training.batch_size,
        phase=found.phase,
        measured_bytes=measured_bytes,
        watched_bytes=watched,
        kinds=with_rest(found, watched, process_bytes=process),
        modules=found.modules,
        makers=found.makers,
        non_pytorch_bytes=training.non_pytorch_bytes(),
        notes=tuple(notes),
    )


def _step(training: Training) -> None:
    """A watched step.

    Raises:
        Unrecordable: what the training uses does not run while it is watched.
    """
    try:
        training.step()
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
        raise Unrecordable("torch.func, which the training uses, refuses hooks on saved tensors") from error
