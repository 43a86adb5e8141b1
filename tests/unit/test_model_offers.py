"""The nouns are loaded when they are asked for; what type checkers see, what is offered and where it is found are one list."""

import ast
import subprocess
import sys
from pathlib import Path

from autotune import model


def test_what_type_checkers_see_is_what_is_found() -> None:
    (checked,) = [node for node in ast.parse(Path(model.__file__).read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    seen = {name.name: str(node.module) for node in imports for name in node.names}
    assert seen.keys() == set(model.__all__)
    found = {name: f"autotune.model.{module}" for name, module in vars(model)["_HOMES"].items()}
    assert found == seen
    assert all(getattr(model, name) is not None for name in model.__all__)


def test_a_list_of_searches_needs_few_of_them() -> None:
    code = "import sys, autotune.cli.runs, autotune.ledger, autotune.storage.listing; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {name for name in done.stdout.split() if name.startswith("autotune.model.")}
    assert "autotune.model.summary" in rooms
    assert not rooms & {"autotune.model.search", "autotune.model.probe", "autotune.model.leaks"}
