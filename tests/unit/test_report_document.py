import copy
import json
from dataclasses import asdict, fields, replace

import jsonschema
import pytest
from pydantic import ValidationError

from autotune.errors import NothingFits, UsageError
from autotune.model import Form, Outcome, Precision, Prediction, ProbeResult, Reason, SearchResult, Settings
from autotune.report.document import document, failure_document, read, schema, settings_of, to_text
from autotune.report.fields import Batch, Document, FailureDocument
from autotune.report.settings_fields import Settings as SettingsFields
from autotune.units import GIB
from tests.cli.results import (
    ANSWER,
    BUDGET,
    MACHINE,
    NOON,
    PLAN,
    PROBES,
    RESULT,
    WORKLOAD,
    failing,
    fitting,
    with_answer,
    with_settings,
)
from tests.unit.export_samples import ALL

OF_ONE_RANK = {
    "parallel": "default",
    "bucket_mb": 25,
    "bucket_view": False,
    "static_graph": False,
    "reshard": True,
    "offload": False,
}
UNCHANGED = {
    "precision": "default",
    "init_scale": 65536.0,
    "checkpointing": "off",
    "compile": "off",
    "activation_budget": 1.0,
    "optimizer": "default",
    "memory_format": "default",
    "attention": "default",
    "cudnn_benchmark": False,
    "set_to_none": True,
    "loader_workers": None,
    "pin_memory": False,
    "allocator": "",
    **OF_ONE_RANK,
}
GOLDEN = {
    "schema_version": 1,
    "created": "2026-03-04T12:00:00Z",
    "complete": True,
    "workload": {"ref": "model.py", "fingerprint": "f00d", "parameters": 124_439_808, "command": None, "parts": {}},
    "machine": {**asdict(MACHINE), "peers": []},
    "settings": UNCHANGED,
    "changes": {},
    "batch": {
        "micro_batch": 24,
        "accumulate": 1,
        "world": 1,
        "replicas": None,
        "ranks": 1,
        "effective": 24,
        "max_batch": 27,
        "refuted_at": 28,
    },
    "evaluation": None,
    "environment": {},
    "launch": "",
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
        "loading_samples_per_second": None,
        "worst_batch": None,
        "candidates": 1,
        "ranks": [],
        "all_ranks_samples_per_second": None,
        "prediction": None,
    },
    "search_id": "ab12cd34ef56",
    "limited_by": "device_memory",
    "warnings": [],
    "asked": {
        "device": "auto",
        "settings": UNCHANGED,
        "accumulate": 1,
        "memory_limit_bytes": 40 * GIB,
        "multiple_of": 1,
        "start_batch": None,
        "max_batch": None,
        "eval_batch": None,
        "timeout_s": 300.0,
        "time_budget_s": None,
        "seed": 0,
        "recommend": True,
        "other_allocators": [],
        "space": {},
        "objective": "throughput",
        "effective_batch": None,
        "world": 1,
        "ranks": 1,
        "trials": 12,
        "script_args": [],
        "command": [],
        "templates": {},
        "length_bucket": None,
    },
    "check": None,
    "buckets": [],
}
PREDICTED = with_answer(
    prediction=Prediction(limit=27, recorded_up_to=7, allocated_bytes=40_000_000_000, reserved_bytes=41_000_000_000)
)
OLDER = {
    **GOLDEN,
    "settings": {"precision": "bf16", "allocator": "max_split_size_mb:128"},
    "batch": {"micro_batch": 24, "accumulate": 4, "effective": 96, "max_batch": 27, "refuted_at": 28},
}
"""As it was written before more than precision and allocator were searched."""
for newer in ("changes", "evaluation", "asked", "check", "buckets", "launch"):
    del OLDER[newer]
OLDER["workload"] = {"ref": "model.py", "fingerprint": "f00d", "parameters": 124_439_808, "command": None}
OLDER["evidence"] = copy.deepcopy(GOLDEN["evidence"])
for newer in ("worst_batch", "candidates", "ranks", "all_ranks_samples_per_second"):
    del OLDER["evidence"][newer]  # type: ignore[attr-defined]
OLDER["machine"] = asdict(MACHINE)
del OLDER["machine"]["peers"]  # type: ignore[attr-defined]
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


def changed_to(settings: Settings, *, own: tuple[ProbeResult, ...] = PROBES) -> SearchResult:
    """The user's own settings were probed as ``own`` says, and the answer holds for others, twice as fast."""
    twice = tuple(
        replace(
            fitting(size, Form.LONG, Reason.CERTIFY, step_seconds=(size / 300 * settings.accumulate,)),
            settings=settings,
        )
        for size in (24, 27)
    )
    return replace(RESULT, answer=replace(ANSWER, settings=settings), probes=(*own, *twice))


def test_all_settings_are_in_the_document_under_their_names_with_their_defaults() -> None:
    known = {field.name: field.default for field in fields(Settings) if field.name != "accumulate"}
    assert {name: getattr(Settings(), name) for name in SettingsFields.model_fields} == known
    assert {name: f.default for name, f in SettingsFields.model_fields.items() if not f.is_required()} == {
        name: value for name, value in known.items() if name not in ("precision", "allocator")
    }


