"""`arena show game`: facts about a game that a role may rely on."""

import json
import sys
from pathlib import Path

import pytest

import games
from arena.cli.show_game import describe
from simulators.recommender.index import load_shelf
from tests.factories.commands import arena, get_refusal

SIMULATORS = ("clinic", "desk", "proposer_solver")


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("name", [*games.CLASSES, *SIMULATORS])
def test_every_game_is_described(name: str) -> None:
    description = describe(name)
    game = games.make(name)
    assert description["seats"] == list(game.possible_agents) and description["rules"] and description["description"]
    assert set(description["private"]) and set(description["private"]) <= set(description["seats"])
    assert set(description["options"]) >= {"illegal", "penalty", "stake", "talk"}
    assert description["theory"] == {k: float(v) for k, v in game.theory.items()} and description["players"]
    assert name == "tasks" or "random" in description["players"], "no answer to a task is random"


def test_facts_options_theory_players_and_roles() -> None:
    description = describe("kuhn_poker")
    assert description["private"]["first"]["card"] in "JQK" and description["acts"]["second"] == ["PASS", "BET"]
    assert description["theory"]["value"] == pytest.approx(-1 / 18)
    assert {"random", "nash", "cfr"} <= set(description["players"]) and "mcts" not in description["players"]
    assert description["roles"] == ["nano_kuhn"] and description["options"]["penalty"] == ["float", "1.0"]
    assert {"seller", "buyer"} == set(describe("haggle")["private"])


def test_text_output() -> None:
    result = arena("show", "game", "haggle")
    assert result.code == 0, result.err
    for part in ("Talk may follow after |.", "seat buyer", "private.cost = ", "max_price: int = 10", "truthful_haggler",
                 "gainful 0.45", "public.turns_left = 8"):  # fmt: skip
        assert part in result.out, part
    assert json.loads(arena("show", "game", "haggle", "--json").out)["seats"] == ["seller", "buyer"]


def test_foreign_and_unknown_games(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from games.nim import Nim\n\n\nclass Own(Nim):\n    def public(self):\n"
        "        return {**super().public(), 'bad': '\\x1b[31m[red]'}\n"
    )
    result = arena("show", "game", f"{own}:Own")
    assert result.code == 0 and "piles" in result.out and "\x1b" not in result.out
    assert arena("show", "game", "openspiel:tic_tac_toe").code == 0
    assert "did you mean 'haggle'" in get_refusal("show", "game", "hagle")


def test_mistake_before_the_name_is_explained() -> None:
    assert "which game? Name one: arena show game NAME (arena list games)" in get_refusal("show", "game")
    assert "arena show panel NAME" in get_refusal("show", "panel")
    assert "did you mean 'game'?" in get_refusal("show", "gane", "kuhn_poker")
    assert "did you mean 'kuhn_poker'?" in get_refusal("show", "panel", "kuhn")


MISSING = {"recommender": "faiss", "reasoning": "reasoning_gym.factory"}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize(
    "command", ["show game", "check game", "check role player --game", "play --game", "run selfplay --game"]
)
def test_a_game_without_its_extra_is_one_line(name: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MISSING[name], None)
    load_shelf.cache_clear()  # an index that is there needs no faiss
    line = get_refusal(*command.split(), name)
    assert "pip install 'arena-selfplay[" in line
