"""What a report shows of a search in which several ranks trained together, and of searches on machines of several kinds."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from autotune.model import (
    Outcome,
    Parallel,
    Phase,
    ProbeResult,
    RankResult,
    SearchRecord,
    SearchState,
    SearchSummary,
    Settings,
)
from autotune.report.check import passed_words
from autotune.report.document import document, read, schema, to_text
from autotune.report.page.build import build_view
from autotune.report.page.html import render_html
from autotune.report.page.markdown import render_markdown
from autotune.report.page.view import Verdict, View
from autotune.report.records import search_lines
from autotune.report.runs import runs_table
from autotune.report.table import render, report
from autotune.units import GIB
from tests.cli.results import ANSWER, MACHINE, PROBES, RECORD, RESULT, SUMMARY
from tests.unit.report_pages import Page

LAUNCH = "torchrun --nproc-per-node=2 train.py"


def of_two(probe: ProbeResult) -> ProbeResult:
    """The same by two ranks; rank 1 holds the most, and is the first to fail."""
    peak = probe.measurement.peak_device_bytes
    if probe.fits and peak is not None:
        ranks = tuple(
            RankResult(rank=rank, outcome=Outcome.FITS, steps_executed=8, peak_device_bytes=held, non_pytorch_bytes=GIB)
            for rank, held in ((0, peak - 2 * GIB), (1, peak))
        )
        return replace(probe, ranks=ranks)
    assert probe.failure is not None
    ranks = (
        RankResult(rank=0, outcome=None, phase=Phase.BACKWARD, step=2, steps_executed=1),
        RankResult(
            rank=1, outcome=probe.outcome, phase=Phase.FORWARD, step=2, steps_executed=1, peak_device_bytes=39 * GIB
        ),
    )
    return replace(probe, ranks=ranks, failure=replace(probe.failure, rank=1))


def together() -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """A search with ``--ranks 2``."""
    machine = replace(MACHINE, peers=("GPU-5678",))
    record = replace(RECORD, plan=replace(RECORD.plan, ranks=2, world=2), machine=machine)
    return record, tuple(map(of_two, PROBES))


def written(view: View) -> tuple[str, str]:
    """As HTML, its text only, and as Markdown."""
    return " ".join(Page.read(render_html(view)).text.split()), render_markdown(view)


def test_each_rank_is_shown_with_its_peak_and_the_first_to_fail_is_named() -> None:
    view = build_view(*together())
    assert view.ranks == 2
    assert [(one.batch_size, one.fits, one.failed_first) for one in view.by_rank] == [
        (24, True, None),
        (27, True, None),
        (28, False, 1),
    ]
    assert [view.probes[one.probe - 1].batch_size for one in view.by_rank] == [24, 27, 28]
    recommended = view.by_rank[0].ranks
    assert [one.rank for one in recommended] == [0, 1]
    assert recommended[1].peak_bytes == (recommended[0].peak_bytes or 0) + 2 * GIB
    assert [one.what for one in view.by_rank[2].ranks] == [
        "stopped in backward, step 2",
        "failed first: out of memory in forward, step 2",
    ]
    for text in written(view):
        assert "it failed, rank 1 first" in text and "stopped in backward, step 2" in text
        assert "39 GiB of 40 GiB" in text


def test_the_launch_line_the_speed_of_all_ranks_and_the_limit_of_each_are_there() -> None:
    view = build_view(*together())
    answer = view.answer
    assert answer is not None and answer.samples_per_second is not None
    assert answer.all_ranks_samples_per_second == pytest.approx(2 * answer.samples_per_second)
    assert (answer.effective, view.commands) == (48, (LAUNCH,))
    assert view.facts["Memory budget"]["is that of"] == "each of the 2 ranks"
    assert view.facts["Machine"]["UUIDs of the other ranks"] == "GPU-5678"
    assert "--ranks 2" in view.reproduce
    for text in written(view):
        assert LAUNCH in text
        assert "150 samples/s in each rank, 300 in all" in text
        assert "2 ranks trained together in each probe" in text
        assert "Batch 27 ran 8 training steps in each of 2 fresh processes, with a peak of" in text


def test_the_file_has_the_speed_of_one_rank_and_of_all_of_them() -> None:
    record, probes = together()
    content = document(replace(RESULT, plan=record.plan, machine=record.machine, probes=probes))
    assert (content.evidence.samples_per_second, content.evidence.all_ranks_samples_per_second) == (150.0, 300.0)
    assert read(to_text(content)) == content
    jsonschema.validate(json.loads(to_text(content)), schema())
    certificate = next(probe for probe in reversed(probes) if probe.fits)
    passed = passed_words(Path("autotune.json"), content, certificate)
    assert "steps in each of 2 fresh processes, peak" in passed


def test_under_tensor_parallelism_all_ranks_train_on_the_same_batch() -> None:
    record, probes = together()
    tensor = Settings(parallel=Parallel.TENSOR)
    plan = replace(record.plan, settings=tensor)
    probes = tuple(replace(probe, settings=tensor) for probe in probes)
    answer = build_view(replace(record, plan=plan, answer=replace(ANSWER, settings=tensor)), probes).answer
    assert answer is not None
    assert answer.all_ranks_samples_per_second == answer.samples_per_second


def test_a_search_without_an_answer_shows_the_newest_probe_that_failed_rank_by_rank() -> None:
    record, probes = together()
    failed = tuple(probe for probe in probes if not probe.fits)
    view = build_view(replace(record, answer=None, state=SearchState.NO_ANSWER, message="nothing fits"), failed)
    assert [(one.batch_size, one.failed_first) for one in view.by_rank] == [(28, 1)]
    assert "failed first" in render_markdown(view) and "failed first" in render_html(view)


def test_a_search_of_one_process_says_nothing_of_ranks() -> None:
    view = build_view(RECORD, PROBES)
    assert (view.ranks, view.by_rank, view.commands) == (1, (), ())
    for text in written(view):
        assert "rank" not in text.lower().replace("ranking", "")


def test_the_report_of_a_prediction_says_that_one_process_stood_in() -> None:
    plan = replace(RECORD.plan, ranks=8, world=8, predicted=True, settings=Settings(parallel=Parallel.ZERO))
    record = replace(RECORD, plan=plan, message="Batch 27 is predicted.")
    probes = tuple(replace(probe, settings=plan.settings) for probe in PROBES)
    view = build_view(record, probes)
    assert [mark.words for mark in view.memory[0].marks if mark.verdict is Verdict.PREDICTED] == ["predicted"] * 2
    for text in written(view):
        assert "One process stood in for 8 ranks in each probe" in text
        assert "one process stands in for 8 in each probe" in text
        lead = text.replace("*", "").replace("`", "").replace("( ", "(").replace(" )", ")")
        assert "Predicted for 8 ranks, which were not run: batch size 24" in lead and "autotune max-batch " in text
        assert "(24 \N{MULTIPLICATION SIGN} 8 devices = 192 samples a step)" in lead
        assert "with your own settings (parallel=zero)." in lead
        assert (
            "safe batch" not in text
            and "Train with" not in text
            and "torchrun" not in text
            and "Against yours" not in text
        )
        assert "trained together" not in text and "train together" not in text and "certified" not in text
    assert "one process stands in for 8" in search_lines(record, probes)


def test_the_answer_and_the_ledger_tell_of_all_ranks_as_well() -> None:
    record, probes = together()
    text = render(report(replace(RESULT, plan=record.plan, machine=record.machine, probes=probes)))
    assert text.startswith("max batch 27 - certified by 8 steps in each of 2 fresh processes; 28 refuted: ")
    assert "150 samples/s at batch 24 in each rank, 300 in all" in text
    assert "2 train together, each with batch 27; peaks 0: 36.8 GiB, 1: 38.8 GiB" in text
    assert "2 train together, each with batch 27; peaks 0: 36.8 GiB, 1: 38.8 GiB" in search_lines(record, probes)
    running = replace(record, answer=None, state=SearchState.INTERRUPTED)
    assert "2 train together" in search_lines(running, ())


def test_searches_on_several_kinds_of_machines_are_told_apart() -> None:
    kinds = [
        replace(MACHINE, device_uuid="", device_name="NVIDIA L4", capacity_bytes=24 * GIB),
        replace(MACHINE, device_uuid="", device_name="Tesla T4", capacity_bytes=16 * GIB),
        replace(MACHINE, device_uuid="", device_name="Tesla T4", capacity_bytes=16 * GIB, driver_version="535.2"),
    ]
    records = [replace(RECORD, machine=machine) for machine in kinds]
    assert len({search_lines(record, PROBES) for record in records}) == 3
    assert "NVIDIA L4 (cuda), 24 GiB, driver 570.1" in search_lines(records[0], PROBES)
    views = [build_view(record, PROBES) for record in records]
    assert [view.device for view in views] == ["NVIDIA L4 (cuda)", "Tesla T4 (cuda)", "Tesla T4 (cuda)"]
    assert len({tuple(view.facts["Machine"].items()) for view in views}) == 3
    listed: list[SearchSummary] = [replace(SUMMARY, device_name=machine.device_name) for machine in kinds[:2]]
    lines = runs_table(listed).splitlines()
    assert "NVIDIA L4" in lines[1] and "Tesla T4" in lines[2]
