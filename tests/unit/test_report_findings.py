"""What a diagnosis says of a peak, of fragmentation, of advice and of files."""

import json
from dataclasses import replace

from autotune.model import (
    NO_CUDA,
    Advice,
    Advised,
    Findings,
    Fragmentation,
    FragmentEvidence,
    KindBytes,
    MemoryKind,
    NamedBytes,
    OperatorCost,
    Outcome,
    Peak,
    Phase,
    Pieces,
    Remedy,
    Section,
    Snapshots,
    Unanswered,
)
from autotune.report.findings import findings_json, findings_text
from autotune.units import GIB, MIB
from tests.cli.results import BUDGET, MACHINE, WORKLOAD

UNANSWERED = Unanswered(
    section=Section.LEAKS,
    kind="nothing_fits",
    exit_code=3,
    message="memory ran out in step 1",
    hint="--batch 1",
    detail="their traceback",
)
NOTHING = Findings(workload=WORKLOAD, machine=MACHINE, budget=BUDGET, batch_size=8, batch_from="as asked for")
PEAK = Peak(
    batch_size=8,
    phase=Phase.BACKWARD,
    measured_bytes=10 * GIB,
    watched_bytes=10 * GIB,
    kinds=(
        KindBytes(kind=MemoryKind.ACTIVATIONS, size_bytes=6 * GIB, count=300),
        KindBytes(kind=MemoryKind.UNKNOWN, size_bytes=2 * GIB, count=1),
        KindBytes(kind=MemoryKind.OPTIMIZER, size_bytes=GIB, count=200),
        KindBytes(kind=MemoryKind.WEIGHTS, size_bytes=GIB, count=100),
    ),
    modules=(
        NamedBytes(name="h.*.attn", size_bytes=5 * GIB, count=48),
        NamedBytes(name="", size_bytes=GIB, count=1),
    ),
    makers=(NamedBytes(name="aten::mm", size_bytes=MIB, count=1),),
    operators_by_time=(
        OperatorCost(name="aten::mm", calls=4, seconds=0.25, allocated_bytes=3 * MIB),
        OperatorCost(name="aten::gelu", calls=1, seconds=0.125, allocated_bytes=MIB),
    ),
    non_pytorch_bytes=512 * MIB,
)
DIED = Fragmentation(
    flagged=True,
    why="500 MiB were asked for, 700 MiB were held without use, in pieces of at most 10 MiB",
    outcome=Outcome.OUT_OF_MEMORY,
    failed_at_step=5,
    evidence=FragmentEvidence(
        steps=4,
        retries_per_step=(0, 1, 0, 2),
        cap_bytes=2 * GIB,
        peak_allocated_bytes=GIB,
        peak_reserved_bytes=2 * GIB,
        after_forward=Pieces(
            allocated_bytes=GIB,
            reserved_bytes=GIB + 300 * MIB,
            inactive_split_bytes=200 * MIB,
            largest_free_bytes=100 * MIB,
            free_blocks=9,
        ),
        requested_bytes=500 * MIB,
        at_failure=Pieces(
            allocated_bytes=GIB,
            reserved_bytes=2 * GIB,
            inactive_split_bytes=700 * MIB,
            largest_free_bytes=10 * MIB,
            free_blocks=90,
        ),
    ),
    remedies=(
        Remedy(
            allocator="expandable_segments:True",
            helps=True,
            outcome=Outcome.FITS,
            steady_retries=0,
            step_seconds=0.5,
        ),
        Remedy(allocator="garbage_collection_threshold:0.8", helps=False, outcome=Outcome.OUT_OF_MEMORY),
    ),
)
ADVISED = Advised(
    peak_bytes=10 * GIB,
    advice=(
        Advice(
            change="checkpointing=blocks",
            does="keeps less",
            measured=True,
            saved_bytes=4 * GIB,
            time_ratio=1.3,
            source="a probe",
        ),
        Advice(
            change="model.to(torch.bfloat16)",
            does="two bytes each",
            measured=False,
            saved_bytes=GIB,
            time_ratio=None,
            source="half of them",
        ),
    ),
    without=("optimizer=fused: it saves nothing here",),
)


def lines(findings: Findings) -> list[str]:
    return [line.strip() for line in findings_text(findings).splitlines()]


def test_the_three_largest_kinds_stand_in_the_first_line_and_what_is_not_known_is_none_of_them() -> None:
    first, *rest = lines(replace(NOTHING, peak=PEAK))
    assert first == (
        "peak 10 GiB allocated at batch 8, in the backward phase; largest: saved activations, optimizer state, weights"
    )
    assert "not attributed     2 GiB  20.0 %" in rest
    assert "beside it 512 MiB of the device outside of PyTorch's allocator" in rest
    assert "h.*.attn                  5 GiB  48 tensors" in rest
    assert "(outside of all modules)  1 GiB  1 tensor" in rest
    assert "aten::mm    250 ms  4 calls  3 MiB" in rest and "aten::gelu  125 ms  1 call   1 MiB" in rest


