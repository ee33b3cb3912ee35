"""When freed memory goes back to the system: only where less is free than the process held at its peak."""

from pathlib import Path

import pytest

from agents import cgroups, free_memory, heap

GIB = 1 << 30


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 10 GiB free, where this process has held 3 GiB."""
    (tmp_path / "meminfo").write_text(f"MemAvailable: {10 << 20} kB\n")
    (tmp_path / "status").write_text(f"VmPeak:\t{9 << 20} kB\nVmHWM:\t {3 << 20} kB\n")
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(heap, "STATUS", tmp_path / "status")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    return tmp_path


def test_memory_is_scarce_if_less_is_free_than_the_peak(made: Path) -> None:
    assert not heap.is_scarce()
    (made / "meminfo").write_text(f"MemAvailable: {2 << 20} kB\n")
    assert heap.is_scarce()


def test_the_control_group_counts(made: Path) -> None:
    (made / "own").write_text("0::/job\n")
    (made / "cgroup" / "job").mkdir(parents=True)
    for limit, scarce in ((5 * GIB, True), (8 * GIB, False), ("max", False)):
        (made / "cgroup" / "job" / "memory.max").write_text(f"{limit}\n")
        (made / "cgroup" / "job" / "memory.current").write_text(f"{4 * GIB}\n")
        assert heap.is_scarce() == scarce


def test_where_the_system_does_not_say_what_is_free_memory_is_scarce(made: Path) -> None:
    (made / "meminfo").unlink()
    assert heap.is_scarce()
    (made / "status").write_text("nothing")
    assert not heap.is_scarce(), "nor is anything known to be held"
