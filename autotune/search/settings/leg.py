"""The batch finder within a settings search: the limit of one set of settings, from what is known of them already."""

from collections.abc import Sequence
from dataclasses import replace

from autotune.model import Form, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.apart import plain
from autotune.search.settings.rows import TRAINING
from autotune.search.settings.spending import compiles
from autotune.search.settings.view import View


def ask_leg(view: View, settings: Settings, *, recommend: bool, allocators: bool = False) -> Question | Stop:
    """What the batch finder says next of these settings (plain), with the accumulation of the user's own.

    Where settings compile, every size costs a compile and a recording several at once: they are searched without one.

    Args:
        recommend: also choose the smallest size that is about as fast as any.
        allocators: also try the other configurations of the allocator, where the user has not settled on one.
    """
    trained = replace(settings, accumulate=view.asked.space.base.accumulate)
    own = view.asked.batch_finder
    finder = replace(
        own,
        settings=trained,
        recommend=recommend,
        trace=own.trace and not compiles(settings),
        start_batch=own.start_batch if settings == view.asked.base else None,
    )
    whole = view.asked.finder
    if allocators and isinstance(whole, BestAllocator):
        several = BestAllocator(finder, whole.others)
        return several.ask(leg_history(view.history, trained, whole.others, records=finder.trace))
    return finder.ask(leg_history(view.history, trained, records=finder.trace))


def leg_history(
    history: Sequence[ProbeResult], settings: Settings, others: Sequence[str] = (), *, records: bool
) -> list[ProbeResult]:
    """What the batch finder may know. Before its recording that is nothing: with a first size known it would make none.

    Timed probes count as short ones. Where less was accumulated than in training the steps are made as long as theirs.

    Args:
        others: configurations of the allocator that are tried beside that of ``settings``.
        records: whether the finder begins with a recording.
    """
    legs = {plain(replace(settings, allocator=allocator)) for allocator in (settings.allocator, *others)}
    own = [p for p in history if p.form in TRAINING and plain(p.settings) in legs]
    if records and not any(p.reason is Reason.TRACE for p in own):
        return []
    return [_as_of(p, replace(settings, allocator=p.settings.allocator)) for p in own]


def _as_of(probe: ProbeResult, settings: Settings) -> ProbeResult:
    exact = probe.settings == settings
    form = probe.form if probe.form is Form.LONG and exact else Form.SHORT
    if exact:
        return replace(probe, form=form)
    longer = settings.accumulate / probe.settings.accumulate
    seconds = tuple(s * longer for s in probe.measurement.step_seconds)
    return replace(probe, form=form, settings=settings, measurement=replace(probe.measurement, step_seconds=seconds))
