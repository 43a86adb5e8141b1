"""Searches over workloads that go wrong on purpose, in real child processes."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Plan, SearchResult, WorkloadInfo
from autotune.probe import launcher as launching
from autotune.probe.launcher import Launcher
from tests.process.support import Staying

ASSETS = Path(__file__).parent.parent / "assets" / "planted"

Search = Callable[..., SearchResult]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A ledger of its own."""
    return str(tmp_path / "ledger.sqlite3")


def planned(file: str, *args: object, **options: object) -> Plan:
    """A search of one of the planted files on the CPU."""
    options = {"device": "cpu", "timeout_s": 60.0, "recommend": False, "memory_limit": "1GiB", **options}
    return api.plan(str(ASSETS / file), script_args=[str(arg) for arg in args], **options)  # type: ignore[arg-type]


@pytest.fixture
def search(storage: str) -> Search:
    """``search(KIND, LIMIT, TEXT, option=value...)`` over planted.py on the CPU."""

    def run(*args: object, file: str = "planted.py", **options: object) -> SearchResult:
        fresh = bool(options.pop("fresh", False))
        return api.search(planned(file, *args, **options), storage=storage, fresh=fresh)

    return run


@pytest.fixture
def certified_in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks what certifies, as on CUDA: where no memory is the subject, a fresh interpreter each time shows nothing more."""
    monkeypatch.setattr(Launcher, "_certifies_afresh", False)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes to come: threads allocate side by side, in an order of their own."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


class Loaded:
    """Launchers of planted files that follow their arguments (see ``arguments.py``): each file is loaded once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._found: dict[tuple[str, str], tuple[Launcher, tuple[str, ...], WorkloadInfo]] = {}
        """By file and what it has: a launcher, the arguments that it has last described, and how."""

    def __call__(self, file: str, *arguments: str, has: str = "") -> tuple[Launcher, WorkloadInfo]:
        """With FILE for these ARGUMENTS on the CPU, in one thread, and what it described.

        ``has``: what the file has for these, functions and data set; with others it is loaded once more.
        """
        words = self._folder / f"{file} {has}"
        launcher, described_for, workload = self._found.get((file, has), (None, (), None))
        if launcher is None:
            plan = api.plan(str(ASSETS / file), script_args=[f"@{words}"], device="cpu")
            launcher = self._stack.enter_context(Launcher(plan.source, timeout_s=120, seed=3))
        if workload is None or described_for != arguments:
            words.write_text(json.dumps(arguments))
            workload, _ = launcher.describe("cpu", 1)
            self._found[file, has] = launcher, arguments, workload
        return launcher, workload

    def close(self) -> None:
        """End every process."""
        self._stack.close()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """``loaded(FILE, KIND)``, closed at the end of the test file."""
    with pytest.MonkeyPatch.context() as patch, closing(Loaded(tmp_path_factory.mktemp("loaded"))) as found:
        patch.setenv("OMP_NUM_THREADS", "1")  # threads allocate side by side, in an order of their own
        yield found


class Kept(Staying):
    """A launcher of planted.py that serves one search after another."""

    def __init__(self, arguments: Path) -> None:
        plan = planned("planted.py", f"@{arguments}")
        super().__init__(plan.source, timeout_s=plan.timeout_s, seed=plan.seed)
        self.arguments = arguments

    def within(self, timeout_s: float) -> None:
        """The wall limit of each probe from now on."""
        self._timeout_s = timeout_s


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Has planted.py loaded once for all searches of a test file."""
    launcher = Kept(tmp_path_factory.mktemp("kept") / "arguments")
    yield launcher
    launcher.close()


@pytest.fixture
def search_forked(storage: str, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Search:
    """As ``search``, at a tenth of the cost, for what goes wrong in a child no matter how that child began.

    Not for what is seen while the file is loaded, and not for memory.
    """
    monkeypatch.setattr(launching, "Launcher", lambda *_, **__: kept)

    def run(*args: object, **options: object) -> SearchResult:
        kept.arguments.write_text(json.dumps([str(arg) for arg in args]))
        plan = planned("planted.py", f"@{kept.arguments}", **options)
        kept.within(plan.timeout_s)
        result = api.search(plan, storage=storage)
        assert {probe.launcher for probe in result.probes} == {"fork"}
        return result

    return run
