"""Names, units and labels of the metrics: by Prometheus's rules, in a table of the docs, and few."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from autotune.watch.metrics import METRICS, Sample, samples
from tests.planted_nvml import LARGE
from tests.planted_watch import SNAPSHOT

DOCS = Path(__file__).parents[2] / "docs" / "watch.md"
UNITS = {"bytes", "seconds", "celsius", "watts", "ratio", "info", "total"}
COUNTS = {
    "autotune_device_tenants",
    "autotune_probe_lock_held",
    "autotune_searches_running",
    "autotune_trainings",
    "autotune_training_leak_alarm",
    "autotune_training_leak_bytes_per_step",
    "autotune_watch_nvml_up",
}
"""What has no unit, or more than one."""


def told(snapshot_samples: list[Sample]) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(one.name, one.labels): one.value for one in snapshot_samples}


def test_every_metric_has_a_name_with_its_unit_and_one_sentence_of_help() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS)
    for one in METRICS:
        assert re.fullmatch(r"autotune(_[a-z]+)+", one.name)
        assert one.name in COUNTS or one.name.rpartition("_")[2] in UNITS, one.name
        assert re.fullmatch(r"[A-Z0-9].*\.", one.help)


def test_every_sample_is_of_a_metric_with_as_many_labels_and_every_metric_has_one() -> None:
    labels = {one.name: one.labels for one in METRICS}
    found = list(samples(SNAPSHOT))
    assert {one.name for one in found} == set(labels)
    assert [one for one in found if len(one.labels) != len(labels[one.name])] == []
    assert {type(label) for one in found for label in one.labels} == {str}


def test_no_two_samples_have_the_same_labels_though_one_process_trains_twice() -> None:
    twice = Counter((one.name, one.labels) for one in samples(SNAPSHOT))
    assert [key for key, number in twice.items() if number > 1] == []
    found = told(list(samples(SNAPSHOT)))
    assert found["autotune_training_leak_alarm", ("train.py", "4711", "", "gpu0")] == 0
    assert found["autotune_training_leak_alarm", ("train.py#2", "4711", "", "gpu0")] == 1


def test_figures_are_in_base_units_and_those_not_told_are_left_out() -> None:
    found = told(list(samples(SNAPSHOT)))
    assert found["autotune_device_memory_used_bytes", ("gpu0", LARGE)] == 18 * 2**30
    assert found["autotune_device_utilization_ratio", ("gpu0", LARGE)] == 0.87
    assert found["autotune_device_power_watts", ("gpu0", LARGE)] == 312.5
    assert found["autotune_probe_lock_held", ("gpu0", LARGE)] == 1
    assert found["autotune_tenant_memory_bytes", ("gpu0", LARGE, "4711", "anna", "python")] == 18 * 2**30
    assert found["autotune_device_tenants", ("gpu0", LARGE)] == 2
    assert found["autotune_training_steps_total", ("lit.py", "5", "3", "host")] == 1200
    assert found["autotune_training_updated_timestamp_seconds", ("lit.py", "5", "3", "host")] == (
        SNAPSHOT.trainings[2].status.updated.timestamp()
    )
    names = Counter(one.name for one in samples(SNAPSHOT))
    assert names["autotune_device_memory_used_bytes"] == 3
    assert names["autotune_probe_lock_held"] == 3
    assert names["autotune_training_step_seconds"] == 2
    assert names["autotune_tenant_memory_bytes"] == 1


def test_no_command_line_is_a_label_and_what_ended_has_no_figures() -> None:
    found = list(samples(SNAPSHOT))
    assert not any("--" in label or " " in label for one in found for label in one.labels if "card" not in label)
    quiet = list(samples(replace(SNAPSHOT, devices=(), trainings=(), searches=(), driver="")))
    assert {(one.name, one.value) for one in quiet if one.labels == ()} == {
        ("autotune_trainings", 0),
        ("autotune_searches_running", 0),
        ("autotune_watch_nvml_up", 0),
        ("autotune_watch_look_seconds", 0.02),
    }
    assert len(quiet) == 5


def test_the_page_has_a_table_of_all_metrics() -> None:
    rows = re.findall(r"^\| `(autotune_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    expected = [(one.name, one.kind, ", ".join(one.labels), one.help.removesuffix(".")) for one in METRICS]
    assert rows == expected
