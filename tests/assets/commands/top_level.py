"""A training script that cannot be imported: all of it is at the top level. It is told its batch by a variable."""

import os

import torch
from torch import nn

WIDTH = 1 << 16
"""Of the activations, 256 KiB a sample each."""

batch = int(os.environ["TRAIN_BATCH"])
steps = int(os.environ.get("TRAIN_STEPS", "100"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Sigmoid(), nn.Tanh(), nn.Linear(WIDTH, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(steps):
    loss = model(torch.randn(batch, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("trained")
