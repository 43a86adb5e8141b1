"""From a search of settings to a training with them on a CUDA device: searched, interrupted, resumed, remembered, loaded."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune import api
from autotune.api import LogObserver
from autotune.model import (
    ALLOCATOR_VARIABLES,
    Form,
    ProbeResult,
    Reason,
    SearchRecord,
    SearchResult,
    SearchState,
)
from autotune.report.document import document, to_text
from autotune.report.evidence import certificate
from autotune.report.tuning import settings_table
from autotune.units import GIB, parse_bytes
from tests.process.support import ROOT

pytestmark = pytest.mark.gpu

EXAMPLE = ROOT / "examples" / "train_with_config.py"
LIMIT = "3GiB"
FINISHED = 3
"""Probes before the search is interrupted."""
EXPANDABLE = "expandable_segments:True"

Tell = Callable[[str, object], None]


class Interrupting(LogObserver):
    """Presses Ctrl-C."""

    def answered(self, result: ProbeResult, number: int) -> None:
        super().answered(result, number)
        if number == FINISHED:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Searched:
    """One search in three calls, and the file it makes."""

    folder: Path
    """With autotune.json."""
    interrupted: SearchRecord
    first: tuple[ProbeResult, ...]
    """Probes of the call that was interrupted."""
    result: SearchResult
    """Of the call that went on."""
    again: SearchResult
    """Of the third call."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Settings and batch of the example's transformer under a small limit."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    folder = tmp_path_factory.mktemp("tuned")
    storage = str(folder / "ledger.sqlite3")
    plan = api.plan(
        str(EXAMPLE),
        device="cuda",
        memory_limit=LIMIT,
        tune=True,
        allow=["precision=tf32,bf16", "optimizer=fused", "checkpointing=blocks"],
        trials=2,
    )
    with pytest.raises(KeyboardInterrupt):
        api.search(plan, storage=storage, observer=Interrupting())
    (record,) = api.searches(storage)
    _, first = api.show(record.id, storage)
    result = api.search(plan, storage=storage)
    again = api.search(plan, storage=storage)
    (folder / "autotune.json").write_text(to_text(document(result)))
    return Searched(folder, record, first, result, again)


@pytest.fixture
def tell(record_property: Tell) -> Tell:
    """What was seen, in the report of the test run and, with ``-s``, on the screen."""

    def both(name: str, value: object) -> None:
        record_property(name, str(value))
        print(f"\n    {name}: {value}", end="")

    return both


def _without_trace(probe: ProbeResult) -> ProbeResult:
    """Traces are equal only to themselves, and each reading of the ledger makes new ones."""
    return replace(probe, trace=None)


def test_an_interrupted_search_goes_on_with_the_probes_it_had(searched: Searched) -> None:
    assert searched.interrupted.state is SearchState.INTERRUPTED
    assert len(searched.first) == FINISHED
    result = searched.result
    assert result.search_id == searched.interrupted.id
    assert [_without_trace(p) for p in result.probes[:FINISHED]] == [_without_trace(p) for p in searched.first]
    assert result.new_probes == len(result.probes) - FINISHED


def test_an_answered_search_is_answered_from_the_ledger_with_one_confirming_probe(searched: Searched) -> None:
    again, result = searched.again, searched.result
    assert again.from_ledger and again.answer == result.answer
    assert [(p.reason, p.form, p.fits) for p in again.probes[-again.new_probes :]] == [
        (Reason.CONFIRM, Form.LONG, True)
    ]
    assert again.probes[-1].batch_size == result.answer.max_batch
    assert again.probes[-1].settings == result.settings


def test_the_answer_is_certified_compared_and_no_slower_than_what_the_user_has(searched: Searched, tell: Tell) -> None:
    result = searched.result
    tell(
        "tried",
        "\n        ".join(("", *settings_table(result), f"{len(result.probes)} probes, {result.seconds:.0f} s")),
    )
    assert result.answer.complete
    proof = certificate(result, result.answer.recommended_batch)
    assert proof is not None and proof.measurement.steps_executed == Form.LONG.steps
    for probe in (proof, result.certificate):
        peak = probe.measurement.peak_device_bytes
        assert peak is not None and peak <= parse_bytes(LIMIT)
    own = result.plan.settings
    tried = {replace(probe.settings, accumulate=1) for probe in result.probes}
    assert len(tried) > 1, "nothing was tried"
    if result.settings != own:
        compared = [p for p in result.probes if p.form is Form.COMPARE and p.settings == result.settings]
        assert compared and compared[-1].fits
    evidence = document(result).evidence
    assert evidence.samples_per_second is not None and evidence.baseline_samples_per_second is not None
    tell("samples/s, and as it was", f"{evidence.samples_per_second:,.0f}, {evidence.baseline_samples_per_second:,.0f}")
    assert evidence.samples_per_second >= evidence.baseline_samples_per_second


