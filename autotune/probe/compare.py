"""Candidate settings against the reference: a few seeded steps of each from the same weights, on the same samples.

Nothing here decides whether they train the same (``equivalent``). What rounding alone does to this workload is measured
along: one more pass of the reference, with its weights changed by as little as the number formats change them.
"""

import contextlib
import gc
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from autotune.apply import Unsupported
from autotune.errors import AutotuneError, WorkloadError
from autotune.model import Checkpointing, Comparison, Compile, MemoryFormat, Phase, Precision, Settings
from autotune.probe import buffers, equivalent, gradients
from autotune.probe.dropout import switched_off
from autotune.probe.group import Alone, Group
from autotune.probe.order import Order
from autotune.probe.pieces import Samples, pieces
from autotune.probe.recorder import Recorder
from autotune.probe.side import Run, Side, Start
from autotune.probe.worker import set_seed
from autotune.workload.task import Workload

_OTHER_SEED = 500
"""Added to the seeds of a pass that is to draw other random numbers."""
_SIGNIFICANT = 1e-3
"""Root mean square of a parameter's gradient by that of all; below it, zero may be rounding (a bias before a norm)."""

_SEEDS = 1 << 32
"""NumPy takes none from here on."""
_ALONE = Alone()

_Batches = Sequence[Sequence[object]]
"""The micro-batches of each step."""


def compare(order: Order, workload: Workload, device: torch.device, recorder: Recorder, group: Group = _ALONE) -> None:
    """Train under ``order.reference`` and then under ``order.settings``; ``recorder.facts`` has the comparison.

    Ranks (``group``) begin with the same weights, and each draws samples of its own: gradients that are not those of all
    samples of all ranks are found by each of them. Under tensor parallel all draw the same.

    It is there, with the reference's losses alone, as soon as the reference is through: what is raised after that is
    the candidate's own fault.

    Raises:
        Unsupported: settings cannot be applied to this workload, or not be compared on it.
        BaseException: whatever the user's code raises.
    """
    assert order.reference is not None
    counts = pieces(order.reference.accumulate, order.settings.accumulate)
    reference, candidate = (
        replace(settings, accumulate=count)
        for settings, count in zip((order.reference, order.settings), counts, strict=True)
    )
    if device.type == "cpu":
        recorder.meter.lift_limit()  # copies of weights and gradients are held here, which training does not
    recorder.begin_pass(order.batch_size)
    recorder.facts["steps_asked"] = order.form.steps
    with recorder.during(Phase.DATA):
        set_seed((order.seed + order.seat[0]) % _SEEDS)
        samples = Samples(workload, order.batch_size, counts)
        steps = [samples.step() for _ in range(order.form.steps)]
        recorder.facts["observed_batch"] = None if samples.cuts else samples.observed
    course = _Course(reference, candidate, workload, device, recorder, order.seed, group, redraw=samples.cuts)
    with _plain_random_numbers(reference, candidate):
        known = course.reference([whole for whole, _ in steps])
        recorder.facts["comparison"] = Comparison(reference_losses=tuple(known.run.losses))
        if None not in known.run.losses:
            recorder.facts["comparison"] = course.candidate([parts for _, parts in steps], known)


@dataclass(slots=True)
class _Noise:
    """What rounding does to the reference's first step, and the chance of other random numbers where they are redrawn."""

    steady: frozenset[str] = frozenset()
    """Parameters whose gradients stay where they are."""
    loss: bool = False
    """Whether the loss does."""
    length: bool = False
    """Whether the length of the whole gradient does."""
    buffers: Mapping[str, float] = field(default_factory=dict)
    """How far each is moved."""


@dataclass(slots=True)
class _Known:
    """What there is of the reference once it is through."""

    run: Run[gradients.Gradient]
    start: Start
    noise: _Noise
    parameters: list[nn.Parameter]
    """Held so that a model that shares them is recognised."""


