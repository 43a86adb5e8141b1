"""What a search was asked for goes into its document and comes back as the same plan."""

import json
from dataclasses import fields, replace

import pytest

from autotune.errors import UsageError
from autotune.knobs import choices
from autotune.model import Objective, Plan, Precision, Settings, Source
from autotune.report.asked import plan_again
from autotune.report.document import document, read, to_text
from autotune.report.fields import Document
from autotune.report.settings_fields import Asked
from tests.cli.results import PLAN, RESULT, WORKLOAD, with_settings

SOURCE = Source(ref="model.py", script_args=("--depth", "3"))
FULL = Plan(
    source=SOURCE,
    settings=Settings(precision=Precision.BF16, allocator="max_split_size_mb:128"),
    other_allocators=("expandable_segments:True",),
    device="cuda:1",
    memory_limit_bytes=123_456_789,
    multiple_of=8,
    start_batch=16,
    max_batch=512,
    timeout_s=60.5,
    time_budget_s=600.0,
    seed=7,
    recommend=False,
    space=choices(["optimizer=fused"], ["precision=bf16,fp16", "compile"], [], Settings()),
    objective=Objective.BATCH,
    effective_batch=96,
    world=2,
    trials=3,
    eval_batch=48,
)
"""Every field away from its default."""


def written(plan: Plan, own: Settings | None = None) -> Document:
    result = with_settings(plan.settings)
    return read(to_text(document(replace(result, plan=plan, workload=replace(WORKLOAD, own=own or Settings())))))


def test_every_field_of_a_plan_comes_back() -> None:
    assert plan_again(written(FULL), SOURCE) == FULL
    assert plan_again(written(Plan(source=SOURCE)), SOURCE) == Plan(source=SOURCE)


def test_a_field_of_a_plan_is_written_or_left_out_on_purpose() -> None:
    unlike = {field.name for field in fields(Plan)} - Asked.model_fields.keys()
    of_predictions = {"predicted", "communicators_bytes"}  # which have no document to be asked again by
    assert unlike == {"source", "device_wait_s"} | of_predictions
    assert Asked.model_fields.keys() - {field.name for field in fields(Plan)} == {
        "accumulate",
        "script_args",
        "command",
        "templates",
    }


def test_what_the_workload_brings_along_is_not_what_was_asked_for() -> None:
    own = Settings(precision=Precision.BF16, accumulate=4)
    with_own = replace(FULL, settings=replace(FULL.settings, accumulate=4), effective_batch=None)
    asked = plan_again(written(with_own, own), SOURCE).settings
    assert (asked.precision, asked.accumulate, asked.allocator) == (Precision.DEFAULT, 1, "max_split_size_mb:128")


def test_what_was_given_by_hand_beside_that_stays() -> None:
    own = Settings(precision=Precision.FP16)
    assert plan_again(written(FULL, own), SOURCE).settings.precision is Precision.BF16


def test_an_older_file_is_asked_again_as_the_ledger_says() -> None:
    older = document(RESULT).model_copy(update={"asked": None})
    assert plan_again(older, SOURCE, FULL) == FULL
    other = Source(ref="moved.py")
    assert plan_again(older, other, FULL) == replace(FULL, source=other)


def test_or_else_for_the_batch_under_its_settings() -> None:
    settings = Settings(precision=Precision.TF32, accumulate=2)
    older = document(with_settings(settings)).model_copy(update={"asked": None})
    assert plan_again(older, SOURCE) == Plan(source=SOURCE, settings=settings)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"space": {"precison": ["bf16"]}}, "there is no knob 'precison'"),
        ({"space": {"precision": ["fp8"]}}, "precision has no value 'fp8'"),
        ({"other_allocators": ["x; rm -rf /"]}, "not in PyTorch's form"),
        ({"effective_batch": 7, "multiple_of": 8}, "7"),
    ],
)
def test_what_no_search_can_be_asked_for_is_refused(change: dict[str, object], complaint: str) -> None:
    content = json.loads(to_text(document(replace(RESULT, plan=PLAN))))
    content["asked"] |= change
    with pytest.raises(UsageError, match=complaint):
        plan_again(read(json.dumps(content)), SOURCE)


@pytest.mark.parametrize(
    "change",
    [{"seed": -1}, {"timeout_s": 0}, {"world": 0}, {"multiple_of": "8"}, {"memory_limit_bytes": 0}, {"new": 1}],
)
def test_values_out_of_range_are_refused_when_the_file_is_read(change: dict[str, object]) -> None:
    content = json.loads(to_text(document(RESULT)))
    content["asked"] |= change
    with pytest.raises(UsageError, match="1 field is wrong"):
        read(json.dumps(content))
