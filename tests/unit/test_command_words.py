"""Training commands: what is a placeholder, how settings are told, what is refused and with what hint."""

import sys
from pathlib import Path

import pytest

from autotune import find_max_batch
from autotune.errors import UsageError
from autotune.model import Source
from autotune.workload.command import Filled, fill, parse_command, uses_scratch

HERE = Path(__file__).parent


def parsed(words: str, *templates: str) -> Source:
    """A command that is started by this Python."""
    return parse_command([sys.executable, *words.split()], templates, HERE)


def filled(source: Source, batch_size: int = 8, **values: str) -> tuple[str, ...]:
    return fill(source, batch_size, values, "/scratch").words[1:]


def test_a_command_is_kept_word_by_word_with_the_directory_it_runs_in() -> None:
    source = parse_command([sys.executable, "my train.py", "{batch}"], ["accumulate=--acc {value}"], HERE)
    assert source.command == (sys.executable, "my train.py", "{batch}")
    assert source.ref == f"{sys.executable} 'my train.py' '{{batch}}'"
    assert source.templates == (("accumulate", "--acc {value}"),)
    assert source.directory == str(HERE)


def test_placeholders_are_filled_wherever_they_stand_and_other_braces_are_the_users() -> None:
    source = parse_command(
        [
            sys.executable,
            "t.py",
            "--bs={batch}",
            "--also",
            "{batch}x{batch}",
            "{scratch}/out",
            '{"a": {"b": 1}}',
            "{env}",
        ],
        (),
        HERE,
    )
    assert filled(source, 32) == ("t.py", "--bs=32", "--also", "32x32", "/scratch/out", '{"a": {"b": 1}}', "{env}")


def test_a_setting_that_is_not_changed_adds_nothing_and_a_changed_one_its_words_at_the_end() -> None:
    source = parsed("t.py {batch}", "precision=--amp '{value} x' --log {scratch}", "compile=--compile")
    assert filled(source) == ("t.py", "8")
    assert filled(source, precision="bf16") == ("t.py", "8", "--amp", "bf16 x", "--log", "/scratch")
    assert filled(source, compile="default") == ("t.py", "8", "--compile")
    assert filled(source, optimizer="fused") == ("t.py", "8"), "it has no template"


def test_a_setting_told_by_a_variable_is_in_the_environment_and_not_among_the_words() -> None:
    source = parsed("t.py", "batch=env:TRAIN_BATCH", "precision=env:AMP")
    told = fill(source, 16, {"precision": "bf16"}, "/scratch")
    assert told == Filled((sys.executable, "t.py"), {"TRAIN_BATCH": "16", "AMP": "bf16"})
    assert fill(source, 16, {}, "/scratch").environment == {"TRAIN_BATCH": "16"}


def test_the_batch_may_be_told_by_words_at_the_end() -> None:
    assert filled(parsed("t.py", "batch=--bs {batch}"), 4) == ("t.py", "--bs", "4")
    assert filled(parsed("t.py", "batch=--bs {value}"), 4) == ("t.py", "--bs", "4")


def test_a_filled_command_reads_as_one_would_type_it() -> None:
    told = Filled(("python", "my train.py", "8"), {"AMP": "b f"}).with_environment({"CONF": "x:y"})
    assert told.text == "CONF=x:y AMP='b f' python 'my train.py' 8"
    assert Filled(("a",), {"X": "own"}).with_environment({"X": "more"}).environment == {"X": "own"}


@pytest.mark.parametrize(
    ("words", "templates", "uses"),
    [
        ("t.py {batch}", (), False),
        ("t.py {batch} --out={scratch}/x", (), True),
        ("t.py {batch}", ("precision=--log {scratch}",), True),
    ],
)
def test_whether_a_command_writes_to_what_is_cleaned_up_is_known(
    words: str, templates: tuple[str, ...], uses: bool
) -> None:
    assert uses_scratch(parsed(words, *templates)) is uses


@pytest.mark.parametrize(
    ("words", "templates", "message", "hint"),
    [
        ("t.py --bs 4", (), "has no {batch} in it", "write {batch} where"),
        ("t.py {btach}", (), "{btach} is no placeholder", "did you mean {batch}?"),
        ("t.py {batch_size}", (), "{batch_size} is no placeholder", "did you mean {batch}?"),
        ("t.py {batch} {scrach}", (), "{scrach} is no placeholder", "did you mean {scratch}?"),
        ("t.py {batch}", ("precision=--amp {valeu}",), "{valeu} is no placeholder", "did you mean {value}?"),
        ("t.py {batch}", ("precision",), "--set 'precision' is no NAME=TEMPLATE", "precision=--amp {value}"),
        ("t.py {batch}", ("=--amp",), "is no NAME=TEMPLATE", "batch=env:BATCH_SIZE"),
        ("t.py {batch}", ("precision=  ",), "is no NAME=TEMPLATE", "batch=env:BATCH_SIZE"),
        ("t.py", ("batch=env:NO-NAME",), "names no environment variable: 'NO-NAME'", "batch=env:BATCH_SIZE"),
        ("t.py", ("batch=env:",), "names no environment variable: ''", "batch=env:BATCH_SIZE"),
        ("t.py {batch}", ("precision=--amp '{value}",), "No closing quotation", "close the quotes"),
        ("t.py {batch}", ("compile=-c", "compile=-d"), "--set names compile twice", "one template for each"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_type(
    words: str, templates: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(words, *templates)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("program", ["pyhton-of-nobody", "./not/there.sh", "test_command_words.py"])
def test_a_program_that_is_not_there_or_cannot_be_run_is_refused(program: str) -> None:
    with pytest.raises(UsageError, match="no such program") as caught:
        parse_command([program, "{batch}"], (), HERE)
    assert "autotune max-batch -- python train.py --batch-size {batch}" in caught.value.hint


def test_a_program_by_path_is_looked_for_from_the_directory_it_is_run_in() -> None:
    assets = HERE.parent / "assets" / "commands"
    source = parse_command(["./train.sh"], ["batch=env:TRAIN_BATCH"], assets)
    assert source.command == ("./train.sh",)


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "has no words"), (["python", "train.py", "--layers", 3, "{batch}"], "3 in the training command is no text")],
)
def test_a_command_from_python_has_words_of_text(words: list[object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        find_max_batch(words)
    assert "--batch-size" in raised.value.hint