class _Course:
    """The reference's side, then the candidate's."""

    def __init__(
        self,
        reference: Settings,
        candidate: Settings,
        workload: Workload,
        device: torch.device,
        recorder: Recorder,
        seed: int,
        group: Group,
        *,
        redraw: bool,
    ) -> None:
        """``redraw``: the sides draw random numbers for batches of different sizes, and no seed makes them equal."""
        self._seed = seed
        self._group = group
        self._reference = reference
        self._candidate = candidate
        self._workload = workload
        self._device = device
        self._recorder = recorder
        self._redraw = redraw
        self._allowed = equivalent.tolerance(candidate, reference, device.type)

    def reference(self, batches: _Batches) -> _Known:
        """Train under the reference, then see what rounding does to its first step."""
        model = self._make()
        with _kept(_switches(self._reference)), switched_off(model):
            side = self._side(self._reference, model)
            start = Start(side.model)
            run = side.train(batches, lambda: gradients.keep(side.model, side.scale))
            if run.taken < len(batches) and None not in run.losses:
                run.losses.append(None)  # its own gradient scaler never settles, or it trains nothing
            noise = self._noise(side, batches[0], start, run) if None not in run.losses else _Noise()
            side.forget_gradients()
        return _Known(run, start, noise, list(model.parameters()))

    def _noise(self, side: Side, micro_batches: Sequence[object], start: Start, run: Run[gradients.Gradient]) -> _Noise:
        allowed, share, first = self._allowed, equivalent.COMPARED_SHARE, run.losses[0]
        assert run.first is not None and first is not None
        start.put_into(side.model)
        side.disturb(allowed.rounding)
        side.forget_gradients()
        loss = side.pass_over(1, micro_batches, _OTHER_SEED if self._redraw else 0)
        pairs = gradients.compare(side.model, side.scale, run.first)
        length = gradients.norm_ratio(pairs.values())
        return _Noise(
            steady=frozenset(
                name for name, pair in pairs.items() if pair.strayed <= equivalent.STEADY_SHARE * allowed.direction
            ),
            loss=abs(loss - first) <= share * allowed.loss * abs(first),
            length=length is not None and abs(length - 1) <= share * allowed.length,
            buffers=buffers.distances(buffers.keep(side.model), run.buffers),
        )

    def candidate(self, batches: _Batches, known: _Known) -> Comparison:
        """Train under the candidate.

        Raises:
            Unsupported: autotune's own objections, which the reference did not meet, are these settings' fault.
        """
        try:
            model = self._second_model(known)
            with switched_off(model):
                return self._candidate_side(model, batches, known)
        except AutotuneError as error:
            raise Unsupported(error.message) from error

    def _candidate_side(self, model: nn.Module, batches: _Batches, known: _Known) -> Comparison:
        recorder = self._recorder
        side = self._side(self._candidate, model)
        known.start.put_into(side.model)
        gradient = known.run.first
        assert gradient is not None
        try:
            run = side.train(batches, lambda: gradients.compare(side.model, side.scale, gradient))
        except WorkloadError:
            if not side.has_loss(batches[0][0]):
                raise
            run = Run(first={})  # there is a loss, and it leads to no parameter: all of them are lost
        recorder.executed, recorder.skipped = run.taken, run.skipped
        recorder.facts["losses"] = run.losses
        return _comparison(run, gradient, known)

    def _side(self, settings: Settings, model: nn.Module) -> Side:
        return Side(settings, self._workload, model, self._device, self._recorder, self._seed, self._group)

    def _make(self) -> nn.Module:
        with self._recorder.during(Phase.BUILD):
            set_seed(self._seed)
            return self._workload.make_model()

    def _second_model(self, known: _Known) -> nn.Module:
        """The model once more, or the same one where there is only one.

        Raises:
            Unsupported: there is only one, and the reference has changed it.
        """
        model = self._make()
        held = {id(parameter) for parameter in known.parameters}
        if any(id(parameter) in held for parameter in model.parameters()) and _leaves_traces(self._reference):
            raise Unsupported(
                "the model is one live object, and the reference has changed it already: give a function make_model()"
                " that makes it anew"
            )
        known.parameters.clear()
        if self._reference.compile is not Compile.OFF:
            torch.compiler.reset()  # lets go of the former model
        gc.collect()
        self._recorder.meter.drop_cache()
        return model


