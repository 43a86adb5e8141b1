"""A recommendation in the user's training: read, held against what is here, and applied."""

import copy
import json
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import autotune
from autotune.apply import Unsupported
from autotune.errors import AutotuneError, EnvironmentTrouble, StaleConfig, StaleConfigError, UsageError
from autotune.model import ALLOCATOR_VARIABLES, Checkpointing, MemoryFormat, OptimizerKind, Precision, Settings
from autotune.probe.devices import look_at_device
from autotune.report.document import document, to_text
from autotune.tuned import Tuned, load, validity
from autotune.workload.source import INSIDE_VARIABLE
from tests.cli.results import MACHINE, RESULT, with_settings

EXPANDABLE = "expandable_segments:True"


class Block(nn.Module):
    """One of several alike."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Block(), Block(), Block(), nn.Linear(4, 1))


PARAMETERS = sum(p.numel() for p in make_model().parameters())
SEARCH_AGAIN = "autotune search model.py --output "


def mean_square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor((model(batch) ** 2).mean())


def batches(count: int, size: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return list(torch.randn(count, size, 4, generator=generator))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the allocator, of a launcher or of a search in the environment; switches as they were afterwards."""
    for name in (*ALLOCATOR_VARIABLES, "WORLD_SIZE", INSIDE_VARIABLE):
        monkeypatch.setenv(name, "")  # so that what a test sets is taken away again
        monkeypatch.delenv(name)
    switches = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = switches


