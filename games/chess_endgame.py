"""King and rook against king, on the rules of python-chess (package chess)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from games.base import IllegalAct, TextGame, choice, number, whole_number

try:
    import chess
except ImportError:
    raise ImportError("python-chess is not installed: pip install 'arena-selfplay[chess]'", name="chess") from None

OUTCOME = "outcome"
SEATS: tuple[str, ...] = ("white", "black")


class ChessEndgame(TextGame):
    """King and rook against king. Acts: UCI (a1a8) or SAN (Ra8); the rook's side moves first and wins by checkmate.

    Draws: stalemate, loss of the rook, fifty moves of either side without a capture, or max_turns (repetition is
    not claimed). The start is a random legal position in which the rook's side is to move, has no mate in one, and its
    rook is not attacked. Reward part "outcome": 1 and -1 at checkmate, otherwise `draw` for both. More options:
    strong, the seat with the rook; draw >= 0; max_turns >= 1, moves of both sides.
    reset(options={"fen": FEN}) starts from that position of the three pieces; either side may be to move.
    """

    name = "chess_endgame"
    seats = SEATS
    metadata: ClassVar[dict[str, Any]] = {"name": "chess_endgame_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {OUTCOME: "1 for a win, -1 for a loss, `draw` for a draw"}
    # The side with the rook, to move, wins from every position, in at most 16 own moves, 31 in all (Thompson's tables).
    theory: ClassVar[Mapping[str, float]] = {"value": 1.0, "longest_win": 16.0}
    perfect_information = True
    stakes = 1.0

    def __init__(
        self, *, strong: Literal["white", "black"] = "white", draw: float = 0.0, max_turns: int = 60, **options: Any
    ) -> None:
        super().__init__(**options)
        self.strong, self.draw = choice("strong", strong, *SEATS), number("draw", draw)
        self.max_turns = whole_number("max_turns", max_turns, least=1)
        self.board = chess.Board(None)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a start position, or use the option `fen`. Raises ValueError if it is not a valid start."""
        color = self.strong == "white"
        self.board = self._parse_fen(options["fen"], color) if "fen" in options else _draw_position(rng, color)
        self.agent_selection = SEATS[not self.board.turn]

    def rules(self) -> str:
        """Return the rules for the players, as one paragraph of text."""
        return (
            f"Chess: king and rook ({self.strong}) against king. The rook's side wins by checkmate; stalemate, the "
            f"rook lost or {self.max_turns} moves played is a draw. Write a move, as a1a8 or Ra8."
        )

    def public(self) -> dict[str, Any]:
        """Return both sides' pieces, `board` (white at the bottom), `fen` and `turns_left`."""
        pieces = {seat: self._describe_men(color) for seat, color in zip(SEATS, (True, False), strict=True)}
        return {**pieces, "board": str(self.board), "fen": self.board.fen(), "turns_left": self.max_turns - self.turns}

    def legal(self, seat: str) -> list[str]:
        """Return all legal moves in UCI notation."""
        return [move.uci() for move in self.board.legal_moves]

    def play(self, seat: str, act: str) -> str:
        """Play a move and return it as UCI. Case, blanks and SAN's signs make no difference. Pays at the end."""
        text, moves = _strip_signs(act), self.board.legal_moves
        move = next((move for move in moves if text in (move.uci(), _strip_signs(self.board.san(move)))), None)
        if move is None:
            raise IllegalAct("write one of the legal moves, such as a1a8 or Ra8")
        self.board.push(move)
        if self.board.is_checkmate():
            for side in self.seats:
                self.pay(side, OUTCOME, 1.0 if side == seat else -1.0)
            self.end("checkmate", f"Checkmate, {seat} won.")
        elif reason := self._find_draw():
            for side in self.seats if self.draw else ():
                self.pay(side, OUTCOME, self.draw)
            self.end(*reason)
        return move.uci()

    def figures(self) -> dict[str, float | bool | str]:
        """Return `won`: whether the side with the rook won."""
        return {"won": self.ended == "checkmate"}

    def clone(self) -> Self:
        """Return an independent copy; the board's own copy is faster than `deepcopy`."""
        return copy.deepcopy(self, {id(self.board): self.board.copy()})

    def _find_draw(self) -> tuple[str, str] | None:
        if self.board.is_stalemate():
            return "stalemate", "Stalemate, a draw."
        if self.board.is_insufficient_material():
            return "rook", "The rook is lost, a draw."
        if self.board.halfmove_clock >= 100:
            return "fifty", "Fifty moves without a capture, a draw."
        return ("turns", "No turns are left, a draw.") if self.turns + 1 == self.max_turns else None

    def _describe_men(self, color: bool) -> str:
        pieces = [(kind, square) for kind in (chess.KING, chess.ROOK) for square in self.board.pieces(kind, color)]
        return " ".join(f"{chess.piece_symbol(kind).upper()}{chess.square_name(square)}" for kind, square in pieces)

    def _parse_fen(self, fen: object, color: bool) -> chess.Board:
        try:
            board = chess.Board(str(fen))
        except ValueError:
            board = chess.Board(None)
        pieces = sorted((piece.piece_type, piece.color == color) for piece in board.piece_map().values())
        if pieces != [(chess.ROOK, True), (chess.KING, False), (chess.KING, True)] or not board.is_valid():
            raise ValueError(f"fen must be a legal position of {self.strong}'s king and rook and a king, not {fen!r}")
        if board.is_game_over() or board.halfmove_clock >= 100:
            raise ValueError(f"fen must be a position in which the game goes on, not {fen!r}")
        return board


def _strip_signs(text: str) -> str:
    """Return a move in lower case, without blanks and SAN's signs. Without pawns, case is not significant."""
    return "".join(char for char in text.lower() if char not in "x+#=-" and not char.isspace())


def _draw_position(rng: np.random.Generator, color: bool) -> chess.Board:
    """Draw a start position without a mate in one or an attacked rook. The rook's side (white if `color`) moves."""
    pieces = chess.Piece(chess.KING, color), chess.Piece(chess.ROOK, color), chess.Piece(chess.KING, not color)
    while True:
        board = chess.Board(None)
        board.turn = color
        squares = rng.choice(64, size=3, replace=False).tolist()
        for square, piece in zip(squares, pieces, strict=True):
            board.set_piece_at(square, piece)
        if board.is_valid() and not board.is_attacked_by(not color, squares[1]) and not _has_mate(board):
            return board


def _has_mate(board: chess.Board) -> bool:
    """Return True if the side to move has a mate in one."""
    return any(board.san(move).endswith("#") for move in board.legal_moves)
