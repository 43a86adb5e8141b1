"""Models whose true limit is known: the answer is exactly it, and the failing phase is named."""

import pytest

from autotune.errors import EnvironmentTrouble, NothingFits, UsageError, WorkloadError
from autotune.model import Cause, Evaluation, Form, Outcome, Phase
from tests.process.conftest import Search

LIMIT = 13

WORDINGS = {
    "CUDA caching allocator": ("type", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.49 GiB"),
    "CUDA driver": ("runtime", "CUDA error: out of memory"),
    "cudaMallocAsync": ("runtime", "Allocation on device 0 would exceed allowed memory. (out of memory)"),
    "expandable segments": ("runtime", "CUDA driver error: out of memory"),
    "HIP": ("runtime", "HIP out of memory. Tried to allocate 2.00 GiB"),
    "XPU": ("runtime", "XPU out of memory. Tried to allocate 2.00 GiB"),
    "MPS": ("runtime", "MPS backend out of memory (MPS allocated: 5.5 GB, other allocations: 1.0 GB, max allowed: 6.8 GB)"),
    "XLA": ("runtime", "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm"),
    "Gaudi": ("runtime", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456"),
    "cuBLAS": ("runtime", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuDNN": ("runtime", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "NVML assertion": ("runtime", 'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":995'),
    "CPU allocator": ("runtime", "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 419430400 bytes."),
    "MemoryError": ("memory_error", ""),
    "two arguments": ("two_arguments", "CUDA out of memory. Tried to allocate 2.00 GiB"),
    "as a cause": ("cause", "CUDA out of memory. Tried to allocate 2.00 GiB"),
    "in a group": ("group", "CUDA out of memory. Tried to allocate 2.00 GiB"),
}  # fmt: skip


@pytest.mark.parametrize("wording", WORDINGS)
def test_c14_every_wording_of_out_of_memory_gives_the_exact_limit(search_forked: Search, wording: str) -> None:
    kind, text = WORDINGS[wording]
    result = search_forked(f"forward:{kind}", LIMIT, text)
    assert (result.answer.max_batch, result.answer.refuted_at) == (LIMIT, LIMIT + 1)
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.failure.phase is Phase.FORWARD
    assert result.refutation.outcome in (Outcome.OUT_OF_MEMORY, Outcome.CRASHED)
    assert result.certificate.measurement.steps_executed == 8


@pytest.mark.parametrize(
    ("kind", "phase"),
    [("backward", Phase.BACKWARD), ("optimizer", Phase.OPTIMIZER)],
)
def test_c07_a_limit_in_a_later_phase_is_found_and_named(search_forked: Search, kind: str, phase: Phase) -> None:
    result = search_forked(kind, LIMIT)
    assert (result.answer.max_batch, result.answer.refuted_at) == (LIMIT, LIMIT + 1)
    assert result.refutation is not None and result.refutation.failure is not None
    assert (result.refutation.outcome, result.refutation.failure.phase) == (Outcome.OUT_OF_MEMORY, phase)


def test_c07_a_limit_that_shows_only_in_the_second_step_is_found(search_forked: Search) -> None:
    result = search_forked("step2", LIMIT)
    assert (result.answer.max_batch, result.answer.refuted_at) == (LIMIT, LIMIT + 1)
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.failure.step == 2


def test_c01_steps_counted_per_process_do_not_add_up_over_probes(search_forked: Search) -> None:
    """The training stands still after 12 forward calls of one process: more than a probe makes, fewer than the search."""
    result = search_forked("noop", 12, max_batch=16)
    assert result.answer.max_batch == 16
    assert sum(probe.measurement.steps_executed for probe in result.probes) > 12


def test_c01_training_that_stands_still_is_an_error_and_never_fits(search_forked: Search) -> None:
    with pytest.raises(WorkloadError, match="3 of 8 training steps really ran"):
        search_forked("noop", 3, max_batch=16)


def test_c02_the_data_set_bounds_the_batch(search_forked: Search) -> None:
    result = search_forked("rows", 100)
    assert (result.answer.max_batch, result.answer.limited_by) == (100, "data_set")
    assert len(result.probes) <= 9


def test_c02_a_loader_that_yields_nothing_does_not_fit(search_forked: Search) -> None:
    result = search_forked("drop_last", 100)
    assert result.answer.max_batch == 100
    assert all(not p.fits for p in result.probes if p.batch_size > 100)


def test_c03_a_start_far_too_large_comes_down_to_the_limit(search_forked: Search) -> None:
    result = search_forked("forward:type", 10, start_batch=4096)
    assert result.answer.max_batch == 10
    assert result.certificate.form is Form.LONG


def test_c03_a_start_too_large_with_no_limit_at_all_is_nothing(search_forked: Search) -> None:
    with pytest.raises(NothingFits) as raised:
        search_forked("forward:type", 0, start_batch=4096)
    assert raised.value.exit_code == 3
    assert "batch 1" in raised.value.message


def test_c04_when_nothing_fits_the_memory_is_split_and_a_next_step_named(search: Search) -> None:
    with pytest.raises(NothingFits) as raised:
        search("heavy", 100_000_000, memory_limit="512MiB")
    assert "weights" in raised.value.detail
    assert "build" in raised.value.message
    assert raised.value.hint


def test_c12_an_internal_assertion_at_every_size_is_trouble_of_the_environment(search_forked: Search) -> None:
    with pytest.raises(EnvironmentTrouble) as raised:
        search_forked(
            "always", 0, 'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":995'
        )
    assert raised.value.exit_code == 5


def test_c13_a_library_status_at_every_size_is_trouble_of_the_environment(search_forked: Search) -> None:
    with pytest.raises(EnvironmentTrouble, match="CUDNN_STATUS_NOT_INITIALIZED"):
        search_forked("always", 0, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")


def test_c13_a_library_status_at_one_size_is_a_hole_and_not_the_limit(search_forked: Search) -> None:
    result = search_forked(
        "one_size", 16, "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", max_batch=40, memory_limit="2GiB"
    )  # with room for 4 times as much each time: 1, 4, 16
    assert result.answer.max_batch == 40
    assert result.answer.holes == (16,)


def test_c15_an_even_batch_is_demanded_and_found(search_forked: Search) -> None:
    result = search_forked("even", 37)
    assert (result.answer.max_batch, result.answer.step) == (36, 2)
    assert any("multiples of 2" in warning for warning in result.warnings)


def test_c15_multiples_of_eight_are_demanded_and_found(search_forked: Search) -> None:
    result = search_forked("eights", 50)
    assert (result.answer.max_batch, result.answer.step) == (48, 8)


def test_c16_batch_norm_refuses_one_and_the_search_goes_on(search_forked: Search) -> None:
    result = search_forked("batch_norm", 64)
    assert (result.answer.max_batch, result.answer.step) == (64, 1)
    first = result.probes[0]
    assert first.batch_size == 1 and first.outcome is Outcome.WORKLOAD_ERROR


def test_c18_a_bad_row_is_an_error_of_the_data_and_smaller_sizes_go_on(search_forked: Search) -> None:
    result = search_forked("index", max_batch=64)
    assert result.answer.max_batch == 7
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.outcome is Outcome.WORKLOAD_ERROR
    assert "index 1000 is out of range" in result.refutation.failure.message


def test_a_model_that_cannot_be_built_shows_the_users_traceback(search: Search) -> None:
    with pytest.raises(WorkloadError) as raised:
        search("build")
    assert "hidden size 10 is not divisible by 3 heads" in raised.value.message
    assert "planted.py" in raised.value.detail and "autotune/probe" not in raised.value.detail


@pytest.mark.usefixtures("certified_in_forks")
def test_c17_a_probe_after_an_out_of_memory_measures_what_it_would_have_measured_first(search: Search) -> None:
    after = search("forward:type", 20, start_batch=32)
    before = search("forward:type", 20, start_batch=16, fresh=True)
    peaks = [next(p.measurement.peak_allocated_bytes for p in r.probes if p.batch_size == 16) for r in (after, before)]
    assert after.probes[0].outcome is Outcome.OUT_OF_MEMORY
    assert peaks[0] is not None and peaks[1] is not None
    assert abs(peaks[0] - peaks[1]) <= 0.01 * peaks[1]


def test_causes_are_stored_beside_outcomes(search_forked: Search) -> None:
    result = search_forked("forward:runtime", LIMIT, "CUDA error: invalid configuration argument")
    assert result.answer.max_batch == LIMIT
    assert result.answer.limited_by == Cause.SIZE_LIMIT


@pytest.mark.usefixtures("certified_in_forks")
def test_c11_an_evaluation_that_fails_has_a_limit_of_its_own_and_leaves_training_s(search: Search) -> None:
    result = search("evaluate", LIMIT, max_batch=64)
    assert (result.answer.max_batch, result.answer.limited_by) == (64, "max_batch")
    assert result.answer.evaluation == Evaluation(max_batch=LIMIT, refuted_at=LIMIT + 1, limited_by="device_memory")
    failed = [probe for probe in result.probes if not probe.fits]
    assert failed and all(probe.failure and probe.failure.phase is Phase.EVALUATE for probe in failed)
    assert (result.certificate.batch_size, result.certificate.evaluated_at) == (64, LIMIT)
    assert any(text.startswith(f"evaluation takes less than training: {LIMIT}, where 64") for text in result.warnings)
    again = search("evaluate", LIMIT, max_batch=64)
    assert again.from_ledger and again.answer == result.answer
    assert (again.probes[-1].batch_size, again.probes[-1].evaluate_at) == (64, LIMIT)


@pytest.mark.usefixtures("certified_in_forks")
def test_c11_a_size_of_evaluation_that_is_asked_for_is_blamed_on_evaluation(search: Search) -> None:
    result = search("evaluate", LIMIT, max_batch=8, eval_batch=40)
    assert (result.answer.max_batch, result.answer.evaluation) == (
        8,
        Evaluation(max_batch=LIMIT, refuted_at=LIMIT + 1, limited_by="device_memory"),
    )
    assert any("evaluation at batch 40, as --eval-batch asks, does not fit" in text for text in result.warnings)
    enough = search("evaluate", LIMIT, max_batch=8, eval_batch=LIMIT)
    assert {probe.evaluated_at for probe in enough.probes} == {LIMIT}


def test_a_size_of_evaluation_for_a_workload_without_one_is_refused(search: Search) -> None:
    with pytest.raises(UsageError, match="has no evaluation"):
        search("forward:type", LIMIT, eval_batch=4)
