"""AutotuneCallback in a real Trainer, Tuner with a real Lightning Trainer, and live objects searched."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from autotune import find_max_batch
from autotune.errors import MemoryWarning, StaleConfig, StaleConfigError, UsageError
from autotune.model import Checkpointing, Precision, Settings
from autotune.runtime.certified import MemoryGuard
from autotune.runtime.readings import Allocator
from autotune.workload.source import INSIDE_VARIABLE
from tests.integration.conftest import Library
from tests.process.support import ROOT
from tests.unit.test_tuned import content_for
from tests.unit.workload_files import process_restored

pytestmark = pytest.mark.integrations

ASSETS = ROOT / "tests" / "assets" / "frameworks"


def asset(library: Library, module: str, name: str, *args: str) -> Any:
    """The file's names, run as a script's."""
    library(module)
    import runpy
    import sys

    with process_restored(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.argv = [name, *args]
        return runpy.run_path(str(ASSETS / name))


@pytest.fixture
def trainer(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a Trainer whose arguments are those of the file, but for what is given."""
    made = asset(library, "transformers", "bert.py")
    transformers = library("transformers")
    monkeypatch.chdir(tmp_path)

    def make(**given: Any) -> Any:
        own = {"per_device_train_batch_size": 24, "gradient_accumulation_steps": 2, "max_steps": 1, **given}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = transformers.TrainingArguments(
                str(tmp_path), use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True, **own
            )
            return transformers.Trainer(made["make_model"](), arguments, train_dataset=made["DATA"])

    return make


def written(path: Path, trainer: Any, settings: Settings) -> str:
    """A recommendation of batch 24 for this very model and machine."""
    content = content_for(settings)
    content["workload"]["parameters"] = sum(p.numel() for p in trainer.model.parameters())
    path.write_text(json.dumps(content))
    return str(path)


def begin(trainer: Any, callback: Any) -> None:
    callback.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)


def callback_for(library: Library, path: str, **options: Any) -> Any:
    library("transformers")
    from autotune.integrations.huggingface import AutotuneCallback

    return AutotuneCallback(path, **options)


def test_a_training_as_recommended_says_nothing(library: Library, trainer: Any, tmp_path: Path) -> None:
    made = trainer()
    made.add_callback(callback_for(library, written(tmp_path / "a.json", made, Settings(accumulate=2)), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", StaleConfig)
        warnings.filterwarnings("ignore", category=FutureWarning)
        assert made.train().global_step == 1


DIFFERENT: dict[str, dict[str, Any]] = {
    "per_device_train_batch_size: 24 in the file, 32 here": {"per_device_train_batch_size": 32},
    "gradient_accumulation_steps: 2 in the file, 1 here": {"gradient_accumulation_steps": 1},
    "bf16: False in the file, True here": {"bf16": True},
    "auto_find_batch_size: False in the file, True here": {"auto_find_batch_size": True},
    "_checkpointing: False in the file, True here": {"gradient_checkpointing": True},
}


@pytest.mark.parametrize("told", DIFFERENT)
def test_arguments_that_differ_are_told_or_raised(library: Library, trainer: Any, tmp_path: Path, told: str) -> None:
    made = trainer(**DIFFERENT[told])
    path = written(tmp_path / "a.json", made, Settings(accumulate=2))
    with pytest.warns(StaleConfig, match=told):
        begin(made, callback_for(library, path))
    with pytest.raises(StaleConfigError, match=told) as raised:
        begin(made, callback_for(library, path, strict=True))
    assert raised.value.hint.startswith("set ")


def test_what_the_file_asks_for_and_the_arguments_leave_out_is_told(
    library: Library, trainer: Any, tmp_path: Path
) -> None:
    made = trainer()
    settings = Settings(accumulate=2, precision=Precision.BF16, checkpointing=Checkpointing.OWN)
    with pytest.warns(StaleConfig) as caught:
        begin(made, callback_for(library, written(tmp_path / "a.json", made, settings)))
    text = str(caught[0].message)
    assert "bf16: True in the file, False here" in text
    assert "_checkpointing: True in the file, False here" in text


def test_devices_that_one_process_spreads_a_batch_over_are_told(library: Library, trainer: Any, tmp_path: Path) -> None:
    """DataParallel: a step sees a batch for each of them."""
    made = trainer()
    made.args._n_gpu = 2
    with pytest.raises(StaleConfigError, match="n_gpu: 1 in the file, 2 here") as raised:
        begin(made, callback_for(library, written(tmp_path / "a.json", made, Settings(accumulate=2)), strict=True))
    assert "CUDA_VISIBLE_DEVICES" in raised.value.hint


def test_an_evaluation_batch_above_its_limit_is_told(library: Library, trainer: Any, tmp_path: Path) -> None:
    made = trainer(per_device_eval_batch_size=16)
    path = written(tmp_path / "a.json", made, Settings(accumulate=2))
    content = json.loads(Path(path).read_text())
    content["evaluation"] = {"max_batch": 12, "refuted_at": 13, "limited_by": "host_memory", "failure": None}
    Path(path).write_text(json.dumps(content))
    with pytest.raises(StaleConfigError, match="per_device_eval_batch_size: at most 12 by the file, 16 here"):
        begin(made, callback_for(library, path, strict=True))


def test_another_model_is_told(library: Library, trainer: Any, tmp_path: Path) -> None:
    made = trainer()
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content_for(Settings(accumulate=2))))
    with pytest.raises(StaleConfigError, match="parameters of the model: "):
        begin(made, callback_for(library, str(path), strict=True))


