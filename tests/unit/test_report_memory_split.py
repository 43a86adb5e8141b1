from dataclasses import replace

import pytest

from autotune.model import Cause, Composition, Measurement, Outcome, Phase, PhaseMemory, Precision, ProbeResult
from autotune.report.memory_split import Part, composition_words, memory_split
from autotune.units import GIB, MIB
from tests.cli.results import WORKLOAD, failing, fitting


def _failed(
    phase: Phase | None, measurement: Measurement | None = None, requested_bytes: int | None = None
) -> ProbeResult:
    probe = failing(1, phase=phase)
    assert probe.failure is not None
    return replace(
        probe,
        failure=replace(probe.failure, requested_bytes=requested_bytes),
        measurement=measurement or probe.measurement,
    )


def test_c04_the_split_reads_as_written_here() -> None:
    split = memory_split(_failed(Phase.FORWARD, requested_bytes=2 * GIB), WORKLOAD)
    assert split.text == (
        "memory at batch 1, out of memory in forward:\n"
        "  weights                      475 MiB\n"
        "  buffers                      12 MiB\n"
        "  gradients                    475 MiB (expected)\n"
        "  optimizer state              950 MiB (expected)\n"
        "  batch                        1 MiB\n"
        "  activations and temporaries  37.52 GiB\n"
        "  process and libraries        1 GiB\n"
        "  the request that failed      2 GiB (in forward)\n"
        "  budget                       40 GiB\n"
        "largest part: activations and temporaries"
    )


def test_a_failure_while_building_has_reached_nothing_but_expects_the_model() -> None:
    split = memory_split(_failed(Phase.BUILD, Measurement(peak_allocated_bytes=3 * GIB)), WORKLOAD)
    sizes = {share.part: (share.size_bytes, share.expected) for share in split.shares}
    assert sizes[Part.WEIGHTS] == (475 * MIB, True)
    assert sizes[Part.ACTIVATIONS] == (None, False)
    assert sizes[Part.BATCH] == (None, False)
    assert split.text.count("not reached") == 4
    assert split.dominant is Part.OPTIMIZER


def test_measured_sizes_count_before_expected_ones() -> None:
    seen = Composition(parameters_bytes=1, gradients_bytes=2, optimizer_bytes=3)
    split = memory_split(_failed(Phase.OPTIMIZER, Measurement(composition=seen)), WORKLOAD)
    assert [(s.size_bytes, s.expected) for s in split.shares[:4]] == [(1, False), (None, False), (2, False), (3, False)]


def test_nothing_is_expected_of_an_optimizer_that_is_not_known() -> None:
    split = memory_split(_failed(Phase.FORWARD), replace(WORKLOAD, optimizer="Lion"))
    share = next(share for share in split.shares if share.part is Part.OPTIMIZER)
    assert (share.size_bytes, share.expected) == (None, False)


@pytest.mark.parametrize(
    ("phase", "part"),
    [
        (Phase.BUILD, Part.WEIGHTS),
        (Phase.DATA, Part.BATCH),
        (Phase.FORWARD, Part.ACTIVATIONS),
        (Phase.BACKWARD, Part.ACTIVATIONS),
        (Phase.EVALUATE, Part.ACTIVATIONS),
        (Phase.OPTIMIZER, Part.OPTIMIZER),
    ],
)
def test_the_request_that_failed_counts_for_the_part_that_asked(phase: Phase, part: Part) -> None:
    split = memory_split(_failed(phase, Measurement(), requested_bytes=100 * GIB), WORKLOAD)
    assert split.dominant is part


def test_an_expected_size_already_contains_the_request() -> None:
    split = memory_split(_failed(Phase.OPTIMIZER, Measurement(), requested_bytes=500 * MIB), WORKLOAD)
    assert split.dominant is Part.OPTIMIZER
    heavier = replace(WORKLOAD, parameters_bytes=1000 * MIB)
    split = memory_split(_failed(Phase.OPTIMIZER, Measurement(), requested_bytes=500 * MIB), heavier)
    assert split.dominant is Part.WEIGHTS


def test_on_a_cpu_the_process_itself_is_not_taken_for_activations() -> None:
    measurement = Measurement(
        peak_allocated_bytes=1000 * MIB,
        phases=(PhaseMemory(phase=Phase.BUILD, peak_allocated_bytes=300 * MIB),),
        composition=Composition(parameters_bytes=100 * MIB, buffers_bytes=0),
    )
    split = memory_split(_failed(Phase.FORWARD, measurement), WORKLOAD)
    sizes = {share.part: share.size_bytes for share in split.shares}
    assert sizes[Part.PROCESS] == 200 * MIB
    assert sizes[Part.ACTIVATIONS] == 700 * MIB


