"""Tests on a real CUDA device; skipped where there is none."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from autotune import api
from autotune.model import SearchResult

ASSETS = Path(__file__).parent.parent / "assets" / "gpu"

Search = Callable[..., SearchResult]


@pytest.fixture(autouse=True, scope="session")
def cuda() -> None:
    """Skip without a CUDA device, before anything is searched. NVML answers this, so that the test process starts no context of its own."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def run(storage: Path, file: str, *args: object, **options: object) -> SearchResult:
    """One search on the GPU; every one starts a process that imports torch, so tests share what they can."""
    fresh = bool(options.pop("fresh", False))
    options = {"device": "cuda", "memory_limit": "2GiB", "recommend": False, **options}
    plan = api.plan(str(ASSETS / file), script_args=[str(arg) for arg in args], **options)  # type: ignore[arg-type]
    return api.search(plan, storage=str(storage / "ledger.sqlite3"), fresh=fresh)


@pytest.fixture
def search(tmp_path: Path) -> Search:
    """``search(file, *script_args, option=value...)`` with a ledger of its own."""
    return partial(run, tmp_path)


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """The plain search of mlp.py under 2 GiB."""
    return run(tmp_path_factory.mktemp("found"), "mlp.py")
