"""What is explained of a search, and how it reads."""

import json
from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.model import (
    AllocationGroup,
    Explanation,
    Foretold,
    Form,
    Measurement,
    Phase,
    PhaseMemory,
    PhaseRange,
    Prediction,
    ProbeResult,
    Reason,
    SearchRecord,
    Settings,
    Trace,
    Use,
    UsedMemory,
)
from autotune.report.explain import FARTHEST, explain
from autotune.report.explanation import PHASES, USES, explanation_facts, explanation_text, ranges_words
from autotune.report.prediction import prediction_words
from autotune.report.records import to_json
from autotune.units import GIB, MIB
from tests.cli.results import ANSWER, MACHINE, PLAN, PROBES, RECORD, failing, fitting
from tests.unit.planted_passes import Planted, trained

ON_CPU = replace(RECORD, machine=replace(MACHINE, device="cpu", device_name="a CPU"))
PREDICTION = Prediction(limit=27, recorded_up_to=7, allocated_bytes=27 * 14 * GIB // 10, reserved_bytes=38 * GIB)
FORETOLD = Foretold(
    recorded_up_to=7,
    phase=Phase.BACKWARD,
    step=2,
    allocated_bytes=30 * GIB,
    reserved_bytes=33 * GIB,
    bytes_per_sample=1100 * MIB,
    cap_bytes=39 * GIB,
    fits=True,
    parts=(
        UsedMemory(use=Use.ACTIVATIONS, size_bytes=21 * GIB, bytes_per_sample=800 * MIB),
        UsedMemory(use=Use.WORKSPACE, size_bytes=8 * GIB, bytes_per_sample=300 * MIB),
        UsedMemory(use=Use.WEIGHTS, size_bytes=GIB - 24 * MIB, bytes_per_sample=0),
        UsedMemory(use=Use.SLACK, size_bytes=24 * MIB, bytes_per_sample=0),
    ),
    groups=(
        AllocationGroup(
            use=Use.ACTIVATIONS, phase=Phase.FORWARD, count=36, each_bytes=324 * MIB, each_bytes_per_sample=12 * MIB
        ),
        AllocationGroup(use=Use.WORKSPACE, phase=None, count=1, each_bytes=32 * MIB, each_bytes_per_sample=0),
    ),
    phases=(
        PhaseMemory(phase=Phase.BUILD, peak_allocated_bytes=GIB),
        PhaseMemory(phase=Phase.BACKWARD, peak_allocated_bytes=30 * GIB - 24 * MIB),
    ),
    ranges=(
        PhaseRange(phase=Phase.OPTIMIZER, first_batch=1, last_batch=3),
        PhaseRange(phase=Phase.BACKWARD, first_batch=4, last_batch=27),
    ),
)
EXPLANATION = Explanation(
    search=replace(RECORD, answer=replace(ANSWER, prediction=PREDICTION)),
    batch_size=27,
    foretold=FORETOLD,
    why_not="",
    measured=PROBES[5],
    smaller=PROBES[0],
)
TRACE = trained(Planted(cache=100_000), (2, 3))


def recording(trace: Trace = TRACE) -> ProbeResult:
    return replace(fitting(2, reason=Reason.TRACE), trace=trace)


def phases_of(**peaks: int) -> tuple[PhaseMemory, ...]:
    return tuple(PhaseMemory(phase=Phase(name), peak_allocated_bytes=peak) for name, peak in peaks.items())


def on_cpu(batch_size: int, form: Form = Form.SHORT) -> ProbeResult:
    """200 MiB of process, then 10 MiB of weights and 10 MiB a sample."""
    seen = fitting(batch_size).measurement
    peak = (220 + 10 * batch_size) * MIB
    return replace(
        fitting(batch_size, form),
        budget_bytes=GIB,
        measurement=Measurement(
            phases=phases_of(build=210 * MIB, forward=peak - 5 * MIB, backward=peak, checkpoint=220 * MIB),
            peak_allocated_bytes=peak,
            peak_device_bytes=peak,
            composition=replace(
                seen.composition,
                parameters_bytes=10 * MIB,
                buffers_bytes=0,
                gradients_bytes=10 * MIB,
                optimizer_bytes=20 * MIB,
            ),
        ),
    )


# What is explained


def test_the_answer_is_explained_unless_another_size_is_named() -> None:
    assert explain(RECORD, PROBES).batch_size == 27
    assert explain(RECORD, PROBES, 24).batch_size == 24


def test_a_recorded_size_is_foretold_also_where_it_never_ran() -> None:
    explained = explain(RECORD, (recording(), *PROBES), 30)
    assert explained.foretold is not None
    assert (explained.foretold.recorded_up_to, explained.foretold.cap_bytes) == (3, 39 * GIB)
    assert (explained.measured, explained.why_not) == (None, "")
    assert explained.foretold.ranges[-1].last_batch == 30


def test_ranges_reach_to_what_was_certified_or_predicted() -> None:
    probes = (recording(), *PROBES)
    certified = explain(RECORD, probes, 2).foretold
    predicted = explain(replace(RECORD, answer=replace(ANSWER, prediction=replace(PREDICTION, limit=40))), probes, 2)
    assert certified is not None and predicted.foretold is not None
    assert (certified.ranges[-1].last_batch, predicted.foretold.ranges[-1].last_batch) == (27, 40)


def test_the_probe_that_certified_a_size_tells_of_it_and_a_failure_only_where_nothing_else_does() -> None:
    assert explain(RECORD, PROBES).measured is PROBES[5]
    assert explain(RECORD, PROBES, 24).measured is PROBES[6]
    assert explain(RECORD, PROBES, 28).measured is PROBES[4]
    later = failing(24, form=Form.LONG)
    assert explain(RECORD, (*PROBES, later), 24).measured is PROBES[6]


def test_a_recording_does_not_measure_the_size_it_begins_with() -> None:
    with pytest.raises(UsageError, match="did not run batch 2"):
        explain(ON_CPU, (replace(recording(), trace=None), *PROBES), 2)


def test_growth_is_measured_from_half_the_size_or_less() -> None:
    probes = [on_cpu(size) for size in (4, 10, 12, 13, 26, 27)]
    for size, smaller in ((27, 13), (26, 13), (13, 4), (10, 4), (12, 4)):
        found = explain(RECORD, probes, size).smaller
        assert found is not None and found.batch_size == smaller
    assert explain(RECORD, probes, 4).smaller is None


def test_growth_is_measured_between_probes_of_one_form_if_there_are_such() -> None:
    probes = [on_cpu(4, Form.TIMED), on_cpu(8, Form.LONG), on_cpu(16, Form.TIMED), on_cpu(15, Form.LONG)]
    smaller = explain(ON_CPU, probes, 16).smaller
    assert smaller is not None and (smaller.batch_size, smaller.form) == (4, Form.TIMED)


@pytest.mark.parametrize(
    ("record", "probes", "why_not"),
    [
        (ON_CPU, PROBES, "the CPU keeps no record of its allocations"),
        (RECORD, PROBES, "it holds no record of the allocations"),
        (
            replace(RECORD, plan=replace(PLAN, settings=Settings(allocator="backend:cudaMallocAsync"))),
            (recording(), *PROBES),
            "its record of the allocations is of no use: "
            + "backend:cudaMallocAsync manages memory in another way than the native allocator",
        ),
        (
            RECORD,
            (recording(trained(Planted(), (2,))), *PROBES),
            "its record of the allocations is of no use: complete passes at 1 batch sizes were recorded, two are needed",
        ),
    ],
    ids=["cpu", "none", "allocator", "short"],
)
def test_where_nothing_can_be_foretold_it_is_said_why(
    record: SearchRecord, probes: tuple[ProbeResult, ...], why_not: str
) -> None:
    explained = explain(record, probes)
    assert (explained.foretold, explained.why_not) == (None, why_not)
    assert f"foretold   nothing: {why_not}\n" in explanation_text(explained)


def test_far_beyond_the_recording_nothing_is_foretold() -> None:
    probes = (recording(), *PROBES)
    assert explain(RECORD, probes, 3 * FARTHEST).foretold is not None
    with pytest.raises(UsageError, match=r"did not run batch 49, .* up to 3 were recorded, and tell of sizes up to 48"):
        explain(RECORD, probes, 3 * FARTHEST + 1)


def test_a_size_nothing_is_known_of_is_refused_with_those_that_ran() -> None:
    with pytest.raises(UsageError, match="search ab12cd34ef56 did not run batch 5, and cannot foretell it") as caught:
        explain(ON_CPU, PROBES, 5)
    assert caught.value.hint == "sizes that ran: 4, 16, 24, 27, 28, 32"
    with pytest.raises(UsageError, match="did not run batch 5") as caught:
        explain(RECORD, (), 5)
    assert caught.value.hint == "autotune runs show ab12cd34ef56"


def test_a_search_without_an_answer_needs_a_size() -> None:
    unanswered = replace(RECORD, answer=None)
    with pytest.raises(UsageError, match="search ab12cd34ef56 has no answer") as caught:
        explain(unanswered, PROBES)
    assert caught.value.hint == "name a batch size: autotune explain ab12cd34ef56 --batch 1"
    assert explain(unanswered, PROBES, 4).measured is PROBES[0]
    assert explain(unanswered, (recording(), PROBES[2]), 3).foretold is not None


def test_no_size_below_one_is_explained() -> None:
    with pytest.raises(UsageError, match="0 is not a batch size"):
        explain(RECORD, PROBES, 0)


# How it reads


def test_a_foretold_size_reads_as_written_here() -> None:
    assert explanation_text(EXPLANATION) == (
        "search     ab12cd34ef56: model.py on NVIDIA H200 (cuda)\n"
        "certified  27 (28 refuted)\n"
        "predicted  27 from batches up to 7\n"
        "batch      27, foretold from a record of batches up to 7\n"
        "peak       30 GiB allocated in the backward pass, first in step 2\n"
        "reserved   33 GiB of 39 GiB (85 %) that the allocator may hold\n"
        "measured   37.8 GiB allocated, 37.8 GiB reserved; foretold against that: allocated -20.6 %, reserved -12.7 %\n"
        "\n"
        "                                              memory    share  one more sample\n"
        "activations                                   21 GiB   70.0 %         +800 MiB\n"
        "temporaries and workspaces                     8 GiB   26.7 %         +300 MiB\n"
        "weights and buffers                         1000 MiB    3.3 %         constant\n"
        "slack of allocator blocks                     24 MiB    0.1 %\n"
        "allocated at the peak                         30 GiB  100.0 %       +1.074 GiB\n"
        "reserved beyond it (cache, fragments)          3 GiB   10.0 %\n"
        "outside the allocator (context, libraries)     1 GiB\n"
        "\n"
        "largest groups of allocations at the peak\n"
        "  36 x  324 MiB   +12 MiB  activations                 made in the forward pass\n"
        "   1 x   32 MiB  constant  temporaries and workspaces  made once and kept\n"
        "\n"
        "highest peak of each phase, slack left out\n"
        "  building the model      1 GiB\n"
        "  the backward pass   29.98 GiB\n"
        "up to batch 3 the optimizer step has the highest peak, from 4 on the backward pass"
    )


def test_a_foretold_size_that_does_not_fit_says_so_beside_what_happened() -> None:
    text = explanation_text(
        replace(EXPLANATION, batch_size=28, foretold=replace(FORETOLD, fits=False), measured=PROBES[4])
    )
    assert "batch      28, foretold from a record of batches up to 7; not expected to be safe\n" in text
    assert "measured   out of memory in backward, step 2\n" in text


def test_a_measured_size_reads_as_written_here() -> None:
    probes = [on_cpu(size) for size in (4, 10)] + [on_cpu(27, Form.LONG)]
    assert explanation_text(explain(ON_CPU, probes)) == (
        "search     ab12cd34ef56: model.py on a CPU (cpu)\n"
        "certified  27 (28 refuted)\n"
        "batch      27, as its long probe measured it: fits\n"
        "peak       490 MiB allocated, in the backward pass\n"
        "budget     490 MiB of 1 GiB (48 %)\n"
        "foretold   nothing: the CPU keeps no record of its allocations\n"
        "\n"
        "                              memory    share\n"
        "weights                       10 MiB    2.0 %\n"
        "gradients                     10 MiB    2.0 %\n"
        "optimizer state               20 MiB    4.1 %\n"
        "batch                          1 MiB    0.2 %\n"
        "activations and temporaries  249 MiB   50.8 %\n"
        "process and libraries        200 MiB   40.8 %\n"
        "all                          490 MiB  100.0 %\n"
        "\n"
        "highest peak of each phase, and what one more sample adds on the way from batch 10\n"
        "  building the model  210 MiB  constant\n"
        "  the forward pass    485 MiB   +10 MiB\n"
        "  the backward pass   490 MiB   +10 MiB\n"
        "  the checkpoint      220 MiB  constant"
    )


def test_what_the_allocator_held_beyond_the_peak_is_measured_on_a_gpu() -> None:
    probe = PROBES[5]
    seen = replace(probe.measurement, peak_reserved_bytes=38 * GIB, peak_device_bytes=39 * GIB)
    text = explanation_text(explain(RECORD, [replace(probe, measurement=seen)]))
    assert "peak       37.8 GiB allocated, 38 GiB reserved\n" in text
    assert "budget     39 GiB of 40 GiB (98 %)\n" in text
    assert "process and libraries                      1 GiB    2.6 %\n" in text
    assert "reserved beyond it (cache, fragments)  204.8 MiB    0.5 %\n" in text


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (
            (PhaseRange(phase=Phase.BACKWARD, first_batch=1, last_batch=27),),
            "the backward pass has the highest peak at every batch size up to 27",
        ),
        (
            (
                PhaseRange(phase=Phase.OPTIMIZER, first_batch=8, last_batch=24),
                PhaseRange(phase=Phase.FORWARD, first_batch=32, last_batch=32),
                PhaseRange(phase=Phase.BACKWARD, first_batch=40, last_batch=96),
            ),
            "up to batch 24 the optimizer step has the highest peak, at 32 the forward pass, from 40 on the backward pass",
        ),
    ],
)
def test_crossovers_are_a_sentence(ranges: tuple[PhaseRange, ...], words: str) -> None:
    assert ranges_words(ranges) == words


