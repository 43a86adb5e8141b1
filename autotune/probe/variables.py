"""Variables of the environment that decide how a process gets its memory: under others a workload is another one. No torch."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.model import WorkloadInfo, digest, short_digest

_OF_MEMORY = ("MALLOC_", "TCMALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""How they begin: of glibc, jemalloc and tcmalloc, and what puts these in its place. PyTorch's own allocator is a setting."""


def with_variables(info: WorkloadInfo, environment: Mapping[str, str]) -> WorkloadInfo:
    """The same with those that are set among what it is told by; without any, as it is."""
    found = {name: value for name, value in sorted(environment.items()) if name.startswith(_OF_MEMORY)}
    if not found:
        return info
    parts = tuple((f"variable {name}", short_digest(value)) for name, value in found.items())
    return replace(info, fingerprint=digest([info.fingerprint, found]), parts=(*info.parts, *parts))