def content_for(settings: Settings = Settings(), **machine: object) -> dict[str, Any]:  # noqa: B008 - frozen
    """The file of a search that was made right here for the model above, as JSON."""
    result = with_settings(settings)
    here = asdict(look_at_device("cpu")) | machine
    workload = replace(RESULT.workload, parameters=PARAMETERS)
    made: dict[str, Any] = json.loads(
        to_text(document(replace(result, machine=replace(MACHINE, **here), workload=workload)))
    )
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test has its file; not there yet."""
    return tmp_path / "autotune.json"


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path


def loaded_quietly(path: Path) -> Tuned:
    with pytest.warns(StaleConfig):
        return load(path)


def loaded(path: Path, settings: Settings) -> Tuned:
    return load(write(path, content_for(settings)))


# reading


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(precision=Precision.BF16, accumulate=3, optimizer=OptimizerKind.FOREACH),
        Settings(checkpointing=Checkpointing.ALTERNATE, set_to_none=False, loader_workers=0, allocator=EXPANDABLE),
    ],
)
def test_what_the_search_recommends_is_what_the_training_gets(path: Path, settings: Settings) -> None:
    tuned = loaded(path, settings)
    assert tuned.settings == settings
    assert (tuned.found, tuned.stale, tuned.device) == (True, (), torch.device("cpu"))
    assert (tuned.micro_batch, tuned.batch_size(7), tuned.accumulate) == (24, 24, settings.accumulate)
    assert tuned.samples_per_second == 150 * settings.accumulate
    assert tuned.document is not None and tuned.document.search_id == RESULT.search_id


def test_c11_the_training_is_told_which_batch_its_evaluation_takes(path: Path) -> None:
    assert loaded(path, Settings()).eval_batch is None
    content = content_for()
    content["evaluation"] = {"max_batch": 15, "refuted_at": 16, "limited_by": "device_memory", "failure": "x"}
    assert load(write(path, content)).eval_batch == 15


def test_load_is_public_and_finds_the_file_of_the_working_directory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, content_for())
    monkeypatch.chdir(path.parent)
    assert isinstance(autotune.load(), autotune.Tuned)
    assert repr(autotune.load()) == "Tuned(autotune.json: batch 24, accumulate 1, cpu)"


def test_a_file_of_an_older_version_is_taken_with_what_it_knew(path: Path) -> None:
    content = content_for(Settings(precision=Precision.BF16, accumulate=2))
    content["settings"] = {"precision": "bf16", "allocator": ""}
    del content["changes"], content["batch"]["world"], content["evidence"]["prediction"]
    assert load(write(path, content)).settings == Settings(precision=Precision.BF16, accumulate=2)


def test_without_a_file_there_is_an_error_that_says_what_to_type(path: Path) -> None:
    with pytest.raises(UsageError, match="there is no ") as caught:
        load(path)
    assert f"autotune search MODEL --output {path}" in caught.value.hint
    assert f"hint: {caught.value.hint}" in caught.value.__notes__


def test_without_a_file_the_training_can_run_as_if_there_were_no_autotune(path: Path) -> None:
    tuned = load(path, missing_ok=True, strict=True, device="cpu")
    assert (tuned.found, tuned.settings, tuned.micro_batch, tuned.batch_size(7)) == (False, Settings(), None, 7)
    assert (tuned.accumulate, tuned.samples_per_second, tuned.document) == (1, None, None)
    assert repr(tuned) == f"Tuned(no {path}, cpu)"
    assert trained(tuned, 3) == trained_plainly(3)


def test_a_file_with_mistakes_is_refused_with_each_of_them(path: Path) -> None:
    content = content_for()
    content["settings"]["precision"] = "fp8"
    content["settings"]["speed"] = "high"
    content["batch"]["micro_batch"] = "24"
    del content["evidence"]
    with pytest.raises(UsageError, match="4 fields are wrong") as caught:
        load(write(path, content), missing_ok=True)
    named = [line.partition(":")[0] for line in caught.value.detail.splitlines()]
    assert sorted(named) == ["batch.micro_batch", "evidence", "settings.precision", "settings.speed"]
    assert caught.value.detail in caught.value.__notes__, "a traceback shows only the message and the notes"


def test_nothing_in_a_file_is_evaluated_or_put_into_the_environment(path: Path) -> None:
    content = content_for()
    content["environment"] = {"LD_PRELOAD": "evil.so"}
    content["workload"]["ref"] = "__import__('os').abort()"
    before = dict(os.environ)
    load(write(path, content))
    assert dict(os.environ) == before


def test_what_is_no_text_is_no_recommendation(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no text"):
        load(path)


@pytest.mark.parametrize("missing_ok", [False, True])
def test_what_cannot_be_read_is_trouble_with_its_reason(path: Path, missing_ok: bool) -> None:
    path.symlink_to(path)
    with pytest.raises(EnvironmentTrouble, match=f"cannot read {re.escape(str(path))}: Too many levels of symbolic"):
        load(path, missing_ok=missing_ok)


@pytest.mark.parametrize(("name", "told"), [("folder", "folder is a directory"), ("a\0b", "is no name of a file")])
def test_what_is_no_file_is_said(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=told) as caught:
        load(tmp_path / name, missing_ok=True)
    assert caught.value.hint.startswith("make it with: autotune search")


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(UsageError, match="/dev/zero has more than 64 MiB"):
        load("/dev/zero")


def test_the_mark_that_editors_of_windows_begin_a_file_with_is_no_mistake(path: Path) -> None:
    path.write_text(json.dumps(content_for()), encoding="utf-8-sig")
    assert load(path).found


def test_of_very_many_mistakes_some_are_listed_and_the_rest_counted(path: Path) -> None:
    write(path, content_for() | {"x" * 5000 + str(number): 1 for number in range(1000)})
    with pytest.raises(UsageError, match="1000 fields are wrong") as caught:
        load(path)
    lines = caught.value.detail.splitlines()
    assert (len(lines), lines[-1]) == (31, "and 970 more")
    assert max(map(len, lines)) == 300


@pytest.mark.parametrize("device", ["", "warp", "meta", "cuda:0", "$(true)"])
def test_a_kind_of_device_that_no_search_runs_on_is_a_mistake_in_the_file(path: Path, device: str) -> None:
    content = content_for()
    content["machine"]["device"] = device
    with pytest.raises(UsageError) as caught:
        load(write(path, content))
    assert caught.value.detail == "machine.device: Input should be 'cpu' or 'cuda'"


def test_a_device_that_is_none_is_a_usage_error(path: Path) -> None:
    with pytest.raises(UsageError, match="'warp' is no device"):
        load(path, missing_ok=True, device="warp")


def test_while_a_search_loads_the_script_the_file_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = content_for(Settings(precision=Precision.BF16, accumulate=4), torch_version="1.0")
    write(path, content)
    monkeypatch.setenv(INSIDE_VARIABLE, "/some/folder")
    for place in (path, path.with_name("missing.json")):
        tuned = load(place, strict=True)
        assert (tuned.found, tuned.settings, tuned.batch_size(7)) == (False, Settings(), 7)
        assert tuned.device == torch.device("cpu")


# does it hold here?

HERE = asdict(look_at_device("cpu"))
STALE: list[tuple[str, str, object, str]] = [
    ("machine", "torch_version", "2.6.0", f"torch: 2.6.0 in the file, {torch.__version__} here"),
    ("machine", "device_name", "MOS 6510, 1 threads, c64", "device: MOS 6510, 1 threads in the file, "),
    ("machine", "capacity_bytes", 65536, f"bytes of device memory: 65536 in the file, {HERE['capacity_bytes']} here"),
    ("machine", "driver_version", "570.1", "driver: 570.1 in the file, unknown here"),
    ("machine", "cuda_version", "12.8", "CUDA: 12.8 in the file, unknown here"),
    ("workload", "parameters", 5, f"parameters of the model: 5 in the file, {PARAMETERS} here"),
]


@pytest.mark.parametrize(("part", "field", "value", "told"), STALE)
def test_what_differs_is_warned_of_with_both_values_and_the_cure(
    path: Path, part: str, field: str, value: object, told: str
) -> None:
    content = content_for()
    content[part][field] = value
    write(path, content)
    with pytest.warns(StaleConfig) as caught:
        model = load(path).prepare(make_model())
    (warning,) = caught
    text = str(warning.message)
    assert told in text
    assert text.startswith(f"what {path} says need not hold here:\n  ")
    assert text.endswith(f"hint: {SEARCH_AGAIN}{path}")
    assert warning.filename == __file__, "the warning points to the line of the training"
    assert isinstance(model, nn.Sequential), "and the training goes on"


@pytest.mark.parametrize(("part", "field", "value", "told"), STALE)
def test_under_strict_the_same_is_an_error(path: Path, part: str, field: str, value: object, told: str) -> None:
    content = content_for()
    content[part][field] = value
    write(path, content)
    with pytest.raises(StaleConfigError) as caught:
        load(path, strict=True).prepare(make_model())
    assert told in caught.value.message
    assert caught.value.hint == f"{SEARCH_AGAIN}{path}"
    assert any("strict" in note and SEARCH_AGAIN in note for note in caught.value.__notes__)
    assert isinstance(caught.value, AutotuneError) and caught.value.exit_code == 5


def test_all_that_differs_is_told_at_once(path: Path) -> None:
    write(path, content_for(torch_version="2.6.0", capacity_bytes=1))
    with pytest.warns(StaleConfig) as caught:
        tuned = load(path)
    assert len(caught) == 1
    assert [one.text.partition(":")[0] for one in tuned.stale] == ["bytes of device memory", "torch"]
    assert str(caught[0].message).count(SEARCH_AGAIN) == 1


def test_another_host_of_the_same_kind_will_do(path: Path) -> None:
    name = HERE["device_name"].removesuffix(platform.node()) + "a-new-container"
    write(path, content_for(device_name=name, device_uuid="other", python_version="3.99", platform="Linux-7"))
    assert load(path, strict=True).stale == ()


def test_a_file_for_a_device_that_is_not_here_is_told_and_training_goes_on_without(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    content = content_for(Settings(allocator=EXPANDABLE))
    content["machine"] = asdict(replace(MACHINE, torch_version=torch.__version__))
    with pytest.warns(StaleConfig, match=r"kind of device: cuda \(NVIDIA H200\) in the file, cpu here"):
        tuned = load(write(path, content))
    assert len(tuned.stale) == 1, "memory and driver of another kind of device say nothing"
    assert tuned.device == torch.device("cpu")
    assert not set(ALLOCATOR_VARIABLES) & set(os.environ)


def test_an_unfinished_search_is_told(path: Path) -> None:
    content = content_for()
    content["complete"] = False
    with pytest.warns(StaleConfig, match="ran out of time; batch 24 is certified"):
        load(write(path, content))
    with pytest.raises(StaleConfigError, match="complete: false"):
        load(path, strict=True)


def test_c33_another_number_of_devices_changes_the_effective_batch_and_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, content_for(Settings(accumulate=2)))
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.warns(StaleConfig, match="1 in the file, 4 here; an optimizer step sees 192 samples instead of 48"):
        load(path)
    content = content_for(Settings(accumulate=2))
    content["batch"] |= {"world": 4, "effective": 192}
    write(path, content)
    assert load(path, strict=True).stale == ()
    for nonsense in ("0", "-4", "four", ""):
        monkeypatch.setenv("WORLD_SIZE", nonsense)
        with pytest.warns(StaleConfig, match="4 in the file, 1 here"):
            load(path)


def test_under_tensor_parallel_another_number_of_devices_sees_the_same_batch(path: Path) -> None:
    content = content_for()
    content["batch"] |= {"world": 2, "replicas": 1, "ranks": 2}
    (difference,) = loaded_quietly(write(path, content)).stale
    assert difference.text == "devices that train together: 2 in the file, 1 here"


def test_a_training_command_is_searched_again_as_one(path: Path) -> None:
    content = content_for(torch_version="1.0")
    content["workload"] |= {"ref": "python train.py --bs '{batch}'", "command": "python train.py --bs 24"}
    (difference,) = loaded_quietly(write(path, content)).stale
    assert difference.cure == f"autotune search --output {path} -- python train.py --bs '{{batch}}'"


def test_a_process_group_knows_better_than_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    assert load(write(path, content_for()), strict=True).stale == ()


# the allocator, which only CUDA has: the device is made up

CUDA = torch.device("cuda")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A made-up card: ``started`` says whether it was, ``expandable`` what its allocator then does (None: as asked)."""
    state: dict[str, Any] = {"started": False, "expandable": None, "set_at_start": None}

    def look(_: str) -> object:
        state["set_at_start"] = {name: os.environ.get(name) for name in ALLOCATOR_VARIABLES}
        return MACHINE

    def snapshot() -> dict[str, Any]:
        asked = "expandable_segments:True" in os.environ.get(ALLOCATOR_VARIABLES[0], "")
        real = asked if state["expandable"] is None else state["expandable"]
        return {"allocator_settings": {"expandable_segments": real}}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: state["started"])
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
    monkeypatch.setattr(validity, "look_at_device", look)
    return state


