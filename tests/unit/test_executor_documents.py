"""What travels between tool and workers: as it left, with every field, and nothing that it could not be."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import EnvironmentTrouble, TimeRanOut, UsageError, WorkloadError
from autotune.executors.documents import error_document, plain, read, read_error, read_result, result_document
from autotune.executors.kinds import difference, kind_of
from autotune.model import Budget, Form, Machine, Plan, Question, Reason, WorkloadInfo
from tests.contract.samples import FITTING_PROBE, PROBE, SEARCH, SETTINGS, TRACED_PROBE, TRIED, facts

QUESTION = Question(
    batch_size=7,
    form=Form.COMPARE,
    reason=Reason.CHANGE,
    settings=SETTINGS,
    trace_unit=2,
    trace_largest=64,
    reference=TRIED,
    evaluate_at=3,
    length_bucket=128,
)


def sent(content: object) -> Any:
    """Through JSON and back, as between processes."""
    return json.loads(json.dumps(content))


@pytest.mark.parametrize(
    ("kind", "noun"),
    [
        (Plan, SEARCH.plan),
        (WorkloadInfo, SEARCH.workload),
        (Machine, SEARCH.machine),
        (Budget, SEARCH.budget),
        (Question, QUESTION),
    ],
)
def test_a_noun_arrives_as_it_left(kind: type, noun: object) -> None:
    assert read(kind, sent(plain(noun)), "it") == noun


@pytest.mark.parametrize("probe", [PROBE, FITTING_PROBE, TRACED_PROBE])
def test_a_probe_arrives_as_it_left_with_its_trace(probe: Any) -> None:
    assert facts(read_result(sent(result_document(probe)), "it")) == facts(probe)


def test_a_time_that_is_no_number_arrives_as_one() -> None:
    seen = replace(FITTING_PROBE.measurement, build_seconds=math.inf)
    back = read_result(sent(result_document(replace(FITTING_PROBE, measurement=seen))), "it")
    assert back.measurement.build_seconds == math.inf


@pytest.mark.parametrize("error", [UsageError("a", hint="b"), WorkloadError("a", detail="c"), TimeRanOut("a")])
def test_an_error_arrives_with_its_kind(error: Any) -> None:
    back = read_error(sent(error_document(error)))
    assert type(back) is type(error)
    assert (back.message, back.hint, back.detail) == (error.message, error.hint, error.detail)


@pytest.mark.parametrize("content", [None, 7, [], {"kind": "exit", "message": 3}])
def test_an_error_in_another_form_is_trouble_and_no_crash(content: object) -> None:
    assert isinstance(read_error(content), EnvironmentTrouble)


@pytest.mark.parametrize(
    "content", [None, 7, {"batch_size": "many"}, {**plain(QUESTION), "settings": {"precision": 3}}]
)
def test_a_noun_in_another_form_is_named(content: object) -> None:
    with pytest.raises(EnvironmentTrouble, match="the question is in an unknown form"):
        read(Question, content, "the question")


def test_equal_machines_differ_in_nothing_but_their_place() -> None:
    machine = SEARCH.machine
    twin = replace(machine, device_uuid="GPU-another", device_index=machine.device_index + 1)
    assert kind_of(machine) == kind_of(twin) and difference(machine, twin) == ""
    assert kind_of(machine).fingerprint == kind_of(twin).fingerprint != machine.fingerprint


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("device_name", "NVIDIA L4", "device NVIDIA L4 and not"),
        ("driver_version", "1.2", "driver 1.2 and not"),
        ("torch_version", "2.6.0", "PyTorch 2.6.0 and not"),
        ("cuda_version", "", "CUDA none and not"),
        ("capacity_bytes", 1 << 30, "memory 1 GiB and not"),
    ],
)
def test_another_kind_is_told_by_what_differs(field: str, value: object, words: str) -> None:
    other = replace(SEARCH.machine, **{field: value})  # type: ignore[arg-type]
    assert difference(SEARCH.machine, other).startswith(words)
    assert kind_of(other) != kind_of(SEARCH.machine)
