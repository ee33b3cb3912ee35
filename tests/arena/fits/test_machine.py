"""Memory and devices, as files of a made-up machine say them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents import cgroups
from arena.fits import machine

GIB = 1 << 30


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 GiB, 10 of them free, without control groups."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemFree: 1 kB\nMemAvailable: {10 << 20} kB\n")
    monkeypatch.setattr(cgroups, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    return tmp_path


def group(folder: Path, limit: object, used: object, names: tuple[str, str] = ("memory.max", "memory.current")) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")


def test_without_a_limit_the_machine_counts(made: Path) -> None:
    assert machine.measure_memory() == machine.Device("memory", "cpu", 16 * GIB, 10 * GIB)
    (made / "own").write_text("0::/a\n")
    group(made / "cgroup" / "a", "max", GIB)
    assert machine.measure_memory().total == 16 * GIB


def test_the_lowest_limit_of_a_group_and_those_around_it_counts(made: Path) -> None:
    (made / "own").write_text("0::/a/b\n")
    group(made / "cgroup" / "a" / "b", 8 * GIB, 1 * GIB)
    group(made / "cgroup" / "a", 4 * GIB, 3 * GIB)
    found = machine.measure_memory()
    assert (found.total, found.free, found.note) == (4 * GIB, GIB, "limit of the control group")


def test_the_group_with_the_least_left_says_what_is_free(made: Path) -> None:
    (made / "own").write_text("0::/a/b\n")
    group(made / "cgroup" / "a" / "b", 4 * GIB, 1 * GIB)
    group(made / "cgroup" / "a", 8 * GIB, 7 * GIB)
    assert (machine.measure_memory().total, machine.measure_memory().free) == (4 * GIB, GIB)


@pytest.mark.parametrize(
    ("line", "place", "names"),
    [
        ("0::/a", "a", ("memory.max", "memory.current")),
        ("4:memory:/a", "memory/a", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)
def test_pages_of_files_that_lie_idle_are_free(made: Path, line: str, place: str, names: tuple[str, str]) -> None:
    (made / "own").write_text(f"{line}\n")
    group(made / "cgroup" / place, 4 * GIB, 3 * GIB, names)
    total = "" if "max" in names[0] else "total_"
    (made / "cgroup" / place / "memory.stat").write_text(f"cache 5\n{total}inactive_file {GIB}\nactive_file 7\n")
    assert machine.measure_memory().free == 2 * GIB


def test_a_containers_own_group_lies_at_the_root(made: Path) -> None:
    (made / "own").write_text("0::/../../host/path\n")
    group(made / "cgroup", 2 * GIB, 0)
    assert machine.measure_memory().total == 2 * GIB


def test_groups_of_version_1(made: Path) -> None:
    (made / "own").write_text("9:cpu:/x\n4:memory:/job\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    group(made / "cgroup" / "memory" / "job", 3 * GIB, 5 * GIB, names)
    group(made / "cgroup" / "memory", 2**63 - 4096, 0, names)
    assert (machine.measure_memory().total, machine.measure_memory().free) == (3 * GIB, 0)


def test_a_system_that_says_nothing(made: Path) -> None:
    (made / "meminfo").write_text("MemTotal: much\n")
    (made / "own").write_text("nonsense\n\0:::\n")
    assert machine.measure_memory() == machine.Device("memory", "cpu", 0, 0)


def test_every_gpu_is_listed_and_the_first_is_used(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def asked(k: int) -> tuple[int, int]:
        if k == 2:
            raise RuntimeError("out of memory")
        return 5 * GIB, 80 * GIB

    cuda: Any = {
        "device_count": lambda: 3, "mem_get_info": asked, "get_device_name": lambda k: f"H{k}",
        "get_device_properties": lambda k: SimpleNamespace(total_memory=80 * GIB),
    }  # fmt: skip
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    first, second, full = machine.find_devices()[1:]
    assert first == machine.Device("GPU 0: H0", "cuda", 80 * GIB, 5 * GIB)
    assert second.note.startswith("not used") and (full.total, full.free, full.note) == (80 * GIB, 0, "out of memory")


def test_a_gpu_that_only_its_driver_sees_is_named(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    (made / "gpus" / "0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(machine, "DRIVERS", made / "gpus")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    (unseen,) = machine.find_devices()[1:]
    assert unseen.kind == "unseen" and "CUDA build" in unseen.note
