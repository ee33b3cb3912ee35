"""One Ray cluster for all tests of this room, and two ranks that most of them ask."""

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

os.environ |= {  # Ray reads them when it is imported, which tests of this room do
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # loopback alone
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(16),
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",  # else workers starve beside whatever else the machine does
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray on loopback, with more processors than there may be: those who wait need none."""
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
    """Two ranks of one thread each."""
    from arena.scale.ranks import Ranks

    started = asyncio.run(Ranks.start([{"num_cpus": 1}] * 2, timeout=120.0))
    yield started
    asyncio.run(started.close())