def on_cuda(path: Path, allocator: str = EXPANDABLE) -> Path:
    content = content_for(Settings(allocator=allocator))
    content["machine"] = asdict(MACHINE)
    return write(path, content)


def test_the_allocator_is_configured_before_the_device_is_started(path: Path, cuda: dict[str, Any]) -> None:
    tuned = load(on_cuda(path), strict=True)
    assert tuned.device == CUDA
    assert cuda["set_at_start"] == dict.fromkeys(ALLOCATOR_VARIABLES, EXPANDABLE)
    assert {name: os.environ[name] for name in ALLOCATOR_VARIABLES} == tuned.settings.environment


def test_an_allocator_that_the_user_has_configured_the_same_way_is_fine(
    path: Path, cuda: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOCATOR_VARIABLES[0], EXPANDABLE)
    cuda["started"] = True
    assert load(on_cuda(path), strict=True).stale == ()


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("variable", ALLOCATOR_VARIABLES)
def test_another_configuration_of_the_user_stays_and_is_told(
    path: Path, cuda: dict[str, Any], monkeypatch: pytest.MonkeyPatch, variable: str, started: bool
) -> None:
    monkeypatch.setenv(variable, "max_split_size_mb:64")
    cuda["started"] = started
    with pytest.warns(StaleConfig) as caught:
        load(on_cuda(path))
    text = str(caught[0].message)
    assert f"allocator: {EXPANDABLE} in the file, max_split_size_mb:64 in {variable} here" in text
    assert f"hint: unset {variable} in the environment" in text
    assert [name for name in ALLOCATOR_VARIABLES if name in os.environ] == [variable]


