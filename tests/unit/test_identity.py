"""Which searches are one question: their keys, as earlier versions made them."""

from dataclasses import replace

import pytest

from autotune.identity import search_key
from autotune.knobs import OF_RANKS, Knob, choices
from autotune.model import Machine, Parallel, Plan, Settings, Source, WorkloadInfo

MACHINE = Machine(
    device="cuda",
    device_name="A",
    device_uuid="GPU-1",
    device_index=0,
    capacity_bytes=1 << 34,
    driver_version="1",
    torch_version="2.13.0",
    cuda_version="13.0",
    python_version="3.12.0",
    platform="Linux",
)
WORKLOAD = WorkloadInfo(
    ref="model.py",
    fingerprint="f",
    recognised=(),
    parameters=10,
    trainable_parameters=10,
    parameters_bytes=40,
    trainable_bytes=40,
    optimizer="SGD",
    batch="float32 [B, 4]",
    data_set_size=None,
    evaluates=False,
)
PLAN = Plan(source=Source(ref="model.py", directory="/home/me"))
TOGETHER = replace(PLAN, ranks=2, world=2)
FSDP = Settings(parallel=Parallel.FSDP, reshard=False, offload=True)
ZERO = Settings(parallel=Parallel.ZERO, bucket_mb=100, bucket_view=True, static_graph=True)


@pytest.mark.parametrize(
    ("plan", "key"),
    [
        (PLAN, "ce465e2d993169a330df19e196d69d09cc430c2498b7fff0756b07bb6f10ce24"),
        (
            replace(
                PLAN,
                space=choices(["optimizer=fused"], ["precision", "compile=default"], [], Settings()),
                effective_batch=96,
            ),
            "b2d74ed7c0c86593d8809d2795310b49a690c6b2e15ae292a9687ab1b30ec00e",
        ),
        (TOGETHER, "337c246a00d82c254da7e68c5fcc504a76000df0322fc74c2cd07d1054c1b85b"),
        (
            replace(TOGETHER, settings=Settings(parallel=Parallel.DDP)),
            "f309538feb5d1b6ca60ac45dd31c10998453e7e1e3294a7f29d5b5fc3897ba36",
        ),
        (replace(TOGETHER, settings=FSDP), "fbf01fe9ff2e9390050968917894762c75e000cdb0520a27b4a5f0f79f93b3c7"),
        (
            replace(TOGETHER, world=4, settings=ZERO, effective_batch=64),
            "0bca214b8f7933e560295a2496c58a2a6ee60dfac7a01bb9b9b67c36a3a12ca6",
        ),
    ],
    ids=["batch", "settings", "ranks", "ddp", "fsdp", "zero"],
)
def test_a_question_has_the_key_that_ledgers_of_version_0_1_know_it_by(plan: Plan, key: str) -> None:
    assert search_key(plan, WORKLOAD, MACHINE) == key


@pytest.mark.parametrize("knob", OF_RANKS, ids=lambda knob: knob.name)
def test_every_setting_of_ranks_makes_another_question(knob: Knob) -> None:
    base = Settings(parallel=Parallel.DDP)
    keys = {
        search_key(replace(TOGETHER, settings=knob.put(base, value)), WORKLOAD, MACHINE)
        for value in knob.values
        if value != Parallel.DEFAULT
    }
    assert len(keys) == len([value for value in knob.values if value != Parallel.DEFAULT])
