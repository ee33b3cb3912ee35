"""Runs whose seats have tools: role and recipe, log, export and evaluation."""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.errors import ConfigError
from arena.evaluate.deal_facts import recover_facts
from arena.evaluate.evaluation import make_game
from arena.play.making import SEAT_TOOLS
from arena.play.settings import GameSpec
from arena.store.run import RunFolder
from simulators.toolbox.mcp_server import REFUSED
from tests.factories.commands import arena, get_refusal
from tests.factories.labs import run_lab

FACTORIES = Path(__file__).parents[1] / "factories"
ROLE = """\
role: asker
system: "{{ rules }}"
turn: "{{ private.tools }} {% for m in messages %}{{ m.text }}{% endfor %}"
reply: {format: whole}
tools: ["own.py:double", {mcp: "python server.py", only: [add]}]
"""
CALLER = """
def caller(game, seed):
    def answer(view):
        done = view.messages and view.messages[-1].text == "42"
        return view.legal[0] if done else "double(number=21)"
    return answer
"""
CONFIG = """\
name: tools
iterations: 1
threads: 1
game: {name: nim}
roles: roles
policies: {shared: {model: nano}}
seats:
  first: {role: asker, policy: "caller.py:caller"}
  second: {role: nano_player, policy: shared, tools: [calculator]}
play: {matches: 2, in_flight: 2}
tracker: []
"""


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's working folder with a role, its tools and a scripted player."""
    from agents.weights import resolve

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models").symlink_to(resolve("nano").parent)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    folder = tmp_path / "here"
    (folder / "roles").mkdir(parents=True)
    (folder / "roles/asker.yaml").write_text(ROLE.replace("python", sys.executable))
    shutil.copy(FACTORIES / "mcp_server.py", folder / "roles/server.py")
    shutil.copy(FACTORIES / "own_tools.py", folder / "roles/own.py")
    (folder / "caller.py").write_text(CALLER)
    (folder / "run.yaml").write_text(CONFIG)
    monkeypatch.chdir(folder)
    return folder


def make_game_options(*assignments: str) -> Mapping[str, Any]:
    """Return the options of the run's game after assignments."""
    experiment = compose([text_layer("test", CONFIG), *map(set_layer, assignments)])
    return experiment.all_tables()[0].game.options


def test_seats_default_to_their_roles_tools(user_folder: Path) -> None:
    server = {"mcp": f"{sys.executable} {user_folder / 'roles/server.py'}", "only": ["add"]}
    expected = {"first": [f"{user_folder / 'roles/own.py'}:double", server], "second": ["calculator"]}
    assert make_game_options()[SEAT_TOOLS] == expected
    assert make_game_options("seats.first.tools=[]")[SEAT_TOOLS] == {"second": ["calculator"]}
    assert SEAT_TOOLS not in make_game_options("seats.first.tools=[]", "seats.second.tools=null")


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("[calculater]", "unknown tool 'calculater'"),
        ("[{mcp: 'python nope.py', timeout: -1}]", "seats.second.tools"),
        ("[{mcp: nonesuch}]", "nonesuch"),
    ],
)
def test_wrong_tools_give_one_line(user_folder: Path, tools: str, words: str) -> None:
    line = get_refusal("run", "selfplay", "--config", "run.yaml", "--set", f"seats.second.tools={tools}", "--out", "x")
    assert words in line and not (user_folder / "x").exists()


