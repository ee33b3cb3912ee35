"""Commands load no heavy package that they do not need: help and lists never wait for torch."""

import json
import subprocess
import sys

import pytest

from arena.cli.catalogue import KINDS

HEAVY = (
    *("torch", "transformers", "deepspeed", "safetensors", "tensorboard", "sklearn"),
    *("pandas", "pyarrow", "scipy", "matplotlib", "openskill", "openai", "duckdb"),
    *("sentence_transformers", "faiss", "bm25s", "networkx"),
    *("pettingzoo", "gymnasium", "pyspiel", "chess", "textarena", "minigrid", "reasoning_gym", "pgmpy"),
)
LAZY = ("numpy", "pydantic", "importlib.metadata", "hashlib")
"""Modules that commands load only on demand, because they load more slowly than the commands themselves."""
COMMANDS = (
    *(
        [name]
        for name in ("run", "resume", "play", "eval", "tournament", "exploit", "matrix", "credit", "check", "fork")
    ),
    *([name] for name in ("show", "export", "list", "doctor", "sql", "compare", "find", "report", "study")),
    *(["sweep"], ["run", "selfplay"], ["check", "role"], ["check", "game"]),
)
SCRIPT = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
sys.argv = ["arena", *json.loads(sys.argv[1])]
from arena.__main__ import main
with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
    try:
        main()
    except SystemExit as end:
        code = end.code
print(json.dumps([code, out.getvalue(), sorted(set(sys.modules) & set({HEAVY!r}))]))
"""


def run_command(*words: str) -> tuple[int, str, list[str]]:
    """Run a command in a new process; return its exit code, its output and the heavy packages it loaded."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(words)], capture_output=True, text=True, check=True
    )
    code, output, heavy = json.loads(result.stdout)
    return code, output, heavy


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], *([*words, "--help"] for words in COMMANDS)], ids=" ".join
)
def test_help_loads_no_heavy_packages(words: list[str]) -> None:
    code, output, heavy = run_command(*words)
    assert (code, heavy) == (0, []) and output


def test_importing_commands_loads_no_lazy_modules() -> None:
    code = f"import sys, arena.cli.main; print(sorted(set(sys.modules) & set({LAZY!r})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", KINDS)
def test_listing_loads_no_heavy_packages(kind: str) -> None:
    code, output, heavy = run_command("list", kind)
    assert (code, heavy) == (0, ["torch", "transformers"] if kind == "engines" else []) and output


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["list", "gmaes"], "unknown list 'gmaes' — did you mean 'games'?"),
        (["run", "selfplay", "--game", "negotation"], "unknown game 'negotation' — did you mean 'negotiation'?"),
        (["run", "selfplay", "--recipe", "nosuch"], "unknown recipe 'nosuch'"),
    ],
    ids=" ".join,
)
def test_mistakes_are_reported_before_heavy_packages_load(words: list[str], line: str) -> None:
    code, output, heavy = run_command(*words)
    assert (code, heavy) == (2, []) and output.startswith(f"arena: {line}")
