"""Ways of sharing a training between two ranks, each against one process alone (gloo, on the CPU).

What the ranks do is in ``parallel_ranks``; here is what must come of it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from torch.multiprocessing.spawn import start_processes

from tests.process import parallel_ranks
from tests.process.parallel_ranks import RANKS, SHARINGS, Net

ROUNDING = 1e-6
"""Of fp32: a few units in the last of its seven digits, after three steps."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw, by the name of the check."""
    directory = tmp_path_factory.mktemp("ranks")
    start_processes(parallel_ranks.run, args=(str(directory),), nprocs=RANKS, start_method="spawn")  # type: ignore[no-untyped-call]
    return [json.loads((Path(directory) / f"found-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("name", SHARINGS)
def test_steps_of_two_ranks_are_those_of_one_process_on_the_joined_batch(
    found: list[dict[str, Any]], name: str
) -> None:
    for rank in found:
        assert isinstance(rank[name], float), rank[name]
        assert rank[name] < ROUNDING


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor"])
def test_ranks_that_made_different_models_train_that_of_the_first(found: list[dict[str, Any]], kind: str) -> None:
    for rank in found:
        assert rank[f"unequal beginnings, {kind}"] < ROUNDING


def test_each_rank_holds_its_share_of_the_parameters_under_fsdp(found: list[dict[str, Any]]) -> None:
    for rank in found:
        here, alone, sharded = rank["shares of fsdp"]
        assert sharded
        assert alone == sum(p.numel() * p.element_size() for p in Net().parameters())
        assert here * RANKS == alone  # every first dimension is even


@pytest.mark.parametrize(("precision", "near"), [("bf16", 0.03), ("fp16", 0.004)])
def test_lower_precision_gathers_in_it_and_keeps_shards_in_full(
    found: list[dict[str, Any]], precision: str, near: float
) -> None:
    for rank in found:
        distance, full, scale = rank[f"fsdp, {precision}"]
        assert ROUNDING < distance < near
        assert full
        assert scale == (256 if precision == "fp16" else None)


def test_zero_shares_out_the_state_of_the_users_optimizer(found: list[dict[str, Any]]) -> None:
    kinds = {(rank["state of zero"][0], rank["state of zero"][1]) for rank in found}
    assert kinds == {("ZeroRedundancyOptimizer", "SGD")}
    held, (every, *_) = [rank["state of zero"][2] for rank in found], [rank["state of zero"][3] for rank in found]
    assert sum(held) == every and min(held) > 0
    for rank in found:
        assert rank["zero, remade"] == ["ZeroRedundancyOptimizer", 0.25, 0.5]


def test_a_checkpoint_has_the_optimizers_state_where_it_can_be_had(found: list[dict[str, Any]]) -> None:
    names = len(Net().state_dict())
    for number, rank in enumerate(found):
        for name in ("ddp", "fsdp", "zero"):
            assert rank[f"checkpoint of {name}"] == [names, name != "zero" or number == 0]


def test_whole_tensors_are_put_into_shards(found: list[dict[str, Any]]) -> None:
    assert [rank["filled shards"] for rank in found] == [0.0] * RANKS


def test_gradients_of_shards_are_compared_with_whole_ones(found: list[dict[str, Any]]) -> None:
    names = sorted(name for name, _ in Net().named_parameters())
    for rank in found:
        compared, cosine, ratio, counted = rank["side by side"]
        assert compared == names
        assert cosine == pytest.approx(1, abs=ROUNDING)
        assert ratio == pytest.approx(1, abs=ROUNDING)
        assert counted, "bytes are those on this rank"


def test_parameters_that_the_loss_does_not_use_need_a_static_graph(found: list[dict[str, Any]]) -> None:
    for rank in found:
        waited = "DDP waits for gradients of parameters that the loss does not use"
        assert rank["unused parameters"] == [waited, "trained"]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("without blocks", "the model has no repeated blocks, and FSDP2 shards these one after the other"),
        (
            "with shared blocks",
            "parameter blocks.1.up.weight is shared between blocks.1 and blocks.0, and FSDP2 shards each block by itself",
        ),
        ("without plan", "neither the model (_tp_plan) nor the workload (make_plan) says how to split it"),
        ("with nothing to train", "no parameter of the model is trained, and DDP averages gradients"),
        ("with unequal shapes", "the ranks have models of different shapes, and cannot train one together"),
        ("by the optimizer", "this optimizer (fused) does not work on shards of parameters"),
    ],
)
def test_what_cannot_be_shared_is_refused_on_every_rank(found: list[dict[str, Any]], what: str, why: str) -> None:
    assert [rank[f"refused {what}"] for rank in found] == [why] * RANKS
