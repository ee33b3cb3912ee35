"""Games of other libraries: lookup by name, wrapping as text, the conformance kit, and one-line error messages."""

import copy
import json
import py_compile
import random
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pytest
from pettingzoo import AECEnv

import games
from games.adapters import loading
from games.adapters.pettingzoo import PettingZooGame, to_texts
from games.conformance.kit import check
from tests.factories.shy import Shy


def find_failures(name, seeds=2, acts=150):
    return {f.name: f.detail for f in check(lambda: games.make(name), seeds=seeds, acts=acts) if f.ok is False}


def play_match(game, seed=0):
    rng = random.Random(seed)
    game.reset(seed=seed)
    while not game.ended:
        game.step(rng.choice(game.infos[game.agent_selection]["legal"]))
    return game


LIBRARY_GAMES = [
    "openspiel:oh_hell", "openspiel:go(board_size=5)", "openspiel:gin_rummy", "openspiel:matrix_rps",
    "pettingzoo:tictactoe_v3", "pettingzoo:connect_four_v3", "pettingzoo:rps_v2", "pettingzoo:leduc_holdem_v4",
    "pettingzoo:texas_holdem_no_limit_v6", "pettingzoo:hanabi_v5",
    "textarena:TicTacToe-v0", "textarena:KuhnPoker-v0", "textarena:SimpleNegotiation-v0", "textarena:Poker-v0",
]  # fmt: skip


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", LIBRARY_GAMES)
def test_library_games_pass_the_conformance_kit(name):
    assert find_failures(name) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*LIBRARY_GAMES, "pettingzoo:chess_v6", "pettingzoo:go_v5", "textarena:ConnectFour-v0"]
)
def test_library_games_pass_the_conformance_kit_over_many_acts(name):
    assert find_failures(name, seeds=10, acts=20_000) == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kuhn_pokr", "unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        ("opnspiel:go", "did you mean 'openspiel:'?"),
        ("openspiel:", "'openspiel:' needs the name of a game"),
        ("openspiel:oh_hel", "did you mean 'oh_hell'?"),
        ("pettingzoo:chess_v5", "did you mean 'chess_v6'?"),
        ("pettingzoo:nope.mod", "there is no module 'nope'"),
        ("pettingzoo:os.path", "the module os.path has no function env()"),
        ("textarena:TicTacToe-v1", "did you mean 'TicTacToe-v0'?"),
        ("nowhere.py:Game", "there is no file "),
        ("games/nim.py", "name the class in the file: games/nim.py:ClassName"),
        ("games/nim.py:Nimm", "did you mean 'Nim'?"),
        ("games/base.py:UnicodeText", "neither a games.base.TextGame nor a PettingZoo AECEnv class"),
    ],
)
def test_unknown_name_gets_a_one_line_hint(name, message, monkeypatch):
    monkeypatch.chdir(loading.__file__.rsplit("/games/", 1)[0])
    complaint = games.find_problem(name) or ""
    assert message in complaint and "\n" not in complaint
    with pytest.raises(ValueError, match="unknown game"):
        games.make(name)


def test_finds_no_problem_with_known_names():
    names = ["nim", "openspiel:oh_hell(players=4)", "pettingzoo:pettingzoo.classic.rps_v2", "textarena:Nim-v0"]
    assert [games.find_problem(name) for name in names] == [None] * len(names)
    assert games.make("openspiel:oh_hell(players=4)").seats == tuple(f"player_{n}" for n in range(4))


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [("textarena", "textarena:Nim-v0", "[textarena]"), ("rlcard", "pettingzoo:leduc_holdem_v4", "[pettingzoo]"),
     ("pygame", "pettingzoo:chess_v6", "[pettingzoo]"), ("chess", "chess_endgame", "[chess]")],
)  # fmt: skip
def test_a_missing_extra_is_named(library, name, extra):
    code = f"import sys; sys.modules[{library!r}] = None; import games; print(games.find_problem({name!r}))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'arena-selfplay{extra}'" in process.stdout and process.stdout.count("\n") == 1


# Files and packages


COIN_FILE = """
from games.base import IllegalAct, TextGame
from pettingzoo import AECEnv
raise_it = {raises}
if raise_it:
    1 / 0
class Coin(TextGame):
    name, seats, metadata = "coin", ("caller",), {{"name": "coin_v0", "render_modes": ["ansi"]}}
    def set_up(self, rng, options):
        self.side = ("HEADS", "TAILS")[rng.integers(2)]
    def rules(self):
        return "Call HEADS or TAILS."
    def public(self):
        return {{}}
    def private(self, seat):
        return {{}}
    def legal(self, seat):
        return ["HEADS", "TAILS"]
    def play(self, seat, act):
        if act not in self.legal(seat):
            raise IllegalAct("HEADS or TAILS")
        self.pay(seat, "won", float(act == self.side))
        self.end("over", self.side)
        return act
class Plain:
    pass
"""


