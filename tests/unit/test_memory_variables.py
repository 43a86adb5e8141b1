"""Variables that decide how a process gets its memory: part of what a workload is told by, and nothing where none is set."""

from autotune.probe.variables import with_variables
from tests.cli.results import WORKLOAD


def test_a_workload_under_another_heap_is_another_one() -> None:
    plain = with_variables(WORKLOAD, {"PATH": "/bin", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert plain == WORKLOAD
    seen = [with_variables(WORKLOAD, {"MALLOC_ARENA_MAX": value, "HOME": "/"}) for value in ("1", "2", "1")]
    assert seen[0] == seen[2]
    assert len({WORKLOAD.fingerprint, *(one.fingerprint for one in seen)}) == 3
    (name, one), (_, two) = (info.parts[-1] for info in seen[:2])
    assert name == "variable MALLOC_ARENA_MAX" and one != two


def test_what_is_put_in_place_of_the_heap_counts_as_well() -> None:
    info = with_variables(WORKLOAD, {"LD_PRELOAD": "libjemalloc.so", "GLIBC_TUNABLES": "glibc.malloc.arena_max=1"})
    assert [name for name, _ in info.parts[-2:]] == ["variable GLIBC_TUNABLES", "variable LD_PRELOAD"]
