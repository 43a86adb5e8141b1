"""Documents in rows grow with the model: what older versions wrote is read with defaults, what this one writes comes back."""

import json
from dataclasses import asdict, fields, replace

from sqlalchemy import create_engine, text

from autotune.model import (
    Answer,
    Attention,
    Checkpointing,
    Choice,
    Comparison,
    Compile,
    MemoryFormat,
    Objective,
    OptimizerKind,
    Plan,
    Precision,
    Settings,
    Traits,
)
from autotune.storage.store import Store
from tests.contract.samples import ANSWER, FITTING_PROBE, SEARCH, TRIED

OLD_SETTINGS = {"precision": "bf16", "allocator": "max_split_size_mb:128", "accumulate": 4}
"""All there was of settings before more than precision, allocator and accumulation were searched."""
NEWER = {
    "autotune_probes": {
        "settings": [field.name for field in fields(Settings) if field.name not in OLD_SETTINGS],
        "measurement": ["first_step_seconds", "recompiles", "graph_breaks", "comparison"],
    },
    "autotune_searches": {
        "plan": ["space", "objective", "effective_batch", "world", "trials"],
        "workload": ["traits"],
        "answer": ["complete"],
    },
}
"""Fields that rows of then do not have, by table and column."""

SETTINGS = Settings(
    precision=Precision.FP16,
    init_scale=1024.0,
    checkpointing=Checkpointing.BLOCKS,
    compile=Compile.REDUCE_OVERHEAD,
    activation_budget=0.5,
    optimizer=OptimizerKind.FOREACH,
    memory_format=MemoryFormat.CHANNELS_LAST,
    attention=Attention.EFFICIENT,
    cudnn_benchmark=True,
    set_to_none=False,
    loader_workers=0,
    pin_memory=True,
    allocator="expandable_segments:True",
    accumulate=3,
)
TRAITS = Traits(
    blocks="Block",
    num_blocks=12,
    own_checkpointing="timm",
    convolutions=True,
    attention=True,
    batch_norm=True,
    batch_norm_in_blocks=True,
    dropout=True,
    lower_parameters=True,
    frozen=True,
    optimizer_kinds=("for-loop", "foreach"),
    data_set=True,
    tf32_trouble="none here",
    bf16_trouble="emulated",
    fp16_trouble="no",
    compile_trouble="no compiler",
    attention_backends=("math",),
    cpu_cores=7,
)
COMPARISON = Comparison(
    lost=("body.0.weight",),
    gained=("head.bias",),
    cosine=0.5,
    norm_ratio=1.25,
    loss_difference=0.125,
    buffers=("norm.running_mean",),
    losses=(1.5, None),
    reference_losses=(1.25, 1.0),
    skipped=2,
)


def without_newer_fields(url: str) -> None:
    """Rewrite the documents in the rows as older versions would have written them."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for table, columns in NEWER.items():
            for column, names in columns.items():
                for id_, document in connection.execute(text(f"SELECT id, {column} FROM {table}")).all():
                    content = json.loads(document)
                    for name in names:
                        del content[name]
                    change = text(f"UPDATE {table} SET {column} = :new WHERE id = :id")
                    connection.execute(change, {"new": json.dumps(content), "id": id_})
        for column in ("plan", "answer"):
            for id_, document in connection.execute(text(f"SELECT id, {column} FROM autotune_searches")).all():
                content = json.loads(document)
                content["settings"] = {name: content["settings"][name] for name in OLD_SETTINGS}
                change = text(f"UPDATE autotune_searches SET {column} = :new WHERE id = :id")
                connection.execute(change, {"new": json.dumps(content), "id": id_})
        stored = connection.scalars(text("SELECT settings FROM autotune_probes")).all()
    engine.dispose()
    assert [json.loads(one) for one in stored] == [OLD_SETTINGS]


def test_rows_of_before_there_were_more_settings_are_read_with_defaults(store: Store, url: str) -> None:
    store.begin(SEARCH)
    store.add_probe(SEARCH.id, FITTING_PROBE)
    without_newer_fields(url)
    assert asdict(TRIED) == {**asdict(Settings()), **OLD_SETTINGS}, "else the sample has what older rows have not"
    with Store.open(url) as again:
        assert again.probes(SEARCH.id) == (FITTING_PROBE,)
        read = again.get(SEARCH.id)
    assert read == SEARCH
    assert read.answer is not None and read.answer.complete
    assert (read.plan.space, read.plan.objective, read.plan.world) == ((), Objective.THROUGHPUT, 1)


def test_every_field_of_a_search_over_settings_comes_back(store: Store) -> None:
    plan = replace(
        SEARCH.plan,
        settings=SETTINGS,
        space=(Choice(knob="precision", values=("bf16", "fp16")), Choice(knob="compile", values=())),
        objective=Objective.MEMORY,
        effective_batch=96,
        world=8,
        trials=3,
    )
    answer = replace(ANSWER, settings=SETTINGS, complete=False)
    record = replace(SEARCH, plan=plan, workload=replace(SEARCH.workload, traits=TRAITS), answer=answer)
    seen = replace(
        FITTING_PROBE.measurement, first_step_seconds=12.5, recompiles=2, graph_breaks=1, comparison=COMPARISON
    )
    probe = replace(FITTING_PROBE, settings=SETTINGS, measurement=seen)
    for value in (SETTINGS, TRAITS, COMPARISON):
        defaults = type(value)()
        assert all(getattr(value, f.name) != getattr(defaults, f.name) for f in fields(value)), "each off its default"
    assert {f.name for f in fields(Plan)} >= set(NEWER["autotune_searches"]["plan"])
    assert {f.name for f in fields(Answer)} >= set(NEWER["autotune_searches"]["answer"])
    store.begin(record)
    store.add_probe(record.id, probe)
    assert store.get(record.id) == record
    assert store.probes(record.id) == (probe,)
