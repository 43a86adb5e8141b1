import json
from dataclasses import asdict, replace
from datetime import datetime

import pytest

from autotune.model import LoaderInfo, Mark, Parallel, PassPeaks, Phase, SearchState, Settings, Trace
from autotune.report.records import inspection_lines, search_lines, to_json
from tests.cli.results import MACHINE, PROBES, RECORD, WORKLOAD
from tests.unit.report_pages import tuned


def test_a_running_search_says_who_runs_it() -> None:
    running = replace(RECORD, state=SearchState.RUNNING, owner="gpu-box:4711:1.00")
    assert "runs as      process 4711 on gpu-box\n" in search_lines(running, ())
    assert "runs as      process ? on ?\n" in search_lines(replace(running, owner="damaged"), ())


def test_one_search_is_shown_in_full() -> None:
    text = search_lines(RECORD, PROBES)
    assert "state        answered: Batch 27 is certified and 28 is refuted.\n" in text
    assert "recommended  24\n" in text
    assert "finished     2026-03-04 12:00:17 UTC\n" in text
    assert text.count("out of memory in") == 2
    assert "torch.OutOfMemoryError" not in text


def test_settings_are_told_against_the_users_own() -> None:
    text = search_lines(*tuned())
    assert "settings     as you have it\n" in text and "changed      precision=bf16\n" in text
    lines = [line.split() for line in text.partition("outcome")[2].splitlines()]
    assert [line[-1] for line in lines if line[-1:] and line[-1].startswith("precision")] == [
        "precision=bf16",
        "precision=bf16",
        "precision=fp16",
        "precision=fp16",
        "precision=bf16",
    ]
    asked = replace(RECORD, plan=replace(RECORD.plan, settings=Settings(parallel=Parallel.ZERO)))
    assert "settings     parallel=zero\n" in search_lines(asked, ()) and "changed" not in search_lines(asked, ())


def test_a_verbose_search_tells_its_failures() -> None:
    assert search_lines(RECORD, PROBES, verbose=True).count("torch.OutOfMemoryError") == 2


def test_a_search_without_answer_or_probes_is_shown_too() -> None:
    text = search_lines(replace(RECORD, answer=None, finished=None, based_on="0011"), ())
    assert "max batch" not in text
    assert "finished    -\n" in text
    assert "confirms    0011\n" in text
    assert text.endswith("no probes")


def test_an_inspection_says_what_was_recognised_and_why() -> None:
    assert inspection_lines(replace(WORKLOAD, notes=("data only sampled",)), MACHINE) == (
        "model.py\n"
        "  model  make_model()         a function of that name\n"
        "  loss   model(**batch).loss  no loss(model, batch) in the file\n"
        "parameters   124.4 M (475 MiB)\n"
        "optimizer    AdamW\n"
        "batch        input_ids int64 (B, 1024), labels int64 (B, 1024)\n"
        "data set     none, or no length\n"
        "evaluation   probed\n"
        "lengths      taken to be equal: no shorten(batch, share)\n"
        "device       NVIDIA H200 (cuda), 140 GiB\n"
        "torch        2.11.0\n"
        "fingerprint  f00d\n"
        "- data only sampled"
    )


def test_varying_lengths_are_told() -> None:
    text = inspection_lines(replace(WORKLOAD, varies=True), MACHINE)
    assert "lengths      vary: the long form trains on shorter batches as well\n" in text


def test_the_users_own_loader_is_described() -> None:
    loader = LoaderInfo(workers=2, pin_memory=False, drop_last=False)
    text = inspection_lines(replace(WORKLOAD, loader=loader), MACHINE)
    assert "loader       2 workers, the last batch may be smaller\n" in text
    text = inspection_lines(replace(WORKLOAD, loader=replace(loader, workers=1, drop_last=True)), MACHINE)
    assert "loader       1 worker, the last batch is left out unless it is whole\n" in text


def test_frozen_parameters_are_told_apart() -> None:
    text = inspection_lines(replace(WORKLOAD, trainable_parameters=1000, trainable_bytes=4000), MACHINE)
    assert "124.4 M (475 MiB), 1 k of them trained (3.906 KiB)" in text


def test_records_become_plain_json() -> None:
    content = json.loads(to_json({"search": RECORD, "probes": PROBES}))
    assert content["search"]["created"] == "2026-03-04T12:00:00+00:00"
    assert content["search"]["plan"]["settings"]["precision"] == "default"
    assert [probe["outcome"] for probe in content["probes"]][2] == "out_of_memory"


def test_a_trace_is_summed_up() -> None:
    trace = Trace(
        (512,) * 20_000, (), tuple(range(1, 20_001)), (Mark(0, Phase.BUILD, 0, 0),), (PassPeaks(2, 3, 10, 20),)
    )
    text = to_json({"probes": (replace(PROBES[0], trace=trace), PROBES[1])})
    assert len(text) < 10_000
    recorded, ordinary = json.loads(text)["probes"]
    assert recorded["trace"] == {
        "events": 20_000,
        "allocations": 20_000,
        "passes": [{"batch_size": 2, "steps": 3, "allocated_bytes": 10, "reserved_bytes": 20}],
    }
    assert ordinary["trace"] is None


def test_records_keep_all_their_other_fields() -> None:
    assert json.loads(to_json(RECORD)) == json.loads(json.dumps(asdict(RECORD), default=datetime.isoformat))
    assert json.loads(to_json(PROBES)) == json.loads(
        json.dumps([asdict(probe) for probe in PROBES], default=datetime.isoformat)
    )


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json(object())
