"""One Ray cluster for all tests of this folder, and two ranks that most of them use."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from arena.scale.ranks import Ranks

os.environ |= {  # Ray reads them when tests of this folder import it
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback only
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(16),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # memory used by other work must not end a test
    "RAY_worker_niceness": "0",  # otherwise other work on the machine starves the workers
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Start Ray on loopback, with more processors than the machine may have: waiting actors need none."""
    import ray

    folder = tempfile.mkdtemp(prefix="arena-ray-")  # sockets' paths must be short: not pytest's folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # of the workers
        ray.init("local", num_cpus=8, object_store_memory=200 << 20, include_dashboard=False, _temp_dir=folder)
        try:
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ranks(cluster: None) -> Iterator["Ranks"]:
    """Return two ranks of one thread each."""
    from arena.scale.ranks import Ranks

    started = asyncio.run(Ranks.start([{"num_cpus": 1}] * 2, timeout=300.0, start_timeout=300.0))
    yield started
    asyncio.run(started.close())
