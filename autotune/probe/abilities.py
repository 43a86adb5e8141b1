"""What the device and this installation can do, as far as settings depend on it. Asked in a process that may use the device.

Nothing is run on the device, and nothing of the compiler is imported: this is done before every search, and a probe finds
out what was not foreseen.
"""

import importlib.util
import math
import os
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import torch

from autotune.model import Attention, Machine, Traits

_TRITON_NEEDS = (7, 0)
"""Compute capability under which Inductor refuses a device (torch._inductor.scheduler, GPUTooOldForTriton)."""

_BF16_UNITS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
"""Names in ``torch.cpu.get_capabilities()`` of instructions that multiply in bf16: two of x86, two of ARM."""
_BF16_OF_X86 = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
"""Questions of ``torch.cpu`` that tell the same of x86 where PyTorch is too old for these names."""


def with_abilities(traits: Traits, machine: Machine) -> Traits:
    """The traits with what the device and the installation add to those of the workload."""
    if machine.device == "cuda":
        return _cuda(traits, machine.device_index)
    return replace(
        traits,
        tf32_trouble="tf32 is of NVIDIA devices",
        slow_bf16="this CPU calculates bf16 slowly" if _cpu_has_bf16() is False else "",
        compile_trouble=_cpu_compile_trouble(),
        attention_backends=(str(Attention.MATH), str(Attention.FLASH)),
        cpu_cores=cores(),
    )


def _cuda(traits: Traits, index: int) -> Traits:
    capability = torch.cuda.get_device_capability(index)
    name = torch.cuda.get_device_name(index)
    amd = bool(torch.version.hip)
    with torch.cuda.device(index):
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        tf32 = _has_tf32(amd, capability)
    return replace(
        traits,
        tf32_trouble="" if tf32 else f"{name} has no tf32",
        bf16_trouble="" if bf16 else f"{name} has no bf16 and would emulate it",
        fp16_trouble="" if capability >= (5, 3) else f"{name} does not calculate in fp16",
        compile_trouble=_cuda_compile_trouble(name, capability),
        attention_backends=_attention_backends(amd, capability),
        cpu_cores=cores(),
    )


def _has_tf32(amd: bool, capability: tuple[int, int]) -> bool:
    """NVIDIA's from Ampere on, and those of AMD's that a newer PyTorch knows of."""
    known = getattr(torch.cuda, "is_tf32_supported", None)
    if known is not None:
        return bool(known())
    return not amd and capability >= (8, 0)


def _attention_backends(amd: bool, capability: tuple[int, int]) -> tuple[str, ...]:
    """Those that take inputs of some kind; what they do not take shows in a probe."""
    found = [Attention.MATH, Attention.EFFICIENT]
    if torch.backends.cuda.is_flash_attention_available() and capability >= (8, 0):
        found.append(Attention.FLASH)
    if torch.backends.cudnn.is_available() and not amd and capability >= (8, 0):  # type: ignore[no-untyped-call]
        found.append(Attention.CUDNN)
    return tuple(str(kind) for kind in Attention if kind in found)


def _cuda_compile_trouble(name: str, capability: tuple[int, int]) -> str:
    """Triton's kernels for the device, and a C compiler for what starts them (triton/runtime/build.py)."""
    if importlib.util.find_spec("triton") is None:
        return "torch.compile needs Triton, which is not installed"
    if capability < _TRITON_NEEDS:
        return f"torch.compile needs compute capability 7.0, and {name} has {capability[0]}.{capability[1]}"
    if not _is_command(os.environ.get("CC", "")) and not any(map(shutil.which, ("gcc", "clang", "cc"))):
        return "torch.compile needs a C compiler, and there is neither gcc nor clang on PATH nor one in CC"
    return ""


def _cpu_has_bf16() -> bool | None:
    """Whether the CPU has instructions that multiply in bf16; None where this PyTorch cannot tell.

    Without them a step in bf16 takes a multiple of its time. What oneDNN says is no answer on x86: it takes bf16 on any CPU
    with AVX-512, and then calculates it in fp32.
    """
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if capabilities is not None:
        known = capabilities()
        told = [bool(known[name]) for name in _BF16_UNITS if name in known]
        return any(told) if told else None
    if platform.machine().lower() in ("x86_64", "amd64"):
        asked = [getattr(torch.cpu, name, None) for name in _BF16_OF_X86]
        told = [bool(ask()) for ask in asked if ask is not None]
        return True if any(told) else False if len(told) == len(asked) else None
    ask = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return None if ask is None else bool(ask())


def _cpu_compile_trouble() -> str:
    """A C++ compiler: CXX, or the one that Inductor takes by default (torch._inductor.config.cpp.cxx)."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    own = os.environ.get("CXX", "")
    if _is_command(own or usual):
        return ""
    return f"torch.compile needs a C++ compiler, and {f'CXX={own}' if own else usual} is not on PATH"


def _is_command(line: str) -> bool:
    """Whether a command, or the first word of a line with arguments, is found."""
    return any(shutil.which(name) is not None for name in (line, *line.split()[:1]) if name)


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Processor cores that this process may use, at least one: by its affinity, and by its container's share of time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
    except (OSError, ValueError):  # no such cgroup here, or written in a way that this file never was
        return allowed
    return allowed if share == "max" else max(1, min(allowed, math.ceil(int(share) / int(period))))