def test_every_failure_on_the_way_was_memory(searched: Searched) -> None:
    """Nothing crashed, nothing was unsupported or changed the training: all that was allowed works here."""
    failed = [probe for probe in searched.result.probes if not probe.fits]
    assert all(probe.outcome.is_ceiling for probe in failed), [(p.settings, p.outcome, p.failure) for p in failed]


# in the user's own training

TRAINING = """
import json, runpy, sys, warnings
import torch
from autotune.errors import StaleConfig
warnings.simplefilter("error", StaleConfig)
example, cap = sys.argv[1], int(sys.argv[2])
torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
sys.argv = [example, "--steps", "10"]
runpy.run_path(example, run_name="__main__")
print(json.dumps([torch.cuda.max_memory_reserved(), torch.cuda.memory_stats()["num_alloc_retries"]]))
"""

LOADING = """
import json, os, sys, warnings
import torch
import autotune
from autotune.errors import StaleConfig, StaleConfigError
path, when = sys.argv[1:]
if when == "late":
    torch.ones(1, device="cuda")
started = torch.cuda.is_initialized()
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    tuned = autotune.load(path)
refused = ""
if when == "late":
    try:
        autotune.load(path, strict=True)
    except StaleConfigError as error:
        refused = error.message
kept = torch.ones(1 << 22, device=tuned.device)
print(json.dumps({
    "started": started,
    "variables": [os.environ.get(name) for name in autotune.model.ALLOCATOR_VARIABLES],
    "expandable": [segment["is_expandable"] for segment in torch.cuda.memory.memory_snapshot()],
    "warnings": [str(warning.message) for warning in given if warning.category is StaleConfig],
    "stale": [difference.text for difference in tuned.stale],
    "refused": refused,
}))
"""


@pytest.fixture(scope="module")
def running(searched: Searched) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """Three trainings of their own, started at once: most of their time is importing PyTorch."""
    content: dict[str, Any] = json.loads((searched.folder / "autotune.json").read_text())
    content["settings"]["allocator"] = EXPANDABLE
    content["environment"] = dict.fromkeys(ALLOCATOR_VARIABLES, EXPANDABLE)
    path = searched.folder / "expandable.json"
    path.write_text(json.dumps(content))
    cap = searched.result.certificate.measurement.allocator_cap_bytes
    assert cap is not None
    codes = {
        "training": (TRAINING, str(EXAMPLE), str(cap)),
        "early": (LOADING, str(path), "early"),
        "late": (LOADING, str(path), "late"),
    }
    environment = {name: value for name, value in os.environ.items() if name not in ALLOCATOR_VARIABLES}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", *code],
            cwd=searched.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, code in codes.items()
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def printed(process: "subprocess.Popen[str]") -> list[str]:
    """What it printed, a line each, once it has ended well."""
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out.splitlines()


def test_the_training_runs_with_what_was_found_and_within_its_memory(
    searched: Searched, running: dict[str, "subprocess.Popen[str]"], tell: Tell
) -> None:
    result = searched.result
    batch, accumulate = result.answer.recommended_batch, result.settings.accumulate
    tuned, rate, loss, against, memory = printed(running["training"])
    assert tuned == f"Tuned(autotune.json: batch {batch}, accumulate {accumulate}, cuda)"
    assert rate.endswith(f"samples/s over 10 steps of {batch} x {accumulate} samples")
    assert loss.startswith("loss of the last step: ")
    reserved, retries = json.loads(memory)
    tell("training", f"{rate}; {against}; {reserved / GIB:.2f} GiB reserved, {retries} retries")


def test_the_allocator_of_the_file_is_set_before_the_device_starts_and_is_in_force(
    running: dict[str, "subprocess.Popen[str]"],
) -> None:
    (line,) = printed(running["early"])
    seen = json.loads(line)
    assert seen["variables"] == [EXPANDABLE, EXPANDABLE]
    assert seen["expandable"] and all(seen["expandable"])
    assert (seen["started"], seen["stale"], seen["warnings"]) == (False, [], [])


def test_an_allocator_that_comes_too_late_is_told_and_not_set(running: dict[str, "subprocess.Popen[str]"]) -> None:
    (line,) = printed(running["late"])
    seen = json.loads(line)
    why = f"allocator: {EXPANDABLE} in the file, the default here: the device was started before"
    assert seen["started"] and seen["stale"] == [why]
    (message,) = seen["warnings"]
    assert why in message and why in seen["refused"]
    assert f"{ALLOCATOR_VARIABLES[0]}={EXPANDABLE}" in message  # how to start the training instead
    assert seen["variables"] == [None, None] and not any(seen["expandable"])
