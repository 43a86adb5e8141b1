"""A finished search by length buckets: one without samples, three with, of which the longest may fit nothing."""

from dataclasses import replace

from autotune.errors import NothingFits
from autotune.model import Bucketed, BucketResult, LengthBucket
from tests.cli.results import MACHINE, PLAN, RESULT, WORKLOAD, with_answer

EMPTY = LengthBucket(max_length=64, longest=0, samples=0, longer=1001)
SHORT = LengthBucket(max_length=512, longest=480, samples=900, longer=101, data_set_size=900)
LONG = LengthBucket(max_length=2048, longest=2000, samples=1000, longer=1, data_set_size=1000)
NOTHING_FITS = NothingFits("length bucket 2048: nothing fits: batch 1 is out of memory", hint="a smaller model")

_SHORT_RESULT = replace(
    RESULT,
    search_id="5407",
    plan=replace(PLAN, length_bucket=512),
    workload=replace(WORKLOAD, data_set_size=900, notes=("a note on the data",), buckets=(SHORT,)),
)
_LONG_RESULT = replace(
    with_answer(max_batch=24, recommended_batch=24, refuted_at=28),
    search_id="1076",
    plan=replace(PLAN, length_bucket=2048),
    workload=replace(WORKLOAD, data_set_size=1000, notes=("a note on the data", "one on this"), buckets=(LONG,)),
)

BUCKETED = Bucketed(
    plan=PLAN,
    workload=replace(WORKLOAD, buckets=(EMPTY, SHORT, LONG)),
    machine=MACHINE,
    rows=(
        BucketResult(bucket=EMPTY, result=None),
        BucketResult(bucket=SHORT, result=_SHORT_RESULT),
        BucketResult(bucket=LONG, result=_LONG_RESULT),
    ),
)
PARTLY = replace(BUCKETED, rows=(*BUCKETED.rows[:2], BucketResult(bucket=LONG, result=None, error=NOTHING_FITS)))
"""The longest fits nothing."""
