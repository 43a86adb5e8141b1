import json
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from autotune.export import Target
from autotune.model import Checkpointing, Compile, Precision, Settings
from autotune.report.document import document, to_text
from tests.cli.conftest import Invoke
from tests.cli.results import with_settings

SETTINGS = Settings(
    precision=Precision.BF16,
    compile=Compile.DEFAULT,
    checkpointing=Checkpointing.BLOCKS,
    allocator="expandable_segments:True",
    accumulate=4,
)


@pytest.fixture(autouse=True)
def recommendation(tmp_path: Path) -> Path:
    """``autotune.json`` in the folder that commands run in."""
    path = tmp_path / "autotune.json"
    path.write_text(to_text(document(with_settings(SETTINGS))))
    return path


def test_what_a_target_reads_is_all_there_is_on_stdout(invoke: Invoke) -> None:
    ended = invoke("export", "--to", "hf")
    assert ended.code == 0
    fields = json.loads(ended.out)
    assert (fields["per_device_train_batch_size"], fields["gradient_accumulation_steps"]) == (24, 4)
    assert (fields["bf16"], fields["torch_compile_mode"]) == (True, "default")


def test_what_a_target_cannot_express_is_on_stderr(invoke: Invoke) -> None:
    lines = invoke("export", "autotune.json", "--to", "lightning").err.splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        "note: precision",
        "note: checkpointing",
        "note: compile",
        "note: allocator",
    ]
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in lines[-1]


@pytest.mark.parametrize("target", Target)
def test_every_target_ends_well(invoke: Invoke, target: Target) -> None:
    ended = invoke("export", "--to", target.value)
    assert ended.code == 0
    assert "24" in ended.out + ended.err


def test_programs_get_text_and_notes_in_one_document(invoke: Invoke) -> None:
    content = json.loads(invoke("export", "--to", "env", "--json").out)
    assert content["target"] == "env"
    assert content["output"] is None
    assert content["text"].endswith("export AUTOTUNE_BATCH_SIZE=24\nexport AUTOTUNE_ACCUMULATE=4")
    assert [note["about"] for note in content["notes"]] == ["precision", "checkpointing", "compile"]
    assert all(note["value"] and note["advice"] for note in content["notes"])


def test_a_file_is_written_and_named(invoke: Invoke, tmp_path: Path) -> None:
    ended = invoke("export", "--to", "hydra", "--output", "recommended.yaml")
    assert (ended.code, ended.out) == (0, "wrote recommended.yaml\n")
    written = (tmp_path / "recommended.yaml").read_text()
    assert written.startswith("micro_batch: 24\n")
    assert written.endswith("\n")
    content = json.loads(invoke("export", "--to", "hydra", "--output", "recommended.yaml", "--force", "--json").out)
    assert (content["output"], content["text"] + "\n") == ("recommended.yaml", written)


def test_an_own_deepspeed_file_is_merged_into_itself(invoke: Invoke, tmp_path: Path) -> None:
    own = tmp_path / "ds.json"
    own.write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": "auto", "gradient_clipping": 1.0}')
    ended = invoke("export", "--to", "deepspeed", "--merge", "ds.json", "--output", "ds.json")
    assert (ended.code, ended.out) == (0, "wrote ds.json\n")
    assert json.loads(own.read_text()) == {
        "zero_optimization": {"stage": 3},
        "train_batch_size": "auto",
        "gradient_clipping": 1.0,
        "train_micro_batch_size_per_gpu": 24,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
    }
    assert 'note: train_batch_size=96: stays "auto"' in ended.err


def test_an_existing_file_is_not_lost_by_accident(invoke: Invoke, tmp_path: Path) -> None:
    own = tmp_path / "ds.json"
    own.write_text("{}")
    ended = invoke("export", "--to", "deepspeed", "--output", "ds.json")
    assert (ended.code, ended.out, own.read_text()) == (2, "", "{}")
    assert "error: ds.json exists already\n" in ended.err
    assert "--merge ds.json" in ended.err
    (tmp_path / "other.json").write_text("{}")
    assert invoke("export", "--to", "deepspeed", "--merge", "other.json", "--output", "ds.json").code == 2
    assert invoke("export", "--to", "deepspeed", "--output", "ds.json", "--force").code == 0
    assert "train_batch_size" in own.read_text()


