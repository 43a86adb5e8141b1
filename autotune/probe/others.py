"""What other processes hold of the device, told from within one that has started it, where NVML says nothing of them."""

from dataclasses import replace

import torch

from autotune.model import Machine, WorkloadInfo
from autotune.probe import nvml
from autotune.probe.host import available_bytes


def with_others(info: WorkloadInfo, machine: Machine) -> WorkloadInfo:
    """The same with ``device_used_bytes`` and a note of where that figure comes from; unchanged where NVML tells it.

    What PyTorch's allocator holds here is left out; this process's context counts as others', the safe way round.
    """
    if machine.device != "cuda":
        return info
    if machine.unified:
        note = (
            "the device's memory is the host's: the budget is what the host has left, and whatever others take meanwhile "
            "counts as this job's"
        )
    elif why := nvml.trouble(machine.device_uuid, machine.capacity_bytes):
        note = f"NVML does not tell ({why}): what others hold is what PyTorch saw in use, and all changes count as this job's"
    else:
        return info
    free, total = torch.cuda.mem_get_info(machine.device_index)
    if machine.unified:
        free = available_bytes()
    used = max(0, total - free - torch.cuda.memory_reserved(machine.device_index))
    return replace(info, device_used_bytes=used, notes=(*info.notes, note))