def test_every_use_and_phase_has_words() -> None:
    assert set(USES) == set(Use)
    assert set(PHASES) == set(Phase)


@pytest.mark.parametrize("explanation", [EXPLANATION, explain(RECORD, PROBES), explain(RECORD, PROBES, 28)])
def test_programs_get_the_nouns_as_fields(explanation: Explanation) -> None:
    content = json.loads(to_json(explanation_facts(explanation)))
    assert list(content) == [
        "search_id",
        "batch_size",
        "max_batch",
        "predicted_ranks",
        "refuted_at",
        "prediction",
        "budget_bytes",
        "foretold",
        "why_not",
        "measured",
    ]
    assert (content["search_id"], content["max_batch"], content["refuted_at"]) == ("ab12cd34ef56", 27, 28)
    assert content["batch_size"] == explanation.batch_size
    assert content["measured"]["composition"]["parameters_bytes"] == 475 * MIB


def test_programs_get_what_was_foretold_in_full() -> None:
    content = json.loads(to_json(explanation_facts(EXPLANATION)))
    assert content["prediction"]["limit"] == 27
    assert content["foretold"]["parts"][0] == {
        "use": "activations",
        "size_bytes": 21 * GIB,
        "bytes_per_sample": 800 * MIB,
    }
    assert content["foretold"]["groups"][1]["phase"] is None
    assert content["foretold"]["ranges"][0] == {"phase": "optimizer", "first_batch": 1, "last_batch": 3}
    assert content["measured"]["parts"][0] == {"part": "weights", "size_bytes": 475 * MIB, "expected": False}


