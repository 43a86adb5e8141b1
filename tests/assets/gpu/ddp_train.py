"""A training of examples/tiny_gpt.py as users write it for torchrun: `ddp_train.py EXAMPLE MICRO_BATCH CAP_BYTES STEPS`.

The allocator may hold CAP_BYTES, so that a card of any size is as small as the one that was searched for.
"""

import os
import runpy
import sys

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

example = runpy.run_path(sys.argv[1])
micro_batch, cap_bytes, steps = map(int, sys.argv[2:])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.cuda.set_per_process_memory_fraction(cap_bytes / torch.cuda.mem_get_info(device)[1], device)
distributed.init_process_group("nccl")
model = DistributedDataParallel(example["make_model"]().to(device), device_ids=[device])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(steps):
    batch = tuple(part.to(device) for part in example["make_batch"](micro_batch))
    optimizer.zero_grad(set_to_none=True)
    value = example["loss"](model, batch)
    value.backward()
    optimizer.step()
torch.cuda.synchronize()
if distributed.get_rank() == 0:
    print(f"trained {steps} steps on {distributed.get_world_size()} ranks, loss {value.item():.3f}")
distributed.destroy_process_group()
