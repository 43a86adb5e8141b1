"""The stores under test: adding one is one entry in ``STORES``."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from autotune.storage.store import Store

POSTGRES_URL = os.environ.get("AUTOTUNE_TEST_POSTGRES", "")
"""``postgresql+psycopg://…`` of a server whose ``autotune_`` tables may be dropped; empty = SQLite only."""


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / 'new' / 'ledger.db'}"


def _postgres(_: Path) -> str:
    engine = create_engine(POSTGRES_URL)
    with engine.begin() as connection:
        for table in ("autotune_traces", "autotune_probes", "autotune_searches", "autotune_alembic_version"):
            connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
    engine.dispose()
    return POSTGRES_URL


STORES: dict[str, Callable[[Path], str]] = {"sqlite": _sqlite} | ({"postgres": _postgres} if POSTGRES_URL else {})


@pytest.fixture(params=list(STORES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a ledger that does not exist yet."""
    return STORES[request.param](tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A new, empty, open ledger."""
    with Store.open(url) as opened:
        yield opened
