"""The command of a report asks the same question: read by the command line, it gives the plan it was made from."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import api
from autotune.cli.app import run
from autotune.errors import UsageError
from autotune.model import Plan, Precision, SearchResult, Settings, Source
from autotune.report.page.reproduce import reproduction
from tests.cli.results import PLAN

SEARCHES = [
    "search model.py",
    "search model.py --allow none",
    "max-batch model.py --memory-limit 24GiB --multiple-of 8 --start-batch 8 --max-batch 64",
    "search model.py:Task --memory-limit 1000001 --precision bf16 --accumulate 4 --seed 7",
    "search model.py --allocator auto --timeout 12.5 --time-budget 3600 --device-wait 0",
    "search model.py --allocator max_split_size_mb:128,garbage_collection_threshold:0.8",
    "search model.py --fix precision=bf16 --forbid compile",
    "search model.py --fix precision=bf16 --allow none",
    "search model.py --forbid precision=fp16 --forbid optimizer=fused",
    "search model.py --allow precision=bf16,fp16 --allow optimizer",
    "search model.py --allow all --allow compile=max-autotune",
    "search model.py --allow allocator=expandable_segments:True --allow allocator=max_split_size_mb:64,roundup_power2_divisions:4",
    "search model.py --objective memory --max-batch 9 --eval-batch 3 --trials 0",
    "search model.py --effective-batch 96 --world 4",
    "search 'my model.py' -- --hidden 512 'two words'",
    "max-batch --device cpu -- python train.py --batch-size {batch} --out {scratch}",
    "search --set 'precision=--amp {value}' --set compile=--compile -- python train.py --bs {batch}",
    "search --set batch=env:BS --allow none --set 'optimizer=--opt {value}' -- python train.py --note 'it'\"'\"'s {x}'",
]


def planned(command: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """What a command line asks of a search."""
    asked: list[Plan] = []

    def search(plan: Plan, **options: object) -> SearchResult:
        asked.append(plan)
        raise UsageError("far enough")

    monkeypatch.setattr(api, "search", search)
    assert run(shlex.split(command)) == 2
    (plan,) = asked
    return plan


@pytest.mark.parametrize("command", SEARCHES)
def test_a_command_is_told_back_so_that_it_asks_the_same(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model.py", "my model.py", "train.py"):
        (tmp_path / name).touch()
    plan = planned(f"{command.partition(' -- ')[0]} -q{''.join(command.partition(' -- ')[1:])}", monkeypatch)
    told, note = reproduction(plan, Settings())
    assert str(tmp_path) in note
    words, dashes, behind = told.removeprefix("autotune ").partition(" -- ")
    assert "--fresh" in words
    assert planned(f"{words} -q{dashes}{behind}", monkeypatch) == plan


def test_what_the_workload_says_by_itself_is_not_told() -> None:
    own = Settings(precision=Precision.BF16, accumulate=2)
    plan = replace(PLAN, settings=own)
    assert reproduction(plan, own)[0] == "autotune search model.py --memory-limit 40GiB --allow none --fresh"


def test_live_objects_have_no_command() -> None:
    told, why = reproduction(Plan(source=Source(ref="Net", pickle_path="/tmp/x.pkl")), Settings())
    assert told == "" and "find_max_batch()" in why
