"""The memory model against the device: what is recorded, what is foretold, and what other processes do to it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune import api
from autotune.errors import EnvironmentTrouble
from autotune.memory.allocator_config import AllocatorConfig
from autotune.memory.explain import explain
from autotune.memory.forecast import Forecast, forecast
from autotune.memory.replay import replay
from autotune.model import Outcome, ProbeResult, Reason, SearchResult, Trace, Use
from autotune.tuner import non_pytorch_bytes
from autotune.units import GIB, MIB
from tests.gpu.conftest import ASSETS, Search
from tests.process.support import wait_for

pytestmark = pytest.mark.gpu


def recording(result: SearchResult) -> tuple[ProbeResult, Trace]:
    probe = result.probes[0]
    assert probe.reason is Reason.TRACE and probe.fits, probe.failure
    assert probe.trace is not None, "this PyTorch does not record, or events were lost"
    return probe, probe.trace


@contextmanager
def tenant(folder: Path, *, share: float, step_bytes: int) -> Iterator[None]:
    """Another process on the device."""
    command = [sys.executable, str(ASSETS / "tenant.py"), str(folder), str(share), str(step_bytes)]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: (folder / "grown-0").exists() or process.poll() is not None, "the tenant", within_s=120)
            assert process.poll() is None, "the tenant ended"
            yield
        finally:
            process.kill()


def test_the_first_probe_records_passes_at_growing_sizes(found: SearchResult) -> None:
    _, trace = recording(found)
    sizes = [one.batch_size for one in trace.passes]
    assert sizes[:2] == [2, 3] and sizes == sorted(sizes) and 3 < sizes[-1] <= found.answer.max_batch / 2
    assert {one.steps for one in trace.passes} == {3}


def test_the_limit_is_foretold_certified_and_refuted_in_three_probes(found: SearchResult) -> None:
    prediction = found.answer.prediction
    assert prediction is not None
    assert abs(prediction.limit - found.answer.max_batch) <= max(1, found.answer.max_batch // 50)
    measured = found.certificate.measurement
    assert measured.steps_executed == 8, "its steps do not differ in memory"
    assert measured.peak_allocated_bytes and measured.peak_reserved_bytes
    assert abs(prediction.allocated_bytes / measured.peak_allocated_bytes - 1) < 0.005
    assert abs(prediction.reserved_bytes / measured.peak_reserved_bytes - 1) < 0.02
    assert len(found.probes) <= 4, [(p.batch_size, p.reason, p.outcome) for p in found.probes]


def test_where_the_data_says_how_large_tensors_are_few_probes_find_a_limit_that_thirty_steps_certify(
    search: Search,
) -> None:
    routed = search("experts.py", memory_limit="8GiB")
    certificate = routed.certificate.measurement
    assert certificate.steps_executed == 30 and not any(certificate.retries_per_step[8:])
    assert routed.answer.refuted_at is not None and routed.answer.limited_by in {"device_memory", "thrashing"}
    assert (certificate.peak_device_bytes or 0) > 0.85 * 8 * GIB, "near the limit"
    assert len(routed.probes) <= 9


@pytest.mark.parametrize("allocator", ["native", "expandable_segments"])
def test_a_replay_of_the_largest_recorded_size_has_the_allocators_own_peaks(search: Search, allocator: str) -> None:
    result = search("mlp.py", allocator=allocator, max_batch=24)
    _, trace = recording(result)
    foretold = forecast(trace, result.plan.settings.allocator, 2 * GIB)
    assert isinstance(foretold, Forecast), foretold
    learned, last = foretold.program, trace.passes[-1]
    seen = replay(
        learned.sizes_at(last.batch_size),
        learned.events,
        learned.marks,
        AllocatorConfig.parse(result.plan.settings.allocator),
        None,
        learned.streams,
    )
    assert abs(seen.allocated_bytes / last.allocated_bytes - 1) < 0.001
    told, measured = result.answer.prediction, result.certificate.measurement
    assert told is not None and measured.peak_allocated_bytes and measured.peak_reserved_bytes
    assert abs(told.allocated_bytes / measured.peak_allocated_bytes - 1) < 0.002
    segments = 2 * 20 * MIB  # at this small scale, what one request of a few MiB more or less decides
    assert abs(told.reserved_bytes - measured.peak_reserved_bytes) <= max(
        segments, 0.005 * measured.peak_reserved_bytes
    )


def test_accumulation_and_precision_are_recorded_as_they_are_trained(search: Search) -> None:
    result = search("mlp.py", accumulate=3, precision="bf16")
    prediction = result.answer.prediction
    assert prediction is not None
    assert abs(prediction.limit - result.answer.max_batch) <= max(1, result.answer.max_batch // 50)


def test_an_explanation_adds_up_to_the_measured_peak(found: SearchResult, tmp_path: Path) -> None:
    _, trace = recording(found)
    measured = found.certificate.measurement
    foretold = forecast(trace, "", found.budget.limit_bytes - (measured.non_pytorch_bytes or 0))
    assert isinstance(foretold, Forecast)
    told = explain(foretold, found.answer.max_batch, limit=found.answer.max_batch)
    by_kind = {part.use: part.size_bytes for part in told.parts}
    assert by_kind[Use.WEIGHTS] == measured.composition.parameters_bytes
    assert by_kind[Use.OPTIMIZER] >= 2 * by_kind[Use.WEIGHTS]
    assert sum(by_kind.values()) == told.allocated_bytes


def test_c26_a_steady_neighbour_is_left_alone_and_one_that_grew_once_costs_a_repeated_probe(
    search: Search, tmp_path: Path
) -> None:
    folder = tmp_path / "tenant"
    folder.mkdir()
    with tenant(folder, share=0.3, step_bytes=3 * GIB):
        quiet = search("crowded.py", folder, 0)
        assert all(p.outcome is not Outcome.UNRELIABLE for p in quiet.probes)
        crowded = search("crowded.py", folder, 1, fresh=True)
    unreliable = [p for p in crowded.probes if p.outcome is Outcome.UNRELIABLE]
    assert len(unreliable) == 1
    assert any(p.batch_size == unreliable[0].batch_size and p.fits for p in crowded.probes)
    assert abs(crowded.answer.max_batch - quiet.answer.max_batch) <= 1
    peak = crowded.certificate.measurement.peak_device_bytes
    assert peak is not None and peak <= 2 * GIB


def test_c26_a_neighbour_that_goes_on_growing_ends_the_search_and_the_next_one_goes_on(
    search: Search, tmp_path: Path
) -> None:
    folder = tmp_path / "tenant"
    folder.mkdir()
    with tenant(folder, share=0.3, step_bytes=3 * GIB), pytest.raises(EnvironmentTrouble, match="other processes hold"):
        search("crowded.py", folder, 9)
    (record,) = api.searches(str(tmp_path / "ledger.sqlite3"))
    assert record.state == "interrupted"


def test_c26_a_neighbour_that_leaves_once_a_probe_has_its_limit_costs_a_repeated_probe(
    search: Search, found: SearchResult, tmp_path: Path
) -> None:
    visited = search("visited.py", tmp_path, 3 * GIB)
    assert (tmp_path / "visited").exists()
    (unreliable,) = (p for p in visited.probes if p.outcome is Outcome.UNRELIABLE)
    assert unreliable.measurement.allocator_cap_bytes == 0
    assert unreliable.failure is not None and "when this probe got its limit" in unreliable.failure.message
    assert any(p.batch_size == unreliable.batch_size and p.fits for p in visited.probes)
    assert non_pytorch_bytes(visited.probes) < 2 * GIB, "what the neighbour held is no reserve"
    assert abs(visited.answer.max_batch - found.answer.max_batch) <= 1


def test_c27_expandable_segments_are_tried_and_kept_only_if_more_fits(search: Search) -> None:
    results = {
        (kind, allocator): search("fragmenting.py", kind, allocator=allocator)
        for kind in ("constant", "varying")
        for allocator in ("native", "expandable_segments", "auto")
    }
    for kind in ("constant", "varying"):
        native, expandable, auto = (results[kind, allocator] for allocator in ("native", "expandable_segments", "auto"))
        best = max(native.answer.max_batch, expandable.answer.max_batch)
        assert auto.answer.max_batch == best, {k: v.answer.max_batch for k, v in results.items()}
        kept = "expandable_segments" in auto.settings.allocator
        assert kept is (expandable.answer.max_batch > native.answer.max_batch)
    for (kind, allocator), result in results.items():
        for probe in result.probes:
            if probe.failure is not None and allocator == "expandable_segments":
                assert "auto" not in probe.failure.hint
            if probe.failure is not None and kind == "constant" and allocator == "native":
                assert not probe.failure.fragmented, probe.failure.message
