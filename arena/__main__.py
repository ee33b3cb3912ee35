"""Entry point of the `arena` command: first makes sure that `agents` and `games` are ours."""

import sys

from arena.doctor import shadowed


def main() -> None:
    """Run the command line; one clear sentence and exit code 2 when a foreign package hides one of ours."""
    if complaint := shadowed():
        print(f"arena: {complaint}", file=sys.stderr)
        raise SystemExit(2)
    try:
        from arena.cli.main import run_cli

        code = run_cli()
    except KeyboardInterrupt:  # while the commands were loading
        print("arena: interrupted", file=sys.stderr)
        code = 130
    raise SystemExit(code)


if __name__ == "__main__":
    main()
