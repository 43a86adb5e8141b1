"""Searches over workloads that go wrong on purpose, in real child processes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune import api
from autotune.model import SearchResult

ASSETS = Path(__file__).parent.parent / "assets" / "planted"

Search = Callable[..., SearchResult]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A ledger of its own."""
    return str(tmp_path / "ledger.sqlite3")


@pytest.fixture
def search(storage: str) -> Search:
    """``search(KIND, LIMIT, TEXT, option=value...)`` over planted.py on the CPU."""

    def run(*args: object, file: str = "planted.py", **options: object) -> SearchResult:
        fresh = bool(options.pop("fresh", False))
        options = {"device": "cpu", "timeout_s": 60.0, "recommend": False, "memory_limit": "1GiB", **options}
        plan = api.plan(str(ASSETS / file), script_args=[str(arg) for arg in args], **options)  # type: ignore[arg-type]
        return api.search(plan, storage=storage, fresh=fresh)

    return run
