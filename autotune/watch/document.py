"""A snapshot for programs: one JSON document, with the names of ``snapshot``'s fields."""

import json
from dataclasses import asdict
from datetime import datetime

from autotune.watch.snapshot import Snapshot

SCHEMA_VERSION = 1


def snapshot_json(snapshot: Snapshot) -> str:
    """ASCII; instants in ISO 8601, sizes in bytes, null for what was not told. ``headroom_bytes`` is added to trainings."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(snapshot)}
    for told, training in zip(content["trainings"], snapshot.trainings, strict=True):
        told["status"]["headroom_bytes"] = training.status.headroom_bytes
    return json.dumps(content, indent=2, default=datetime.isoformat)
