"""Exports read by those they are for. Each test skips where its library is not installed: ``pip install '.[integrations]'``."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

Library = Callable[[str], Any]


def _imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say about each other while they are imported
        return pytest.importorskip(
            name, reason=f"{name.partition('.')[0]} is not installed; see the extra integrations"
        )


@pytest.fixture(scope="session")
def library() -> Library:
    """Import a module of another's, or skip the test."""
    return _imported
