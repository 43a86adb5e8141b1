"""Which settings a training command can be asked for: those it has a template for."""

from pathlib import Path

import pytest

from autotune.cli.invocation import Invocation
from autotune.errors import UsageError
from autotune.knobs import told
from autotune.model import Choice, Compile, Precision, Settings
from autotune.probe.command.containment import contained, visible_devices

TEMPLATES = {
    "batch": "--bs {batch}",
    "precision": "--amp {value}",
    "compile": "--compile",
    "accumulate": "--acc {value}",
}


def asked(
    *names: str,
    settings: Settings | None = None,
    effective_batch: int | None = None,
    tune: bool = True,
    fix: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    forbid: tuple[str, ...] = (),
) -> dict[str, Choice]:
    """Name -> what may be tried, of a command with these templates."""
    templates = [(name, TEMPLATES[name]) for name in names]
    chosen = told(templates, settings or Settings(), effective_batch, tune=tune, fix=fix, allow=allow, forbid=forbid)
    return {choice.knob: choice for choice in chosen}


def refused(*names: str, **options: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        asked(*names, **options)  # type: ignore[arg-type]
    return caught.value


def test_without_a_template_only_the_batch_is_searched() -> None:
    assert asked() == {}
    assert asked("batch", "accumulate") == {}


def test_what_has_a_template_is_searched_and_nothing_else() -> None:
    assert list(asked("precision", "accumulate")) == ["precision"]


def test_a_template_without_a_value_is_a_switch_for_the_first_value_that_is_not_the_default() -> None:
    assert asked("compile")["compile"].values == (Compile.OFF, Compile.DEFAULT)


def test_nothing_is_searched_where_that_is_not_wanted() -> None:
    assert asked("precision", tune=False) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"settings": Settings(precision=Precision.BF16)},
        {"fix": ("precision=bf16",)},
        {"allow": ("precision",)},
        {"forbid": ("precision=fp16",)},
    ],
)
def test_a_setting_that_the_command_is_not_told_of_is_refused_with_how_to_tell_it(options: dict[str, object]) -> None:
    error = refused("compile", **options)
    assert error.message == "the command is not told of precision"
    assert "--set 'precision=--precision {value}'" in error.hint


def test_accumulation_needs_a_template_too() -> None:
    assert refused(effective_batch=96).message == "the command is not told of accumulate"
    assert refused(settings=Settings(accumulate=2)).message == "the command is not told of accumulate"
    assert asked("accumulate", effective_batch=96) == {}


def test_the_allocator_needs_none_because_pytorch_reads_it_from_the_environment() -> None:
    assert asked(settings=Settings(allocator="expandable_segments:True")) == {}


def test_a_template_of_no_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="precison"):
        told([("precison", "--amp {value}")], Settings(), None, tune=True, fix=(), allow=(), forbid=())


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("search model.py", ("model.py", (), ())),
        ("search model.py --fresh -- --hidden 512", ("model.py", ("--hidden", "512"), ())),
        ("search -- python t.py {batch}", ("", (), ("python", "t.py", "{batch}"))),
        ("search --set a=b --fresh -- ./t.sh", ("", (), ("./t.sh",))),
        ("search -- env A=1 t.py -- {batch}", ("", (), ("env", "A=1", "t.py", "--", "{batch}"))),
        ("search model.py more", ("model.py", ("more",), ())),
    ],
)
def test_words_behind_the_dashes_are_a_command_where_no_model_stands_before_them(
    line: str, parts: tuple[str, tuple[str, ...], tuple[str, ...]]
) -> None:
    argv = tuple(line.split())
    own = [word for word in argv[1:] if word not in ("--fresh", "--set", "a=b")]
    if "--" in own:
        own.remove("--")
    model, *args = own
    assert Invocation("autotune", argv).split(model, args) == parts


def test_nothing_to_train_is_refused_with_both_ways_to_give_it() -> None:
    with pytest.raises(UsageError, match="nothing to train was given") as caught:
        Invocation("autotune", ("max-batch",)).split(None, ())
    assert "autotune max-batch model.py" in caught.value.hint
    assert "-- python train.py --batch-size {batch}" in caught.value.hint


def test_the_command_that_goes_on_keeps_what_stands_behind_the_dashes() -> None:
    argv = ("search", "--fresh", "--set", "batch=env:B", "--", "python", "t.py", "--fresh")
    assert Invocation("autotune", argv).resume_command == "autotune search --set batch=env:B -- python t.py --fresh"


@pytest.mark.parametrize(
    ("device", "seen", "variables"),
    [
        ("cpu", None, {"CUDA_VISIBLE_DEVICES": ""}),
        ("auto", None, {}),
        ("cuda", "2,3", {}),
        ("cuda:1", None, {"CUDA_VISIBLE_DEVICES": "1"}),
        ("cuda:1", "2,3", {"CUDA_VISIBLE_DEVICES": "3"}),
        ("cuda:0", "GPU-a,GPU-b", {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
    ],
)
def test_a_command_sees_the_device_it_shall_train_on(
    monkeypatch: pytest.MonkeyPatch, device: str, seen: str | None, variables: dict[str, str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert visible_devices(device) == variables


def test_trackers_are_kept_from_reporting_probes(tmp_path: Path) -> None:
    variables = contained(tmp_path)
    assert variables["WANDB_MODE"] == "disabled"
    assert variables["MLFLOW_TRACKING_URI"].startswith("sqlite:///" + str(tmp_path))
