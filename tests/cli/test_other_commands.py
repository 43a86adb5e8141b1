import json
from pathlib import Path

import jsonschema
import pytest

from autotune.errors import UsageError
from autotune.workload.template import MODEL_FILE
from tests.cli.conftest import FakeApi, Invoke


def test_inspect_shows_what_was_recognised(invoke: Invoke, fake: FakeApi) -> None:
    ended = invoke("inspect", "model.py", "--device", "cpu", "--", "--depth", "3")
    assert ended.code == 0
    assert "  model  make_model()         a function of that name\n" in ended.out
    assert "optimizer    AdamW\n" in ended.out
    assert fake.calls["plan"] == {
        "ref": "model.py",
        "script_args": ("--depth", "3"),
        "command": (),
        "templates": (),
        "device": "cpu",
    }


def test_inspect_can_be_read_by_programs(invoke: Invoke) -> None:
    content = json.loads(invoke("inspect", "model.py", "--json").out)
    assert content["workload"]["parameters"] == 124_439_808
    assert content["machine"]["device_name"] == "NVIDIA H200"


def test_runs_show_shows_one_search_with_its_probes(invoke: Invoke, fake: FakeApi) -> None:
    ended = invoke("runs", "show", "ab12")
    assert ended.code == 0
    assert "max batch    27\n" in ended.out
    assert "out of memory in forward" in ended.out
    assert "torch.OutOfMemoryError" not in ended.out
    assert fake.calls["show"] == {"search_id": "ab12", "storage": None}
    assert "torch.OutOfMemoryError" in invoke("runs", "show", "ab12", "-v").out


def test_runs_show_can_be_read_by_programs(invoke: Invoke) -> None:
    content = json.loads(invoke("runs", "show", "ab12", "--json").out)
    assert content["search"]["id"] == "ab12cd34ef56"
    assert len(content["probes"]) == 7


def test_an_unknown_search_is_a_usage_error(invoke: Invoke, fake: FakeApi) -> None:
    fake.error = UsageError("there is no search zz", hint="autotune runs ls")
    ended = invoke("runs", "show", "zz")
    assert (ended.code, ended.out) == (2, "")


def test_runs_alone_shows_its_commands(invoke: Invoke) -> None:
    ended = invoke("runs")
    assert ended.code == 0
    assert "show     Show one search and all its probes." in ended.out


def test_init_writes_a_model_file_and_says_what_comes_next(invoke: Invoke) -> None:
    ended = invoke("init")
    assert ended.code == 0
    assert Path("model.py").read_text() == MODEL_FILE
    assert "  autotune search model.py\n" in ended.out


def test_init_does_not_overwrite_unless_forced(invoke: Invoke) -> None:
    Path("mine.py").write_text("precious")
    ended = invoke("init", "mine.py")
    assert (ended.code, ended.out) == (2, "")
    assert "autotune init mine.py --force" in ended.err
    assert Path("mine.py").read_text() == "precious"
    assert invoke("init", "mine.py", "--force").code == 0
    assert Path("mine.py").read_text() == MODEL_FILE


def test_init_writes_no_file_that_could_not_be_searched(invoke: Invoke) -> None:
    Path("my notes.txt").write_text("mine")
    ended = invoke("init", "my notes.txt", "--force")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: my notes.txt is no name for a Python file\nhint: autotune init 'my notes.py'\n"
    assert Path("my notes.txt").read_text() == "mine"


def test_init_into_nowhere_says_so(invoke: Invoke) -> None:
    ended = invoke("init", "no where/model.py")
    assert ended.code == 2
    assert ended.err == (
        "error: the folder no where does not exist\n"
        "hint: make it first: mkdir -p 'no where' && autotune init 'no where/model.py'\n"
    )
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("folder", [".", "here"])
def test_init_of_a_folder_names_a_file_in_it(invoke: Invoke, folder: str, force: tuple[str, ...]) -> None:
    Path("here").mkdir()
    ended = invoke("init", folder, *force)
    assert ended.code == 2
    assert ended.err == f"error: {folder} is a directory\nhint: name a file: autotune init {folder}/model.py\n"


def test_init_below_a_file_cannot_write(invoke: Invoke) -> None:
    Path("file").touch()
    ended = invoke("init", "file/model.py")
    assert ended.code == 5
    assert "cannot write file/model.py: Not a directory" in ended.err


def test_the_next_command_of_init_survives_a_blank_in_the_name(invoke: Invoke) -> None:
    assert "  autotune search 'my model.py'\n" in invoke("init", "my model.py").out


def test_schema_prints_a_valid_schema(invoke: Invoke) -> None:
    ended = invoke("schema")
    schema = json.loads(ended.out)
    jsonschema.Draft202012Validator.check_schema(schema)
    invoke("search", "model.py")
    jsonschema.validate(json.loads(Path("autotune.json").read_text()), schema)
