"""Test servers of MCP that run as children of this process."""

from pathlib import Path

import psutil

SERVER = Path(__file__).with_name("mcp_server.py")


def count_servers() -> int:
    """Return the number of test servers that run as children of this process."""
    children = psutil.Process().children(recursive=True)
    return sum(child.is_running() and str(SERVER) in " ".join(_read_command(child)) for child in children)


def _read_command(child: psutil.Process) -> list[str]:
    try:
        return list(child.cmdline())
    except psutil.Error:
        return []
