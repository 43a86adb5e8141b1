"""Searches of settings with several ranks, as far as they need no process: what they begin from, vary and count."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import api
from autotune.errors import UsageError
from autotune.knobs import OF_RANKS, choices, make_space, space_of
from autotune.model import Form, Parallel, Plan, RankResult, Settings, Traits
from autotune.ranking import refuse_without_plan
from autotune.report.document import document, read, to_text
from autotune.report.page.reproduce import reproduction
from autotune.report.table import render, report
from autotune.search.apart import plain
from autotune.search.settings.priors import features, needs_no_less
from autotune.units import MIB
from tests.cli.results import MACHINE, RESULT, WORKLOAD
from tests.unit import planted_settings
from tests.unit.planted_settings import PlantedMachine
from tests.unit.planted_settings_searches import searched
from tests.unit.planted_traits import RICH

FILE = str(Path(__file__).parent.parent.parent / "examples" / "tiny_gpt.py")
DDP, FSDP, ZERO = (Settings(parallel=kind) for kind in (Parallel.DDP, Parallel.FSDP, Parallel.ZERO))


def planned(*, ranks: int = 2, **options: Any) -> Plan:
    return api.plan(FILE, device="cpu", ranks=ranks, tune=True, **options)


def varied(plan: Plan) -> list[str]:
    return [choice.knob for choice in plan.space]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, "ddp"),
        ({"allow": ("parallel", "precision")}, "ddp"),
        ({"allow": ("bucket_view",)}, "ddp"),
        ({"fix": ("parallel=fsdp",)}, "ddp"),
        ({"parallel": "fsdp"}, "fsdp"),
        ({"allow": ("precision",)}, "default"),
        ({"allow": ("none",)}, "default"),
        ({"forbid": ("parallel",)}, "default"),
        ({"fix": ("parallel",)}, "default"),
        ({"ranks": 1}, "default"),
    ],
)
def test_a_search_that_may_change_the_way_of_sharing_begins_from_ddp(options: dict[str, Any], begins: str) -> None:
    assert planned(**options).settings.parallel == begins


def test_what_is_varied_with_ranks_is_all_of_one_process_and_the_ways_of_sharing() -> None:
    alone, together = planned(ranks=1), planned()
    assert [name for name in varied(together) if name not in varied(alone)] == [knob.name for knob in OF_RANKS]
    assert varied(planned(allow=("parallel", "precision"))) == ["precision", "parallel"]
    assert planned(fix=("parallel=ddp",), allow=("none",)).space == ()  # the user's own, then


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"forbid": ("parallel=ddp",)}, "--forbid parallel=ddp is what your own settings have"),
        ({"allow": ("parallel=fsdp2",)}, "parallel has no value 'fsdp2'"),
        ({"effective_batch": 97}, "97 cannot be held exactly by 2 devices"),
    ],
)
def test_what_makes_no_sense_with_ranks_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        planned(**options)
    assert refused.value.hint


def test_the_space_knows_the_ranks_of_its_plan() -> None:
    workload = replace(WORKLOAD, traits=replace(RICH, ranks=1))
    space = space_of(planned(allow=[knob.name for knob in OF_RANKS]), workload, MACHINE)
    assert {name: space.values(name) for name in space.knobs} == {
        "parallel": ("ddp", "fsdp", "zero"),
        "bucket_view": (False, True),
        "reshard": (True, False),
    }
    assert space.left == ()
    small = replace(workload, traits=Traits(trained_tensors=1))
    left = space_of(planned(allow=("parallel",)), small, MACHINE).left
    assert [(one.value, one.why.partition(",")[0]) for one in left] == [
        ("fsdp", "the model has no repeated blocks to shard one after the other"),
        ("zero", "the optimizer has 1 parameters"),
    ]


def space(base: Settings, *, fix: Sequence[str] = (), allow: Sequence[str] = ("parallel",)) -> Any:
    return make_space(base, choices(fix, allow, (), base, 2), replace(RICH, ranks=2), "cuda")[0]


def test_another_way_of_sharing_comes_without_the_options_of_the_former() -> None:
    made = space(DDP, allow=("parallel", "bucket_view", "reshard"))
    nearby = made.neighbours(replace(DDP, bucket_view=True))
    assert [found.changes(DDP) for found in nearby] == [
        {"parallel": "fsdp"},
        {"parallel": "zero", "bucket_view": True},
        {},
    ]
    assert FSDP in nearby and not any(map(made.refuses, nearby))


def test_what_a_way_of_sharing_surely_needs_of_memory() -> None:
    def surely(one: Settings, other: Settings) -> bool:
        return needs_no_less(features(one), features(other))

    assert surely(DDP, ZERO) and surely(DDP, FSDP) and surely(DDP, replace(DDP, bucket_view=True))
    for saving in (ZERO, FSDP, replace(DDP, bucket_view=True)):
        assert not surely(saving, DDP)
    assert not surely(FSDP, ZERO) and not surely(ZERO, FSDP)
    assert surely(replace(FSDP, reshard=False), FSDP) and not surely(FSDP, replace(FSDP, reshard=False))


def machine(base: Settings = DDP, **options: Any) -> PlantedMachine:
    return PlantedMachine(
        space=planted_settings.space_of(
            base=base, allow=("parallel", "precision"), traits=replace(planted_settings.TRAITS, ranks=2)
        ),
        **options,
    )


def test_the_fastest_way_of_sharing_is_found() -> None:
    for best in ("ddp", "fsdp", "zero"):
        answer, history = searched(machine(speed={("parallel", best): 0.4, ("precision", "bf16"): 0.5}))
        assert answer.settings is not None
        assert (answer.settings.parallel, answer.settings.precision) == (best, "bf16")
        assert {probe.settings.parallel for probe in history if probe.form is Form.TIMED} >= {"fsdp", best}


def test_a_model_too_large_for_a_whole_one_on_each_rank_is_sharded() -> None:
    answer, _ = searched(
        machine(memory={("parallel", "fsdp"): -1.5, ("parallel", "zero"): -0.1}, sample_bytes=50_000 * MIB)
    )
    assert answer.settings is not None and answer.settings.parallel is Parallel.FSDP
    assert plain(answer.settings) != DDP and answer.max_batch == 3


def test_shards_that_are_demanded_are_the_answer_though_whole_models_are_faster() -> None:
    slower = PlantedMachine(
        space=planted_settings.space_of(
            base=DDP, allow=("none",), fix=("parallel=fsdp",), traits=replace(planted_settings.TRAITS, ranks=2)
        ),
        speed={("parallel", "fsdp"): -0.5},
    )
    answer, history = searched(slower)
    assert answer.settings is not None and answer.settings.parallel is Parallel.FSDP
    assert any(probe.fits and plain(probe.settings) == DDP for probe in history)


def test_ranks_train_on_batches_of_their_own_but_for_tensor_parallel() -> None:
    ranks = tuple(RankResult(rank=rank, outcome=None) for rank in range(2))
    alone = RESULT.certificate
    together = replace(alone, ranks=ranks)
    split = replace(together, settings=replace(alone.settings, parallel=Parallel.TENSOR))
    assert (alone.replicas, together.replicas, split.replicas) == (1, 2, 1)


def test_the_report_says_that_ranks_are_joined_as_the_file_says() -> None:
    joined = replace(RESULT.settings, parallel=Parallel.ZERO)
    result = replace(
        RESULT,
        plan=replace(RESULT.plan, ranks=2, world=2, settings=replace(RESULT.plan.settings, parallel=Parallel.ZERO)),
        answer=replace(RESULT.answer, settings=joined),
        probes=tuple(replace(probe, settings=joined) for probe in RESULT.probes),
    )
    text = render(report(result, output="autotune.json"))
    assert 'tuned = autotune.load("autotune.json")' in text
    content = document(result)
    assert (content.settings.parallel, content.launch) == ("zero", "torchrun --nproc-per-node=2 train.py")


def test_the_command_that_makes_it_again_is_the_same_question() -> None:
    plan = planned()
    command, _ = reproduction(plan, Settings())
    assert "--ranks 2" in command and "--parallel ddp" in command and "--allow" not in command
    assert planned(parallel="ddp") == plan


TENSOR: dict[str, Any] = {"parallel": "tensor"}


def test_tensor_parallel_is_searched_by_itself_and_its_ranks_see_the_same_samples() -> None:
    plan = planned(**TENSOR, effective_batch=7)
    assert (plan.world, plan.ranks, plan.replicas) == (2, 2, 1)
    assert not {knob.name for knob in OF_RANKS} & set(varied(plan)) and "precision" in varied(plan)
    assert planned().replicas == planned(world=4).replicas // 2 == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({**TENSOR, "world": 4}, "of 4 \\(--world\\) 2 are here"),
        ({**TENSOR, "allow": ("parallel",)}, "not compared with other ways of sharing"),
        ({"allow": ("parallel=fsdp,tensor",)}, "not compared with other ways of sharing"),
        ({"fix": ("parallel=tensor",)}, "not compared with other ways of sharing"),
    ],
)
def test_what_tensor_parallel_is_not_compared_with_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        planned(**options)
    assert refused.value.hint


def test_tensor_parallel_needs_a_plan() -> None:
    with pytest.raises(UsageError, match="neither the model"):
        refuse_without_plan(replace(WORKLOAD, traits=Traits()), Parallel.TENSOR)
    refuse_without_plan(replace(WORKLOAD, traits=Traits(tensor_plan=True)), Parallel.TENSOR)
    refuse_without_plan(replace(WORKLOAD, traits=Traits()), Parallel.DDP)


def test_a_document_of_tensor_parallel_counts_one_batch_for_all_ranks() -> None:
    settings = replace(RESULT.settings, parallel=Parallel.TENSOR, accumulate=3)
    result = replace(
        RESULT,
        plan=replace(RESULT.plan, ranks=2, world=2, settings=settings),
        answer=replace(RESULT.answer, settings=settings),
        probes=tuple(replace(probe, settings=settings) for probe in RESULT.probes),
    )
    content = read(to_text(document(result)))
    assert (content.batch.world, content.batch.replicas) == (2, 1)
    assert content.batch.effective == 3 * content.batch.micro_batch
    assert content.launch == "torchrun --nproc-per-node=2 train.py"
    whole = document(replace(result, plan=replace(result.plan, settings=DDP)))
    assert whole.batch.replicas is None and whole.batch.effective == 6 * whole.batch.micro_batch
    with pytest.raises(UsageError, match="1 field is wrong"):
        read(to_text(document(result)).replace('"replicas": 1', '"replicas": 2'))