def test_a_match_with_tools_is_logged_shown_and_exported(user_folder: Path) -> None:
    result = arena("run", "selfplay", "--config", "run.yaml", "--out", "run")
    assert result.code == 0, result
    run = RunFolder.open(user_folder / "run")
    rows = list(run.reader.matches())
    assert len(rows) == 2
    for row in rows:
        assert row["status"] == "finished" and set(row["options"][SEAT_TOOLS]) == {"first", "second"}
        first = [turn for turn in row["turns"] if turn["seat"] == "first"]
        assert first[0]["action"] == "double(number=21)" and first[0]["valid"]
        assert {"sender": "tool", "text": "42"} in [
            {"sender": m["sender"], "text": m["text"]} for m in first[1]["messages"]
        ]
        assert row["report"]["seat_tool_calls"] >= 1
    assert "double(number: int)" in recover_facts(run.path, rows[0]).private["first"]["tools"]
    shown = arena("show", "run", "0001-0000")
    assert shown.code == 0 and "double(number=21)" in shown.out
    exported = arena("export", "run", "--as", "chats", "--to", "chats.jsonl")
    assert exported.code == 0, exported


def test_evaluation_gives_the_seats_the_same_tools(user_folder: Path) -> None:
    assert arena("run", "selfplay", "--config", "run.yaml", "--out", "run").code == 0
    result = arena("eval", "run", "--game", "nim", "--against", "caller.py:caller", "--matches", "4", "--json")
    assert result.code == 0, result
    assert "own.py:double" in result.out


def test_a_model_evaluated_in_a_role_has_the_roles_tools(user_folder: Path) -> None:
    result = arena("eval", "nano", "--game", "nim", "--role", "roles/asker.yaml", "--matches", "2", "--json")
    assert result.code == 0 and "own.py:double" in result.out, result


def test_foreign_run_starts_no_server(user_folder: Path) -> None:
    assert arena("run", "selfplay", "--config", "run.yaml", "--out", "run").code == 0
    (user_folder.parent / "home" / "trusted").unlink()
    row = next(iter(RunFolder.open(user_folder / "run").reader.matches()))
    try:
        line = get_refusal("eval", "run", "--game", "nim")
        assert "pass --trust" in line
        with pytest.raises(Exception, match="trust"):
            recover_facts(user_folder / "run", row)
    finally:
        REFUSED.clear()


def test_an_edited_log_starts_no_other_program(user_folder: Path) -> None:
    assert arena("run", "selfplay", "--config", "run.yaml", "--out", "run").code == 0
    row = dict(next(iter(RunFolder.open(user_folder / "run").reader.matches())))
    row["options"] = {SEAT_TOOLS: {"first": [{"mcp": f"touch {user_folder / 'owned'}"}]}}
    with pytest.raises(Exception, match="tools that its experiment does not"):
        recover_facts(user_folder / "run", row)
    assert not (user_folder / "owned").exists()


def test_game_options_can_give_tools() -> None:
    game = make_game(GameSpec(name="nim", options={SEAT_TOOLS: {"first": ["calculator"]}}))
    game.reset(seed=0)
    game.step("calculator('1+1')")
    assert [message.text for message in game.messages("first")] == ["2"]
    with pytest.raises(ConfigError, match=re.escape("must be lists of tools by seat")):
        make_game(GameSpec(name="nim", options={SEAT_TOOLS: ["calculator"]}))


def test_matches_are_equal_at_any_concurrency(user_folder: Path) -> None:
    """Tools that take 20 to 60 ms answer in any order; the transcripts are the same."""
    config = CONFIG.replace("first: {role: asker, ", "first: {role: asker, tools: ['roles/own.py:later'], ")
    slow_caller = CALLER.replace('"double(number=21)"', """f"later(text='42', seconds={0.02 + seed % 5 / 100})\"""")
    (user_folder / "caller.py").write_text(slow_caller)
    logs = []
    for number, in_flight in enumerate((1, 6)):
        experiment = compose([text_layer("test", config), set_layer(f"play.in_flight={in_flight}"),
                              set_layer("play.matches=6")])  # fmt: skip
        run_lab(user_folder / f"run{number}", experiment)
        rows = RunFolder.open(user_folder / f"run{number}").reader.matches()
        logs.append([[(turn["seat"], turn["raw"]) for turn in row["turns"]] for row in rows])
    assert logs[0] == logs[1]
