"""King and rook against king: starts, parsing of moves, every way a match ends, and the full endgame table."""

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


def start_game(fen, **options):
    game = ChessEndgame(**options)
    game.reset(seed=0, options={"fen": fen})
    return game


def can_mate(game, moves):
    """Search the game's acts: return whether the rook's side mates within `moves` of its moves."""
    if game.ended:
        return game.ended == "checkmate"
    is_own_move = game.agent_selection == game.strong
    if is_own_move and not moves:
        return False
    return (any if is_own_move else all)(
        can_mate(successor, moves - is_own_move)
        for act in game.infos[game.agent_selection]["legal"]
        for successor in [game.clone()]
        if not successor.step(act)
    )


def test_mate_in_one_and_two_by_search():
    mate_in_one = start_game(MATE_IN_1)
    assert can_mate(mate_in_one, 1)
    mate_in_one.step("a1a8")
    assert mate_in_one.payoffs() == {"white": 1.0, "black": -1.0} and mate_in_one.report() == {
        "ended": "checkmate", "turns": 1, "won": True,
    }  # fmt: skip
    mate_in_two = start_game("7k/8/5K2/8/8/8/8/R7 w - - 0 1")
    assert not can_mate(mate_in_two, 1) and can_mate(mate_in_two, 2)
    black = start_game("7K/8/5k2/8/8/8/8/r7 b - - 0 1", strong="black")
    assert not can_mate(black, 1) and can_mate(black, 2)


@pytest.mark.parametrize("strong", ["white", "black"])
def test_start_positions_are_legal_and_not_won_at_once(strong):
    game, positions = ChessEndgame(strong=strong), set()
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
        positions.add(board.fen())
    assert len(positions) == 150


@pytest.mark.parametrize("text", ["a1a8", " A1 A8 ", "Ra8", "ra8", "Ra8#", "Ra8+", "a1-a8"])
def test_a_move_may_be_written_in_many_ways(text):
    game = start_game(MATE_IN_1)
    game.step(text)
    assert game.ended == "checkmate" and game.observe("black")["messages"][0] == {"sender": "white", "text": "a1a8"}


@pytest.mark.parametrize("text", ["", "a1", "a8a1", "a1b2", "Rb2", "e8e7", "O-O", "a1a8q", "a1a٨"])
def test_other_moves_are_illegal(text):
    game = start_game(MATE_IN_1)
    before = json.dumps(game.public())
    game.step(text)
    assert not game.infos["white"]["valid"] and json.dumps(game.public()) == before


def test_every_draw():
    stalemate = start_game("k7/8/K7/8/8/8/8/1R6 w - - 0 1", draw=0.1)
    stalemate.step("Rb7")
    assert stalemate.ended == "stalemate" and stalemate.payoffs() == {"white": 0.1, "black": 0.1}
    rook_lost = start_game("4k3/8/8/8/8/8/R7/1K6 w - - 0 1")
    rook_lost.step("Ra7")
    rook_lost.step("Kd8")
    rook_lost.step("Rc7")
    rook_lost.step("kxc7")
    assert (
        rook_lost.ended == "rook"
        and rook_lost.payoffs() == {"white": 0.0, "black": 0.0}
        and not rook_lost.report()["won"]
    )
    fifty = start_game("4k3/8/8/8/8/8/R7/1K6 w - - 98 60", draw=0.1)
    fifty.step("Ra3")
    fifty.step("Kd8")
    assert fifty.ended == "fifty" and fifty.payoffs() == {"white": 0.1, "black": 0.1}
    last_turn = start_game("4k3/8/8/8/8/8/R7/1K6 w - - 0 1", max_turns=3)
    for act in ("Ra3", "Kd8", "Ra4"):
        last_turn.step(act)
    assert last_turn.ended == "turns"
    mate = start_game(MATE_IN_1.replace("0 1", "99 80"), max_turns=1)
    mate.step("Ra8")
    assert mate.ended == "checkmate"  # mate takes precedence over the fifty-move rule and the last turn


