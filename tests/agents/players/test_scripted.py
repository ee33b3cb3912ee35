"""Scripted players by name: valid names are resolved, and unsuitable players are refused in one line."""

from time import process_time

import pytest

import games
from agents.errors import ScriptedPolicyError
from agents.players.scripted import SCRIPTED, check_scripted, make_scripted
from tests.factories.seated import make_view, play_match


def get_refusal(spec, game=None, seat=""):
    with pytest.raises(ScriptedPolicyError) as error:
        check_scripted(spec, games.make(game) if game else None, seat)
    line = str(error.value)
    assert "\n" not in line and line.isprintable()
    return line


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("randm", "unknown scripted policy 'randm' — did you mean 'random'?"),
        ("mtcs:100", "unknown scripted policy 'mtcs:100' — did you mean 'mcts'?"),
        ("exploiter:randm", "did you mean 'exploiter:random'?"),
        ("random:3", "random takes no argument"),
        ("", "unknown scripted policy ''"),
        ("a\x1b[31m\nb", "unknown scripted policy 'a[31m b'"),
        ("mcts:", "such as mcts:100"),
        ("mcts:-3", "such as mcts:100"),
        ("mcts:abc", "such as mcts:100"),
        ("mcts:0", "such as mcts:100"),
        ("mcts:²", "such as mcts:100"),
        ("mcts:10x", "mcts:100x1"),
        ("mcts:" + "9" * 5000, "such as mcts:100"),
        ("minimax:x", "such as minimax:4"),
        ("minimax:0", "such as minimax:4"),
        ("cfr:1.5", "such as cfr:1000"),
        ("nash:0.5", "0 to 1/3, such as nash:0.2"),
        ("nash:nan", "0 to 1/3, such as nash:0.2"),
    ],
)
def test_refuses_malformed_names(spec, says):
    assert says in get_refusal(spec)
    with pytest.raises(ScriptedPolicyError):
        make_scripted(spec, 0, games.make("kuhn_poker"))


@pytest.mark.parametrize(
    ("spec", "game", "says"),
    [
        ("mcts:100", "kuhn_poker", "mcts would cheat: it looks at the whole state, and kuhn_poker hides something"),
        ("minimax", "kuhn_poker", "minimax would cheat: it looks at the whole state, and kuhn_poker hides something"),
        (
            "minimax",
            "connect_four",
            "connect_four has over 20,000 positions, or slow ones: give minimax a depth, such as minimax:4",
        ),
        ("minimax", "ultimatum", "a gain of one side is the other's loss: ultimatum is not one"),
        ("nash", "ultimatum", "ultimatum is not one"),
        ("nash", "connect_four", "use minimax with a depth, such as minimax:4"),
        ("nash", "liars_dice", "nash solves games of up to 50,000 histories: liars_dice has more"),
        ("nash:0.2", "leduc_poker", "nash:0.2 is an equilibrium of kuhn_poker: write nash for leduc_poker"),
        ("cfr", "tiny_hanabi", "cfr solves two-player zero-sum games: tiny_hanabi is not one"),
        ("cfr", "negotiation", "solves games with OpenSpiel's rules: negotiation is not one"),
        ("conceder", "kuhn_poker", "conceder plays negotiation, not kuhn_poker"),
        ("tit_for_tat", "kuhn_poker", "tit_for_tat plays prisoners_dilemma"),
    ],
)
def test_refuses_unsuitable_players(spec, game, says):
    assert says in get_refusal(spec, game)
    with pytest.raises(ScriptedPolicyError):
        make_scripted(spec, 0, games.make(game))


def test_refuses_random_without_listed_acts():
    game = games.make("word_clue")
    giver, guesser = game.possible_agents[:2]
    assert get_refusal("random", "word_clue", giver) == (
        f"random picks among the legal acts that a game lists: word_clue lists none for {giver}: "
        "seat a model, an endpoint or a person there"
    )
    check_scripted("random", game, guesser)
    check_scripted("random", game)


@pytest.mark.parametrize(
    ("spec", "game"),
    [
        ("minimax", "tic_tac_toe"), ("minimax", "nim"), ("nash", "tic_tac_toe"), ("minimax:1", "connect_four"),
        ("minimax:2", "chess_endgame"), ("mcts:5x1", "chess_endgame"), ("mcts:5x1", "breakthrough"),
        ("mcts", "tic_tac_toe"), ("mcts:5x1", "ultimatum"), ("cfr:5", "kuhn_poker"), ("nash", "leduc_poker"),
        ("nash:0.2", "kuhn_poker"), ("exploiter:conceder", "negotiation"),
    ],
)  # fmt: skip
def test_accepts_suitable_players(spec, game):
    match = games.make(game)
    check_scripted(spec, match)  # not reset yet, as a configuration is checked
    match.reset(seed=1)
    notes = []
    for _ in range(2):
        match.reset(seed=1)
        scripted = {seat: make_scripted(spec, number, match) for number, seat in enumerate(match.seats)}
        if game == "chess_endgame":  # a few moves will do
            for _ in range(4):
                match.step(scripted[match.agent_selection].act(make_view(match)))
        else:
            play_match(match, scripted)
        notes.append(match.render())
    assert notes[0] == notes[1]


@pytest.mark.slow
def test_a_game_of_slow_positions_is_refused_within_seconds():
    start = process_time()
    with pytest.raises(ScriptedPolicyError, match="or slow ones: give minimax a depth"):
        check_scripted("minimax", games.make("chess_endgame"))
    assert process_time() - start < 15


def test_checking_leaves_the_game_alone():
    game = games.make("kuhn_poker")
    game.reset(seed=4)
    assert game.rng
    before = game.render(), game.infos, game.rng.bit_generator.state
    for spec in ("random", "cfr:5", "nash"):
        check_scripted(spec, game)
    assert before == (game.render(), game.infos, game.rng.bit_generator.state)


def test_documented_table_lists_all_scripted_players():
    for name, kind in SCRIPTED.items():
        assert kind.plays and kind.description and "\n" not in kind.description, name
        assert kind.games is None or set(kind.games) <= set(games.GAMES), name


@pytest.mark.parametrize("name", [name for name, kind in SCRIPTED.items() if kind.games])
def test_players_of_one_game_play_it(name):
    for title in SCRIPTED[name].games or ():
        game = games.make(title)
        check_scripted(name, game)
        game.reset(seed=2)
        scripted = {seat: make_scripted(name, number, game) for number, seat in enumerate(game.seats)}
        for _ in range(2):
            if not game.ended:
                game.step(scripted[game.agent_selection].act(make_view(game)))
