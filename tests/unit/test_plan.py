"""What a plan refuses, with the value and the next step, and what it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import api
from autotune.errors import UsageError
from autotune.planning import PlanOptions
from autotune.units import GIB

FILE = str(Path(__file__).parent.parent.parent / "examples" / "tiny_gpt.py")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_batch", "8"),
        ("max_batch", 0),
        ("multiple_of", True),
        ("multiple_of", 2.5),
        ("start_batch", -1),
        ("accumulate", 0),
        ("timeout_s", "60"),
        ("timeout_s", float("nan")),
        ("time_budget_s", 0),
        ("device_wait_s", -1),
        ("device_wait_s", float("nan")),
        ("seed", None),
        ("seed", 2**64),
        ("eval_batch", 0),
        ("memory_limit", "much"),
        ("memory_limit", True),
        ("memory_limit", 0),
        ("memory_limit", 1.5),
        ("precision", "fp8"),
        ("allocator", "expandable segments"),
        ("allow", "precision"),
        ("fix", "compile"),
        ("forbid", [3]),
        ("script_args", "--hidden 5"),
        ("templates", "precision=--amp"),
        ("command", "python train.py --bs {batch}"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_the_value_and_a_hint(option: str, value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        api.plan(FILE, **{option: value})
    assert str(value) in raised.value.message
    assert raised.value.hint


def test_the_option_that_a_hint_names_exists() -> None:
    hints = []
    wrong: list[PlanOptions] = [{"timeout_s": -1}, {"time_budget_s": -1}, {"device_wait_s": -1}]
    for options in wrong:
        with pytest.raises(UsageError) as raised:
            api.plan(FILE, **options)
        hints.append(raised.value.hint)
    assert [hint.split("(")[1].split(")")[0] for hint in hints] == ["--timeout", "--time-budget", "--device-wait"]
    assert hints[2].endswith("from 0 on")


@pytest.mark.parametrize("limit", ["much", "", "1e9", "-1"])
def test_a_limit_that_is_no_size_is_said_once(limit: str) -> None:
    with pytest.raises(UsageError) as raised:
        api.plan(FILE, memory_limit=limit)
    assert raised.value.message == f"memory limit {limit!r} is not a size"
    assert "40GB" in raised.value.hint


def test_what_names_no_file_is_refused() -> None:
    with pytest.raises(UsageError, match="None names no file and no module"):
        api.plan(None)  # type: ignore[arg-type]
    assert api.plan(Path(FILE)).source.ref == api.plan(FILE).source.ref  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        api.search,
        api.search_kinds,
        lambda plan: api.search_buckets(plan, [128]),
        api.predict,
        api.inspect,
    ],
)
def test_a_file_in_place_of_a_plan_is_refused(call: Callable[[Any], object]) -> None:
    with pytest.raises(UsageError, match=r"'model\.py' is no plan") as raised:
        call("model.py")
    assert "api.plan" in raised.value.hint


def test_a_start_above_the_largest_size_is_refused() -> None:
    with pytest.raises(UsageError, match="start_batch 9 is above max_batch 4"):
        api.plan(FILE, start_batch=9, max_batch=4)
    assert api.plan(FILE, start_batch=4, max_batch=4).start_batch == 4


def test_one_section_of_a_diagnosis_may_be_given_as_text() -> None:
    with pytest.raises(UsageError, match="section 'leak' is not known"):
        api.diagnose(FILE, only="leak")


def test_a_file_in_place_of_a_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="file is no folder"):
        api.diagnose(FILE, output=tmp_path / "file")


def test_a_bound_without_a_legal_size_is_refused() -> None:
    with pytest.raises(UsageError, match="no multiple of 8 is within the largest batch allowed, 4"):
        api.plan(FILE, multiple_of=8, max_batch=4)


@pytest.mark.parametrize("limit", ["24GiB", 24 * GIB, float(24 * GIB)])
def test_a_memory_limit_is_taken_as_bytes_or_words(limit: Any) -> None:
    assert api.plan(FILE, memory_limit=limit).memory_limit_bytes == 24 * GIB


def test_an_allocator_may_be_named_in_short() -> None:
    settings = api.plan(FILE, allocator="expandable_segments").settings
    assert settings.environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert settings.environment["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert api.plan(FILE, allocator="native").settings.environment == {}


def test_an_effective_batch_that_cannot_be_held_exactly_is_refused_before_anything_is_run() -> None:
    with pytest.raises(UsageError) as refused:
        api.plan(FILE, tune=True, effective_batch=97, world=2)
    assert "97" in refused.value.message
    with pytest.raises(UsageError, match="both given"):
        api.plan(FILE, tune=True, effective_batch=96, accumulate=2)


def test_only_a_search_of_settings_has_a_space() -> None:
    assert api.plan(FILE).space == api.plan(FILE, tune=True, allow=("none",)).space == ()
    fixed = api.plan(FILE, tune=True, fix=("precision=bf16",), allow=("all",))
    assert {choice.knob: choice.values for choice in fixed.space}["precision"] == ("bf16",)
    with pytest.raises(UsageError, match="objective 'speed' is not known"):
        api.plan(FILE, tune=True, objective="speed")
