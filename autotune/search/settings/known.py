"""Settings that are known to pay, several knobs at once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from autotune.knobs import knob_of
from autotune.model import Compile, MemoryFormat, OptimizerKind, Precision, Settings
from autotune.search.apart import plain
from autotune.search.settings.priors import HALF
from autotune.search.settings.rows import Row
from autotune.search.settings.spending import compiles
from autotune.search.settings.table import Guard
from autotune.search.settings.view import View

_Kind = TypeVar("_Kind", MemoryFormat, OptimizerKind)


def bundles(view: View) -> Iterator[Settings]:
    """What candidates begin from, and that with everything changed that pays nearly everywhere.

    Of the half precisions bf16: where fp16 is faster, which changing that one knob will show, it still needs a gradient scaler.
    """
    space = view.asked.space
    start = plain(space.start)
    if start != view.asked.base:
        yield start
    bundle = replace(
        start,
        precision=_precision(view, start.precision),
        optimizer=_if_offered(view, "optimizer", OptimizerKind.FUSED, start.optimizer),
        memory_format=_if_offered(view, "memory_format", MemoryFormat.CHANNELS_LAST, start.memory_format),
    )
    if view.rescued:
        bundle = replace(bundle, checkpointing=view.origin.checkpointing, parallel=view.origin.parallel)
    if bundle in (start, view.origin) or not view.allowed(bundle):
        return
    yield bundle
    other = replace(bundle, precision=Precision.FP16)
    if bundle.precision is Precision.BF16 and _slower(view, bundle) and view.allowed(other):
        yield other  # the device may only emulate bf16


def to_compile(view: View, lead: Row) -> Settings | None:
    """The best settings, compiled for the first time; None where that is not offered, was tried, or comes too early.

    In bf16 instead of fp16: what makes fp16 faster are kernels of normalisation, which the compiler replaces (ResNet-50 on an
    H200: fp16 28 % ahead before, bf16 3 % ahead after). Too early is as long as no settings that are known to pay have run.
    """
    space, settings = view.asked.space, lead.settings
    if settings.compile is not Compile.OFF or Compile.DEFAULT not in space.values("compile"):
        return None
    if any(
        compiles(row.settings) and (row.evidence.good or view.table.faulty(row)) for row in view.table.rows.values()
    ):
        return None
    if settings == view.origin and any(True for _ in bundles(view)):
        return None
    if settings.precision is Precision.FP16 and Precision.BF16 in space.values("precision"):
        other = replace(settings, precision=Precision.BF16)
        if view.allowed(other) and view.guard(other) is not Guard.REJECTED:
            settings = other
    compiled = replace(settings, compile=Compile.DEFAULT)
    return compiled if view.allowed(compiled) else None


def _slower(view: View, settings: Settings) -> bool:
    level, own = view.level(view.table.row(settings)), view.level(view.table.row(view.origin))
    return level is not None and own is not None and level < own


def _precision(view: View, own: Precision) -> Precision:
    """The lowest precision that is offered, if the user's own is none of the low ones."""
    if own in HALF:
        return own
    offered = view.asked.space.values("precision")
    return next((p for p in (*HALF, Precision.TF32) if p in offered and ("precision", p) not in view.table.blamed), own)


def _if_offered(view: View, knob: str, value: _Kind, own: _Kind) -> _Kind:
    space = view.asked.space
    offered = value in space.values(knob) and (knob, value) not in view.table.blamed
    return value if offered and not space.refuses(knob_of(knob).put(space.start, value)) else own