def test_a_missing_file_is_an_error_at_once(library: Library, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no"):
        callback_for(library, str(tmp_path / "none.json"))


@pytest.mark.parametrize("inside", [True, False])
def test_a_missing_file_may_be_allowed_and_is_not_looked_for_within_a_search(
    library: Library, trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    if inside:
        monkeypatch.setenv(INSIDE_VARIABLE, "1")
    callback = callback_for(library, str(tmp_path / "none.json"), missing_ok=not inside, strict=True)
    begin(trainer(), callback)
    assert callback.document is None and callback.guard is None


def test_the_guard_looks_after_each_optimizer_step(
    library: Library, trainer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(max_steps=2)
    callback = callback_for(library, written(tmp_path / "a.json", made, Settings(accumulate=2)))
    made.add_callback(callback)
    peaks = iter([1, 99, 99])
    monkeypatch.setattr(
        "autotune.integrations.huggingface.read_allocator",
        lambda device: Allocator(allocated_bytes=1, reserved_bytes=1, reserved_peak_bytes=next(peaks), retries=0),
    )
    begin_plain = callback.on_train_begin

    def with_guard(*args: Any, **kwargs: Any) -> None:
        begin_plain(*args, **kwargs)
        callback.guard = MemoryGuard(50, 60, retries=0)

    callback.on_train_begin = with_guard
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made.train()
    told = [str(w.message) for w in caught if w.category is MemoryWarning]
    assert [text.partition(":")[0] for text in told] == ["step 2"]
    assert callback.guard is None


@pytest.mark.usefixtures("certified_in_forks")
def test_a_live_trainer_that_has_trained_is_searched_and_left_as_it_was(trainer: Any, tmp_path: Path) -> None:
    made = trainer(bf16=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.train()
    optimizer, forward = made.optimizer, made.model.forward
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    found = find_max_batch(made, device="cpu", max_batch=2, storage=tmp_path / "ledger.sqlite3")
    assert int(found) == 2
    assert (found.evidence.settings.precision, found.evidence.settings.accumulate) == (Precision.BF16, 2)
    after = made.model.state_dict()
    assert all(bool((after[name] == value).all()) for name, value in before.items())
    assert made.optimizer is optimizer and made.model.forward == forward


def lightning_trainer(library: Library, **given: Any) -> Any:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return library("lightning").Trainer(accelerator="cpu", devices=1, **quiet, **given)


@pytest.mark.usefixtures("certified_in_forks")
def test_tuner_sets_the_size_it_has_certified(library: Library, tmp_path: Path) -> None:
    from autotune.integrations.lightning import Tuner

    model = asset(library, "lightning", "lit.py")["Lit"]()
    trainer = lightning_trainer(library, precision="bf16-mixed", accumulate_grad_batches=3)
    tuner = Tuner(trainer, storage=tmp_path / "ledger.sqlite3")
    size = tuner.scale_batch_size(model, mode="binsearch", max_val=3)
    assert (size, model.hparams.batch_size) == (3, 3)
    assert tuner.evidence is not None and tuner.evidence.batch_size == 3
    settings = tuner.evidence.evidence.settings
    assert (settings.precision, settings.accumulate) == (Precision.BF16, 3)
    assert model._trainer is None


def test_tuner_refuses_what_it_cannot_do(library: Library) -> None:
    from autotune.integrations.lightning import Tuner

    lightning, torch = library("lightning"), library("torch")
    model = asset(library, "lightning", "lit.py")["Lit"]()
    trainer = lightning_trainer(library)
    with pytest.raises(UsageError, match="method 'test' cannot be searched"):
        Tuner(trainer).scale_batch_size(model, method="test")
    with pytest.raises(UsageError, match="the model is a Linear, not a LightningModule"):
        Tuner(trainer).scale_batch_size(torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="neither the model nor its data module has rows"):
        Tuner(trainer).scale_batch_size(model, datamodule=lightning.LightningDataModule(), batch_arg_name="rows")
    with pytest.raises(UsageError, match=r"'64-true'.*cannot be probed"):
        Tuner(lightning_trainer(library, precision="64-true")).scale_batch_size(model)
