"""King and rook against king: starts, reading moves, every way a match ends, and the whole table of wins."""

import itertools
import json
from typing import Any

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.chess_endgame import ChessEndgame

MATE_IN_1 = "4k3/8/4K3/8/8/8/8/R7 w - - 0 1"
MATE_IN_2 = "4k3/8/8/3K4/8/8/8/R7 w - - 0 1"


def start(fen, **options):
    game = ChessEndgame(**options)
    game.reset(seed=0, options={"fen": fen})
    return game


def wins(game, moves):
    """By search through the game's own acts: whether the rook's side mates in so many of its moves at most."""
    if game.ended:
        return game.ended == "checkmate"
    mine = game.agent_selection == game.strong
    if mine and not moves:
        return False
    return (any if mine else all)(
        wins(after, moves - mine)
        for act in game.infos[game.agent_selection]["legal"]
        for after in [game.clone()]
        if not after.step(act)
    )


def test_mate_in_one_and_two_by_search():
    one = start(MATE_IN_1)
    assert wins(one, 1)
    one.step("a1a8")
    assert one.payoffs() == {"white": 1.0, "black": -1.0} and one.report() == {
        "ended": "checkmate", "turns": 1, "won": True,
    }  # fmt: skip
    two = start("7k/8/5K2/8/8/8/8/R7 w - - 0 1")
    assert not wins(two, 1) and wins(two, 2)
    black = start("7K/8/5k2/8/8/8/8/r7 b - - 0 1", strong="black")
    assert not wins(black, 1) and wins(black, 2)


@pytest.mark.parametrize("strong", ["white", "black"])
def test_starts(strong):
    game, seen = ChessEndgame(strong=strong), set()
    color = strong == "white"
    for seed in range(150):
        game.reset(seed=seed)
        board = game.board
        assert game.agent_selection == strong and board.is_valid() and board.turn == color and not board.is_check()
        assert sorted(map(str, board.piece_map().values())) == sorted("KRk" if color else "krK")
        (rook,) = board.pieces(chess.ROOK, color)
        assert not board.is_attacked_by(not color, rook)
        for move in list(board.legal_moves):
            board.push(move)
            assert not board.is_checkmate()
            board.pop()
        seen.add(board.fen())
    assert len(seen) == 150


@pytest.mark.parametrize("text", ["a1a8", " A1 A8 ", "Ra8", "ra8", "Ra8#", "Ra8+", "a1-a8"])
def test_a_move_may_be_written_in_many_ways(text):
    game = start(MATE_IN_1)
    game.step(text)
    assert game.ended == "checkmate" and game.observe("black")["messages"][0] == {"sender": "white", "text": "a1a8"}


@pytest.mark.parametrize("text", ["", "a1", "a8a1", "a1b2", "Rb2", "e8e7", "O-O", "a1a8q", "a1a٨"])
def test_other_moves_are_illegal(text):
    game = start(MATE_IN_1)
    before = json.dumps(game.public())
    game.step(text)
    assert not game.infos["white"]["valid"] and json.dumps(game.public()) == before


def test_every_draw():
    stale = start("k7/8/K7/8/8/8/8/1R6 w - - 0 1", draw=0.1)
    stale.step("Rb7")
    assert stale.ended == "stalemate" and stale.payoffs() == {"white": 0.1, "black": 0.1}
    lost = start("4k3/8/8/8/8/8/R7/1K6 w - - 0 1")
    lost.step("Ra7")
    lost.step("Kd8")
    lost.step("Rc7")
    lost.step("kxc7")
    assert lost.ended == "rook" and lost.payoffs() == {"white": 0.0, "black": 0.0} and not lost.report()["won"]
    fifty = start("4k3/8/8/8/8/8/R7/1K6 w - - 98 60", draw=0.1)
    fifty.step("Ra3")
    fifty.step("Kd8")
    assert fifty.ended == "fifty" and fifty.payoffs() == {"white": 0.1, "black": 0.1}
    late = start("4k3/8/8/8/8/8/R7/1K6 w - - 0 1", max_turns=3)
    for act in ("Ra3", "Kd8", "Ra4"):
        late.step(act)
    assert late.ended == "turns"
    mate = start(MATE_IN_1.replace("0 1", "99 80"), max_turns=1)
    mate.step("Ra8")
    assert mate.ended == "checkmate"  # mate comes before the fifty moves and the last turn


def test_what_is_shown():
    facts = start(MATE_IN_1).infos["white"]["public"]
    assert (facts["white"], facts["black"], facts["turns_left"]) == ("Ke6 Ra1", "Ke8", 60)
    assert facts["board"].split("\n")[0] == ". . . . k . . ." and facts["fen"] == MATE_IN_1


