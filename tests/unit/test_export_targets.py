"""What holds for every target: nothing is dropped, nothing is made up, nothing heavy is imported."""

import subprocess
import sys
from dataclasses import fields, replace

import pytest

from autotune.errors import UsageError
from autotune.export import Recommendation, Target, export
from autotune.export.by_hand import by_hand
from autotune.model import Settings
from tests.unit.export_samples import ALL, CHANGES, named, recommend


def test_the_samples_change_every_setting() -> None:
    changed = {name for settings in CHANGES for name in settings.changes(Settings())}
    assert changed == {field.name for field in fields(Settings)} == set(ALL.changes(Settings()))


@pytest.mark.parametrize("settings", CHANGES, ids=named)
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_changed_setting_is_in_the_text_or_named_in_a_note(target: Target, settings: Settings, device: str) -> None:
    exported = export(recommend(settings, device=device), target)
    named_in_notes = {note.about for note in exported.notes}
    for name in settings.changes(Settings()):
        without = replace(settings, **{name: getattr(Settings(), name)})
        in_text = exported.text != export(recommend(without, device=device), target).text
        assert in_text or name in named_in_notes, name


@pytest.mark.parametrize("target", Target)
def test_all_settings_at_once_are_in_the_text_or_in_notes_in_the_order_they_are_declared(target: Target) -> None:
    exported = export(recommend(ALL), target)
    order = [field.name for field in fields(Settings)]
    told = [note.about for note in exported.notes if note.about in order]
    assert told == sorted(told, key=order.index)
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("target", Target)
def test_the_users_own_settings_need_no_notes(target: Target) -> None:
    batch = ["micro_batch"] if target is Target.ACCELERATE else []
    assert [note.about for note in export(recommend(Settings()), target).notes] == batch


@pytest.mark.parametrize("target", Target)
def test_texts_are_ascii_and_end_without_a_line_break(target: Target) -> None:
    exported = export(recommend(ALL), target)
    for text in (exported.text, exported.file_text):
        assert text.isascii()
        assert text == text.strip() != ""


def test_a_setting_that_nobody_thought_of_is_still_named() -> None:
    assert "apply it in the training script" in by_hand("a new one", recommend(Settings()))


@pytest.mark.parametrize("target", [target for target in Target if target is not Target.DEEPSPEED])
def test_only_a_deepspeed_configuration_can_be_merged_into(target: Target) -> None:
    with pytest.raises(UsageError, match=f"nothing to merge into for {target}"):
        export(recommend(Settings()), target, merge={})


@pytest.mark.parametrize("name", ["A; touch x", "", "1A", "A=B", "A\nB"])
def test_an_environment_that_would_run_commands_in_a_shell_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name of an environment variable"):
        Recommendation(settings=Settings(), micro_batch=1, environment={name: "1"})


def test_exporting_imports_no_framework() -> None:
    script = (
        "import sys, autotune.export; "
        "print(sorted({'torch', 'yaml', 'pydantic', 'transformers', 'lightning', 'accelerate', 'hydra'} & {*sys.modules}))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