def test_a_watched_step_with_another_peak_is_said_to_have_one() -> None:
    text = findings_text(replace(NOTHING, peak=replace(PEAK, measured_bytes=9 * GIB)))
    assert "the step that was taken apart peaked at 10 GiB" in text
    assert "taken apart" not in findings_text(replace(NOTHING, peak=PEAK))


def test_fragmentation_says_what_was_seen_to_help_and_what_was_not() -> None:
    first, *rest = lines(replace(NOTHING, fragmentation=DIED))
    assert first.startswith("memory is fragmented, where the training dies in step 5: 500 MiB were asked for")
    assert (
        "after the last forward pass: 300 MiB held without use, of which 200 MiB inactive split; "
        "largest free block 100 MiB"
    ) in rest
    assert "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (seen to help in a fresh process)" in rest
    assert "tried expandable_segments:True: the training survives, 0 late retries, 500 ms a step" in rest
    assert "tried garbage_collection_threshold:0.8: the training ends with out of memory" in rest


def test_it_says_plainly_when_no_setting_helps_or_none_is_left() -> None:
    useless = replace(DIED, remedies=DIED.remedies[1:])
    assert "no setting of the allocator helps here" in findings_text(replace(NOTHING, fragmentation=useless))
    untried = replace(DIED, remedies=())
    assert "no setting of the allocator is left to try" in findings_text(replace(NOTHING, fragmentation=untried))


def test_fragmentation_is_something_wrong_and_the_rest_is_not() -> None:
    assert not replace(NOTHING, fragmentation=DIED).clean
    calm = replace(DIED, flagged=False, outcome=Outcome.FITS)
    assert replace(NOTHING, fragmentation=calm, peak=PEAK, advised=ADVISED).clean
    assert not replace(NOTHING, fragmentation=replace(DIED, flagged=False)).clean, "it died all the same"
    assert not replace(NOTHING, unanswered=(UNANSWERED,)).clean


def test_advice_tells_measured_from_estimated() -> None:
    found = lines(replace(NOTHING, advised=ADVISED))
    assert found[:6] == [
        "1 measured way to need less memory (peak now 10 GiB)",
        "1. checkpointing=blocks: saves 4 GiB, 30 % more time a sample",
        "keeps less; measured by a probe",
        "2. model.to(torch.bfloat16): saves 1 GiB, at a cost in time that is not known",
        "two bytes each; estimated from half of them",
        "no advice:",
    ]


def test_advice_for_a_training_that_dies_says_what_survives() -> None:
    rescued = replace(ADVISED.advice[0], saved_bytes=None, survives=True)
    text = findings_text(replace(NOTHING, advised=replace(ADVISED, peak_bytes=None, advice=(rescued,))))
    assert "checkpointing=blocks: it survives where the training dies now, 30 % more time a sample" in text


def test_files_are_named_and_their_absence_has_a_reason() -> None:
    both = Snapshots(peak="/out/peak-batch-8.pickle", out_of_memory="/out/out-of-memory.pickle")
    text = findings_text(replace(NOTHING, snapshots=both))
    assert "/out/peak-batch-8.pickle: one whole step" in text and "/out/out-of-memory.pickle: the moment" in text
    assert NO_CUDA in findings_text(replace(NOTHING, snapshots=Snapshots(note=NO_CUDA)))


def test_a_section_that_died_is_named_and_json_has_everything() -> None:
    findings = replace(NOTHING, peak=PEAK, fragmentation=DIED, advised=ADVISED, unanswered=(UNANSWERED,))
    said = lines(findings)
    at = said.index("leaks: no answer: memory ran out in step 1")
    assert said[at : at + 3] == ["leaks: no answer: memory ran out in step 1", "their traceback", "hint: --batch 1"]
    read = json.loads(findings_json(findings))
    assert read["composition"]["kinds"][0] == {"kind": "saved_activations", "size_bytes": 6 * GIB, "count": 300}
    assert read["fragmentation"]["remedies"][0]["allocator"] == "expandable_segments:True"
    assert read["advice"]["advice"][0]["time_ratio"] == 1.3
    assert read["snapshot"] is None and read["unanswered"] == [
        {
            "section": "leaks",
            "kind": "nothing_fits",
            "exit_code": 3,
            "message": "memory ran out in step 1",
            "hint": "--batch 1",
            "detail": "their traceback",
        }
    ]
