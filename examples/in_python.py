"""find_max_batch from a script: functions defined right here, then training in the same process.

python examples/in_python.py
"""

import torch
from torch import nn

from autotune import find_max_batch

WIDTH = 512


def make_model() -> nn.Module:
    """What is trained."""
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, both (batch, 512): a pair with float targets gives the mean squared error."""
    x = torch.randn(batch_size, WIDTH)
    return x, x.roll(1, dims=1)


# No main guard is needed: the functions travel to the probe processes, this script is not run again there.
found = find_max_batch(make_model, make_batch, device="cpu", memory_limit="512MiB", multiple_of=64, max_batch=1024)
print(f"largest safe batch: {found.batch_size} (refuted at {found.refuted_at}, {len(found.evidence.probes)} probes)")

model, batch = make_model(), make_batch(int(found))
torch.autograd.backward(nn.functional.mse_loss(model(batch[0]), batch[1]))
print("one step at that size: done")
