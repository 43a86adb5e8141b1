"""Which probe stands behind a number of the answer."""

from autotune.model import Form, ProbeResult, SearchResult


def certificate(result: SearchResult, batch_size: int) -> ProbeResult | None:
    """The last long probe that was safe at this size, of those with the largest evaluation; None if the size was never
    certified."""
    certified = [
        p
        for p in result.probes
        if p.batch_size == batch_size and p.form is Form.LONG and p.fits and p.settings == result.settings
    ]
    return max(reversed(certified), key=lambda probe: probe.evaluated_at or 0, default=None)
