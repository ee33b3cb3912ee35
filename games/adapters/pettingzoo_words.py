"""Texts for PettingZoo's environments: acts, observations and a line of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from games.adapters import mpe2_words


def _format_number(env: Any, seat: str, action: int) -> str:
    return str(action)


def _read_nothing(env: Any, seat: str) -> dict[str, Any]:
    """Return {}: the seat sees the environment's observation array instead."""
    return {}


@dataclass(frozen=True)
class Wording:
    """Texts for one environment: how to write its acts and observations. `env` is the unwrapped environment."""

    word: Callable[[Any, str, int], str] = _format_number
    """`word(env, seat, action)` returns the act's text."""
    look: Callable[[Any, str], dict[str, Any]] = _read_nothing
    """`look(env, seat)` returns the facts that this seat sees; {} falls back to its observation."""
    open: bool = False
    """Whether all seats may see every act."""
    perfect: bool = False
    """Whether all seats see the whole state."""
    rules: str = ""
    """Line about how to play, for the rules."""


NUMBERS = Wording()


def _format_by_name(*names: str) -> Callable[[Any, str, int], str]:
    return lambda env, seat, action: names[action]


def _format_uci(env: Any, seat: str, action: int) -> str:
    from pettingzoo.classic.chess import chess_utils

    return str(chess_utils.action_to_move(env.board, action, env.possible_agents.index(seat)).uci())


def _read_chess(env: Any, seat: str) -> dict[str, Any]:
    return {"side": "white" if env.possible_agents[0] == seat else "black", "fen": env.board.fen()}


def _format_point(env: Any, seat: str, action: int) -> str:
    """Return the act text of a Go move: a point such as C4 (columns skip I, rows count from below), or PASS."""
    size = env._N
    if action == size * size:
        return "PASS"
    row, column = divmod(action, size)
    return f"{'ABCDEFGHJKLMNOPQRST'[column]}{size - row}"


def _read_go(env: Any, seat: str) -> dict[str, Any]:
    rows = ["".join(".XO"[stone] for stone in row) for row in env._go.board.tolist()]
    return {"stones": "X" if env.possible_agents[0] == seat else "O", "board": "\n".join(rows)}


def _read_cards(env: Any, seat: str) -> dict[str, Any]:
    """Return a poker seat's hand, the public cards, and its own and all players' chips, from RLCard's state."""
    raw = env.env.get_state(env.possible_agents.index(seat))["raw_obs"]
    public = raw["public_cards"] if "public_cards" in raw else [card for card in [raw["public_card"]] if card]
    hand = raw["hand"] if isinstance(raw["hand"], list) else [raw["hand"]]
    chips = {"own_chips": int(raw["my_chips"]), "all_chips": [int(chips) for chips in raw["all_chips"]]}
    return {"hand": " ".join(hand), "public_cards": " ".join(public), **chips}


def _format_gesture(env: Any, seat: str, action: int) -> str:
    return str(env._moves[action])


def _read_last_gesture(env: Any, seat: str) -> dict[str, Any]:
    return {"others_last": str(env._moves[int(env.observe(seat))])}


def _format_hanabi_act(env: Any, seat: str, action: int) -> str:
    state = env.hanabi_env.game_state
    return str(state.action_to_string(env.possible_agents.index(seat), action)).strip("()")


def _read_hanabi(env: Any, seat: str) -> dict[str, Any]:
    return {"seen": env.hanabi_env.game_state.observation_string(env.possible_agents.index(seat))}


_format_limit_act = _format_by_name("CALL", "RAISE", "FOLD", "CHECK")
WORDS = {
    "tictactoe_v3": Wording(
        open=True, perfect=True, rules="Squares 0 to 8, row by row; three in a row win. 1: yours, 2: the other's."
    ),
    "connect_four_v3": Wording(
        open=True, perfect=True, rules="Columns 0 to 6; four in a row win. 1: your pieces, 2: the other's."
    ),
    "chess_v6": Wording(_format_uci, _read_chess, True, True, "Moves as e2e4; draws are claimed."),
    "go_v5": Wording(_format_point, _read_go, True, True, "X is black; write a point or PASS."),
    "hanabi_v5": Wording(_format_hanabi_act, _read_hanabi, True),
    "rps_v2": Wording(_format_gesture, _read_last_gesture, rules="Both choose before either choice is shown."),
    "leduc_holdem_v4": Wording(_format_limit_act, _read_cards, True),
    "texas_holdem_v4": Wording(_format_limit_act, _read_cards, True),
    "texas_holdem_no_limit_v6": Wording(
        _format_by_name("FOLD", "CHECK_CALL", "RAISE_HALF_POT", "RAISE_POT", "ALL_IN"), _read_cards, True
    ),
    **{
        name: Wording(
            mpe2_words.word, mpe2_words.make_look(layout), rules=f"{rules} All act at once. Places are relative."
        )
        for name, (layout, rules) in mpe2_words.LAYOUTS.items()
    },
}
