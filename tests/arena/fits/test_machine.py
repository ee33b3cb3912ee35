"""Memory and devices of a made-up machine described by files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents import cgroups
from arena.fits import machine

GIB = 1 << 30


@pytest.fixture
def machine_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a machine with 16 GiB, 10 of them free, without control groups."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemFree: 1 kB\nMemAvailable: {10 << 20} kB\n")
    monkeypatch.setattr(cgroups, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    return tmp_path


def write_group(
    folder: Path, limit: object, used: object, names: tuple[str, str] = ("memory.max", "memory.current")
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")


def test_machine_memory_without_a_limit(machine_folder: Path) -> None:
    assert machine.measure_memory() == machine.Device("memory", "cpu", 16 * GIB, 10 * GIB)
    (machine_folder / "own").write_text("0::/a\n")
    write_group(machine_folder / "cgroup" / "a", "max", GIB)
    assert machine.measure_memory().total == 16 * GIB


def test_lowest_limit_of_nested_groups_counts(machine_folder: Path) -> None:
    (machine_folder / "own").write_text("0::/a/b\n")
    write_group(machine_folder / "cgroup" / "a" / "b", 8 * GIB, 1 * GIB)
    write_group(machine_folder / "cgroup" / "a", 4 * GIB, 3 * GIB)
    device = machine.measure_memory()
    assert (device.total, device.free, device.note) == (4 * GIB, GIB, "limit of the control group")


def test_group_with_least_free_memory_counts(machine_folder: Path) -> None:
    (machine_folder / "own").write_text("0::/a/b\n")
    write_group(machine_folder / "cgroup" / "a" / "b", 4 * GIB, 1 * GIB)
    write_group(machine_folder / "cgroup" / "a", 8 * GIB, 7 * GIB)
    assert (machine.measure_memory().total, machine.measure_memory().free) == (4 * GIB, GIB)


@pytest.mark.parametrize(
    ("line", "path", "names"),
    [
        ("0::/a", "a", ("memory.max", "memory.current")),
        ("4:memory:/a", "memory/a", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)
def test_inactive_file_pages_are_free(machine_folder: Path, line: str, path: str, names: tuple[str, str]) -> None:
    (machine_folder / "own").write_text(f"{line}\n")
    write_group(machine_folder / "cgroup" / path, 4 * GIB, 3 * GIB, names)
    total = "" if "max" in names[0] else "total_"
    (machine_folder / "cgroup" / path / "memory.stat").write_text(
        f"cache 5\n{total}inactive_file {GIB}\nactive_file 7\n"
    )
    assert machine.measure_memory().free == 2 * GIB


def test_containers_own_group_is_at_the_root(machine_folder: Path) -> None:
    (machine_folder / "own").write_text("0::/../../host/path\n")
    write_group(machine_folder / "cgroup", 2 * GIB, 0)
    assert machine.measure_memory().total == 2 * GIB


def test_version_1_groups(machine_folder: Path) -> None:
    (machine_folder / "own").write_text("9:cpu:/x\n4:memory:/job\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    write_group(machine_folder / "cgroup" / "memory" / "job", 3 * GIB, 5 * GIB, names)
    write_group(machine_folder / "cgroup" / "memory", 2**63 - 4096, 0, names)
    assert (machine.measure_memory().total, machine.measure_memory().free) == (3 * GIB, 0)


def test_unknown_system(machine_folder: Path) -> None:
    (machine_folder / "meminfo").write_text("MemTotal: much\n")
    (machine_folder / "own").write_text("nonsense\n\0:::\n")
    assert machine.measure_memory() == machine.Device("memory", "cpu", 0, 0)


def test_all_gpus_are_listed_and_the_first_is_used(machine_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def mem_get_info(k: int) -> tuple[int, int]:
        if k == 2:
            raise RuntimeError("out of memory")
        return 5 * GIB, 80 * GIB

    cuda: Any = {
        "device_count": lambda: 3, "mem_get_info": mem_get_info, "get_device_name": lambda k: f"H{k}",
        "get_device_properties": lambda k: SimpleNamespace(total_memory=80 * GIB),
    }  # fmt: skip
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    first, second, full = machine.find_devices()[1:]
    assert first == machine.Device("GPU 0: H0", "cuda", 80 * GIB, 5 * GIB)
    assert second.note.startswith("not used") and (full.total, full.free, full.note) == (80 * GIB, 0, "out of memory")


def test_gpu_visible_only_to_its_driver_is_reported(machine_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    (machine_folder / "gpus" / "0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(machine, "DRIVERS", machine_folder / "gpus")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    (unseen,) = machine.find_devices()[1:]
    assert unseen.kind == "unseen" and "CUDA build" in unseen.note
