"""Parse the setting `harness`: an agent program's command, or the URL of a running one."""

import os
import shlex
import shutil

from agents.errors import HarnessError

URLS = ("http://", "https://")


def is_url(harness: str) -> bool:
    """Return True if the setting is the URL of a running agent program."""
    return harness.startswith(URLS)


def parse_command(harness: str) -> list[str]:
    """Return a command's words. Raises HarnessError for unmatched quotes or a missing program or script."""
    try:
        words = shlex.split(harness)
    except ValueError as error:
        raise HarnessError(f"cannot be read as a command: {error}") from None
    if not words or "\0" in harness:
        raise HarnessError("is empty: name a command, such as python my_agent.py")
    if not shutil.which(words[0]):
        raise HarnessError(f"there is no program '{words[0]}'")
    missing = [word for word in words[1:] if word.endswith((".py", ".js", ".sh")) and not os.path.isfile(word)]
    if missing:
        raise HarnessError(f"there is no file {missing[0]}")
    return words


def make_paths_absolute(harness: str) -> str:
    """Return the setting with the paths of existing files in a command made absolute. A URL stays unchanged."""
    if is_url(harness) or "\0" in harness:
        return harness
    try:
        words = shlex.split(harness)
    except ValueError:
        return harness
    absolute = [os.path.abspath(os.path.expanduser(word)) if _is_path(word) else word for word in words]
    return harness if absolute == words else shlex.join(absolute)


def _is_path(word: str) -> bool:
    return len(word) < 1000 and os.path.isfile(os.path.expanduser(word))
