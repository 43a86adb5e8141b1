"""How a budget comes about, on recorded machines and made-up cgroup trees."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.model import Machine
from autotune.probe.budget import make_budget
from autotune.probe.host import HostLimit, host_limit, oom_kills, oom_kills_since
from autotune.units import GIB, MIB
from tests.fakes import MACHINE


def machine(device: str = "cuda", capacity_bytes: int = 80 * GIB) -> Machine:
    return replace(MACHINE, device=device, device_name="a device", capacity_bytes=capacity_bytes)


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
    assert limit == HostLimit(
        free_bytes=GIB + 256 * MIB, total_bytes=2 * GIB, source="cgroup", shared_by=str(tmp_path / "user")
    )


def test_what_slows_a_cgroup_down_bounds_it_as_well_as_what_kills_in_it(tmp_path: Path) -> None:
    proc = cgroup_v2(tmp_path)
    (tmp_path / "user" / "memory.high").write_text(f"{GIB + 512 * MIB}\n")
    assert host_limit(tmp_path, proc).free_bytes == 768 * MIB
    (tmp_path / "user" / "memory.high").write_text("max\n")
    assert host_limit(tmp_path, proc).free_bytes == GIB + 256 * MIB


def test_the_tightest_of_nested_cgroups_counts_the_own_one_included(tmp_path: Path) -> None:
    proc = cgroup_v2(tmp_path)
    job = tmp_path / "user" / "job"
    (job / "memory.max").write_text(f"{GIB}\n")
    (job / "memory.current").write_text(f"{512 * MIB}\n")
    limit = host_limit(tmp_path, proc)
    assert (limit.free_bytes, limit.shared_by) == (512 * MIB, str(job))


@pytest.mark.parametrize("path", ["/", "/../other", "/docker/0123abcd"])
def test_in_a_container_the_root_is_the_own_cgroup_whatever_path_the_kernel_tells(tmp_path: Path, path: str) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "memory.max").write_text(f"{GIB}\n")
    (root / "memory.current").write_text(f"{256 * MIB}\n")
    proc = tmp_path / "self"
    proc.write_text(f"0::{path}\n")
    limit = host_limit(root, proc)
    assert (limit.free_bytes, limit.total_bytes, limit.source) == (768 * MIB, GIB, "cgroup")


def test_what_files_of_nested_cgroups_of_version_1_hold_can_be_had(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    (folder / "job").mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{GIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{768 * MIB}\n")
    (folder / "memory.stat").write_text(f"inactive_file 0\ntotal_inactive_file {256 * MIB}\n")
    proc = tmp_path / "self"
    proc.write_text("4:cpu,memory:/job\n")
    assert host_limit(tmp_path, proc).free_bytes == 512 * MIB


def test_files_cannot_make_more_free_than_the_limit_is(tmp_path: Path) -> None:
    proc = cgroup_v2(tmp_path)
    (tmp_path / "user" / "memory.stat").write_text(f"inactive_file {9 * GIB}\n")
    assert host_limit(tmp_path, proc).free_bytes == 2 * GIB


UNIFIED = replace(machine(capacity_bytes=128 * GIB), unified=True)


def test_where_device_and_host_share_their_memory_the_smaller_of_both_counts_once() -> None:
    host = HostLimit(free_bytes=100 * GIB, total_bytes=120 * GIB, source="available memory")
    budget = make_budget(UNIFIED, memory_limit_bytes=None, others_bytes=5 * GIB, host=host)
    headroom = int(0.02 * 120 * GIB)
    assert (budget.capacity_bytes, budget.others_bytes, budget.headroom_bytes) == (120 * GIB, 20 * GIB, headroom)
    assert (budget.limit_bytes, budget.source) == (100 * GIB - headroom, "device and available memory")
    taken = make_budget(UNIFIED, memory_limit_bytes=None, others_bytes=60 * GIB, host=host)
    assert taken.limit_bytes == 60 * GIB - headroom


def test_a_limit_beyond_what_the_host_has_left_is_refused_where_the_device_has_no_memory_of_its_own() -> None:
    with pytest.raises(EnvironmentTrouble, match=r"other processes hold 108 GiB of the 128 GiB"):
        make_budget(UNIFIED, memory_limit_bytes=24 * GIB, others_bytes=None, host=replace(HOST, total_bytes=200 * GIB))


def test_of_what_kind_the_memory_is_makes_no_other_machine() -> None:
    assert UNIFIED.fingerprint == replace(UNIFIED, unified=False).fingerprint


def test_the_oom_kill_counter_of_the_own_cgroup_is_read(tmp_path: Path) -> None:
    assert oom_kills(tmp_path, cgroup_v2(tmp_path))[1] == 3


def test_a_cgroup_v1_limit_and_counter_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "memory" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(f"{GIB}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{256 * MIB}\n")
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    proc = tmp_path / "self"
    proc.write_text("5:cpu:/\n4:memory:/job\n0::/\n")
    assert host_limit(tmp_path, proc) == HostLimit(
        free_bytes=768 * MIB, total_bytes=GIB, source="cgroup", shared_by=str(folder)
    )
    assert oom_kills(tmp_path, proc) == (folder / "memory.oom_control", 7)


@pytest.mark.parametrize(("there", "count", "kills"), [("a", 5, 2), ("a", 1, 0), ("b", 1, 0), ("b", 9, 0)])
def test_a_move_to_another_cgroup_is_no_kill(tmp_path: Path, there: str, count: int, kills: int) -> None:
    proc = tmp_path / "self"

    def seen(name: str, count: int) -> tuple[Path, int]:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "memory.events.local").write_text(f"oom 0\noom_kill {count}\n")
        proc.write_text(f"0::/{name}\n")
        return oom_kills(tmp_path, proc)

    assert oom_kills_since(seen("a", 3), seen(there, count)) == kills


def test_without_cgroups_the_available_memory_is_the_limit(tmp_path: Path) -> None:
    assert host_limit(tmp_path, tmp_path / "missing").source in ("available memory", "rlimit")
