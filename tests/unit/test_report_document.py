import json
from dataclasses import asdict, replace

import jsonschema
import pytest
from pydantic import ValidationError

from autotune.errors import NothingFits, UsageError
from autotune.model import Form, Outcome, Prediction, Reason, Settings
from autotune.report.document import document, failure_document, read, schema, to_text
from autotune.report.fields import Batch, Document, FailureDocument
from autotune.units import GIB
from tests.cli.results import BUDGET, MACHINE, NOON, RESULT, WORKLOAD, failing, fitting, with_answer, with_settings

GOLDEN = {
    "schema_version": 1,
    "created": "2026-03-04T12:00:00Z",
    "complete": True,
    "workload": {"ref": "model.py", "fingerprint": "f00d", "parameters": 124_439_808},
    "machine": asdict(MACHINE),
    "settings": {"precision": "default", "allocator": ""},
    "batch": {"micro_batch": 24, "accumulate": 1, "effective": 24, "max_batch": 27, "refuted_at": 28},
    "environment": {},
    "evidence": {
        "samples_per_second": 150.0,
        "baseline_samples_per_second": 150.0,
        "peak_bytes": 24 * 14 * GIB // 10 + GIB,
        "budget_bytes": 40 * GIB,
        "headroom_bytes": 0,
        "steps": 8,
        "probes": 7,
        "out_of_memory_probes": 2,
        "seconds": 17.0,
        "prediction": None,
    },
    "search_id": "ab12cd34ef56",
    "limited_by": "device_memory",
    "warnings": [],
}
PREDICTED = with_answer(
    prediction=Prediction(limit=27, recorded_up_to=7, allocated_bytes=40_000_000_000, reserved_bytes=41_000_000_000)
)
ERROR = NothingFits("batch 1 does not fit", hint="a smaller model", detail="split")


def test_the_document_is_the_one_written_here() -> None:
    assert json.loads(to_text(document(RESULT))) == GOLDEN


def test_the_evidence_is_that_of_the_recommended_batch() -> None:
    slow = fitting(24, Form.LONG, Reason.RECOMMEND, step_seconds=(0.3,))
    assert document(with_answer(slow)).evidence.samples_per_second == pytest.approx(80)


def test_a_prediction_is_kept_beside_what_was_measured() -> None:
    content = document(PREDICTED)
    assert json.loads(to_text(content))["evidence"]["prediction"] == {
        "limit": 27,
        "recorded_up_to": 7,
        "allocated_bytes": 40_000_000_000,
        "reserved_bytes": 41_000_000_000,
    }
    assert read(to_text(content)) == content


def test_a_document_written_before_there_were_predictions_is_still_one() -> None:
    content = json.loads(to_text(document(RESULT)))
    del content["evidence"]["prediction"]
    assert jsonschema.Draft202012Validator(schema()).is_valid(content)
    assert read(json.dumps(content)) == document(RESULT)


def test_accumulation_holds_the_effective_batch_exactly() -> None:
    batch = document(with_settings(Settings(accumulate=4))).batch
    assert (batch.micro_batch, batch.accumulate, batch.effective) == (24, 4, 96)


def test_an_allocator_setting_goes_under_both_its_names() -> None:
    content = document(with_settings(Settings(allocator="expandable_segments:True")))
    assert content.environment == {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }


def test_memory_of_the_host_counts_as_memory() -> None:
    assert document(with_answer(failing(40, Outcome.HOST_OUT_OF_MEMORY))).evidence.out_of_memory_probes == 3


def test_headroom_is_that_of_the_budget() -> None:
    assert document(replace(RESULT, budget=replace(BUDGET, headroom_bytes=7))).evidence.headroom_bytes == 7


def test_warnings_are_those_of_the_report() -> None:
    content = document(replace(RESULT, workload=replace(WORKLOAD, evaluates=False)))
    assert content.warnings == ("evaluation was not probed: the workload has no evaluate(model, batch)",)