def test_a_device_that_was_started_before_is_told(path: Path, cuda: dict[str, Any]) -> None:
    cuda["started"] = True
    with pytest.raises(StaleConfigError, match="the default here: the device was started before") as caught:
        load(on_cuda(path), strict=True)
    variables = " ".join(f"{name}={EXPANDABLE}" for name in ALLOCATOR_VARIABLES)
    assert caught.value.hint.endswith(f"or start the training with {variables}")
    assert not set(ALLOCATOR_VARIABLES) & set(os.environ)


def test_variables_that_were_set_after_the_device_was_started_are_seen_through(
    path: Path, cuda: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ALLOCATOR_VARIABLES:
        monkeypatch.setenv(name, EXPANDABLE)
    cuda |= {"started": True, "expandable": False}
    with pytest.warns(StaleConfig, match="expandable_segments is False here: the device was started before"):
        load(on_cuda(path))


def test_the_default_allocator_asks_for_nothing(path: Path, cuda: dict[str, Any]) -> None:
    cuda["started"] = True
    load(on_cuda(path, allocator=""), strict=True)
    assert not set(ALLOCATOR_VARIABLES) & set(os.environ)


# training


def trained(tuned: Tuned, steps: int) -> list[list[float]]:
    """The weights after some steps of the long way."""
    model = tuned.prepare(make_model())
    optimizer = tuned.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    made = iter(batches(steps * tuned.accumulate))
    for _ in range(steps):
        tuned.zero_grad(optimizer)
        for _ in range(tuned.accumulate):
            with tuned.autocast():
                loss = mean_square(model, next(made))
            tuned.backward(loss)
        assert tuned.step(optimizer)
    return [p.flatten().tolist() for p in model.parameters()]


def trained_plainly(steps: int, accumulate: int = 1) -> list[list[float]]:
    """The same without autotune; accumulation in one large batch."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = torch.stack(batches(steps * accumulate)).reshape(steps, -1, 4)
    for batch in made:
        optimizer.zero_grad()
        torch.autograd.backward(mean_square(model, batch))
        optimizer.step()
    return [p.flatten().tolist() for p in model.parameters()]


def test_a_training_with_default_settings_is_bit_for_bit_the_user_s_own(path: Path) -> None:
    assert trained(loaded(path, Settings()), 3) == trained_plainly(3)


def test_accumulated_micro_batches_train_as_one_large_batch(path: Path) -> None:
    tuned = loaded(path, Settings(accumulate=4))
    for mine, plain in zip(trained(tuned, 3), trained_plainly(3, accumulate=4), strict=True):
        assert mine == pytest.approx(plain, rel=1e-5)


def test_one_call_does_a_step_over_all_its_micro_batches(path: Path) -> None:
    tuned = loaded(path, Settings(accumulate=3))
    model = tuned.prepare(make_model())
    optimizer = tuned.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    made = batches(6)
    losses = [tuned.train_step(model, optimizer, mean_square, made[i : i + 3]) for i in (0, 3)]
    assert [p.flatten().tolist() for p in model.parameters()] == trained(load(path), 2)
    assert losses[0].item() == pytest.approx(mean_square(make_model(), torch.cat(made[:3])).item())
    assert not losses[0].requires_grad
    with pytest.raises(UsageError, match="takes 3 micro-batches"):
        tuned.train_step(model, optimizer, mean_square, made[:2])


def test_the_loss_is_computed_in_the_precision_of_the_settings(path: Path) -> None:
    tuned = loaded(path, Settings(precision=Precision.BF16))
    model = tuned.prepare(make_model())
    with tuned.autocast():
        assert model(batches(1)[0]).dtype is torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert tuned.scaler is None


def test_the_optimizer_is_of_the_implementation_of_the_settings(path: Path) -> None:
    tuned = loaded(path, Settings(optimizer=OptimizerKind.FOREACH))
    optimizer = tuned.optimizer(torch.optim.AdamW, make_model().parameters(), lr=0.5)
    assert type(optimizer) is torch.optim.AdamW
    assert (optimizer.defaults["foreach"], optimizer.defaults["lr"]) == (True, 0.5)


def test_what_cannot_be_applied_says_why(path: Path) -> None:
    tuned = loaded(path, Settings(checkpointing=Checkpointing.BLOCKS))
    one = nn.Linear(PARAMETERS - 1, 1)
    with pytest.raises(Unsupported, match="block"):
        tuned.prepare(one)


def test_a_file_that_does_not_know_the_parameters_says_nothing_of_them(path: Path) -> None:
    content = content_for()
    content["workload"]["parameters"] = None
    load(write(path, content), strict=True).prepare(make_model())


def test_preparing_keeps_the_model_and_the_names_in_its_state(path: Path) -> None:
    settings = Settings(checkpointing=Checkpointing.BLOCKS, memory_format=MemoryFormat.CHANNELS_LAST)
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    prepared = loaded(path, settings).prepare(model)
    assert prepared is model
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_the_data_loader_gets_what_the_settings_say_and_keeps_the_rest(path: Path) -> None:
    own = {"num_workers": 2, "pin_memory": False, "drop_last": True}
    assert loaded(path, Settings()).loader_options(**own) == own
    assert loaded(path, Settings()).loader_options() == {}
    tuned = loaded(path, Settings(loader_workers=0, pin_memory=True))
    assert tuned.loader_options(**own) == {"num_workers": 0, "pin_memory": True, "drop_last": True}
