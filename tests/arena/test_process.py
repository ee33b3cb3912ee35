"""Settings of the process that `import arena` makes."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.process import build_child_environment, pause_garbage_collection

SHOW = "import arena, os, json; print(json.dumps(dict(os.environ)))"


def read_environment(**variables: str) -> dict[str, str]:
    """Return the environment of a process that started with these variables and imported arena."""
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "THP_MEM_ALLOC_ENABLE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names} | variables
    result = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(result.stdout))


def test_waiting_threads_sleep_soon() -> None:
    assert read_environment()["GOMP_SPINCOUNT"] == "1000"


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "7"}])
def test_own_thread_settings_are_kept(own: dict[str, str]) -> None:
    found = read_environment(**own)
    assert {n: found[n] for n in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if n in found} == own


def test_primitive_cache_is_small_by_default() -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    assert read_environment()[name] == "128" and read_environment(**{name: "7"})[name] == "7"


@pytest.mark.slow
def test_deepspeed_warnings_stay_off_stdout() -> None:
    script = "import arena, logging; from deepspeed.utils import logger; logger.warning('this'); logger.error('that')"
    environment = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.count("\n") == 1 and "that" in result.stdout


def test_children_find_a_checkout_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "theirs")
    monkeypatch.chdir(tmp_path)
    assert build_child_environment()["PYTHONPATH"] == "theirs"
    monkeypatch.chdir(Path(__file__).parents[2])
    assert build_child_environment()["PYTHONPATH"] == f"{Path.cwd()}{os.pathsep}theirs"


TAKE = """
import ctypes, pathlib
libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; libc.free.argtypes = [ctypes.c_void_p]
def take(times=1):
    at = libc.malloc(ctypes.c_size_t(times << 26)); ctypes.memset(at, 1, times << 26); libc.free(at)
def mb():
    return int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * 4096 >> 20
"""
"""Code that takes and frees a multiple of 64 MB (`take`) and measures the process's memory (`mb`)."""


def run_and_parse(code: str) -> int:
    """Return the number that a process of its own prints."""
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_is_returned_on_demand_or_if_large() -> None:
    code = "take(); take(20); kept = mb(); {}(); print(kept - mb())"
    first = "import arena, agents.heap as heap" + TAKE
    assert run_and_parse(first + code.format("heap.trim_memory")) >= 370
    assert run_and_parse(first + code.format("heap.trim_holes")) >= 1200
    assert run_and_parse(first + code.replace("take(20);", "").format("heap.trim_holes")) < 10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_memory_freed_by_an_update_is_returned_before_play() -> None:
    code = (
        "import asyncio\n"
        "from agents.engines.in_process import InProcessEngine\n"
        "from agents.published import ModuleWeights\n"
        "from agents.model_folder import load_model\n"
        "from agents.weights import resolve\n"
        "weights = ModuleWeights(load_model(resolve('nano')))\n"
        "take(20); kept = mb(); asyncio.run(InProcessEngine().publish('p', 1, weights)); print(kept - mb())"
    )
    assert run_and_parse("import arena" + TAKE + code) >= 1200


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_large_buffer_causes_no_new_page_faults() -> None:
    """Without `import arena` every round faults its pages in again."""
    code = (
        "import resource\n"
        "take(); take(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(4): take()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    faults = [run_and_parse(first + TAKE + code) for first in ("import arena", "pass")]
    assert faults[0] < 100 < faults[1]


def test_garbage_collection_pauses_during_imports_and_skips_them_later() -> None:
    try:
        with pytest.raises(ImportError), pause_garbage_collection():
            assert not gc.isenabled()
            local: list[object] = []
            raise ImportError
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert all(local is not tracked for generation in range(3) for tracked in gc.get_objects(generation))
    finally:
        gc.unfreeze()
