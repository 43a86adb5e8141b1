"""When more probes would teach nothing: the workload, its long form or the machine fails, whatever the size."""

from collections import defaultdict

from autotune.model import Cause, Form, Outcome, Phase, Question, Reason, Stop
from autotune.search.evidence import Evidence, Finding, Standing

_BEFORE_ANY_BATCH = frozenset({Phase.LOAD, Phase.BUILD})


def fails_before_any_batch(finding: Finding) -> bool:
    """True if the probe ended before it made a batch, so that its size cannot have been the reason."""
    failure = finding.probe.failure
    return failure is not None and failure.phase in _BEFORE_ANY_BATCH


def likely_at_every_size(finding: Finding) -> bool:
    """True for a leak or a hanging probe: both bound the search from above, and a smaller size often has them too."""
    return finding.cause is Cause.GROWTH or finding.probe.outcome is Outcome.TIMED_OUT


def describe(finding: Finding) -> str:
    """A failure in half a sentence: ``batch 8 failed in its long form (non_finite)``."""
    return f"batch {finding.size} failed in its {finding.probe.form} form ({finding.cause})"


def hopeless(evidence: Evidence) -> Stop | None:
    """Stop at a failure that no other batch size can cure, or at a machine that broke down."""
    for finding in evidence.failed:
        if finding.cause is Cause.OTHERS:
            return Stop(reason=f"Others use the device too unsteadily: {describe(finding)}.", answer=None)
        if finding.cause is Cause.ENVIRONMENT:
            # Above a certified size the failure would pass for the limit. Below one it only costs a recommendation.
            if finding.size > max(evidence.certified, default=0):
                return Stop(reason=f"The machine stands in the way: {describe(finding)}.", answer=None)
        elif not evidence.certified and _certain_bug(finding) and (finding.contradicted or not evidence.good):
            where = " in its long form" if finding.contradicted else ""
            return Stop(reason=f"The workload fails{where} whatever the batch size: {describe(finding)}.", answer=None)
    return None


def long_form_trouble(evidence: Evidence) -> Question | Stop | None:
    """Do not walk down through all sizes when the long form fails for a reason that is not size.

    An evaluation pass that raises, a data loader that runs dry in the long form, a leak: they fail at every size. After two
    sizes the smallest one that ever ran is asked; if it fails for the same reason the search is over. Memory is left
    to the ordinary search: there a smaller size does help, and sizes that fit get sparse quickly on the way down.
    """
    if evidence.certified:
        return None
    sizes_by_cause: dict[Cause, list[int]] = defaultdict(list)
    for finding in evidence.failed:
        unlike_memory = not finding.is_ceiling or likely_at_every_size(finding)
        if finding.probe.form is Form.LONG and unlike_memory:
            sizes_by_cause[finding.cause].append(finding.size)
    for cause, sizes in sizes_by_cause.items():
        if len(sizes) < 2 or not evidence.accepted:
            continue
        smallest = evidence.accepted[0]
        if evidence.findings[smallest].standing is Standing.FITS_SHORT:
            return Question(batch_size=smallest, form=Form.LONG, reason=Reason.CERTIFY)
        if len(sizes) >= 3 and smallest in sizes:
            return Stop(reason=f"The long form fails at batch {_listed(sizes)} alike ({cause}).", answer=None)
    return None


def _certain_bug(finding: Finding) -> bool:
    """True for an error that cannot depend on the size, or that came before the size mattered."""
    raised = finding.probe.outcome in (Outcome.WORKLOAD_ERROR, Outcome.UNSUPPORTED)
    return finding.cause is Cause.USER_BUG or (raised and fails_before_any_batch(finding))


def _listed(sizes: list[int]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
