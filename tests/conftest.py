"""Shared fixtures and settings: the process as `import arena` prepares it, without time limits for slow machines."""

import fcntl
import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

import arena  # noqa: F401  before torch loads
from agents import strict_yaml
from tests.factories.commands import TINY
from tests.factories.commands import arena as arena_command
from tests.factories.thorough import count_cases

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=count_cases(50, 200),
    # `explain` traces a failing test, and CPython 3.11.2 can loop forever in a traced function.
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in the background of a shell; tests of Ctrl-C need the handler
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before deselection
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all cases but the first n of a test marked `slow_after(n)`, and property tests as thorough."""
    counts: Counter[tuple[Path, str]] = Counter()
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("thorough")
        mark = item.get_closest_marker("slow_after")
        if mark and item.get_closest_marker("slow") is None and isinstance(item, pytest.Function):
            counts[item.path, item.originalname] += 1
            if counts[item.path, item.originalname] > mark.args[0]:
                item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Collect garbage less often and never among loaded modules: it took 8 % of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def fsync_disabled() -> Iterator[None]:
    """Disable fsync, which only matters for power loss; a killed process loses nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def parser_cache() -> Iterator[None]:
    """Build the command parser once instead of per command, which took most of the time of a refusal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def yaml_cache() -> Iterator[None]:
    """Parse each YAML text once; commands read all roles and recipes again, in pure Python."""
    cached_load = lru_cache(1000)(strict_yaml.load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_yaml, "load", lambda text, source: deepcopy(cached_load(text, source)))
        yield


@pytest.fixture(scope="session")
def uninterrupted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an uninterrupted tiny run, to read or to copy; its output is in `out` and `err` beside it.

    With several test processes, the first one runs it for all.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "unbroken"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "err").exists():
            result = arena_command(*TINY, "--out", folder / "run")
            assert result.code == 0, result.err
            (folder / "out").write_text(result.out)
            (folder / "err").write_text(result.err)
    return folder / "run"
