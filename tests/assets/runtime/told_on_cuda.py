"""A guarded training on a CUDA device that takes a step for each line it reads, and prints what the device says of itself."""

import json
import sys

import torch
from torch import nn

import autotune

model = nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held = torch.zeros(1 << 28, device="cuda")  # 1 GiB, so that it shows
with autotune.guard(model, optimizer) as guard:
    for _ in sys.stdin:
        guard.train_step(lambda model, batch: model(batch).square().mean(), [torch.randn(64, 1024, device="cuda")])
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        told = {"step": guard.step, "free": free, "total": total, "uuid": uuid}
        print(json.dumps({**told, "allocated": torch.cuda.memory_allocated()}), flush=True)
