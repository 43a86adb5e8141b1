"""What differs between two searches, and why one asks something else than another."""

from dataclasses import replace

import pytest

from autotune.model import Choice, Form, SearchRecord, Settings, Source
from autotune.report.differences import Difference, answer_differences, comparison_lines, differences, what_changed
from autotune.units import format_bytes
from tests.cli.results import PROBES, RECORD
from tests.contract.samples import SEARCH


def planned(record: SearchRecord, **changes: object) -> SearchRecord:
    return replace(record, plan=replace(record.plan, **changes))  # type: ignore[arg-type]


def trained(record: SearchRecord, **changes: object) -> SearchRecord:
    workload = replace(record.workload, fingerprint="other", **changes)  # type: ignore[arg-type]
    return replace(record, workload=workload)


def on(record: SearchRecord, **changes: object) -> SearchRecord:
    return replace(record, machine=replace(record.machine, **changes))  # type: ignore[arg-type]


CODE = "the workload's code, or what it imports"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (on(RECORD, torch_version="2.13.0"), "torch version 2.11.0 -> 2.13.0"),
        (on(RECORD, driver_version="580.2"), "driver version 570.1 -> 580.2"),
        (on(RECORD, device_name="NVIDIA L4"), "device name NVIDIA H200 -> NVIDIA L4"),
        (on(RECORD, device_uuid="GPU-9"), "device uuid GPU-1234 -> GPU-9"),
        (on(RECORD, cuda_version=""), "cuda version 12.8 -> none"),
        (planned(RECORD, memory_limit_bytes=24 << 30), "memory limit 40 GiB -> 24 GiB"),
        (planned(RECORD, memory_limit_bytes=None), "memory limit 40 GiB -> none"),
        (planned(RECORD, memory_limit_bytes=(40 << 30) + 1), "memory limit 42949672960 -> 42949672961"),
        (planned(RECORD, seed=7), "seed 0 -> 7"),
        (planned(RECORD, timeout_s=30.0), "timeout 5 min 0 s -> 30 s"),
        (planned(RECORD, max_batch=64), "max batch none -> 64"),
        (planned(RECORD, recommend=False), "recommend yes -> no"),
        (planned(RECORD, settings=Settings(accumulate=4)), "accumulate 1 -> 4"),
        (trained(RECORD, parameters=5), "parameters 124439808 -> 5"),
        (trained(RECORD, optimizer="SGD"), "optimizer AdamW -> SGD"),
        (trained(RECORD), CODE),
    ],
)
def test_the_part_that_changed_is_named_with_its_values(after: SearchRecord, words: str) -> None:
    assert what_changed(RECORD, after) == (words,)


def test_arguments_of_the_file_are_told_with_the_workload_that_they_change() -> None:
    after = trained(planned(RECORD, source=Source(ref="model.py", script_args=("--width", "64"))))
    assert what_changed(RECORD, after) == ("script args none -> --width 64", CODE)


def with_parts(record: SearchRecord, **parts: str) -> SearchRecord:
    return replace(record, workload=replace(record.workload, parts=tuple(parts.items())))


def test_parts_known_by_their_hash_are_named_where_values_do_not_say_it() -> None:
    before = with_parts(RECORD, code="a", optimizer="b", arguments="c")
    assert what_changed(before, with_parts(trained(RECORD), code="z", optimizer="b", arguments="c")) == (
        "code changed",
    )
    other = with_parts(trained(RECORD, optimizer="SGD"), code="z", optimizer="y", arguments="c")
    assert what_changed(before, other) == ("optimizer AdamW -> SGD", "code changed")
    told = planned(trained(RECORD), source=Source(ref="model.py", script_args=("--width", "64")))
    assert what_changed(before, with_parts(told, code="a", optimizer="b", arguments="z")) == (
        "script args none -> --width 64",
    )
    assert what_changed(RECORD, with_parts(trained(RECORD), code="z")) == (CODE,), "older ledgers have no parts"
    assert differences(before, with_parts(RECORD, code="a", optimizer="b", loss="d")) == (
        Difference("workload", "arguments", "there", "none"),
        Difference("workload", "loss", "none", "there"),
    )


def test_a_search_of_settings_and_one_of_the_batch_alone_are_told_apart_in_one_clause() -> None:
    tuned = planned(RECORD, space=(Choice(knob="precision", values=("bf16", "fp16")),), trials=3)
    assert what_changed(RECORD, tuned) == ("what is searched the batch alone -> settings as well",)
    fewer = planned(tuned, space=(Choice(knob="precision", values=("bf16",)),))
    assert what_changed(tuned, fewer) == ("space precision=bf16,fp16 -> precision=bf16",)


def test_what_makes_no_other_question_is_not_blamed() -> None:
    again = on(planned(RECORD, time_budget_s=5.0, device="cuda:1"), device_index=1)
    clauses = what_changed(RECORD, replace(again, version="9.9"))
    assert clauses == (f"autotune {RECORD.version} -> 9.9, which asks in another form",)


def test_equal_searches_do_not_differ() -> None:
    assert differences(SEARCH, SEARCH) == ()
    assert answer_differences(SEARCH, SEARCH, (), ()) == ()
    assert comparison_lines(("a", "b"), ()) == "nothing differs"


def test_every_field_takes_part_but_for_those_measured_each_time() -> None:
    other = replace(on(planned(SEARCH, world=2), platform="Linux-7"), budget=replace(SEARCH.budget, others_bytes=0))
    other = replace(other, workload=replace(SEARCH.workload, process_bytes=1, notes=(), batch="float32 [B]"))
    assert differences(SEARCH, other) == (
        Difference("plan", "world", "8", "2"),
        Difference("workload", "batch", "int64 [B, 1024]", "float32 [B]"),
        Difference("machine", "platform", "Linux-6.1-x86_64", "Linux-7"),
        Difference("budget", "others", "3 GiB", "0 B"),
    )


def test_answers_are_compared_with_the_figures_measured_at_them() -> None:
    assert RECORD.answer is not None
    (at,) = [p for p in PROBES if p.fits and p.form is Form.LONG and p.batch_size == RECORD.answer.recommended_batch]
    smaller = replace(RECORD, answer=replace(RECORD.answer, max_batch=26))
    assert answer_differences(RECORD, smaller, PROBES, [p for p in PROBES if p is not at]) == (
        Difference("answer", "max batch", "27", "26"),
        Difference("answer", "samples per second", f"{at.samples_per_second:.6g}", "none"),
        Difference("answer", "peak device", format_bytes(at.measurement.peak_device_bytes), "none"),
        Difference("answer", "probes", str(len(PROBES)), str(len(PROBES) - 1)),
    )


def test_an_answer_differs_from_none() -> None:
    from autotune.model import SearchState

    nothing = replace(RECORD, state=SearchState.NO_ANSWER, answer=None)
    found = {one.field: (one.before, one.after) for one in answer_differences(RECORD, nothing, (), ())}
    assert found["state"] == ("answered", "no_answer")
    assert found["max batch"] == ("27", "none")


def test_a_comparison_is_a_table_with_each_part_named_once() -> None:
    found = [
        Difference("plan", "seed", "0", "7"),
        Difference("plan", "world", "1", "8"),
        Difference("machine", "x", "a", "b"),
    ]
    assert comparison_lines(("first", "second"), found).splitlines() == [
        "                first  second",
        "plan     seed   0      7",
        "         world  1      8",
        "machine  x      a      b",
    ]
