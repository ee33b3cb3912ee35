"""Quotas of control groups, as files of a made-up machine say them; limits of memory are in fits/test_machine.py."""

import os
from pathlib import Path

import pytest

from agents import cgroups
from agents.cgroups import find_processor_quota
from arena.process import count_cores

PERIOD = 100_000


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 cores, 16 of them this process's, without control groups."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return tmp_path


def own(made: Path, *lines: str) -> None:
    (made / "own").write_text("".join(f"{line}\n" for line in lines))


def group(folder: Path, told: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(f"{told}\n")


def group_v1(folder: Path, quota: object, period: object = PERIOD) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text(f"{period}\n")


def test_without_a_quota_the_affinity_counts(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_cores() == 16
    own(made, "0::/a")
    group(made / "cgroup" / "a", f"max {PERIOD}")
    assert count_cores() == 16
    monkeypatch.delattr(os, "sched_getaffinity")
    assert count_cores() == 64


@pytest.mark.parametrize(
    ("quota", "counted"), [(200_000, 2), (350_000, 3), (100_000, 1), (50_000, 1), (1_000, 1), (6_400_000, 16)]
)
def test_a_quota_counts_in_whole_cores_as_ray_counts_it(made: Path, quota: int, counted: int) -> None:
    own(made, "0::/")
    group(made / "cgroup", f"{quota} {PERIOD}")
    assert count_cores() == counted
    (made / "cgroup" / "cpu.max").unlink()
    own(made, "4:cpu,cpuacct:/job")
    group_v1(made / "cgroup" / "cpu" / "job", quota)
    assert count_cores() == counted


def test_the_lowest_quota_of_nested_groups_counts(made: Path) -> None:
    own(made, "0::/a/b/c")
    group(made / "cgroup" / "a" / "b" / "c", f"800000 {PERIOD}")
    group(made / "cgroup" / "a" / "b", "150000 50000")
    group(made / "cgroup" / "a", f"max {PERIOD}")
    assert (find_processor_quota(), count_cores()) == (3.0, 3)
    own(made, "5:cpu:/x/y")
    group_v1(made / "cgroup" / "cpu" / "x" / "y", -1)
    group_v1(made / "cgroup" / "cpu" / "x", 400_000)
    group_v1(made / "cgroup" / "cpu", -1)
    assert count_cores() == 4


def test_a_containers_own_group_lies_at_the_root(made: Path) -> None:
    own(made, "0::/../../host/path")
    group(made / "cgroup", f"200000 {PERIOD}")
    assert count_cores() == 2
    own(made, "7:cpuset:/", "6:cpu,cpuacct:/docker/0123")
    group_v1(made / "cgroup" / "cpu", 300_000)
    assert count_cores() == 3


def test_other_controllers_say_nothing_of_processors(made: Path) -> None:
    own(made, "5:cpuset:/x", "6:memory:/x", "0::/")
    group_v1(made / "cgroup" / "cpu" / "x", 100_000)
    assert count_cores() == 16


@pytest.mark.parametrize(
    "told",
    ["", "max", "0 0", "-5 100000", "100000 0", "1e5 1e5", f"{'9' * 5000} 1", f"{'9' * 400} 1", "a b c", "\0\xff"],
)
def test_nonsense_is_no_quota(made: Path, told: str) -> None:
    own(made, "nonsense", ":::", "0::/", "1:cpu:/")
    group(made / "cgroup", told)
    quota, _, period = told.partition(" ")
    group_v1(made / "cgroup" / "cpu", quota, period or "x")
    assert (find_processor_quota(), count_cores()) == (None, 16)


def test_folders_in_the_place_of_files_are_no_quota(made: Path) -> None:
    own(made, "0::/")
    (made / "cgroup" / "cpu.max").mkdir(parents=True)
    assert count_cores() == 16


def test_no_more_threads_are_tried_than_the_quota_has_cores(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from arena.learn.machine import max_threads

    own(made, "0::/")
    group(made / "cgroup", f"200000 {PERIOD}")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 32)
    assert max_threads() == 2
