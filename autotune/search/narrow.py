"""Between the largest size that fits and the smallest that does not: which size to ask next.

A memory model says where the limit should be; the search goes there, then one step further to be refuted. What the probes
say corrects the model. Where it disappoints twice, or there is none, sizes are doubled and brackets halved.
"""

from collections.abc import Sequence

from autotune.model import Form, ProbeResult, Question, Reason
from autotune.search.bracket import Bracket, Trust
from autotune.search.evidence import Evidence, Standing
from autotune.search.guide import Guess

_NEAR = 64
"""Right below a size is this part of it less."""
_FAR = 4
"""A failure this many times above the largest size that fits says nothing of the limit's order of magnitude."""


def narrow(
    evidence: Evidence,
    known: Sequence[ProbeResult],
    found: Bracket,
    expected: Guess | None,
    *,
    step: int,
    bound: int,
    form: Form,
) -> Question | None:
    """The next probe inside the bracket or above it; None once nothing lies between its ends.

    Args:
        known: the history that ``evidence`` was read from.
        expected: where the limit should be, within the bracket; None = no model has an opinion.
        step: spacing of legal sizes.
        bound: largest size allowed.
        form: of the probe, unless the model is trusted to go for the certifying form at once.
    """
    low, high = found.low, found.high
    if form is Form.LONG and evidence.findings[low].standing is not Standing.CERTIFIED:
        # The short form was wrong further up. Sizes that fitted there are ever farther apart on the way down, so
        # this finds firm ground in few probes; only then is the gap above it worth filling.
        return Question(batch_size=low, form=form, reason=Reason.CERTIFY)
    if high is None:
        if low >= bound:
            return None
        if evidence.data_end is not None:
            return Question(batch_size=bound, form=form, reason=Reason.DATA_SET)
        return _ask(known, low, bound, expected, step, form) or Question(
            batch_size=min(2 * low, bound), form=form, reason=Reason.GROW
        )
    if found.trust is Trust.DOUBTFUL and high.size < _FAR * low:
        return Question(batch_size=high.size + step, form=form, reason=Reason.NEIGHBOUR)
    if high.size - low > step:
        exact = expected is not None and expected.certify
        lower = _well_below(known, low, high.size, step) if exact else None
        if lower is not None:
            return Question(batch_size=lower, form=Form.LONG, reason=Reason.CORRECT)
        asked = None if _stalled(known) else _ask(known, low, high.size - step, expected, step, form)
        creeps = asked is not None and asked.reason is Reason.REFUTE and exact and not _foretold(known, low)
        if asked is not None and not creeps:
            return asked
        if form is Form.SHORT and high.size >= _FAR * low:
            return Question(batch_size=2 * low, form=form, reason=Reason.GROW)
        middle = low + max(1, (high.size - low) // (2 * step)) * step
        return Question(batch_size=middle, form=_form(expected, form), reason=Reason.BISECT)
    if found.trust is not Trust.SURE:
        return Question(batch_size=high.size + step, form=form, reason=Reason.NEIGHBOUR)
    if expected is not None and expected.beyond is not None:
        return Question(batch_size=expected.beyond, form=Form.LONG, reason=Reason.NEIGHBOUR)
    return None


def _ask(
    known: Sequence[ProbeResult], low: int, top: int, expected: Guess | None, step: int, form: Form
) -> Question | None:
    """Go where the model says, or show that the next size is too large; ``top`` is the largest size in question."""
    if expected is None:
        return None
    form = _form(expected, form)
    nearest = -(-expected.spread // step) * step
    if _just_failed(known) and not expected.certify and top - low > nearest:
        # A line through what ran is seldom far off: look right below before what it says of the bend is believed.
        size = top + step - max(nearest, top // _NEAR // step * step)
        return Question(batch_size=max(low + step, size), form=form, reason=Reason.CORRECT)
    if expected.size > low:
        first = all(p.reason is not Reason.PREDICTED for p in known)
        reason = Reason.GROW if expected.wide else Reason.PREDICTED if first else Reason.CORRECT
        return Question(batch_size=min(expected.size, top), form=form, reason=reason)
    if expected.hoped > low:
        half = ((expected.hoped - low) // step + 2) // 2  # a failure here leaves the lower half, which is the likelier
        return Question(batch_size=min(low + half * step, top), form=form, reason=Reason.CORRECT)
    if low + nearest > top > low + step:
        return None  # what is left differs by less than noise: halving is the quickest
    size = min(low + nearest * 2 ** max(0, _surprises(known) - 1), top)
    return Question(batch_size=size, form=form, reason=Reason.REFUTE)


def _foretold(known: Sequence[ProbeResult], low: int) -> bool:
    """Whether ``low`` is where the recording alone led. Once a failure corrected it there is a margin: that nothing
    above ``low`` fits is what the margin says, and halving what is left is quicker than one step after the other."""
    return any(p.batch_size == low and p.reason is Reason.PREDICTED for p in known)


def _well_below(known: Sequence[ProbeResult], low: int, high: int, step: int) -> int | None:
    """After three proposals in a row that were too large by a little, one that is lower by three times as much: the way
    up from the recorded sizes would be long. None if it is not the time, or if that is in the lower half anyway."""
    failed: list[int] = []
    for probe in reversed(known):
        if probe.fits or probe.reason not in (Reason.PREDICTED, Reason.CORRECT):
            break
        failed.append(probe.batch_size)
    if len(failed) != 3:
        return None
    size = high - 3 * (failed[-1] - high + step)
    return size if size > (low + high) // 2 else None


def _surprises(known: Sequence[ProbeResult]) -> int:
    """How many sizes in a row should have been refuted and were not; from the second on each doubles the distance."""
    count = 0
    for probe in reversed(known):
        if probe.reason is not Reason.REFUTE or not probe.fits:
            break
        count += 1
    return count


def _just_failed(known: Sequence[ProbeResult]) -> bool:
    """Whether the first size a model proposed as the limit has just been too large."""
    return known[-1].reason is Reason.PREDICTED and not known[-1].fits


def _form(expected: Guess | None, form: Form) -> Form:
    return Form.LONG if expected is not None and expected.certify else form


def _stalled(known: Sequence[ProbeResult]) -> bool:
    """Whether the last two probes that moved an end of the bracket did not even halve it."""
    widths: list[int] = []
    low, high = 0, None
    for probe in known:
        if probe.fits and probe.batch_size > low:
            low = probe.batch_size
        elif probe.outcome.is_ceiling and (high is None or probe.batch_size < high):
            high = probe.batch_size
        else:
            continue
        if high is not None and low:
            widths.append(high - low)
    return len(widths) > 2 and 2 * widths[-1] > widths[-3]
