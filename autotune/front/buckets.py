"""One search for each length bucket, in one set of processes: what ``searching`` does with ``--buckets``.

Each is a search of its own in the ledger. What was answered is confirmed and what was interrupted goes on, bucket by bucket.
"""

from collections.abc import Callable
from dataclasses import replace

from autotune.errors import AutotuneError, NothingFits, TimeRanOut, UsageError
from autotune.model import Bucketed, BucketResult, LengthBucket, Machine, Plan, WorkloadInfo
from autotune.ports import SearchObserver
from autotune.report.buckets import answer_words, bucket_words
from autotune.session import Session


def search_buckets(
    plan: Plan,
    workload: WorkloadInfo,
    machine: Machine,
    session: Callable[[Plan, WorkloadInfo], Session],
    observer: SearchObserver,
    *,
    fresh: bool,
) -> Bucketed:
    """Search the buckets of a workload, shortest first.

    Where nothing fits, the longer ones are not searched: their samples include these. Nor are they when time is out.

    Args:
        plan: of all of them.
        workload: described with its buckets.
        machine: that it would be trained on.
        session: opens the search of one of them.
        observer: is told where each begins and what came out.
        fresh: search anew, whatever the ledger knows.

    Raises:
        UsageError: no sample is in any of them.
        AutotuneError: what ends a search for reasons that are no answer; see ``api.find_max_batch``.
    """
    _refuse_empty(workload)
    rows: list[BucketResult] = []
    stopped: AutotuneError | None = None
    for bucket in workload.buckets:
        name = f"length bucket {bucket.max_length}"
        result = None
        if stopped is None and bucket.longest:
            observer.note(f"{name}: {bucket_words(bucket)}")
            same = next((row for row in rows if _same(row.bucket, bucket)), None)
            asked = replace(plan, length_bucket=bucket.max_length)
            try:
                result = same.result if same else session(asked, workload.within(bucket)).run(fresh=fresh)
            except (NothingFits, TimeRanOut) as error:
                stopped = type(error)(f"{name}: {error.message}", hint=error.hint, detail=error.detail)
            if same is not None:
                observer.note(
                    f"{name}: the same samples as in length bucket {same.bucket.max_length}, and so its answer"
                )
        why = stopped if bucket.longest and result is None else None
        rows.append(BucketResult(bucket=bucket, result=result, error=why))
        observer.note(f"{name}: {answer_words(rows[-1])}")
    return Bucketed(plan=plan, workload=workload, machine=machine, rows=tuple(rows))


def _refuse_empty(workload: WorkloadInfo) -> None:
    if any(bucket.longest for bucket in workload.buckets):
        return
    last = workload.buckets[-1]
    raise UsageError(
        f"no sample of {workload.ref} is in a length bucket: all {last.longer} that were looked at are longer than"
        f" {last.max_length}",
        hint="give --buckets larger lengths",
    )


def _same(one: LengthBucket, other: LengthBucket) -> bool:
    """Whether they hold the same samples, so that to search both would show nothing but the noise of measuring."""
    return one.longest > 0 and replace(one, max_length=other.max_length) == other
