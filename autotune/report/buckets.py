"""The answers of a search by length buckets as text. Pure."""

from collections.abc import Iterator

from autotune.errors import NothingFits
from autotune.model import Bucketed, BucketResult, LengthBucket
from autotune.report.advice import advice
from autotune.report.columns import NOTHING, align
from autotune.report.words import bound_words, format_rate, format_share

_HEADINGS = ("length", "samples", "longest", "max batch", "samples/s", "peak", "limit")
_NUMBERS = (0, 1, 2, 3, 4)


def bucket_table(found: Bucketed) -> tuple[str, ...]:
    """A line for each bucket, shortest first, under headings."""
    return align([_HEADINGS, *(_row(row) for row in found.rows)], right=_NUMBERS)


def bucket_numbers(found: Bucketed) -> tuple[str, ...]:
    """For scripts: ``length batch``, a line for each bucket; ``-`` where there is no batch."""
    return tuple(f"{row.bucket.max_length} {_max_batch(row)}" for row in found.rows)


def bucket_advice(found: Bucketed) -> tuple[str, ...]:
    """What the user should know; what is not the same in all buckets says which it is of."""
    answered = [row for row in found.rows if row.result is not None]
    said: dict[str, list[str]] = {}
    for row in answered:
        assert row.result is not None
        for text in advice(row.result):
            said.setdefault(text, []).append(str(row.bucket.max_length))
    texts = [
        text if len(lengths) == len(answered) else f"length bucket {', '.join(lengths)}: {text}"
        for text, lengths in said.items()
    ]
    return (*_of_lengths(found), *texts)


def bucket_words(bucket: LengthBucket) -> str:
    """What is in a bucket: ``412 samples, the longest 126``."""
    if not bucket.longest:
        return f"no sample is at most {bucket.max_length} long"
    if bucket.samples is None:
        return f"batches cut to {bucket.longest}"
    return f"{bucket.samples:,} sample{'' if bucket.samples == 1 else 's'}, the longest {bucket.longest}"


def answer_words(row: BucketResult) -> str:
    """What came out for a bucket."""
    if row.result is not None:
        return f"max batch {row.result.answer.max_batch}, {_limit(row)}"
    return _limit(row)


def _row(row: BucketResult) -> tuple[str, ...]:
    bucket, proof = row.bucket, row.result.certificate if row.result else None
    return (
        str(bucket.max_length),
        NOTHING if bucket.samples is None else f"{bucket.samples:,}",
        str(bucket.longest) if bucket.longest else NOTHING,
        _max_batch(row),
        format_rate(proof.samples_per_second) if proof else NOTHING,
        format_share(proof.measurement.peak_device_bytes, proof.budget_bytes) if proof else NOTHING,
        _limit(row),
    )


def _max_batch(row: BucketResult) -> str:
    return str(row.result.answer.max_batch) if row.result else NOTHING


def _limit(row: BucketResult) -> str:
    """Why the batch is not larger, or why there is none."""
    if row.result is not None:
        return bound_words(row.result)
    if row.error is None:
        return bucket_words(row.bucket)
    return "nothing fits" if isinstance(row.error, NothingFits) else "not searched: time ran out"


def _of_lengths(found: Bucketed) -> Iterator[str]:
    """What buckets leave out."""
    last = found.rows[-1].bucket
    if last.longer:
        yield (
            f"{last.longer:,} of {(last.samples or 0) + last.longer:,} samples are longer than {last.max_length}, the"
            " largest length bucket: nothing was measured for them, so leave them out of the training, or cut them"
        )
    for row in found.rows:
        if not row.bucket.longest:
            yield f"length bucket {row.bucket.max_length} has no batch: {bucket_words(row.bucket)}"