def _comparison(run: Run[dict[str, gradients.Pair]], gradient: gradients.Gradient, known: _Known) -> Comparison:
    noise, pairs = known.noise, run.first or {}
    lost, gained = ((), ()) if run.first is None else _trained_on_one_side(pairs, gradient)
    differing = buffers.differing(
        run.buffers,
        known.run.buffers,
        known.start.buffers,
        rounding=noise.buffers,
        share=equivalent.BUFFER_SHARE,
        times=equivalent.BUFFER_ROUNDING,
    )
    return Comparison(
        lost=lost[: equivalent.MOST_NAMES],
        gained=gained[: equivalent.MOST_NAMES],
        cosine=gradients.cosine(pair for name, pair in pairs.items() if name in noise.steady),
        norm_ratio=gradients.norm_ratio(pairs.values()) if noise.length else None,
        loss_difference=_difference(run.losses, known.run.losses) if noise.loss else None,
        buffers=differing[: equivalent.MOST_NAMES],
        losses=tuple(run.losses),
        reference_losses=tuple(known.run.losses),
        skipped=run.skipped,
    )


def _trained_on_one_side(
    pairs: dict[str, gradients.Pair], gradient: gradients.Gradient
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parameters with a gradient, or one that is not zero, under the reference alone, and under the candidate alone."""
    least = _SIGNIFICANT**2 * gradients.mean_square(gradient)
    lost = [
        name
        for name in gradient
        if name not in pairs or (pairs[name].square == 0 and pairs[name].reference_square > least * pairs[name].count)
    ]
    gained = [
        name
        for name, pair in pairs.items()
        if name not in gradient or (pair.reference_square == 0 and pair.square > least * pair.count)
    ]
    return tuple(lost), tuple(gained)


def _difference(losses: Sequence[float | None], reference: Sequence[float | None]) -> float | None:
    """Of the first losses, as a share of the reference's; None where there are none, or the reference's is zero."""
    mine, known = next(iter(losses), None), next(iter(reference), None)
    return None if mine is None or not known else abs(mine - known) / abs(known)


def _leaves_traces(settings: Settings) -> bool:
    """Whether a model stays changed after training under these."""
    return (
        settings.checkpointing is not Checkpointing.OFF
        or settings.compile is not Compile.OFF
        or settings.memory_format is not MemoryFormat.DEFAULT
    )


def _switches(settings: Settings) -> list[tuple[object, str]]:
    """What these settings switch for the whole process; the defaults leave it as they find it."""
    places: list[tuple[object, str]] = []
    if settings.precision is not Precision.DEFAULT:
        places += [(torch.backends.cuda.matmul, "allow_tf32"), (torch.backends.cudnn, "allow_tf32")]
    if settings.cudnn_benchmark:
        places.append((torch.backends.cudnn, "benchmark"))
    if settings.activation_budget < 1:
        places.append((importlib.import_module("torch._functorch.config"), "activation_memory_budget"))
    return places


@contextlib.contextmanager
def _kept(places: list[tuple[object, str]]) -> Iterator[None]:
    """Attributes of objects are afterwards what they were before."""
    before = [getattr(owner, name) for owner, name in places]
    try:
        yield
    finally:
        for (owner, name), value in zip(places, before, strict=True):
            setattr(owner, name, value)


@contextlib.contextmanager
def _plain_random_numbers(*settings: Settings) -> Iterator[None]:
    """Compiled code draws the random numbers that PyTorch would, and not its own."""
    if all(each.compile is Compile.OFF for each in settings):
        yield
        return
    config = importlib.import_module("torch._inductor.config")
    with _kept([(config, "fallback_random")]):
        setattr(config, "fallback_random", True)  # noqa: B010 - the module's types do not tell its options
        yield