def test_on_a_cpu_that_cannot_even_build_the_model_the_process_is_what_takes_the_memory() -> None:
    phases = (PhaseMemory(phase=Phase.BUILD, peak_allocated_bytes=3 * GIB),)
    measurement = Measurement(peak_allocated_bytes=3 * GIB, phases=phases)
    split = memory_split(_failed(Phase.BUILD, measurement), WORKLOAD)
    assert split.dominant is Part.PROCESS
    assert split.next_action == (
        "allow more memory (--memory-limit): the process and its libraries hold 3 GiB of 40 GiB"
    )


TINY = replace(WORKLOAD, parameters=5, parameters_bytes=20, trainable_bytes=20, process_bytes=200 * MIB)


def test_a_process_that_was_stopped_above_the_budget_needs_more_than_was_seen() -> None:
    phases = (PhaseMemory(phase=Phase.BUILD, peak_allocated_bytes=220 * MIB),)
    failed = _failed(Phase.BUILD, Measurement(peak_allocated_bytes=220 * MIB, phases=phases))
    split = memory_split(replace(failed, budget_bytes=150 * MIB), TINY)
    assert split.next_action.endswith("the process and its libraries alone need more than 150 MiB")


def test_a_process_that_ended_before_it_was_measured_still_counts_on_a_cpu() -> None:
    probe = failing(1, Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, phase=Phase.BUILD)
    split = memory_split(replace(probe, measurement=Measurement(), budget_bytes=256 * MIB), TINY)
    assert split.dominant is Part.PROCESS
    assert split.next_action.endswith("the process and its libraries hold 200 MiB of 256 MiB")
    assert "process and libraries        200 MiB (expected)" in split.text


def test_a_model_of_five_parameters_is_never_what_takes_the_memory() -> None:
    split = memory_split(replace(_failed(Phase.OPTIMIZER, Measurement()), budget_bytes=256 * MIB), TINY)
    assert split.dominant is None
    assert "--memory-limit" in split.next_action


def test_on_a_gpu_building_is_not_the_process() -> None:
    phases = (PhaseMemory(phase=Phase.BUILD, peak_allocated_bytes=3 * GIB, peak_reserved_bytes=3 * GIB),)
    split = memory_split(_failed(Phase.BUILD, Measurement(phases=phases, non_pytorch_bytes=MIB)), WORKLOAD)
    assert {share.part: share.size_bytes for share in split.shares}[Part.PROCESS] == MIB


def test_every_part_has_a_next_action_of_its_own() -> None:
    actions = set()
    for part in Part:
        sizes = {
            Part.WEIGHTS: Composition(parameters_bytes=9 * GIB),
            Part.BUFFERS: Composition(buffers_bytes=9 * GIB),
            Part.GRADIENTS: Composition(gradients_bytes=9 * GIB),
            Part.OPTIMIZER: Composition(optimizer_bytes=9 * GIB),
            Part.BATCH: Composition(batch_bytes=9 * GIB),
        }
        measurement = Measurement(
            composition=sizes.get(part, Composition()),
            peak_allocated_bytes=9 * GIB if part is Part.ACTIVATIONS else None,
            non_pytorch_bytes=9 * GIB if part is Part.PROCESS else None,
        )
        split = memory_split(_failed(Phase.FORWARD, measurement), WORKLOAD)
        assert split.dominant is part
        actions.add(split.next_action)
    assert len(actions) == len(Part)


def test_half_precision_is_not_advised_to_whom_has_it() -> None:
    probe = _failed(Phase.FORWARD)
    assert "--precision bf16" in memory_split(probe, WORKLOAD).next_action
    assert "--precision" not in memory_split(probe, WORKLOAD, precision=Precision.BF16).next_action


def test_c22_a_full_shared_memory_mount_is_not_cured_by_a_smaller_model() -> None:
    probe = failing(1, Outcome.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY)
    assert "--shm-size" in memory_split(probe, WORKLOAD).next_action


def test_without_any_measurement_nothing_dominates() -> None:
    unknown = replace(WORKLOAD, parameters_bytes=0, trainable_bytes=0)
    split = memory_split(_failed(None, Measurement()), unknown)
    assert split.dominant is None
    assert "-v" in split.next_action


def test_a_certified_probe_is_split_in_one_line() -> None:
    assert composition_words(fitting(4)).startswith("at batch 4: weights 475 MiB, buffers 12 MiB, gradients 475 MiB")
