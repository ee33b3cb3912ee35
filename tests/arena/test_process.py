"""What `import arena` tells the process, and the number of threads that a run begins with."""

import json
import os
import subprocess
import sys

import pytest
import torch

from arena.config.layers import compose, recipe_layer, set_layer
from arena.learn.machine import fitted, precision_of, threads_of, try_precisions, try_threads
from arena.preflight import preflight

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


TAKE = """
import ctypes
libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; libc.free.argtypes = [ctypes.c_void_p]
def take():
    at = libc.malloc(ctypes.c_size_t(1 << 26)); ctypes.memset(at, 1, 1 << 26); libc.free(at)
"""
"""64 MB, taken and freed."""


def printed(code: str) -> int:
    """The number that a process of its own prints."""
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_what_was_freed_and_kept_can_be_given_back() -> None:
    code = (
        "import pathlib\n"
        "def mb():\n    return int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * 4096 >> 20\n"
        "take(); kept = mb(); process.give_back(); print(kept - mb())"
    )
    assert printed("import arena.process as process" + TAKE + code) >= 60


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


def test_fewer_threads_are_taken_only_where_they_are_clearly_faster() -> None:
    assert threads_of({1: 1.0, 2: 0.6, 4: 0.5}) == 4
    assert threads_of({1: 1.0, 2: 0.48, 4: 0.5}) == 4, "noise does not decide"
    assert threads_of({1: 1.0, 2: 0.3, 4: 0.5}) == 2
    assert threads_of({1: 0.3, 2: 0.3, 4: 0.9}) == 2
    assert threads_of({1: 1.0}) == 1


def test_a_trial_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    tried = try_threads(rounds=1)
    assert torch.get_num_threads() == before and max(tried) == before and min(tried) == 1
    assert all(seconds > 0 for seconds in tried.values())


def test_bfloat16_is_taken_only_where_it_is_clearly_faster() -> None:
    exact, half = torch.float32, torch.bfloat16
    assert precision_of({exact: 1.0, half: 0.95}) == "fp32", "noise does not decide"
    assert precision_of({exact: 1.0, half: 0.5}) == "bf16"
    assert precision_of({exact: 1.0, half: 5.0}) == "fp32"


def test_a_trial_of_precisions_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    tried = try_precisions(threads=1, rounds=1)
    assert torch.get_num_threads() == before
    assert set(tried) == {torch.float32, torch.bfloat16} and all(seconds > 0 for seconds in tried.values())


@pytest.mark.parametrize(("asked", "noted"), [("auto", ["fp32", "bf16"]), ("bf16", ["bf16"]), ("fp32", ["fp32"])])
def test_a_run_notes_the_precision_it_begins_with(asked: str, noted: list[str]) -> None:
    given = compose([recipe_layer("negotiation-nano"), set_layer(f"precision={asked}"), set_layer("threads=1")])
    begun = preflight(given, lambda what: None).experiment
    assert begun.precision in noted
    assert fitted(begun) == begun, "what is noted is not tried again"


@pytest.mark.parametrize(
    ("asked", "noted"), [("auto", range(1, 1 + (os.cpu_count() or 1))), ("3", [3]), ("null", [None])]
)
def test_a_run_notes_the_number_of_threads_it_begins_with(asked: str, noted: list[int | None]) -> None:
    """So that a run that is resumed computes as it began, whatever a new trial would say."""
    given = compose([recipe_layer("negotiation-nano"), set_layer(f"threads={asked}")])
    assert preflight(given, lambda what: None).experiment.threads in noted