def test_a_clone_goes_its_own_way():
    game = ChessEndgame()
    game.reset(seed=3)
    game.step(game.infos["white"]["legal"][0])
    copy, fen = game.clone(), game.board.fen()
    copy.step(copy.infos["black"]["legal"][0])
    assert game.board.fen() == fen != copy.board.fen() and copy.board.move_stack[:1] == game.board.move_stack
    assert len(game._transcript) == 1


@pytest.mark.parametrize(
    "fen",
    [
        "nonsense", "", "4k3/8/4K3/8/8/8/8/8 w - - 0 1", "4k3/8/4K3/8/8/8/8/Q7 w - - 0 1", chess.STARTING_FEN,
        "4k3/8/4K3/8/8/8/8/r7 w - - 0 1", "R3k3/8/4K3/8/8/8/8/8 w - - 0 1", "R3k3/8/4K3/8/8/8/8/8 b - - 0 1",
        "4k3/4K3/8/8/8/8/8/R7 w - - 0 1", 5,
    ],
)  # fmt: skip
def test_bad_fens(fen):
    with pytest.raises(ValueError, match="fen must be a"):
        start(fen)


def test_bad_options():
    for options in ({"strong": "red"}, {"draw": -1}, {"max_turns": 0}):
        with pytest.raises(ValueError):
            ChessEndgame(**options)


@given(st.text(st.characters(), max_size=12))
def test_any_text_is_harmless(text):
    game = start(MATE_IN_2)
    game.step(text)
    assert game.infos["white"]["valid"] == (game.turns == 1)


def neighbours(square):
    """The squares next to this one, where a king goes."""
    x, y = square % 8, square // 8
    around = itertools.product((x - 1, x, x + 1), (y - 1, y, y + 1))
    return frozenset(8 * v + u for u, v in around if 0 <= u < 8 and 0 <= v < 8) - {square}


def rays(rook, king):
    """The squares on the rook's lines up to its own king; the other king hides none behind it from the rook."""
    for u, v in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        x, y = rook % 8 + u, rook // 8 + v
        while 0 <= x < 8 and 0 <= y < 8 and 8 * y + x != king:
            yield 8 * y + x
            x, y = x + u, y + v


def between(square, start, end):
    """Whether a square lies on the line from one square to another."""
    (x, y), (a, b), (u, v) = ((s % 8, s // 8) for s in (square, start, end))
    return (x == a == u and min(b, v) < y < max(b, v)) or (y == b == v and min(a, u) < x < max(a, u))


@pytest.mark.slow
def test_the_whole_table_every_position_is_won_in_sixteen_moves():
    """Retrograde analysis of all positions (king, rook, bare king), with rules of its own for the three men."""
    near = [neighbours(square) for square in range(64)]
    lines = {(rook, king): frozenset(rays(rook, king)) for rook, king in itertools.permutations(range(64), 2)}
    apart = [men for men in itertools.permutations(range(64), 3) if men[2] not in near[men[0]]]
    to_win = {(king, rook, bare) for king, rook, bare in apart if bare not in lines[rook, king]}
    for king, rook, bare in sorted(to_win)[::997]:
        board = chess.Board(None)
        for square, man in zip((king, rook, bare), "KRk", strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(man))
        assert board.is_valid()
    replies, lost = {}, {}  # the bare king to move: where it may go; in how many moves of the other side it is lost
    for king, rook, bare in apart:
        if rook in near[bare] and rook not in near[king]:
            continue  # it takes the rook
        replies[king, rook, bare] = near[bare] - near[king] - lines[rook, king] - {king}
        if not replies[king, rook, bare] and bare in lines[rook, king]:
            lost[king, rook, bare] = 0
    won: dict[Any, int] = {}
    fresh = list(lost)
    while fresh:
        depth, found = lost[fresh[0]] + 1, set()
        for king, rook, bare in fresh:
            found |= {(k, rook, bare) for k in near[king]}
            found |= {(king, r, bare) for r in lines[rook, king] if not between(bare, r, rook)}
        found = {men for men in found & to_win if men not in won}
        won |= dict.fromkeys(found, depth)
        unsure = {(king, rook, bare) for king, rook, to in found for bare in near[to]} & replies.keys() - lost.keys()
        fresh = [men for men in unsure if replies[men] and all((*men[:2], to) in won for to in replies[men])]
        lost |= dict.fromkeys(fresh, depth)
    assert won.keys() == to_win and max(won.values()) == ChessEndgame.theory["longest_win"]
