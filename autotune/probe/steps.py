"""The training loop of a probe: what it does in a step, and how it counts the steps that really happened.

A step is what a training loop does: a fresh batch while the former is still alive, gradients cleared, forward,
backward, optimizer.
"""

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch.nn.modules.module import register_module_forward_hook

from autotune.apply import Applied, Unsupported
from autotune.apply.parallel import is_parallel, state_here
from autotune.apply.ranks import local
from autotune.errors import WorkloadError
from autotune.model import Compile, Form, Parallel, Phase
from autotune.probe.recorder import Recorder
from autotune.probe.settling import MOST_STEPS, enough
from autotune.workload.batch import batch_bytes, describe, shapes, strided, tensors, to_device
from autotune.workload.task import Workload


class Steps:
    """The training loop of one probe."""

    def __init__(
        self,
        workload: Workload,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        applied: Applied,
        recorder: Recorder,
        batch_size: int,
        evaluate_at: int | None = None,
    ) -> None:
        """``evaluate_at``: as in ``Order``."""
        self._workload = workload
        self._model = model
        self._optimizer = optimizer
        self._applied = applied
        self.recorder = recorder
        self._batch_size = batch_size
        self._evaluation_size = batch_size if evaluate_at is None else evaluate_at
        self._batch: object = None
        self.batch_on_device = 0
        """Bytes of the last batch, where the model finds it."""
        self._reference: tuple[object, int] | None = None
        self._loss: torch.Tensor | None = None
        self._losses: list[weakref.ref[torch.Tensor]] = []
        """Of each micro-batch, as the workload returned it; those that are gone are left out."""
        self.before = 0
        """Steps of this process that do not count, made before those that do: where something happens is told by all."""
        self.candidates = 1
        """How many candidates for the worst batch there are, once the first was made."""
        self.paused = False
        """Whether evaluation and checkpoint are behind us."""
        self._calls = 0
        self._calls_in_first: int | None = None
        self._taken = 0
        self._recompiles = 0
        self._outline: int | None = None
        """Of the shapes of all that modules returned in this step; None where they are not looked at."""
        members = set(model.modules())

        def see(module: torch.nn.Module, _: object, output: object) -> None:
            if not torch.compiler.is_compiling():  # where the user's own code compiles, the hook is to be no part of it
                self._see(module in members, output)

        if applied.settings.compile is Compile.OFF:
            counted = register_module_forward_hook(see)
        else:  # a hook inside of the graph would be compiled along, and anew for each number it counts to
            counted = model.register_forward_hook(lambda _, __, output: self._see(True, output))
        self._hooks = [counted, optimizer.register_step_post_hook(lambda *_: self._took())]
        self._passes = 0
        """Of the whole model in this micro-batch, counted where several ranks train it."""
        if is_parallel(model):
            self._hooks.append(model.register_forward_pre_hook(lambda *_: self._passed()))

    @property
    def batch(self) -> object:
        """The one on the device; None before the first."""
        return self._batch

    def close(self) -> None:
        """Let go of everything but the model."""
        for hook in self._hooks:
            hook.remove()

    def _see(self, ours: bool, output: object) -> None:
        self._calls += ours
        if ours and self._outline is not None:
            self._outline = hash((self._outline, *_extents(output)))

    def _took(self) -> None:
        self._taken += 1

    def _passed(self) -> None:
        self._passes += 1
        self.recorder.arrive()

    def run(self, number: int, share: float = 1.0, candidate: int = 0, *, outlined: bool = False) -> None:
        """One optimizer step with all its micro-batches. Making batches is left out of its time: loaders do it ahead.

        ``share``: of the full length, in all samples of the step. ``candidate``: which of the candidates for the worst
        batch to train on. ``outlined``: note by what shapes it went.
        """
        recorder, applied = self.recorder, self._applied
        recorder.begin_step()
        self._outline = 0 if outlined else None
        calls, taken, retries = self._calls, self._taken, recorder.meter.retries()
        at = self.before + number
        compiled = applied.compile_counts()
        total = None
        for micro in range(applied.settings.accumulate):
            self.next_batch(at, share, candidate)
            recorder.meter.tick()
            if micro == 0:
                applied.zero_grad(self._optimizer)
            self._passes = 0
            with recorder.during(Phase.FORWARD, at), applied.autocast():
                self._loss = self._workload.loss(self._model, self._batch)
            self._losses = [*(kept for kept in self._losses if kept() is not None), weakref.ref(self._loss)]
            self._see_whole_model()
            with recorder.during(Phase.BACKWARD, at):
                applied.backward(self._loss)
            recorder.meter.tick()
            total = applied.keep(self._loss) if total is None else total + self._loss.detach()
        if number == 1:
            grads = [p.grad for p in self._model.parameters() if p.grad is not None]
            recorder.composition["gradients_bytes"] = storage_bytes(grads)
        recorder.meter.tick()
        with recorder.during(Phase.OPTIMIZER, at):
            took = applied.step(self._optimizer) and self._taken > taken
        recorder.meter.tick()
        assert total is not None
        loss = total / applied.settings.accumulate
        self._count_step(took, forward_calls=self._calls - calls, loss=loss, timed=share == 1 and candidate == 0)
        del total, loss
        recorder.retries.append(recorder.meter.retries() - retries)
        recorder.end_step(self._outline)
        if took:
            recorder.allocated_after.append(recorder.meter.allocated() - self.batch_on_device)
            state = [t for s in state_here(self._optimizer) for t in tensors(s)]
            recorder.composition["optimizer_bytes"] = storage_bytes(state)
        if number == 1:
            recorder.read_device()
        if compiled is not None:
            self._count_graphs(number, compiled)

    def _see_whole_model(self) -> None:
        """Make sure that the loss came from the wrapped model itself, whose forward pass prepares the averaging. Layers that
        are split over ranks train as well where the loss calls them by themselves.

        Raises:
            WorkloadError: it did not, and the other ranks would wait for this one's gradients.
        """
        averages = self._applied.settings.parallel is not Parallel.TENSOR
        if averages and is_parallel(self._model) and not self._passes:
            raise WorkloadError(
                "loss() did not call the model, so that its gradients are not averaged over the ranks",
                hint="call the whole model, model(...), in loss(): parts of it alone bypass DistributedDataParallel",
            )

    def _count_graphs(self, number: int, before: tuple[int, int]) -> None:
        """Note what this step compiled. The first step makes the graphs; what later ones make is made again, and where
        the first could not go on, they cannot either.

        Raises:
            Unsupported: nothing was compiled, so that this setting is none.
        """
        graphs, breaks = self._applied.compile_counts() or before
        if graphs == 0:
            why = "the loss calls parts of the model, never the model itself" if not self._calls else "it made no graph"
            raise Unsupported(f"torch.compile does nothing here: {why}")
        if number == 1:
            self.recorder.facts["graph_breaks"] = breaks - before[1]
        else:
            self._recompiles += graphs - before[0]
        self.recorder.facts["recompiles"] = self._recompiles

    def next_batch(self, number: int, share: float = 1.0, candidate: int = 0) -> None:
        """Make a batch and move it to the device; the former one is let go only when the new one is there."""
        with self.recorder.during(Phase.DATA, number):
            if share < 1:
                batch = self._workload.make_shorter_batch(self._batch_size, share)
            else:
                batch, samples = self._workload.make_counted(self._batch_size, candidate)
                self.candidates = self._workload.candidates(self._batch_size)
                self.recorder.facts["observed_batch"] = self._observed(batch, samples)
            self._note_size(batch)
            self._place(batch)

    def _place(self, batch: object) -> None:
        self._batch = to_device(batch, self._applied.device)
        self.batch_on_device = storage_bytes(tensors(self._batch))

    def _note_size(self, batch: object) -> None:
        """Keep how large the largest batch was."""
        size, composition = batch_bytes(batch), self.recorder.composition
        if size > composition.get("batch_bytes", -1):
            composition["batch_bytes"] = size
            self.recorder.facts["worst_batch"] = describe(batch)

    def _observed(self, batch: object, seen: int | None) -> int | None:
        """Samples really in the batch; where no leading dimension says it, by comparing with a batch of another size."""
        asked = self._batch_size
        if self._workload.counts or seen != asked or any(asked in shape[:1] for shape in shapes(batch)):
            return seen
        if self._reference is None:
            size = asked // 2 or 2
            # on the meta device: only its shapes are of interest, not another batch's memory
            self._reference = to_device(self._workload.make_batch(size), torch.device("meta")), size
        return self._workload.observed(batch, asked, self._reference)

    def _count_step(self, took: bool, *, forward_calls: int, loss: torch.Tensor, timed: bool) -> None:
        """Count a step as executed only if model, gradients and optimizer all took part.

        A workload that never calls a module (it uses parameters directly) is recognised in its first step.
        """
        if self._calls_in_first is None:
            self._calls_in_first = forward_calls
        went_forward = forward_calls > 0 or self._calls_in_first == 0
        has_gradients = any(p.grad is not None for p in self._model.parameters())
        real = took and went_forward and has_gradients
        self.recorder.timed.append(real and timed)
        if not took:
            self.recorder.skipped += 1
        elif real:
            if self.recorder.losses is None:
                self.recorder.losses = torch.zeros(MOST_STEPS + sum(map(len, Form.LONG.mixtures)), device=loss.device)
            self.recorder.losses[self.recorder.executed] = loss
            self.recorder.executed += 1

    def graphs_kept(self) -> int:
        """Losses of earlier steps that somebody holds on to, and with each the graph of its step."""
        earlier = (kept() for kept in self._losses[:-1])
        return sum(loss is not None and loss.grad_fn is not None for loss in earlier)

    def enough(self, form: Form, number: int) -> bool:
        """Whether the probe may end after step ``number``."""
        seen = self.recorder
        return enough(
            form,
            number=number,
            executed=seen.executed,
            skipped=seen.skipped,
            retries=seen.retries,
            peaks=seen.step_peaks,
            outlines=seen.outlines,
        )

    def pause(self, *, checkpoint: bool) -> None:
        """What real training does between steps: evaluation and a checkpoint, once optimizer state is resident."""
        self.paused = True
        self.evaluate()
        if not checkpoint:
            return
        with self.recorder.during(Phase.CHECKPOINT), open(os.devnull, "wb") as nowhere:
            states = self._applied.states(self._model, self._optimizer)
            if self._applied.device.type == "cpu":
                torch.save(states, nowhere)
            else:  # copies to the host one after the other as torch.save does, but for its checksums, which take longer
                for value in tensors(states):
                    value.to("cpu")

    def evaluate(self) -> None:
        """The workload's evaluation on a fresh batch of its size, if it has one. Making that batch is part of it: where
        it does not fit, or the data has no more samples, that is no limit of training."""
        if not self._workload.evaluates or not self._evaluation_size:
            return
        with self.recorder.during(Phase.EVALUATE):
            batch, self.recorder.facts["evaluated_batch"] = self._workload.make_counted(self._evaluation_size)
            self.recorder.facts["evaluated_after"] = len(self.recorder.retries)
            self._place(batch)
            del batch  # what stays on the host beside a device's copy
            with self._applied.autocast():
                self._model.eval()
                self._workload.evaluate(self._model, self._batch)
        self._model.train()
        self.recorder.facts["evaluated"] = True


def _extents(output: object) -> Iterator[int | torch.Size]:
    """Shapes of the tensors that a module returned, as such or in tuples, lists and mappings; of a nested one, which may have
    no shape, its elements."""
    if isinstance(output, torch.Tensor):
        yield output.numel() if output.is_nested else output.shape
    elif isinstance(output, tuple | list | Mapping):
        for part in output.values() if isinstance(output, Mapping) else output:
            yield from _extents(part)


def storage_bytes(values: Iterable[torch.Tensor]) -> int:
    """Bytes behind tensors on this rank, views and tied ones counted once."""
    storages = {}
    for value in values:
        for part in strided(local(value)):
            storage = part.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
