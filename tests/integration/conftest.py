"""Exports read by those they are for. Each test skips where its library is not installed: ``pip install '.[integrations]'``."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from autotune.probe.launcher import Launcher

Library = Callable[[str], Any]


def _imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say about each other while they are imported
        return pytest.importorskip(
            name, reason=f"{name.partition('.')[0]} is not installed; see the extra integrations"
        )


@pytest.fixture
def certified_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for ``tests/process``: a fresh interpreter imports the other library again, and no memory is the subject."""
    monkeypatch.setattr(Launcher, "_certifies_afresh", False)


@pytest.fixture(scope="session")
def library() -> Library:
    """Import a module of another's, or skip the test."""
    return _imported
