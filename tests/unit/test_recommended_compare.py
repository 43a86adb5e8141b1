"""Which changes make a recommendation stale, and which are only worth knowing."""

from dataclasses import replace

import pytest

from autotune.model import Machine, Settings
from autotune.recommended.compare import budget_changes, machine_changes, other_changes, workload_changes
from autotune.report.check import change_words
from autotune.report.document import document
from autotune.report.fields import Change, Document
from autotune.units import GIB
from tests.cli.results import BUDGET, MACHINE, RESULT, WORKLOAD, with_answer, with_settings

PARTS = (("code of model.py", "aaaa"), ("parameters", "bbbb"))
SEARCHED = replace(WORKLOAD, parts=PARTS)
CONTENT = document(replace(RESULT, workload=SEARCHED))


def told(changes: tuple[Change, ...]) -> list[tuple[str, bool]]:
    return [(change.what, change.stale) for change in changes]


def test_what_is_as_it_was_gives_no_change() -> None:
    assert workload_changes(CONTENT, SEARCHED) == ()
    assert machine_changes(CONTENT, MACHINE) == ()
    assert budget_changes(CONTENT, BUDGET, 24, probing=True) == ()
    assert other_changes(CONTENT, {}) == ()


def test_a_changed_workload_is_stale_and_says_in_which_parts() -> None:
    here = replace(SEARCHED, fingerprint="beef", parts=(("code of model.py", "cccc"), ("parameters", "bbbb")))
    (change,) = workload_changes(CONTENT, here)
    assert (change.what, change.stale) == ("code of model.py", True)
    assert change_words(change) == "code of model.py changed - another training than the one that was searched"


def test_parts_that_came_or_went_are_told() -> None:
    here = replace(SEARCHED, fingerprint="beef", parts=(("code of model.py", "aaaa"), ("code of new.py", "dddd")))
    found = [(change.what, change.then, change.here) for change in workload_changes(CONTENT, here)]
    assert found == [("parameters", "there", "not there"), ("code of new.py", "not there", "there")]


def test_the_number_of_parameters_is_told_with_both_values() -> None:
    here = replace(SEARCHED, fingerprint="beef", parameters=7)
    (change,) = workload_changes(CONTENT, here)
    assert (change.then, change.here, change.stale) == ("124,439,808", "7", True)


def test_a_file_without_parts_is_stale_by_its_fingerprint() -> None:
    (change,) = workload_changes(document(RESULT), replace(WORKLOAD, fingerprint="beef"))
    assert (change.then, change.here, change.stale) == ("f00d", "beef", True)


def test_equal_fingerprints_are_the_same_training_whatever_the_parts() -> None:
    """Parts are for words; the fingerprint decides."""
    assert workload_changes(CONTENT, replace(SEARCHED, parts=())) == ()


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("device_name", "NVIDIA A100", "device"),
        ("capacity_bytes", 80 * GIB, "bytes of device memory"),
        ("driver_version", "580.2", "driver"),
        ("torch_version", "2.13.0", "torch"),
        ("cuda_version", "13.0", "CUDA"),
    ],
)
def test_another_device_or_version_is_stale(field: str, value: object, what: str) -> None:
    (change,) = machine_changes(CONTENT, replace(MACHINE, **{field: value}))  # type: ignore[arg-type]
    assert (change.what, change.stale) == (what, True)
    assert str(value) in change_words(change)


@pytest.mark.parametrize(
    ("field", "value"), [("device_uuid", "GPU-5678"), ("python_version", "3.13.1"), ("platform", "Linux-arm")]
)
def test_another_device_of_the_kind_and_another_python_are_worth_a_note(field: str, value: object) -> None:
    (change,) = machine_changes(CONTENT, replace(MACHINE, **{field: value}))  # type: ignore[arg-type]
    assert not change.stale


def test_another_index_is_nothing() -> None:
    assert machine_changes(CONTENT, replace(MACHINE, device_index=3)) == ()


def test_another_kind_of_device_is_told_alone() -> None:
    here = replace(MACHINE, device="cpu", device_name="AMD EPYC, 2 threads, vm", cuda_version="", driver_version="")
    assert told(machine_changes(CONTENT, here)) == [("kind of device", True)]


def test_of_a_processor_the_name_of_its_host_is_left_out() -> None:
    cpu = replace(MACHINE, device="cpu", device_name="AMD EPYC, 2 threads, one")
    content = document(replace(RESULT, machine=cpu))
    assert machine_changes(content, replace(cpu, device_name="AMD EPYC, 2 threads, two")) == ()
    assert told(machine_changes(content, replace(cpu, device_name="AMD EPYC, 4 threads, one"))) == [("device", True)]


# the budget: 40 GiB in the file, with a peak of 34.6 GiB at batch 24


def budget(gib: float, content: Document = CONTENT, batch: int = 24, *, probing: bool = True) -> Change:
    (change,) = budget_changes(content, replace(BUDGET, limit_bytes=int(gib * GIB)), batch, probing=probing)
    return change


def test_a_larger_budget_is_worth_a_note_once_a_larger_batch_may_fit() -> None:
    assert budget_changes(CONTENT, replace(BUDGET, limit_bytes=42 * GIB), 24, probing=True) == ()
    assert (budget(42.1).stale, budget(42.1).meaning) == (False, "a larger batch may fit")


def test_a_smaller_budget_is_for_the_probe_to_judge() -> None:
    assert (budget(1).stale, budget(1).meaning) == (False, "the probe decides whether it is enough")


def test_without_a_probe_the_peak_of_the_file_judges() -> None:
    assert not budget(34.7, probing=False).stale
    assert budget(34.5, probing=False).stale
    assert "peak of 34.6 GiB" in budget(34.5, probing=False).meaning
    peak_bytes = CONTENT.evidence.peak_bytes
    assert peak_bytes is not None
    (just_enough,) = budget_changes(CONTENT, replace(BUDGET, limit_bytes=peak_bytes), 24, probing=False)
    assert not just_enough.stale


def test_without_a_probe_nothing_judges_a_batch_whose_peak_is_not_in_the_file() -> None:
    assert (budget(1, batch=27, probing=False).stale, "not probed" in budget(1, batch=27, probing=False).meaning) == (
        False,
        True,
    )


# everything else


def test_an_incomplete_search_is_worth_a_note() -> None:
    (change,) = other_changes(document(with_answer(complete=False)), {})
    assert not change.stale
    assert "batch 24 is certified" in change.meaning


def test_an_allocator_that_is_set_otherwise_here_is_worth_a_note() -> None:
    content = document(with_settings(Settings(allocator="expandable_segments:True")))
    same = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert other_changes(content, same) == ()
    assert other_changes(content, {"PYTORCH_ALLOC_CONF": ""}) == ()
    (change,) = other_changes(content, {**same, "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
    assert (change.what, change.here, change.stale) == ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", False)


def test_every_fact_of_a_machine_is_compared_or_left_out_on_purpose() -> None:
    different = Machine(
        device="cuda",
        device_name="x",
        device_uuid="x",
        device_index=9,
        capacity_bytes=1,
        driver_version="x",
        torch_version="x",
        cuda_version="x",
        python_version="x",
        platform="x",
        peers=("x",),
    )
    whats = {change.what for change in machine_changes(CONTENT, different)}
    assert len(whats) == len(Machine.__dataclass_fields__) - len({"device", "device_index", "unified"})
