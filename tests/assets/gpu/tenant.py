"""`tenant.py FOLDER SHARE STEP_BYTES`: another process on the device. Holds a share of it and grows whenever it is told to.

A file ``grow-N`` in the folder is the wish, ``grown-N`` the answer; it starts with ``grown-0`` and ends with its parent.
"""

import os
import sys
import time
from pathlib import Path

import torch

folder, share, step_bytes = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
parent = os.getppid()
total = torch.cuda.get_device_properties(0).total_memory
held = [torch.empty(int(share * total), dtype=torch.uint8, device="cuda")]
(folder / "grown-0").touch()
while os.getppid() == parent:
    if (folder / f"grow-{len(held)}").exists():
        held.append(torch.empty(step_bytes, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        (folder / f"grown-{len(held) - 1}").touch()
    time.sleep(0.01)
