"""How a budget comes about, on recorded machines and made-up cgroup trees."""

from pathlib import Path

import pytest

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.model import Machine
from autotune.probe.budget import make_budget
from autotune.probe.host import HostLimit, host_limit, oom_kills
from autotune.units import GIB, MIB


def machine(device: str = "cuda", capacity_bytes: int = 80 * GIB) -> Machine:
    return Machine(
        device=device,
        device_name="a device",
        device_uuid="",
        device_index=0,
        capacity_bytes=capacity_bytes,
        driver_version="",
        torch_version="2.13.0",
        cuda_version="",
        python_version="3.11",
        platform="",
    )


HOST = HostLimit(free_bytes=20 * GIB, total_bytes=24 * GIB, source="available memory")


def test_a_memory_limit_is_taken_exactly() -> None:
    budget = make_budget(machine(), memory_limit_bytes=24 * GIB, others_bytes=GIB, host=HOST)
    assert (budget.limit_bytes, budget.headroom_bytes, budget.source) == (24 * GIB, 0, "--memory-limit")


def test_without_a_limit_others_and_two_percent_are_left_out() -> None:
    budget = make_budget(machine(), memory_limit_bytes=None, others_bytes=10 * GIB, host=HOST)
    assert budget.headroom_bytes == int(0.02 * 80 * GIB)
    assert budget.limit_bytes == 70 * GIB - budget.headroom_bytes


def test_the_headroom_is_at_least_256_mib() -> None:
    budget = make_budget(machine(capacity_bytes=8 * GIB), memory_limit_bytes=None, others_bytes=None, host=HOST)
    assert budget.headroom_bytes == 256 * MIB


def test_on_the_cpu_the_tightest_host_limit_counts() -> None:
    host = HostLimit(free_bytes=GIB, total_bytes=2 * GIB, source="cgroup")
    budget = make_budget(machine("cpu", 24 * GIB), memory_limit_bytes=None, others_bytes=None, host=host)
    assert (budget.limit_bytes, budget.source, budget.capacity_bytes) == (GIB - 256 * MIB, "cgroup", 2 * GIB)


def test_a_limit_beyond_the_device_is_refused_with_both_figures() -> None:
    with pytest.raises(UsageError, match=r"100 GiB is more than a device has \(80 GiB\)"):
        make_budget(machine(), memory_limit_bytes=100 * GIB, others_bytes=None, host=HOST)


def test_what_the_caller_holds_is_taken_off_a_limit_on_the_process_and_off_nothing_else() -> None:
    held = {"others_bytes": None, "host": HOST, "caller_bytes": GIB}
    limited = make_budget(machine("cpu", 24 * GIB), memory_limit_bytes=4 * GIB, **held)  # type: ignore[arg-type]
    assert (limited.limit_bytes, limited.caller_bytes) == (3 * GIB, GIB)
    available = make_budget(machine("cpu", 24 * GIB), memory_limit_bytes=None, **held)  # type: ignore[arg-type]
    assert available.caller_bytes == 0, "available memory has left it out already"
    cuda = make_budget(machine(), memory_limit_bytes=4 * GIB, **held)  # type: ignore[arg-type]
    assert (cuda.limit_bytes, cuda.caller_bytes) == (4 * GIB, 0)


def test_a_limit_beyond_what_others_leave_is_refused_with_their_share() -> None:
    with pytest.raises(EnvironmentTrouble, match="other processes hold 60 GiB of the 80 GiB"):
        make_budget(machine(), memory_limit_bytes=24 * GIB, others_bytes=60 * GIB, host=HOST)


def cgroup_v2(root: Path) -> Path:
    job = root / "user" / "job"
    job.mkdir(parents=True)
    (root / "user" / "memory.max").write_text(f"{2 * GIB}\n")
    (root / "user" / "memory.current").write_text(f"{GIB}\n")
    (root / "user" / "memory.stat").write_text(f"anon 5\ninactive_file {256 * MIB}\n")
    (job / "memory.max").write_text("max\n")
    (job / "memory.events").write_text("oom 4\noom_kill 3\n")
    proc = root / "self"
    proc.write_text("0::/user/job\n")
    return proc


def test_a_cgroup_v2_limit_of_a_parent_counts_less_what_is_used(tmp_path: Path) -> None:
    limit = host_limit(tmp_path, cgroup_v2(tmp_path))
    assert limit == HostLimit(free_bytes=GIB + 256 * MIB, total_bytes=2 * GIB, source="cgroup")


def test_the_oom_kill_counter_of_the_own_cgroup_is_read(tmp_path: Path) -> None:
    assert oom_kills(tmp_path, cgroup_v2(tmp_path)) == 3


def test_a_cgroup_v1_limit_and_counter_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "memory" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{GIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{256 * MIB}\n")
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    proc = tmp_path / "self"
    proc.write_text("5:cpu:/\n4:memory:/job\n0::/\n")
    assert host_limit(tmp_path, proc) == HostLimit(free_bytes=768 * MIB, total_bytes=GIB, source="cgroup")
    assert oom_kills(tmp_path, proc) == 7


def test_without_cgroups_the_available_memory_is_the_limit(tmp_path: Path) -> None:
    assert host_limit(tmp_path, tmp_path / "missing").source in ("available memory", "rlimit")