def test_public_facts_show_board_pieces_and_turns():
    facts = start_game(MATE_IN_1).infos["white"]["public"]
    assert (facts["white"], facts["black"], facts["turns_left"]) == ("Ke6 Ra1", "Ke8", 60)
    assert facts["board"].split("\n")[0] == ". . . . k . . ." and facts["fen"] == MATE_IN_1


def test_clone_is_independent():
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
def test_refuses_invalid_fens(fen):
    with pytest.raises(ValueError, match="fen must be a"):
        start_game(fen)


def test_refuses_invalid_options():
    for options in ({"strong": "red"}, {"draw": -1}, {"max_turns": 0}):
        with pytest.raises(ValueError):
            ChessEndgame(**options)


@given(st.text(st.characters(), max_size=12))
def test_any_text_is_harmless(text):
    game = start_game(MATE_IN_2)
    game.step(text)
    assert game.infos["white"]["valid"] == (game.turns == 1)


def find_neighbours(square):
    """Return the squares that a king reaches from this one."""
    x, y = square % 8, square // 8
    around = itertools.product((x - 1, x, x + 1), (y - 1, y, y + 1))
    return frozenset(8 * v + u for u, v in around if 0 <= u < 8 and 0 <= v < 8) - {square}


def list_rook_squares(rook, king):
    """Yield the rook's squares up to its own king. The bare king does not block, as it may not retreat along a line."""
    for u, v in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        x, y = rook % 8 + u, rook // 8 + v
        while 0 <= x < 8 and 0 <= y < 8 and 8 * y + x != king:
            yield 8 * y + x
            x, y = x + u, y + v


def lies_between(square, start, end):
    """Return whether a square lies strictly between two squares on a rook's line."""
    (x, y), (a, b), (u, v) = ((s % 8, s // 8) for s in (square, start, end))
    return (x == a == u and min(b, v) < y < max(b, v)) or (y == b == v and min(a, u) < x < max(a, u))


@pytest.mark.slow
def test_every_position_is_won_in_sixteen_moves():
    """Retrograde analysis of all positions (king, rook, bare king), with independent rules for the three pieces."""
    neighbours = [find_neighbours(square) for square in range(64)]
    lines = {
        (rook, king): frozenset(list_rook_squares(rook, king)) for rook, king in itertools.permutations(range(64), 2)
    }
    legal_positions = [
        position for position in itertools.permutations(range(64), 3) if position[2] not in neighbours[position[0]]
    ]
    to_win = {(king, rook, bare) for king, rook, bare in legal_positions if bare not in lines[rook, king]}
    for king, rook, bare in sorted(to_win)[::997]:
        board = chess.Board(None)
        for square, symbol in zip((king, rook, bare), "KRk", strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(symbol))
        assert board.is_valid()
    replies, lost = {}, {}  # bare king to move: its squares, and the number of moves in which it is mated
    for king, rook, bare in legal_positions:
        if rook in neighbours[bare] and rook not in neighbours[king]:
            continue  # the king captures the rook
        replies[king, rook, bare] = neighbours[bare] - neighbours[king] - lines[rook, king] - {king}
        if not replies[king, rook, bare] and bare in lines[rook, king]:
            lost[king, rook, bare] = 0
    won: dict[Any, int] = {}
    frontier = list(lost)
    while frontier:
        depth, predecessors = lost[frontier[0]] + 1, set()
        for king, rook, bare in frontier:
            predecessors |= {(k, rook, bare) for k in neighbours[king]}
            predecessors |= {(king, r, bare) for r in lines[rook, king] if not lies_between(bare, r, rook)}
        predecessors = {position for position in predecessors & to_win if position not in won}
        won |= dict.fromkeys(predecessors, depth)
        candidates = {
            (king, rook, bare) for king, rook, target in predecessors for bare in neighbours[target]
        } & replies.keys() - lost.keys()
        frontier = [
            position
            for position in candidates
            if replies[position] and all((*position[:2], target) in won for target in replies[position])
        ]
        lost |= dict.fromkeys(frontier, depth)
    assert won.keys() == to_win and max(won.values()) == ChessEndgame.theory["longest_win"]