MISTAKES: list[tuple[tuple[str, ...], str, str]] = [
    (("none.json", "--to", "hf"), "there is no none.json", "autotune search MODEL --output none.json"),
    ((".", "--to", "hf"), ". is a directory", "autotune search MODEL"),
    (("other.json", "--to", "hf"), "other.json is not a recommendation of autotune\nschema_version: ", "autotune.json"),
    (("broken.json", "--to", "hf"), "broken.json is not a recommendation of autotune\nthe file: ", "autotune.json"),
    (("binary", "--to", "hf"), "binary is no text", "autotune search MODEL"),
    (("--to", "keras"), "'keras' is not one of 'hf', 'lightning'", "autotune export --help"),
    ((), "Missing option '--to'", "autotune export --help"),
    (("--to", "hf", "--output", "nowhere/x.json"), "cannot write nowhere/x.json", "a folder that exists"),
    (("--to", "hf", "--output", "folder"), "folder is not a regular file", "name a file"),
    (("--to", "hydra", "--output", "x.json"), "Hydra reads .yaml files only", "recommended.yaml"),
    (("--to", "accelerate", "--output", "x.json"), "accelerate would read x.json as JSON", "accelerate.yaml"),
    (("--to", "hf", "--merge", "other.json"), "nothing to merge into for hf", "--to deepspeed"),
    (("--to", "deepspeed", "--merge", "none.json"), "there is no none.json", "the JSON file that DeepSpeed reads"),
    (("--to", "deepspeed", "--merge", "broken.json"), "broken.json is not JSON", "without comments"),
    (("--to", "deepspeed", "--merge", "list.json"), "list.json holds a list", "the JSON file that DeepSpeed reads"),
    (("--to", "deepspeed", "--merge", "other.json"), "bf16 is true in the file to merge into", '"enabled": true'),
]


@pytest.mark.parametrize(("argv", "message", "hint"), MISTAKES, ids=[" ".join(argv) for argv, _, _ in MISTAKES])
def test_mistakes_are_explained(invoke: Invoke, tmp_path: Path, argv: tuple[str, ...], message: str, hint: str) -> None:
    (tmp_path / "other.json").write_text('{"bf16": true}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "folder").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = invoke("export", *argv)
    assert (ended.code, ended.out) == (2, "")
    said, _, advice = ended.err.partition("hint: ")
    assert message in said
    assert hint in advice
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "said", "advice"),
    [
        ({"schema_version": 2}, "this recommendation has schema_version 2", "pip install --upgrade"),
        ({"kind": "prediction", "ranks": 4}, "this is a prediction for 4 ranks", "autotune search MODEL --ranks N"),
    ],
)
def test_a_file_that_says_what_it_is_instead_is_believed(
    invoke: Invoke, tmp_path: Path, content: dict[str, Any], said: str, advice: str
) -> None:
    (tmp_path / "other.json").write_text(json.dumps(content))
    ended = invoke("export", "other.json", "--to", "hf")
    assert ended.code == 2
    assert f"error: other.json: {said}" in ended.err
    assert advice in ended.err.partition("hint: ")[2]


def test_a_file_of_someone_else_is_not_to_be_written_anew(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{}")
    assert "--output ds.json" not in invoke("export", "ds.json", "--to", "hf").err


def test_a_file_that_cannot_be_read_is_trouble_of_the_environment(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path, mode: str) -> BinaryIO:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuses)  # the superuser may read everything
    ended = invoke("export", "--to", "hf")
    assert (ended.code, ended.out) == (5, "")
    assert "error: cannot read autotune.json: Permission denied\n" in ended.err


def test_a_file_written_before_there_were_settings_is_exported_without_them(
    invoke: Invoke, recommendation: Path
) -> None:
    content = json.loads(recommendation.read_text())
    content["settings"] = {"precision": "default", "allocator": ""}
    content["environment"] = {}
    recommendation.write_text(json.dumps(content))
    ended = invoke("export", "--to", "env")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "export AUTOTUNE_BATCH_SIZE=24\nexport AUTOTUNE_ACCUMULATE=4\n"
