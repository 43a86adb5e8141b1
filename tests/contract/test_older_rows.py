"""Documents in rows grow with the model: what older versions wrote is read with defaults, what this one writes comes back."""

import json
from dataclasses import asdict, fields, replace

from sqlalchemy import text

from autotune.model import Objective, Plan, Precision, Settings, Traits
from autotune.storage.address import parse_address
from autotune.storage.engine import make_engine
from autotune.storage.store import Store
from tests.contract.samples import ANSWER, FITTING_PROBE, SEARCH

OLD_SETTINGS = {"precision": "bf16", "allocator": "max_split_size_mb:128", "accumulate": 4}
"""All there was of settings before more than precision, allocator and accumulation were searched."""
NEWER = {
    "autotune_probes": {
        "settings": [field.name for field in fields(Settings) if field.name not in OLD_SETTINGS],
        "measurement": [
            "first_step_seconds",
            "recompiles",
            "graph_breaks",
            "comparison",
            "evaluated_batch",
            "evaluated_after",
            "worst_batch",
            "candidates",
            "workers_bytes",
            "micro_batches",
            "data_set_size",
        ],
    },
    "autotune_searches": {
        "plan": [
            "space",
            "objective",
            "effective_batch",
            "world",
            "trials",
            "eval_batch",
            "device_wait_s",
            "length_bucket",
            "predicted",
            "communicators_bytes",
        ],
        "workload": ["traits", "loader", "sized", "parts", "buckets", "fullest_rank"],
        "machine": ["unified"],
        "answer": ["complete", "loading", "evaluation"],
    },
}
"""Fields that rows of then do not have, by table and column."""

TRIED_THEN = Settings(precision=Precision.BF16, allocator="max_split_size_mb:128", accumulate=4)
PROBE_THEN = replace(
    FITTING_PROBE,
    settings=TRIED_THEN,
    measurement=replace(
        FITTING_PROBE.measurement,
        first_step_seconds=None,
        recompiles=None,
        graph_breaks=None,
        comparison=None,
        evaluated_batch=None,
        evaluated_after=None,
        worst_batch="",
        candidates=1,
        workers_bytes=None,
        micro_batches=None,
        data_set_size=None,
    ),
)
SEARCH_THEN = replace(
    SEARCH,
    plan=replace(
        SEARCH.plan,
        source=replace(SEARCH.plan.source, command=(), templates=()),
        settings=replace(TRIED_THEN, allocator="expandable_segments:True"),
        space=(),
        objective=Objective.THROUGHPUT,
        effective_batch=None,
        world=1,
        trials=Plan(source=SEARCH.plan.source).trials,
        eval_batch=None,
        device_wait_s=Plan(source=SEARCH.plan.source).device_wait_s,
        length_bucket=None,
        predicted=False,
        communicators_bytes=0,
    ),
    machine=replace(SEARCH.machine, unified=False),
    workload=replace(SEARCH.workload, traits=Traits(), loader=None, sized=True, parts=(), buckets=(), fullest_rank=0),
    answer=replace(ANSWER, settings=TRIED_THEN, complete=True, loading=None, evaluation=None),
)


def without_newer_fields(url: str) -> None:
    """Rewrite the documents in the rows as older versions would have written them."""
    engine = make_engine(parse_address(url))
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
                for name in ("command", "templates") if column == "plan" else ():
                    del content["source"][name]
                content["settings"] = {name: content["settings"][name] for name in OLD_SETTINGS}
                change = text(f"UPDATE autotune_searches SET {column} = :new WHERE id = :id")
                connection.execute(change, {"new": json.dumps(content), "id": id_})
        stored = connection.scalars(text("SELECT settings FROM autotune_probes")).all()
    engine.dispose()
    assert [json.loads(one) for one in stored] == [OLD_SETTINGS]


def test_rows_of_before_there_were_more_settings_are_read_with_defaults(store: Store, url: str) -> None:
    store.begin(SEARCH_THEN)
    store.add_probe(SEARCH.id, PROBE_THEN)
    without_newer_fields(url)
    assert asdict(TRIED_THEN) == {**asdict(Settings()), **OLD_SETTINGS}, "else the sample has what older rows have not"
    with Store.open(url) as again:
        assert again.probes(SEARCH.id) == (PROBE_THEN,)
        read = again.get(SEARCH.id)
    assert read == SEARCH_THEN
    assert read.answer is not None and read.answer.complete
    assert (read.plan.space, read.plan.objective, read.plan.world) == ((), Objective.THROUGHPUT, 1)
