"""Entry point of the `arena` command: first makes sure that names of files are UTF-8, `agents` and `games` ours."""

import sys

from arena.doctor import shadowed


def main() -> None:
    """Run the command line; one clear sentence and exit code 2 where nothing could run rightly."""
    if complaint := shadowed() or _not_utf8():
        print(f"arena: {complaint}", file=sys.stderr)
        raise SystemExit(2)
    try:
        from arena.cli.main import run_cli

        code = run_cli()
    except KeyboardInterrupt:  # while the commands were loading
        print("arena: interrupted", file=sys.stderr)
        code = 130
    raise SystemExit(code)


def _not_utf8() -> str:
    """Why names of files cannot be read here; "" where they can."""
    used = sys.getfilesystemencoding()
    if used.lower() in ("utf-8", "utf8"):
        return ""
    return f"this Python reads and prints names as {used}, not UTF-8: set PYTHONUTF8=1, or LC_ALL=C.UTF-8"


if __name__ == "__main__":
    main()
