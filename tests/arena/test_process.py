"""What `import arena` tells the process."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arena.process import build_child_environment, pause_garbage_collection

SHOW = "import arena, os, json; print(json.dumps(dict(os.environ)))"


def environment_of(**given: str) -> dict[str, str]:
    """The environment of a process that imported arena and nothing else, having begun with this one."""
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "THP_MEM_ALLOC_ENABLE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    begun = {name: value for name, value in os.environ.items() if name not in names} | given
    done = subprocess.run([sys.executable, "-c", SHOW], env=begun, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_threads_that_wait_go_to_sleep_soon() -> None:
    assert environment_of()["GOMP_SPINCOUNT"] == "1000"


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "passive"}, {"GOMP_SPINCOUNT": "7"}])
def test_who_says_how_threads_wait_is_obeyed(own: dict[str, str]) -> None:
    found = environment_of(**own)
    assert {n: found[n] for n in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if n in found} == own


def test_few_shapes_of_products_are_kept_unless_somebody_says_how_many() -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    assert environment_of()[name] == "128" and environment_of(**{name: "7"})[name] == "7"


@pytest.mark.slow
def test_deepspeed_says_on_stdout_nothing_that_a_script_would_read() -> None:
    told = "import arena, logging; from deepspeed.utils import logger; logger.warning('this'); logger.error('that')"
    bare = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    done = subprocess.run([sys.executable, "-c", told], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and "that" in done.stdout


def test_children_find_a_checkout_that_is_only_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
"""64 MB, or some times as much, taken and freed; what the process holds now."""


def printed(code: str) -> int:
    """The number that a process of its own prints."""
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_what_was_freed_and_kept_is_given_back_on_demand_or_when_it_is_much() -> None:
    code = "take(); take(20); kept = mb(); {}(); print(kept - mb())"
    first = "import arena, agents.heap as heap" + TAKE
    assert printed(first + code.format("heap.trim_memory")) >= 370
    assert printed(first + code.format("heap.trim_holes")) >= 1200
    assert printed(first + code.replace("take(20);", "").format("heap.trim_holes")) < 10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_what_an_update_freed_is_given_back_before_play() -> None:
    code = (
        "import asyncio\n"
        "from agents.engines.in_process import InProcessEngine\n"
        "from agents.published import ModuleWeights\n"
        "from agents.weights import load_model, resolve\n"
        "weights = ModuleWeights(load_model(resolve('nano')))\n"
        "take(20); kept = mb(); asyncio.run(InProcessEngine().publish('p', 1, weights)); print(kept - mb())"
    )
    assert printed("import arena" + TAKE + code) >= 1200


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_a_large_buffer_that_was_freed_is_not_faulted_in_again() -> None:
    """Without `import arena` every round costs its pages again."""
    code = (
        "import resource\n"
        "take(); take(); before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(4): take()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    faults = [printed(first + TAKE + code) for first in ("import arena", "pass")]
    assert faults[0] < 100 < faults[1]


def test_nothing_is_collected_while_libraries_load_and_what_they_define_is_passed_over_later() -> None:
    try:
        with pytest.raises(ImportError), pause_garbage_collection():
            assert not gc.isenabled()
            kept: list[object] = []
            raise ImportError
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert all(kept is not one for generation in range(3) for one in gc.get_objects(generation))
    finally:
        gc.unfreeze()
