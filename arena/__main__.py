"""Entry point of the `arena` command. Checks the Python environment before loading the commands."""

import atexit
import io
import os
import sys
from typing import NoReturn

from arena.doctor import find_shadowed_package


def main() -> None:
    """Run the command line and exit with its code, or with 2 and a message if this Python cannot run Arena."""
    _escape_unencodable()
    if complaint := find_shadowed_package() or _not_utf8() or _without_docstrings():
        print(f"arena: {complaint}", file=sys.stderr)
        raise SystemExit(2)
    try:
        from arena.cli.main import run_cli

        code = run_cli()
    except KeyboardInterrupt:  # while the commands were loading
        print("arena: interrupted", file=sys.stderr)
        code = 130
    if code > 128:
        _exit_interrupted(code)
    raise SystemExit(code)


def _exit_interrupted(code: int) -> NoReturn:
    """Run the exit handlers and end the process at once.

    Python's own shutdown would wait for threads that compute or load a model. It can also abort in a thread that is
    inside torch (exit code 134), or hang if the interrupt left a thread with an import lock.
    """
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _not_utf8() -> str:
    """Return an error message if Python does not read file names as UTF-8, else ""."""
    used = sys.getfilesystemencoding()
    if used.lower() in ("utf-8", "utf8"):
        return ""
    return f"this Python reads and prints names as {used}, not UTF-8: set PYTHONUTF8=1, or LC_ALL=C.UTF-8"


def _without_docstrings() -> str:
    """Return an error message if Python strips docstrings, else ""."""
    if sys.flags.optimize < 2:
        return ""
    return "python -OO and PYTHONOPTIMIZE=2 strip docstrings, which Arena and transformers read: use -O at most"


def _escape_unencodable() -> None:
    """Make the standard streams escape characters that their encoding lacks, as with PYTHONIOENCODING=ascii."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
