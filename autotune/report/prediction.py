"""How near what the memory model foretold came to what was measured."""

from collections.abc import Iterator

from autotune.model import Measurement, Prediction, ProbeResult


def prediction_words(prediction: Prediction, certificate: ProbeResult | None = None) -> str:
    """``27 from batches up to 7 (allocated +0.0 %, reserved -0.1 %)``.

    Args:
        prediction: of a search.
        certificate: the probe that certified its answer; the shares say by how much the prediction is above it. None:
            no shares.
    """
    words = f"{prediction.limit} from batches up to {prediction.recorded_up_to}"
    if certificate is None:
        return words
    foretold = (prediction.allocated_bytes, prediction.reserved_bytes)
    shares = ", ".join(f"{name} {share}" for name, share in deviations(foretold, certificate.measurement))
    return f"{words} ({shares})" if shares else words


def deviations(foretold: tuple[int, int], measured: Measurement) -> Iterator[tuple[str, str]]:
    """``allocated`` and ``reserved`` with the share by which they were foretold too high, as far as they were measured.

    Args:
        foretold: allocated and reserved bytes, peaks.
        measured: a probe that ran to its end.
    """
    seen = (measured.peak_allocated_bytes, measured.peak_reserved_bytes)
    for name, told_bytes, seen_bytes in zip(("allocated", "reserved"), foretold, seen, strict=True):
        if seen_bytes:
            percent = round(100 * (told_bytes - seen_bytes) / seen_bytes, 1)
            yield name, f"{percent + 0.0:+.1f} %"  # adding zero turns -0.0 into 0.0