def test_programs_are_told_that_nothing_ran() -> None:
    explained = explain(replace(RECORD, answer=None), (recording(),), 3)
    content = json.loads(to_json(explanation_facts(explained)))
    assert (content["max_batch"], content["prediction"], content["measured"]) == (None, None, None)


# The prediction


def measured_with(allocated_bytes: int | None, reserved_bytes: int | None) -> ProbeResult:
    probe = PROBES[5]
    seen = replace(probe.measurement, peak_allocated_bytes=allocated_bytes, peak_reserved_bytes=reserved_bytes)
    return replace(probe, measurement=seen)


@pytest.mark.parametrize(
    ("allocated_bytes", "reserved_bytes", "words"),
    [
        (1000, 2000, "27 from batches up to 7 (allocated +0.0 %, reserved +0.0 %)"),
        (1000 + 1, 2000, "27 from batches up to 7 (allocated -0.1 %, reserved +0.0 %)"),
        (100_000, 2500, "27 from batches up to 7 (allocated -99.0 %, reserved -20.0 %)"),
        (990, 1600, "27 from batches up to 7 (allocated +1.0 %, reserved +25.0 %)"),
        (1000, None, "27 from batches up to 7 (allocated +0.0 %)"),
        (None, None, "27 from batches up to 7"),
    ],
)
def test_a_prediction_is_told_with_its_error(
    allocated_bytes: int | None, reserved_bytes: int | None, words: str
) -> None:
    prediction = replace(PREDICTION, allocated_bytes=1000, reserved_bytes=2000)
    assert prediction_words(prediction, measured_with(allocated_bytes, reserved_bytes)) == words


def test_an_error_too_small_to_show_has_no_minus_sign() -> None:
    prediction = replace(PREDICTION, allocated_bytes=99_999, reserved_bytes=100_001)
    assert prediction_words(prediction, measured_with(100_000, 100_000)).endswith("allocated +0.0 %, reserved +0.0 %)")


def test_without_a_certificate_a_prediction_has_no_error() -> None:
    assert prediction_words(PREDICTION) == "27 from batches up to 7"