def test_produced_documents_obey_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    produced: list[Document | FailureDocument] = [
        document(RESULT),
        document(PREDICTED),
        document(with_answer(refuted_at=None, limited_by="max_batch")),
        failure_document(ERROR, created=NOON, ref="model.py"),
        failure_document(
            ERROR,
            created=NOON,
            ref="model.py",
            settings=Settings(),
            workload=WORKLOAD,
            machine=MACHINE,
            warnings=("w",),
        ),
    ]
    for content in produced:
        validator.validate(json.loads(to_text(content)))


@pytest.mark.parametrize("missing", sorted(GOLDEN))
def test_the_schema_refuses_a_document_without_a_field(missing: str) -> None:
    content = {name: value for name, value in GOLDEN.items() if name != missing}
    assert not jsonschema.Draft202012Validator(schema()).is_valid(content)


def test_the_schema_names_its_dialect_and_no_address() -> None:
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in json.dumps(schema())


def test_the_schema_explains_its_fields() -> None:
    assert "Largest certified size." in json.dumps(schema())


def test_without_an_answer_there_is_no_number_but_a_reason() -> None:
    content = json.loads(
        to_text(failure_document(ERROR, created=NOON, ref="model.py", settings=Settings(accumulate=2)))
    )
    assert content["complete"] is False
    assert content["batch"] == {
        "micro_batch": None,
        "accumulate": 2,
        "effective": None,
        "max_batch": None,
        "refuted_at": None,
    }
    assert content["error"] == {"kind": "nothing_fits", "message": "batch 1 does not fit", "hint": "a smaller model"}
    assert content["workload"] == {"ref": "model.py", "fingerprint": None, "parameters": None}
    assert content["evidence"] is None


def test_what_was_found_out_before_the_failure_is_kept() -> None:
    content = failure_document(ERROR, created=NOON, ref="m", workload=WORKLOAD, machine=MACHINE)
    assert content.workload.fingerprint == "f00d"
    assert content.machine is not None
    assert content.machine.device_name == "NVIDIA H200"


def test_the_text_is_ascii_and_ends_with_one_line_break() -> None:
    text = to_text(document(replace(RESULT, workload=replace(WORKLOAD, ref="modèle.py"))))
    assert text.isascii()
    assert text.endswith("}\n")
    assert read(text).workload.ref == "modèle.py"


def test_a_written_document_reads_back_equal() -> None:
    assert read(to_text(document(RESULT))) == document(RESULT)


def test_reading_lists_every_bad_field_with_its_path() -> None:
    content = json.loads(to_text(document(RESULT)))
    content["schema_version"] = 2
    content["batch"]["max_batch"] = "27"
    content["evidence"]["extra"] = 1
    del content["machine"]["device"]
    with pytest.raises(UsageError, match="4 fields are wrong") as caught:
        read(json.dumps(content))
    paths = [line.partition(":")[0] for line in caught.value.detail.splitlines()]
    assert sorted(paths) == ["batch.max_batch", "evidence.extra", "machine.device", "schema_version"]
    assert "autotune search" in caught.value.hint


def test_reading_something_else_says_so() -> None:
    with pytest.raises(UsageError, match="1 field is wrong") as caught:
        read("not json")
    assert caught.value.detail.startswith("the file: Invalid JSON")


def test_a_report_without_an_answer_is_no_recommendation() -> None:
    with pytest.raises(UsageError):
        read(to_text(failure_document(ERROR, created=NOON, ref="model.py")))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"effective": 25}, "effective is 25"),
        ({"micro_batch": 30, "effective": 30}, "above max_batch"),
        ({"refuted_at": 27}, "not above max_batch"),
        ({"micro_batch": 0, "effective": 0}, "greater than or equal to 1"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(changed: dict[str, int], complaint: str) -> None:
    fields = {"micro_batch": 24, "accumulate": 1, "effective": 24, "max_batch": 27, "refuted_at": 28}
    with pytest.raises(ValidationError, match=complaint):
        Batch.model_validate({**fields, **changed})
