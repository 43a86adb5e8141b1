"""Settings -> how a step is really run. The probe and the user's training both go through here.

Precision, gradient scaling and accumulation live in this one file, so that what was probed is what is trained. It never
decides anything: settings come in, a prepared step comes out. (The allocator's environment must be set before the device
starts, so it is a fact of the settings themselves: ``Settings.environment``.)
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from autotune.model import Precision, Settings

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


class Applied:
    """One set of settings applied to one device: autocast, backward and optimizer step of the user's training.

    Making it changes process-wide switches (tf32); everything else is per call.
    """

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings = settings
        self.device = device
        scaled = settings.precision is Precision.FP16
        self.scaler = torch.amp.GradScaler(device.type) if scaled else None
        if settings.precision in (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16):
            allow = settings.precision is not Precision.FP32
            torch.backends.cuda.matmul.allow_tf32 = allow
            torch.backends.cudnn.allow_tf32 = allow

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which the forward pass and the loss run."""
        dtype = _AUTOCAST.get(self.settings.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Back-propagate one micro-batch; the loss is divided by the number of accumulated micro-batches."""
        if self.settings.accumulate > 1:
            loss = loss / self.settings.accumulate
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        torch.autograd.backward(scaled)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take the optimizer step; under fp16 the scaler may refuse it. Returns whether it was let through.

        A refused step is told by the scale: it only ever falls when a gradient was not finite (GradScaler.update).
        Counting calls of the optimizer would not do: fused ones are called and skip by themselves.
        """
        if self.scaler is None:
            optimizer.step()
            return True
        before = self.scaler.get_scale()
        self.scaler.step(optimizer)
        self.scaler.update()
        return bool(self.scaler.get_scale() >= before)
