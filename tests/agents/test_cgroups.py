"""Processor quotas of control groups from files of a simulated machine; fits/test_machine.py tests memory limits."""

import os
from pathlib import Path

import pytest

from agents import cgroups
from agents.cgroups import find_processor_quota
from arena.process import count_cores

PERIOD = 100_000


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine of 64 cores, 16 of them this process's, without control groups."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return tmp_path


def write_own_cgroups(path: Path, *lines: str) -> None:
    (path / "own").write_text("".join(f"{line}\n" for line in lines))


def write_cgroup(folder: Path, quota: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(f"{quota}\n")


def write_cgroup_v1(folder: Path, quota: object, period: object = PERIOD) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text(f"{period}\n")


def test_without_a_quota_the_affinity_counts(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_cores() == 16
    write_own_cgroups(machine, "0::/a")
    write_cgroup(machine / "cgroup" / "a", f"max {PERIOD}")
    assert count_cores() == 16
    monkeypatch.delattr(os, "sched_getaffinity")
    assert count_cores() == 64


@pytest.mark.parametrize(
    ("quota", "counted"), [(200_000, 2), (350_000, 3), (100_000, 1), (50_000, 1), (1_000, 1), (6_400_000, 16)]
)
def test_quota_is_rounded_to_whole_cores_as_by_ray(machine: Path, quota: int, counted: int) -> None:
    write_own_cgroups(machine, "0::/")
    write_cgroup(machine / "cgroup", f"{quota} {PERIOD}")
    assert count_cores() == counted
    (machine / "cgroup" / "cpu.max").unlink()
    write_own_cgroups(machine, "4:cpu,cpuacct:/job")
    write_cgroup_v1(machine / "cgroup" / "cpu" / "job", quota)
    assert count_cores() == counted


def test_the_lowest_quota_of_nested_groups_counts(machine: Path) -> None:
    write_own_cgroups(machine, "0::/a/b/c")
    write_cgroup(machine / "cgroup" / "a" / "b" / "c", f"800000 {PERIOD}")
    write_cgroup(machine / "cgroup" / "a" / "b", "150000 50000")
    write_cgroup(machine / "cgroup" / "a", f"max {PERIOD}")
    assert (find_processor_quota(), count_cores()) == (3.0, 3)
    write_own_cgroups(machine, "5:cpu:/x/y")
    write_cgroup_v1(machine / "cgroup" / "cpu" / "x" / "y", -1)
    write_cgroup_v1(machine / "cgroup" / "cpu" / "x", 400_000)
    write_cgroup_v1(machine / "cgroup" / "cpu", -1)
    assert count_cores() == 4


def test_container_reads_its_group_at_the_root(machine: Path) -> None:
    write_own_cgroups(machine, "0::/../../host/path")
    write_cgroup(machine / "cgroup", f"200000 {PERIOD}")
    assert count_cores() == 2
    write_own_cgroups(machine, "7:cpuset:/", "6:cpu,cpuacct:/docker/0123")
    write_cgroup_v1(machine / "cgroup" / "cpu", 300_000)
    assert count_cores() == 3


def test_ignores_other_controllers(machine: Path) -> None:
    write_own_cgroups(machine, "5:cpuset:/x", "6:memory:/x", "0::/")
    write_cgroup_v1(machine / "cgroup" / "cpu" / "x", 100_000)
    assert count_cores() == 16


@pytest.mark.parametrize(
    "text",
    ["", "max", "0 0", "-5 100000", "100000 0", "1e5 1e5", f"{'9' * 5000} 1", f"{'9' * 400} 1", "a b c", "\0\xff"],
)
def test_ignores_malformed_quota(machine: Path, text: str) -> None:
    write_own_cgroups(machine, "nonsense", ":::", "0::/", "1:cpu:/")
    write_cgroup(machine / "cgroup", text)
    quota, _, period = text.partition(" ")
    write_cgroup_v1(machine / "cgroup" / "cpu", quota, period or "x")
    assert (find_processor_quota(), count_cores()) == (None, 16)


def test_ignores_folders_in_place_of_quota_files(machine: Path) -> None:
    write_own_cgroups(machine, "0::/")
    (machine / "cgroup" / "cpu.max").mkdir(parents=True)
    assert count_cores() == 16


def test_thread_candidates_are_limited_by_the_quota(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from arena.learn.machine import max_threads

    write_own_cgroups(machine, "0::/")
    write_cgroup(machine / "cgroup", f"200000 {PERIOD}")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 32)
    assert max_threads() == 2
