"""The stores under test: adding one is one entry in ``STORES``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.storage.store import Store
from tests.postgres import Server


def _sqlite(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder / 'new' / 'ledger.db'}"


def _postgres(request: pytest.FixtureRequest) -> str:
    server: Server = request.getfixturevalue("postgres")
    return server.new_url()


STORES: dict[str, Callable[[pytest.FixtureRequest], str]] = {"sqlite": _sqlite, "postgres": _postgres}


@pytest.fixture(params=list(STORES))
def url(request: pytest.FixtureRequest) -> str:
    """Address of a ledger that does not exist yet."""
    return STORES[request.param](request)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A new, empty, open ledger."""
    with Store.open(url) as opened:
        yield opened
