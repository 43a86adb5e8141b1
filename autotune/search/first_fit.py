"""Looking for a first size that fits, while every size so far has failed."""

from autotune.model import Form, Question, Reason, Stop
from autotune.search.evidence import Evidence, Finding
from autotune.search.legal import FIRST_SIZES
from autotune.search.trouble import describe, fails_before_any_batch, likely_at_every_size

_AMBIGUOUS_SIZES = 3
"""Sizes at which a library status or a kill is accepted as a fault of the installation."""
_CRASHING_SIZES = 4
"""Sizes at which crashes, NaN and missing steps are accepted as the workload's own."""


def first_fit(evidence: Evidence, *, unit: int, bound: int, form: Form) -> Question | Stop:
    """Ask the next size, or stop with no answer.

    Args:
        evidence: every size failed.
        unit: sizes are multiples of this.
        bound: largest size to ask; 0 if there is none.
        form: of the probe to ask for.
    """
    failed = evidence.failed
    if bound < unit:
        return Stop(reason=f"The data set ends at {evidence.data_end}, before a batch of {unit}.", answer=None)
    if evidence.data_end is not None and bound not in evidence.findings:
        return Question(batch_size=bound, form=form, reason=Reason.DATA_SET)
    ceilings = [f for f in failed if f.is_ceiling]
    others = [f for f in failed if not f.is_ceiling]
    lowest = ceilings[0].size if ceilings else bound + 1
    if not others:
        if lowest <= unit:
            return Stop(reason=f"Not even the smallest size fits: {describe(ceilings[0])}.", answer=None)
        return Question(batch_size=_smaller(ceilings[0], unit), form=form, reason=Reason.SHRINK)
    candidates = [size for n in FIRST_SIZES if (size := n * unit) < lowest and size not in evidence.findings]
    if not candidates or len(others) >= _patience(others):
        tried = "1 size" if len(failed) == 1 else f"{len(failed)} sizes"
        return Stop(reason=f"No size ran among {tried} tried; {describe(others[0])}.", answer=None)
    return Question(batch_size=candidates[0], form=form, reason=Reason.LEGAL_SIZE)


def _smaller(ceiling: Finding, unit: int) -> int:
    """Half the size; at once the smallest where size is hardly the reason or each failure is expensive.

    A model that does not fit while it is built, a leak, and a probe that hangs until its deadline would otherwise
    be repeated at a dozen sizes. If the smallest does run, growing from it again costs little.
    """
    if fails_before_any_batch(ceiling) or likely_at_every_size(ceiling):
        return unit
    return max(unit, ceiling.size // 2 // unit * unit)


def _patience(others: list[Finding]) -> int:
    """How many sizes may fail; the whole list is only worth it for errors of the user's code, which assert on sizes."""
    if all(f.confirm for f in others):
        return _AMBIGUOUS_SIZES
    if not any(f.rejects_size for f in others):
        return _CRASHING_SIZES
    return len(FIRST_SIZES) + 1
