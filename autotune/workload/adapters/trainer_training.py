"""What a Hugging Face Trainer trains, part by part, as its ``train`` prepares it."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from autotune.workload.adapters.kinds import TRAINER
from autotune.workload.adapters.mixed_precision import autocast_inside, keep_autocast_inside
from autotune.workload.adapters.prepared import unwrapped
from autotune.workload.parts import accepts


class Training:
    """One Trainer, and others like it where more than one model is asked for."""

    def __init__(self, trainer: Any, remake: Callable[[], object] | None) -> None:
        """
        Args:
            trainer: made by the user's code.
            remake: makes another one with a model of its own; None = there is only this one.
        """
        self.trainer = trainer
        self._remake = remake
        self._given = unwrapped(trainer.optimizer)
        """The optimizer the user made, which holds the parameters of the one model."""
        self._lazy = self._given is not None and (self._given is not trainer.optimizer or not self._given.state)
        """Whether its state is made in its first step (Adagrad's is made with it)."""
        self._handed_out = False
        self._prepared: list[nn.Module] = []
        trainer.model.to("cpu")
        self.place(torch.device("cpu"))
        trainer.is_in_train = True

    def make_model(self) -> nn.Module:
        """The Trainer's model, and another one each time after that, if there can be any."""
        trainer = self.trainer
        if self._handed_out and trainer.model_init is not None:
            trainer.model = trainer.call_model_init()
        elif self._handed_out and self._remake is not None:
            made: Any = self._remake()
            trainer.model, self._given = made.model, unwrapped(made.optimizer)
        self._handed_out = True
        model: nn.Module = trainer.model
        trainer.model_wrapped = model
        if not any(model is known for known in self._prepared):
            self._prepare(model)
            self._prepared.append(model)
        return model

    def _prepare(self, model: nn.Module) -> None:
        """What ``train`` does to a model before its loop, apart from what are settings of the search."""
        trainer, args = self.trainer, self.trainer.args
        functions = vars(sys.modules[TRAINER[0].rpartition(".")[0]])
        if getattr(args, "use_liger_kernel", False):
            functions["apply_liger_kernel"](model, args.liger_kernel_config)
        if getattr(args, "neftune_noise_alpha", None) is not None:
            functions["activate_neftune"](model, args.neftune_noise_alpha, trainer.accelerator)
        options = dict(_checkpointing(args) or {})
        if options and options != {"use_reentrant": False}:
            switch: Any = getattr(model, "activation_checkpointing_enable", None)
            if switch is not None:
                named = {name: options.pop(name) for name in ("every_n_layers", "offload") if name in options}
                switch(activation_checkpointing_kwargs=options or None, **named)
            else:
                switch = model.gradient_checkpointing_enable
                switch(gradient_checkpointing_kwargs=options)
        keep_autocast_inside(model)

    def make_optimizer(self, params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """As ``create_optimizer`` makes it for the model made last; one that the user made begins anew."""
        trainer = self.trainer
        trainer.optimizer = self._given
        if self._lazy:
            self._given.state.clear()
        optimizer: torch.optim.Optimizer = trainer.create_optimizer()
        return optimizer

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The loss of one micro-batch by ``compute_loss``, which may take labels out of its copy of the batch."""
        trainer, device = self.trainer, next(model.parameters()).device
        self.place(device)
        inputs = trainer._prepare_inputs(batch)
        items = self._num_items(inputs, device)
        with autocast_inside(model, device), trainer.compute_loss_context_manager():
            loss: torch.Tensor = trainer.compute_loss(model, inputs, num_items_in_batch=items)
        return loss

    def _num_items(self, inputs: Any, device: torch.device) -> Any:
        """Targets in the batch, where the model or loss divides by them; releases differ in what they take."""
        take = self.trainer.get_batch_samples
        samples = iter([inputs])
        return (take(samples, 1, device) if accepts(take, samples, 1, device) else take(samples, 1))[1]

    def place(self, device: torch.device) -> None:
        """Have the arguments name the device that the model is on, which a search chooses."""
        arguments = self.trainer.args
        if vars(arguments).get("_setup_devices") != device:
            arguments.__dict__["_setup_devices"] = device  # where functools.cached_property keeps it
            arguments._n_gpu = 1 if device.type == "cuda" else 0


def _checkpointing(args: Any) -> Any:
    """Options of activation checkpointing, if it is on; both have two names."""
    if not (getattr(args, "activation_checkpointing", False) or getattr(args, "gradient_checkpointing", False)):
        return None
    options = getattr(args, "activation_checkpointing_kwargs", None)
    return options or getattr(args, "gradient_checkpointing_kwargs", None)
