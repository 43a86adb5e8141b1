"""Files: ``autotune.json`` as ``load`` and ``export`` read it, and a DeepSpeed configuration to merge with."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli import export as exporting
from autotune.export import Target
from autotune.export import export as express
from autotune.report.document import document, read, settings_of, to_text
from tests.cli.results import RESULT
from tests.malformed.inputs import VALUES, clear, damaged, inputs

SOUND: dict[str, Any] = json.loads(to_text(document(RESULT)))


def exported(file: Path, target: Target) -> object:
    return express(exporting._recommendation(file), target)


@inputs(150)
@given(content=damaged(SOUND))
def test_a_damaged_recommendation_is_refused_or_makes_settings_that_hold(content: Any) -> None:
    found = clear(read, json.dumps(content))
    if found is not None:
        assert settings_of(found).accumulate >= 1
        assert found.batch.micro_batch >= 1


@inputs(40)
@given(text=st.one_of(st.text(max_size=200), VALUES.map(json.dumps), st.just("[" * 5_000), st.just("{" * 3000)))
def test_any_text_is_read_as_a_recommendation_or_refused(text: str) -> None:
    assert clear(read, text) is None


@inputs(80)
@given(content=damaged(SOUND), target=st.sampled_from(Target))
def test_what_is_exported_was_checked_before(content: Any, target: Target, tmp_path: Path) -> None:
    file = tmp_path / "autotune.json"
    file.write_text(json.dumps(content))
    clear(exported, file, target)


@inputs(40)
@given(data=st.one_of(st.binary(max_size=100), st.just(b"[" * 5_000), VALUES.map(lambda v: json.dumps(v).encode())))
def test_any_bytes_are_a_configuration_to_merge_with_or_refused(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_bytes(data)
    own = clear(exporting._own_configuration, file)
    assert own is None or isinstance(own, dict)
    clear(exporting._document, file)


@pytest.mark.parametrize("name", ["\0.json", "x" * 300, "a/" * 3000])
def test_a_file_that_cannot_be_is_refused_by_name(name: str) -> None:
    assert clear(exporting._document, Path(name)) is None
