"""Helpers to run a benchmark script in a new process and to read a process's memory. Linux only."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def run_script(script: str, *words: str) -> Any:
    """Run a script of this folder, with arguments `words`, in a new process.

    Returns the JSON value in its last line of output, or None without output. Raises CalledProcessError if it fails.
    """
    path = os.pathsep.join([str(HERE.parent), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(HERE / script), *words]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None


def read_status(field: str, pid: int | str = "self") -> int:
    """Return a field of a process's memory in bytes, such as VmRSS (now), RssFile (mapped files) or VmHWM (peak)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:"))


def read_memory() -> dict[str, float]:
    """Return this process's memory in GB (10^9 bytes): `now`, mapped `files`, and `peak` since the last reset."""
    return {
        "now": read_status("VmRSS") / 1e9,
        "files": read_status("RssFile") / 1e9,
        "peak": read_status("VmHWM") / 1e9,
    }


def reset_peak(pid: int | str = "self") -> None:
    """Reset a process's peak memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
