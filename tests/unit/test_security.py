"""What SECURITY.md promises of the code itself: no evaluation of data, one way for pickles, private files."""

import ast
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import autotune
from autotune.cli.app import run
from autotune.cli.export import _recommendation
from autotune.cli.write import write_whole
from autotune.errors import UsageError
from autotune.front.given import source_of
from autotune.probe.workplace import Workplace
from autotune.report.document import document, to_text
from autotune.storage.store import Store
from tests.cli.results import RESULT

ROOT = Path(autotune.__file__).parent
EVALUATING = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "cloudpickle.load",
    "cloudpickle.loads",
    "torch.load",
    "marshal.loads",
    "shelve.open",
    "yaml.load",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
}
THE_USERS_OWN_CODE = {
    "workload/load.py: exec",  # the model file
    "workload/load.py: torch.load",  # live objects of the calling process, from its own private folder
    "workload/load.py: pickle.Unpickler",
    "workload/ready.py: torch.load",  # batches that the same process wrote into a file without a name
}


def called(path: Path) -> Iterator[str]:
    """Names of everything that a file calls or inherits from, and ``shell=True``; ``torch.load`` of plain data left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and "weights_only=True" not in map(ast.unparse, node.keywords):
            yield ast.unparse(node.func)
            yield from ("shell=True" for word in node.keywords if word.arg == "shell")
        if isinstance(node, ast.ClassDef):
            yield from map(ast.unparse, node.bases)


def test_nothing_but_the_users_own_code_is_run() -> None:
    files = [path for path in ROOT.rglob("*.py") if "storage" not in path.parts]
    files += (ROOT / "storage").resolve().rglob("*.py")
    assert len(files) > 200
    found = {
        f"{path.parent.name}/{path.name}: {name}"
        for path in files
        for name in called(path)
        if name in EVALUATING | {"shell=True"}
    }
    assert found == THE_USERS_OWN_CODE


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_no_file_is_writable_for_everybody_whatever_the_umask(tmp_path: Path) -> None:
    with umask(0):
        write_whole(tmp_path / "autotune.json", "{}")
        assert run(["init", str(tmp_path / "model.py")]) == 0
        Store.open(str(tmp_path / "new" / "folders" / "ledger.sqlite3")).close()
    made = [path for path in tmp_path.rglob("*")]
    assert len(made) >= 5
    assert [path.name for path in made if mode(path) & stat.S_IWOTH] == []


def test_a_file_keeps_the_permissions_that_its_owner_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "autotune.json"
    path.write_text("{}")
    path.chmod(0o600)
    write_whole(path, "[]")
    assert (path.read_text(), mode(path)) == ("[]", 0o600)


def test_live_objects_lie_where_nobody_else_can_reach_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with umask(0), Workplace() as folder:
        assert mode(folder) == 0o700
        functions = {"make_batch": lambda size: [0.0] * size}
        source = source_of(lambda: None, functions, folder / "workload.pkl")
        assert Path(source.pickle_path).parent == folder
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTORCH_ALLOC_CONF"])
def test_a_recommendation_exports_no_variable_but_the_allocators(name: str, tmp_path: Path) -> None:
    content = json.loads(to_text(document(RESULT)))
    file = tmp_path / "autotune.json"
    file.write_text(json.dumps(content))
    assert _recommendation(file).environment == content["environment"]
    content["environment"] = {**content["environment"], name: "/tmp/evil.so"}
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=f"environment.{name}"):
        _recommendation(file)


def test_a_draft_does_not_follow_a_link_that_somebody_laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("platform.node", lambda: "host")
    (tmp_path / f".o.json.host.{os.getpid()}.tmp").symlink_to(victim)
    with pytest.raises(Exception, match="cannot write"):
        write_whole(tmp_path / "o.json", "new")
    assert victim.read_text() == "precious"
