"""Memory of a process by the kernel's word, and by what is left where the kernel does not say."""

import mmap
import resource
import sys
from pathlib import Path

import pytest

from autotune.probe.meter import CpuMeter, _status
from autotune.units import MIB


def test_where_there_is_no_procfs_the_peak_is_that_of_getrusage_in_bytes(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = _status(tmp_path / "gone")["VmHWM"]
    assert before * 1024 <= peak <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(("lines", "peak"), [("", None), ("VmHWM:\t    7 kB\n", 7 * 1024)])
def test_a_sandbox_that_leaves_the_peak_out_has_that_of_getrusage(tmp_path: Path, lines: str, peak: int | None) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nRssAnon:\t  42 kB\n{lines}Threads:\t3\n")
    found = _status(status)
    assert found["RssAnon"] == 42 * 1024
    assert found["VmHWM"] == peak if peak else found["VmHWM"] > 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word is Linux's")
def test_the_peak_counts_what_is_mapped_and_never_touched_since_the_limit_does() -> None:
    meter = CpuMeter()
    meter.begin()
    before = meter.end().allocated_bytes
    untouched = mmap.mmap(-1, 512 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    meter.begin()
    with_it = meter.end().allocated_bytes
    untouched.close()
    meter.begin()
    after = meter.end().allocated_bytes
    assert abs(with_it - before - 512 * MIB) < 32 * MIB
    assert abs(after - before) < 32 * MIB