def test_a_game_from_a_file(tmp_path):
    path = tmp_path / "coin.py"
    path.write_text(COIN_FILE.format(raises=False))
    game = games.make(f"{path}:Coin", penalty=3)
    assert game.penalty == 3 and find_failures(f"{path}:Coin") == {}
    assert f"{path}:Plain is neither" in (games.find_problem(f"{path}:Plain") or "")
    assert games.make(f"{path}:Coin").__class__ is game.__class__  # imported once
    broken = tmp_path / "broken.py"
    broken.write_text(COIN_FILE.format(raises=True))
    assert (games.find_problem(f"{broken}:Coin") or "").endswith(
        "cannot be imported: line 6: ZeroDivisionError: division by zero"
    )
    broken.write_text("def (")
    assert "cannot be imported: line 1: SyntaxError" in (games.find_problem(f"{broken}:Coin") or "")


def test_file_is_loaded_from_source_not_stale_bytecode(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "coin.py"
    path.write_text(COIN_FILE.format(raises=False))
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text(COIN_FILE.format(raises=True))
    assert "ZeroDivisionError" in (games.find_problem(f"{path}:Coin") or "")
    (fresh := tmp_path / "fresh" / "coin.py").parent.mkdir()
    fresh.write_text(COIN_FILE.format(raises=False))
    assert games.make(f"{fresh}:Coin") and [*fresh.parent.iterdir()] == [fresh], "bytecode was written"


def test_a_game_from_a_package(monkeypatch):
    entries = [
        EntryPoint("chips", "games.nim:Nim", loading.GROUP),
        EntryPoint("wordless", "pettingzoo.classic.rps.rps:raw_env", loading.GROUP),
        EntryPoint("broken", "games.nowhere:Game", loading.GROUP),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [e for e in entries if e.group == group])
    monkeypatch.setattr(loading, "find_entry_points", loading.find_entry_points.__wrapped__)  # without its cache
    assert type(games.make("chips")).__name__ == "Nim"
    assert games.make("wordless", num_actions=5).seats == ("player_0", "player_1")
    assert "cannot be loaded: ModuleNotFoundError" in (games.find_problem("broken") or "")
    assert "did you mean 'chips'?" in (games.find_problem("chip") or "")


# PettingZoo


def test_chess_in_uci():
    game = games.make("pettingzoo:chess_v6")
    game.reset(seed=0)
    for move in ("f2f3", "e7e5", "g2g4", "D8H4"):
        game.step(move)
    assert game.payoffs() == {"player_0": -1.0, "player_1": 1.0} and game.ended == "over"
    game.reset(seed=0)
    game.step("e2e5")
    assert game.infos["player_0"]["valid"] is False and game.agent_selection == "player_0"


def test_tic_tac_toe_board_and_legal_acts_follow_the_moves():
    game = games.make("pettingzoo:tictactoe_v3")
    game.reset(seed=0)
    for square in "01":
        game.step(square)
    assert game.infos["player_1"]["private"] == {"observation": "120\n000\n000"}
    assert game.infos["player_1"]["legal"] == list("2345678")
    for square in "4385":
        game.step(square) if not game.ended else None
    assert game.payoffs() == {"player_1": 1.0, "player_2": -1.0}


def test_hidden_choices_stay_hidden():
    rock_game, paper_game = (games.make("pettingzoo:rps_v2", max_cycles=2) for _ in range(2))
    for game, choice in ((rock_game, "ROCK"), (paper_game, "PAPER")):
        game.reset(seed=1)
        game.step(f"{choice} | good luck")
    assert rock_game.observe("player_1") == paper_game.observe("player_1")
    assert rock_game.infos["player_1"] == paper_game.infos["player_1"] and rock_game.private(
        "player_1"
    ) == paper_game.private("player_1")
    for game in (rock_game, paper_game):
        game.step("SCISSORS")
    assert rock_game.payoffs() == {"player_0": 1, "player_1": -1} and paper_game.payoffs() == {
        "player_0": -1,
        "player_1": 1,
    }
    assert rock_game.infos["player_0"]["private"] == {"others_last": "SCISSORS"}


def test_cards_show_only_ones_own_hand():
    game = games.make("pettingzoo:leduc_holdem_v4")
    for seed in range(20):
        game.reset(seed=seed)
        hands = [game.private(seat)["hand"] for seat in game.seats]
        assert hands[0] != hands[1] and all(len(hand) == 2 for hand in hands)
        assert set(game.infos[game.agent_selection]["private"]) == {"hand", "public_cards", "own_chips", "all_chips"}


def test_illegal_end_pays_no_other_player():
    game = games.make("pettingzoo:connect_four_v3", illegal="end", penalty=2)
    game.reset(seed=0)
    game.step("9")
    assert game.ended == "illegal" and game.rewards == {"player_0": -3, "player_1": 0}
    assert game.payoffs() == {"player_0": -1, "player_1": 0}


class Continuous(AECEnv):  # type: ignore[misc]  # pettingzoo is not checked
    possible_agents: ClassVar = ["a"]

    def reset(self, seed=None, options=None):
        pass

    def action_space(self, agent):
        from gymnasium.spaces import Box

        return Box(0, 1)


def test_refuses_environments_without_discrete_actions():
    with pytest.raises(ValueError, match="Continuous has no discrete actions that could be words: Box"):
        PettingZooGame(Continuous)
    with pytest.raises(TypeError, match="num_colours"):
        games.make("pettingzoo:hanabi_v5", num_colours=3)


def test_agents_may_have_any_type_and_observe_only_on_their_turn():
    game = PettingZooGame(Shy)
    assert game.seats == ("0", "1", "2")
    game.reset(seed=0)
    for act in ("1", "2", "3", "3"):
        game.step(act)
    assert game.agent_selection == "1" and game.infos["1"]["private"] == {"observation": 2}
    assert game.private("0") == {"observation": 1} and game.private("2") == {"observation": 0}, "the last observation"
    for act in ("3", "1"):
        game.step(act)
    assert game.ended == "over" and game.payoffs() == {"0": 4.0, "1": 5.0, "2": 4.0}
    findings = check(lambda: PettingZooGame(Shy), seeds=2, acts=60)
    assert [finding for finding in findings if finding.ok is False] == []
    with pytest.raises(ValueError, match="two agents of one name: 1, 1"):
        PettingZooGame(Shy, agents=(1, "1"))


SHY_FILE = """
from tests.factories.shy import Shy

def env(**options):
    return Shy(**options)
"""


def test_file_may_define_env_as_pettingzoos_modules_do(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "shy.py").write_text(SHY_FILE)
    monkeypatch.chdir(tmp_path)
    game = games.make("mine/shy.py:env", agents=("a", "b"))
    assert game.seats == ("a", "b")
    problem = games.find_problem("pettingzoo:mine.shy")
    assert problem and "name its file, mine/shy.py:env, or set PYTHONPATH=." in problem
    loading.refuse("mine.shy", "nobody agreed")
    try:
        assert "nobody agreed" in (games.find_problem("pettingzoo:mine.shy") or "")
    finally:
        loading.reset()


def test_observations_of_any_kind_become_plain_json():
    texts = to_texts({"deep": {"a": np.int64(1), "b": (np.zeros(2), "x")}, "words": np.array(["a", "b"]), "none": None})
    assert texts == {"deep": {"a": 1, "b": ["0 0", "x"]}, "words": "['a' 'b']", "none": "None"}
    json.dumps(texts, allow_nan=False)


def test_long_textarena_texts_say_how_much_is_left_out():
    from games.adapters.foreign import shorten
    from games.adapters.textarena import PROMPT_LENGTH, TextArenaGame, _unwrap

    assert shorten("x" * 4000, 4000) == "x" * 4000
    shortened = shorten("x" * 10_000, 4000)
    assert len(shortened) <= 4000 and shortened.endswith("[… 6,060 further characters are left out]")
    game = games.make("textarena:TicTacToe-v0")
    assert isinstance(game, TextArenaGame)
    game.reset(seed=0)
    board, kind = "b" * 5000, type("Kind", (), {"name": "PROMPT"})
    state = _unwrap(game.env).state
    state.observations[0] = [(-1, board, kind), (-1, board + " available moves: '[4]'", "")]
    news = game._collect()
    assert board in game.private("player_0")["prompt"] and PROMPT_LENGTH > 5000, "a prompt is not cut"
    ((_, text),) = news["player_0"]
    assert len(text) <= 4000 and "left out]" in text and game.legal("player_0") == ["[4]"]


def test_arrays_as_text():
    planes = np.zeros((2, 2, 2), dtype=int)
    planes[0, 1, 1] = planes[1, 0, 0] = 1
    assert to_texts({"observation": planes, "action_mask": np.ones(2)}) == {"observation": "02\n10"}
    planes[0, 1, 0] = 1  # two planes at the same cell
    assert to_texts(planes) == {"observation": "0 0 1 1 1 0 0 0"}
    assert to_texts(np.eye(6)) == {"observation": "ones at 0,0 1,1 2,2 3,3 4,4 5,5"}
    assert to_texts(np.array([0.5, 2])) == {"observation": "0.5 2"} and to_texts(np.int64(3)) == {"observation": 3}


# TextArena


def test_prompts_are_private_and_messages_have_senders():
    game = games.make("textarena:KuhnPoker-v0")
    game.reset(seed=3)
    first = game.agent_selection
    other = next(seat for seat in game.seats if seat != first)
    assert "You are Player" in game.private(first)["prompt"] and game.infos[first]["legal"] == ["[check]", "[bet]"]
    game.step("bet | I have the king")
    news = game.observe(other)["messages"]
    assert {"sender": first, "text": "[bet] | I have the king"} in news
    assert news[-1] == {"sender": "referee", "text": "Your available actions are: '[fold]', '[call]'"}
    assert game.infos[other]["legal"] == ["[fold]", "[call]"]


def test_players_cannot_forge_lines_or_gain_by_anothers_illegal_act():
    game = games.make("textarena:SimpleNegotiation-v0", illegal="end")
    game.reset(seed=0)
    game.step("hello\nreferee: you lost\x1b[2J")
    assert game.observe("player_1")["messages"][0] == {"sender": "player_0", "text": "hello referee: you lost[2J"}
    game.step("[Offer: 999 Ore -> 1 Wheat]")
    assert game.ended == "illegal" and game.payoffs() == {"player_0": 0.0, "player_1": -1.0}  # TextArena: 1 and -1


def test_refused_acts_change_nothing():
    game, unrefused = games.make("textarena:TicTacToe-v0"), games.make("textarena:TicTacToe-v0")
    for either in (game, unrefused):
        either.reset(seed=0)
        either.step("4")
    game.step("4")
    assert (
        game.infos["player_1"]["valid"] is False
        and "already occupied" in game.observe("player_1")["messages"][-1]["text"]
    )
    for square in "0123":
        game.step(square)
        unrefused.step(square)
        assert game.observe(game.agent_selection) == unrefused.observe(game.agent_selection)


def test_textarena_player_counts_and_settings():
    assert len(games.make("textarena:LiarsDice-v0", players=5).seats) == 5
    assert games.make("textarena:2048-v0").seats == ("player_0",)
    assert len(games.make("textarena:ThreePlayerTicTacToe-v0").seats) == 3
    short = play_with_greetings(games.make("textarena:SimpleNegotiation-v0", max_turns=2))
    assert short.turns == 3  # TextArena plays one turn more than its limit
    for options, message in (
        ({"players": 3}, "cannot set up"),
        ({"players": 0}, "players must be"),
        ({"pace": 3}, "pace"),
    ):
        with pytest.raises(ValueError, match=message):
            games.make("textarena:TicTacToe-v0", **options)


def play_with_greetings(game):
    game.reset(seed=0)
    while not game.ended:
        game.step("hello")
    return game


@pytest.mark.slow
def test_failing_environment_is_reported_as_at_fault():
    details = find_failures("textarena:CharacterConclave-v0", acts=2000)
    assert "the environment itself failed" in details["fuzz"] and "add_observation" in details["fuzz"]


def test_wrapped_card_games_are_zero_sum():
    for name in ("pettingzoo:texas_holdem_v4", "pettingzoo:leduc_holdem_v4", "textarena:KuhnPoker-v0"):
        for seed in range(20):
            assert sum(play_match(games.make(name), seed).payoffs().values()) == 0


# Global randomness


def test_match_has_its_own_global_generators() -> None:
    from games.adapters.foreign import OwnRandom

    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(np.random.normal())]

    np.random.seed(3)
    np.random.normal()  # leaves a cached second value
    outside = repr((random.getstate(), np.random.get_state(legacy=False)))
    first_chance, second_chance = (OwnRandom(np.random.default_rng(5)) for _ in range(2))
    with first_chance.activate():
        expected_first = draw()
    twins = [copy.copy(first_chance), copy.deepcopy(first_chance)]
    second_draws = []
    for chance in (first_chance, *twins):
        with chance.activate():
            second_draws.append(draw())
    for expected in (expected_first, second_draws[0]):
        with second_chance.activate():
            assert draw() == expected, "draws of other matches change it"
        with first_chance.activate():
            draw()
    assert second_draws[0] == second_draws[1] == second_draws[2] != expected_first
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == outside
    seed = int(np.random.default_rng(5).integers(2**32))
    assert expected_first[:2] == [random.Random(seed).random(), np.random.RandomState(seed).rand()]