def test_settings_come_back_from_the_text_as_they_went_in() -> None:
    assert all(value != getattr(Settings(), name) for name, value in asdict(ALL).items())
    assert settings_of(read(to_text(document(changed_to(ALL))))) == ALL


def test_what_the_settings_change_is_said_in_words() -> None:
    content = document(changed_to(ALL))
    assert content.changes == {
        "precision": "fp16",
        "init_scale": "1024",
        "checkpointing": "own",
        "compile": "max-autotune",
        "activation_budget": "0.5",
        "optimizer": "fused",
        "memory_format": "channels_last",
        "attention": "flash",
        "cudnn_benchmark": "true",
        "set_to_none": "false",
        "loader_workers": "4",
        "pin_memory": "true",
        "allocator": "expandable_segments:True,max_split_size_mb:128",
        "parallel": "fsdp",
        "bucket_mb": "50",
        "bucket_view": "true",
        "static_graph": "true",
        "reshard": "false",
        "offload": "true",
        "accumulate": "3",
    }


def test_a_change_back_to_the_default_is_one_as_well() -> None:
    changed = replace(ALL, allocator="", loader_workers=None)
    probes = tuple(replace(probe, settings=changed) for probe in PROBES)
    result = replace(with_settings(ALL), answer=replace(ANSWER, settings=changed), probes=probes)
    assert document(result).changes == {"loader_workers": "default", "allocator": "default"}


def test_what_the_user_asked_for_is_no_change() -> None:
    assert document(with_settings(ALL)).changes == {}


def test_a_document_of_before_is_read_with_what_was_done_then() -> None:
    assert jsonschema.Draft202012Validator(schema()).is_valid(OLDER)
    content = read(json.dumps(OLDER))
    assert settings_of(content) == Settings(precision=Precision.BF16, allocator="max_split_size_mb:128", accumulate=4)
    assert (content.batch.world, content.complete, content.changes) == (1, True, {})
    assert (content.evidence.worst_batch, content.evidence.candidates) == (None, 1)
    assert content.buckets == ()
    assert (content.batch.ranks, content.evidence.ranks, content.launch, content.machine.peers) == (1, (), "", ())
    assert content.evidence.all_ranks_samples_per_second is None


def test_an_answer_of_a_search_that_was_cut_short_is_not_complete() -> None:
    content = document(with_answer(complete=False))
    assert content.complete is False
    jsonschema.Draft202012Validator(schema()).validate(json.loads(to_text(content)))
    assert read(to_text(content)) == content


def test_the_user_s_own_settings_are_their_own_baseline() -> None:
    assert (
        document(with_answer(fitting(27, Form.LONG, step_seconds=(0.1,)))).evidence.baseline_samples_per_second == 150
    )
    accumulated = replace(ALL, accumulate=8)
    result = with_settings(ALL)
    result = replace(
        result,
        answer=replace(ANSWER, settings=accumulated),
        probes=tuple(replace(p, settings=accumulated) for p in PROBES),
    )
    evidence = document(result).evidence
    assert evidence.samples_per_second == 8 * 150
    assert evidence.baseline_samples_per_second == 8 * 150


def test_the_baseline_is_the_best_that_the_user_s_own_settings_reach_safely() -> None:
    evidence = document(changed_to(ALL)).evidence
    assert evidence.samples_per_second == pytest.approx(300)
    assert evidence.baseline_samples_per_second == pytest.approx(150)


def test_the_baseline_may_accumulate_otherwise() -> None:
    own = replace(fitting(16, Form.TIMED, step_seconds=(0.5,)), settings=Settings(accumulate=3))
    assert document(changed_to(ALL, own=(own,))).evidence.baseline_samples_per_second == pytest.approx(96)


def test_short_probes_make_the_baseline_only_where_no_others_do() -> None:
    quick = fitting(16, Form.SHORT, step_seconds=(0.01, 0.01))
    timed = fitting(16, Form.TIMED, step_seconds=(0.125, 0.125))
    assert document(changed_to(ALL, own=(quick, timed))).evidence.baseline_samples_per_second == pytest.approx(128)
    assert document(changed_to(ALL, own=(quick,))).evidence.baseline_samples_per_second == pytest.approx(1600)


@pytest.mark.parametrize("form", [Form.COMPARE, Form.LOADING])
def test_what_is_no_ordinary_training_makes_no_baseline(form: Form) -> None:
    other = fitting(16, form, step_seconds=(0.01, 0.01))
    assert document(changed_to(ALL, own=(other,))).evidence.baseline_samples_per_second is None


def test_a_size_that_the_own_settings_failed_at_makes_no_baseline_but_a_disturbed_probe_is_no_failure() -> None:
    ran = fitting(40, Form.TIMED, step_seconds=(0.1,))
    slower = fitting(8, Form.TIMED, step_seconds=(0.1,))
    died = failing(40, form=Form.LONG)
    disturbed = failing(40, Outcome.UNRELIABLE, form=Form.LONG)
    assert document(changed_to(ALL, own=(ran, slower, died))).evidence.baseline_samples_per_second == 80
    assert document(changed_to(ALL, own=(ran, slower, disturbed))).evidence.baseline_samples_per_second == 400


