"""How many ranks are asked for, what they cannot be asked for yet, and what of a search depends on their number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import api
from autotune.errors import EnvironmentTrouble, UsageError
from autotune.identity import search_key
from autotune.model import Machine, Objective, Parallel, Plan, Recognised, Source
from autotune.planning import length_buckets
from autotune.probe import nvml
from autotune.probe.budget import make_budget
from autotune.probe.device_lock import DeviceLock
from autotune.probe.host import HostLimit
from autotune.probe.turns import Turns
from autotune.probe.visible import Card
from autotune.ranking import refuse_workload
from autotune.report.asked import asked_fields, plan_again
from autotune.report.document import document, read, to_text
from autotune.report.page.reproduce import reproduction
from autotune.report.table import render, report
from autotune.units import GIB
from tests.cli.results import MACHINE, RESULT, WORKLOAD
from tests.unit.test_budget import HOST
from tests.unit.test_budget import machine as machine_of

FILE = str(Path(__file__).parent.parent.parent / "examples" / "tiny_gpt.py")
TWO = replace(
    RESULT,
    plan=replace(RESULT.plan, ranks=2, world=4),
    answer=replace(RESULT.answer, settings=replace(RESULT.settings, accumulate=3)),
    probes=tuple(replace(probe, settings=replace(probe.settings, accumulate=3)) for probe in RESULT.probes),
)


@pytest.mark.parametrize(("asked", "ranks"), [(2, 2), ("2", 2), (1, 1), ("1", 1)])
def test_ranks_are_a_number_and_the_world_is_as_large(asked: Any, ranks: int) -> None:
    plan = api.plan(FILE, ranks=asked)
    assert (plan.ranks, plan.world) == (ranks, ranks)


@pytest.mark.parametrize("asked", [0, -1, True, 2.0, "two", "", "-1", "1.5", "²", 5000, None])
def test_other_numbers_of_ranks_are_refused(asked: Any) -> None:
    with pytest.raises(UsageError, match="ranks is") as refused:
        api.plan(FILE, ranks=asked)
    assert "--ranks" in refused.value.hint


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"device": "cuda:1"}, "--device cuda:1 is one device"),
        ({"world": 3}, "--world 3 is no multiple of --ranks 2"),
    ],
)
def test_what_several_ranks_cannot_do_is_refused_before_anything_is_run(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        api.plan(FILE, ranks=2, **options)
    assert refused.value.hint


def test_a_training_command_has_its_own_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError, match="starts its own ranks") as refused:
        api.plan("", command=("python", "train.py", "--bs", "{batch}"), ranks=2)
    assert "torchrun --nproc-per-node=2" in refused.value.hint


def test_length_buckets_and_frameworks_that_spread_models_themselves_are_refused() -> None:
    with pytest.raises(UsageError, match="length buckets are searched in one process yet"):
        length_buckets([128], api.plan(FILE, ranks=2))
    trained = replace(WORKLOAD, recognised=(Recognised(what="train step", found="training_step", why="it has one"),))
    refuse_workload(trained, 1)
    with pytest.raises(UsageError, match="trained by its own framework"):
        refuse_workload(trained, 2)


def test_all_counts_the_devices_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = tuple(Card(uuid=f"GPU-{number}", name="card") for number in range(4))
    monkeypatch.setattr(nvml, "cards", lambda: cards)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert api.plan(FILE, ranks="all").ranks == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert api.plan(FILE, ranks="all").ranks == 2
    with pytest.raises(UsageError, match="counts CUDA devices"):
        api.plan(FILE, ranks="all", device="cpu")
    monkeypatch.setattr(nvml, "cards", lambda: ())
    monkeypatch.setattr(nvml, "missing", lambda: "no driver")
    with pytest.raises(UsageError, match="cannot be counted: no driver"):
        api.plan(FILE, ranks="all")


def test_an_effective_batch_is_held_on_all_ranks_exactly() -> None:
    plan = api.plan(FILE, tune=True, allow=("none",), effective_batch=96, ranks=2)
    assert (plan.effective_batch, plan.world, plan.space) == (96, 2, ())
    with pytest.raises(UsageError, match="97"):
        api.plan(FILE, tune=True, allow=("none",), effective_batch=97, ranks=2)


def test_another_number_of_ranks_is_another_question_and_one_rank_the_old_one() -> None:
    plan = Plan(source=Source(ref="model.py"), objective=Objective.BATCH)
    keys = {search_key(replace(plan, ranks=ranks), WORKLOAD, MACHINE) for ranks in (1, 2, 4)}
    assert len(keys) == 3
    alone, together = MACHINE, replace(MACHINE, peers=("GPU-2",))
    assert alone.fingerprint != together.fingerprint
    assert replace(together, peers=()).fingerprint == alone.fingerprint


def test_ranks_on_the_cpu_share_what_is_free_and_those_with_devices_do_not() -> None:
    cpu = machine_of("cpu")
    one = make_budget(cpu, memory_limit_bytes=None, others_bytes=None, host=HOST)
    two = make_budget(cpu, memory_limit_bytes=None, others_bytes=None, host=HOST, ranks=2)
    assert two.limit_bytes == one.limit_bytes // 2
    own = HostLimit(free_bytes=2 * GIB, total_bytes=2 * GIB, source="rlimit")
    alone = make_budget(cpu, memory_limit_bytes=None, others_bytes=None, host=own)
    assert make_budget(cpu, memory_limit_bytes=None, others_bytes=None, host=own, ranks=2) == alone
    for limit in (None, 24 * GIB):
        budgets = [
            make_budget(machine_of(), memory_limit_bytes=limit, others_bytes=GIB, host=HOST, ranks=ranks)
            for ranks in (1, 8)
        ]
        assert budgets[0] == budgets[1]


def test_a_limit_is_that_of_each_rank_and_all_of_them_must_be_there() -> None:
    cpu = machine_of("cpu")
    budget = make_budget(cpu, memory_limit_bytes=10 * GIB, others_bytes=None, host=HOST, ranks=2)
    assert budget.limit_bytes == 10 * GIB
    with pytest.raises(UsageError, match="is for each of 4 ranks") as refused:
        make_budget(cpu, memory_limit_bytes=10 * GIB, others_bytes=None, host=HOST, ranks=4)
    assert "6.0 GiB" in refused.value.hint or "6 GiB" in refused.value.hint


def test_all_devices_of_a_probe_are_held_and_taken_in_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(nvml, "cards", lambda: ())
    waited = list[str]()
    wait = Turns._wait

    def noted(self: Turns, lock: DeviceLock, name: str) -> None:
        waited.append(name)
        wait(self, lock, name)

    monkeypatch.setattr(Turns, "_wait", noted)
    of_both: Machine = replace(machine_of(), device_uuid="bbbb", peers=("aaaa",))
    with Turns(wait_s=0, ranks=2).at(of_both):
        assert waited == ["cuda:1", "cuda:0"]  # by their keys, not by their places
        for uuid in ("aaaa", "bbbb"):
            with (
                pytest.raises(EnvironmentTrouble, match="is busy"),
                Turns(wait_s=0).at(replace(of_both, device_uuid=uuid, peers=())),
            ):
                pass
    waited.clear()
    with Turns(wait_s=0, ranks=2).at(replace(of_both, device_uuid="aaaa", peers=("bbbb",))):
        assert waited == ["cuda:0", "cuda:1"]


def test_the_recommendation_says_how_to_launch_and_is_asked_again_as_it_was() -> None:
    content = document(TWO)
    assert content.launch == "torchrun --nnodes=2 --nproc-per-node=2 train.py"
    assert (content.batch.ranks, content.batch.world, content.batch.effective) == (2, 4, content.batch.micro_batch * 12)
    again = read(to_text(content))
    assert again == content
    assert asked_fields(TWO).ranks == 2
    assert plan_again(again, TWO.plan.source).ranks == 2
    on_one_host = replace(TWO, plan=replace(TWO.plan, world=2))
    assert document(on_one_host).launch == "torchrun --nproc-per-node=2 train.py"
    assert document(RESULT).launch == ""


def test_a_report_names_ranks_and_the_command_asks_for_them_again() -> None:
    text = render(report(replace(TWO, plan=replace(TWO.plan, world=2))))
    assert "on 2 devices = " in text and "torchrun --nproc-per-node=2 train.py" in text
    command, _ = reproduction(replace(TWO.plan, world=2), TWO.plan.settings)
    assert "--ranks 2" in command and "--world" not in command
    command, _ = reproduction(TWO.plan, TWO.plan.settings)
    assert "--ranks 2" in command and "--world 4" in command


def test_a_way_of_sharing_is_for_several_ranks_and_another_question() -> None:
    keys = set()
    for parallel in ("default", "ddp", "fsdp", "zero"):
        plan = api.plan(FILE, ranks=2, parallel=parallel, device="cpu")
        assert plan.settings.parallel == parallel
        keys.add(search_key(plan, WORKLOAD, MACHINE))
    assert len(keys) == 4
    again = api.plan(FILE, ranks=2, device="cpu")
    assert search_key(again, WORKLOAD, MACHINE) in keys


@pytest.mark.parametrize(
    ("parallel", "ranks", "message"),
    [
        ("fsdp", 1, "--parallel fsdp is how several ranks train together, and there is one"),
        ("tensor", 1, "--parallel tensor is how several ranks train together, and there is one"),
        ("fsdp2", 2, "parallel 'fsdp2' is not known"),
    ],
)
def test_ways_of_sharing_that_cannot_be_probed_are_refused(parallel: str, ranks: int, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        api.plan(FILE, ranks=ranks, parallel=parallel, device="cpu")
    assert refused.value.hint


def test_the_command_that_makes_it_again_names_the_way_of_sharing() -> None:
    settings = replace(TWO.plan.settings, parallel=Parallel.FSDP)
    text, _ = reproduction(replace(TWO.plan, settings=settings), TWO.plan.settings)
    assert "--parallel fsdp" in text and "--ranks 2" in text
