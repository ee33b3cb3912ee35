"""Processes of the benchmarks: running a script in a new one, and reading its memory. Linux only."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def run_script(script: str, *words: str, checkout: Path = HERE.parent) -> Any:
    """Run a script of this folder in a new process with a checkout's code.

    Returns the JSON value in its last line of output, or None without output. Raises CalledProcessError if it fails.
    """
    path = os.pathsep.join([str(checkout), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(HERE / script), *words]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None


def read_status(field: str, pid: int | str = "self") -> int:
    """Return the bytes of a process's memory field, such as VmRSS (now), RssFile (mapped files) or VmHWM (peak)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:"))


def read_memory() -> dict[str, float]:
    """Return this process's memory in GB (10^9 bytes): now, its part in mapped files, and the peak since the reset."""
    return {
        "now": read_status("VmRSS") / 1e9,
        "files": read_status("RssFile") / 1e9,
        "peak": read_status("VmHWM") / 1e9,
    }


def reset_peak(pid: int | str = "self") -> None:
    """Reset a process's peak memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