def test_accumulation_holds_the_effective_batch_exactly() -> None:
    batch = document(with_settings(Settings(accumulate=4))).batch
    assert (batch.micro_batch, batch.accumulate, batch.world, batch.effective) == (24, 4, 1, 96)


def test_devices_that_train_together_count_in_the_effective_batch() -> None:
    batch = document(replace(RESULT, plan=replace(PLAN, world=8))).batch
    assert (batch.micro_batch, batch.accumulate, batch.world, batch.effective) == (24, 1, 8, 192)


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


@pytest.mark.parametrize(
    "missing", sorted(GOLDEN.keys() - {"changes", "evaluation", "asked", "check", "buckets", "launch"})
)
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
    assert content["workload"] == {
        "ref": "model.py",
        "fingerprint": None,
        "parameters": None,
        "command": None,
        "parts": {},
    }
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


def test_a_document_of_before_machines_said_what_memory_they_have_is_read() -> None:
    content = json.loads(to_text(document(RESULT)))
    assert content["machine"].pop("unified") is False
    assert read(json.dumps(content)) == document(RESULT)


def test_reading_lists_every_bad_field_with_its_path() -> None:
    content = json.loads(to_text(document(RESULT)))
    content["schema_version"] = 0
    content["batch"]["max_batch"] = "27"
    content["evidence"]["extra"] = 1
    del content["machine"]["device"]
    with pytest.raises(UsageError, match="4 fields are wrong") as caught:
        read(json.dumps(content))
    paths = [line.partition(":")[0] for line in caught.value.detail.splitlines()]
    assert sorted(paths) == ["batch.max_batch", "evidence.extra", "machine.device", "schema_version"]
    assert "autotune search" in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("precision", "fp8", "Input should be 'default', 'fp32', 'tf32', 'bf16' or 'fp16'"),
        ("init_scale", 0.0, "greater than 0"),
        ("init_scale", "1024", "valid number"),
        ("checkpointing", "all", "Input should be"),
        ("compile", True, "Input should be"),
        ("activation_budget", 1.5, "less than or equal to 1"),
        ("optimizer", "fast", "Input should be"),
        ("memory_format", None, "Input should be"),
        ("attention", "paged", "Input should be"),
        ("cudnn_benchmark", "yes", "valid boolean"),
        ("set_to_none", 1, "valid boolean"),
        ("loader_workers", -1, "greater than or equal to 0"),
        ("loader_workers", 2.0, "valid integer"),
        ("pin_memory", None, "valid boolean"),
        ("allocator", "__import__('os')", "is not in PyTorch's form"),
        ("batch_size", 4, "Extra inputs are not permitted"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(field: str, value: object, complaint: str) -> None:
    content = json.loads(to_text(document(RESULT)))
    content["settings"][field] = value
    with pytest.raises(UsageError, match="1 field is wrong") as caught:
        read(json.dumps(content))
    assert caught.value.detail.startswith(f"settings.{field}: ")
    assert complaint in caught.value.detail


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
        ({"effective": 25}, "effective is 25, micro_batch times accumulate times world is 24"),
        ({"world": 2}, "effective is 24, micro_batch times accumulate times world is 48"),
        ({"world": 0, "effective": 0}, "greater than or equal to 1"),
        ({"micro_batch": 30, "effective": 30}, "above max_batch"),
        ({"refuted_at": 27}, "not above max_batch"),
        ({"micro_batch": 0, "effective": 0}, "greater than or equal to 1"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(changed: dict[str, int], complaint: str) -> None:
    fields = {"micro_batch": 24, "accumulate": 1, "effective": 24, "max_batch": 27, "refuted_at": 28}
    with pytest.raises(ValidationError, match=complaint):
        Batch.model_validate({**fields, **changed})


def test_a_recommendation_of_a_newer_autotune_says_so_and_not_which_fields_are_wrong() -> None:
    content = {**json.loads(to_text(document(RESULT))), "schema_version": 2, "new": 1}
    with pytest.raises(UsageError, match="has schema_version 2, and this autotune reads 1") as caught:
        read(json.dumps(content))
    assert caught.value.hint == "pip install --upgrade autotune-torch"
    assert caught.value.detail == ""


def test_a_document_without_an_answer_says_why_there_is_none() -> None:
    text = to_text(failure_document(ERROR, created=NOON, ref="model.py"))
    with pytest.raises(UsageError, match=r"had no answer \(nothing_fits\).*: batch 1 does not fit") as caught:
        read(text)
    assert caught.value.hint == "a smaller model"


@pytest.mark.parametrize("field", ["micro_batch", "accumulate", "max_batch", "effective"])
def test_a_number_that_no_ledger_could_hold_is_refused(field: str) -> None:
    content = json.loads(to_text(document(RESULT)))
    content["batch"][field] = 1 << 63
    with pytest.raises(UsageError, match="field") as caught:
        read(json.dumps(content))
    assert f"batch.{field}: Input should be less than or equal to 9007199254740992" in caught.value.detail
