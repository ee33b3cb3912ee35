"""What a command does not need it does not load: to be told what there is, nobody waits for torch."""

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
LATER = ("numpy", "pydantic", "importlib.metadata", "hashlib")
"""What the commands load when they need it, as it takes longer than they do themselves."""
COMMANDS = (
    *(
        [name]
        for name in ("run", "resume", "play", "eval", "tournament", "exploit", "matrix", "credit", "check", "fork")
    ),
    *([name] for name in ("show", "export", "list", "models", "doctor", "sql", "compare", "find", "report", "study")),
    *(["sweep"], ["run", "selfplay"], ["check", "role"], ["check", "game"]),
)
RUN = f"""
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


def loaded(*words: str) -> tuple[int, str, list[str]]:
    """How a command of a fresh process ends, what it says, and what of all that is heavy it has loaded by then."""
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps(words)], capture_output=True, text=True, check=True)
    code, said, heavy = json.loads(done.stdout)
    return code, said, heavy


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], *([*words, "--help"] for words in COMMANDS)], ids=" ".join
)
def test_to_be_told_of_commands_loads_nothing_heavy(words: list[str]) -> None:
    code, said, heavy = loaded(*words)
    assert (code, heavy) == (0, []) and said


def test_the_commands_are_there_before_what_only_some_of_them_need() -> None:
    code = f"import sys, arena.cli.main; print(sorted(set(sys.modules) & set({LATER!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", KINDS)
def test_to_list_what_there_is_loads_nothing_heavy(kind: str) -> None:
    code, said, heavy = loaded("list", kind)
    assert (code, heavy) == (0, []) and said


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
def test_a_slip_is_told_before_anything_heavy_is_loaded(words: list[str], line: str) -> None:
    code, said, heavy = loaded(*words)
    assert (code, heavy) == (2, []) and said.startswith(f"arena: {line}")
