"""Stand-ins of Lightning and transformers, under their names: as much of them as adapters look at."""

import sys
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

_LIGHTNING = """
from torch import nn

class _Hooks:
    def prepare_data(self): ...
    def setup(self, stage): ...
    def train_dataloader(self): raise NotImplementedError
    def val_dataloader(self): raise NotImplementedError
    def on_before_batch_transfer(self, batch, dataloader_idx): return batch
    def on_after_batch_transfer(self, batch, dataloader_idx): return batch

class LightningModule(_Hooks, nn.Module):
    automatic_optimization = True
    _trainer = None
    def __init__(self):
        super().__init__()
        self.hparams = {}
    @property
    def trainer(self):
        if self._trainer is None:
            raise RuntimeError("not attached to a Trainer")
        return self._trainer
    @trainer.setter
    def trainer(self, trainer): self._trainer = trainer
    @property
    def logger(self): return self.trainer.logger
    def log(self, name, value, **options): raise RuntimeError("no loop is running")
    log_dict = log
    def training_step(self, *args): raise NotImplementedError
    def validation_step(self, *args): raise NotImplementedError
    def configure_optimizers(self): raise NotImplementedError
    def configure_model(self): ...
    def on_fit_start(self): ...
    def on_train_start(self): ...
    def on_train_epoch_start(self): ...
    def on_train_batch_start(self, batch, batch_idx): ...
    def on_validation_start(self): ...
    def on_validation_epoch_start(self): ...
    def on_validation_epoch_end(self): ...
    def on_validation_end(self): ...
    def backward(self, loss): ...
    def optimizer_step(self, *args): ...
    def optimizer_zero_grad(self, *args): ...
    def configure_gradient_clipping(self, *args): ...

class LightningDataModule(_Hooks):
    def __init__(self): self.hparams = {}
"""

_TRAINER = """
import types
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, model, args=None, train_dataset=None, eval_dataset=None, compute_metrics=None, optimizer=None):
        self.model, self.args = model, types.SimpleNamespace(**{**DEFAULTS, **(args or {})})
        self.train_dataset, self.eval_dataset, self.compute_metrics = train_dataset, eval_dataset, compute_metrics
        self.model_init = self.preprocess_logits_for_metrics = None
        self.optimizer, self.data_collator = optimizer, torch.utils.data.default_collate
    def get_train_dataloader(self): return DataLoader(self.train_dataset, 8, collate_fn=self.data_collator)
    def get_eval_dataloader(self, name=None):
        return DataLoader(self.eval_dataset if name is None else self.eval_dataset[name], 8)
    def training_step(self): raise NotImplementedError
    def compute_loss_context_manager(self):
        import contextlib
        return contextlib.nullcontext()
    def get_batch_samples(self, samples, count, device):
        batches = list(samples)
        return batches, len(batches[0]["x"])
    def _prepare_inputs(self, batch): return {k: v.to(self.args._setup_devices) for k, v in batch.items()}
    def create_optimizer(self):
        if self.optimizer is None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.learning_rate)
        return self.optimizer
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        target = inputs.pop("y")
        output = model(inputs["x"])
        loss = ((output - target) ** 2).sum() / num_items_in_batch
        return (loss, output) if return_outputs else loss
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        with torch.no_grad():
            output = model(inputs["x"])
        return output.mean(), None if prediction_loss_only else output, None if prediction_loss_only else inputs["y"]

DEFAULTS = dict(
    bf16=False, fp16=False, tf32=None, torch_compile=False, torch_compile_mode=None, torch_compile_backend=None,
    gradient_accumulation_steps=1, gradient_checkpointing=False, gradient_checkpointing_kwargs=None, optim="sgd",
    weight_decay=0.0, learning_rate=0.1, eval_accumulation_steps=None, prediction_loss_only=False, deepspeed=None, fsdp=None,
)
"""

_OPERATIONS = """
def convert_to_fp32(output): return output.float()
"""


@contextmanager
def _planted(modules: dict[str, str]) -> Iterator[None]:
    tops = {name.partition(".")[0] for name in modules}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in tops}
    try:
        for name, text in modules.items():
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
            exec(compile(text, name, "exec"), sys.modules[name].__dict__)  # noqa: S102 - text of this file
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
            del sys.modules[name]
        sys.modules.update(hidden)


def lightning(package: str = "lightning.pytorch") -> AbstractContextManager[None]:
    """Inside, there is a Lightning of this name."""
    return _planted({f"{package}.core.module": _LIGHTNING, f"{package}.core.datamodule": _LIGHTNING})


def trainer() -> AbstractContextManager[None]:
    """Inside, there is a ``transformers.trainer``, and as much of Accelerate."""
    return _planted({"transformers.trainer": _TRAINER, "accelerate.utils.operations": _OPERATIONS})
