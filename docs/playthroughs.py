"""Record one match of each game and simulator in docs/playthroughs/, with fixed seeds and scripted players.

python docs/playthroughs.py [GAME ...]    # default: all games
"""

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import games
from agents.players.scripted import make_scripted
from games.adapters.loading import find_entry_points
from games.base import TextGame
from games.contracts import View

FOLDER = Path(__file__).parent / "playthroughs"
NAMES = sorted(
    [*games.GAMES, *(name for name, entry in find_entry_points().items() if entry.module.startswith("simulators."))]
)
SEED = 7
OPTIONS: Mapping[str, dict[str, Any]] = {
    "negotiation": {"values": "public", "breakdown": 0.2},
    "prover": {"depth": 3},
    "recommender": {"days": 1},
    "search": {"pages": 200, "hops": 2},
    "search_planner": {"pages": 200},
    "search_selfplay": {"pages": 200},
    "sql": {"seats": "all"},
}
"""Options that keep a match short or show more of the game."""
PLAYERS: Mapping[str, str] = {
    "breakthrough": "mcts:20x1", "chess_endgame": "minimax:1", "clinic": "asker", "connect_four": "mcts:50x1",
    "first_price_auction": "shading_bidder", "guess_city": "halver", "haggle": "conceding_haggler",
    "hanabi": "sure_teammate", "kuhn_poker": "nash", "negotiation": "nash_bargaining",
    "public_goods": "conditional_contributor", "recommender": "listening", "search": "reader",
    "second_price_auction": "truthful_bidder", "sql": "flawed", "tasks": "repeater", "tic_tac_toe": "mcts:50x1",
    "twenty_questions": "halver",
    "ultimatum": "fair_splitter", "wordle": "consistent_guesser",
}  # fmt: skip
"""Scripted player of all seats; otherwise the game's oracle, or random."""
ILLEGAL_ACT = "PLAY the banjo"
MAX_LINES = 140
MAX_WIDTH = 240


def record_match(name: str) -> str:
    """Return the text of one match of the game: rules, each turn, payoffs and figures, clipped to `MAX_LINES`."""
    game = games.make(name, **OPTIONS.get(name, {}))
    lines = [clip(line) for line in record_lines(game, name)]
    if len(lines) > MAX_LINES:
        end = next(i for i in range(len(lines) - 1, 0, -1) if lines[i].startswith("# End"))
        head = MAX_LINES - (len(lines) - end) - 2
        lines = [*lines[:head], "", f"[{end - head} lines left out]", *lines[end:]]
    return "\n".join(lines).rstrip() + "\n"


def record_lines(game: TextGame, name: str) -> Iterator[str]:
    """Play one match and yield its record, line by line."""
    game.reset(seed=SEED)
    player = PLAYERS.get(name, "oracle" if "oracle" in game.players else "random")
    players = {seat: make_scripted(player, SEED + i, game) for i, seat in enumerate(game.possible_agents)}
    options = "".join(f" --option {key}={value}" for key, value in OPTIONS.get(name, {}).items())
    yield f"# {name}: one match, seed {SEED}, players: {player}"
    yield f"# Rules and options: arena show game {name}. To play: arena play --game {name}{options} --seed {SEED}"
    yield from ("", "rules:", *(f"  {line}" for line in game.rules().splitlines()))
    for turn in itertools.takewhile(lambda _: not game.ended, itertools.count(1)):
        seat = game.agent_selection
        view = View.of(game, seat, turn - 1)
        yield from ("", f"# Turn {turn}: {seat}", *format_observation(view))
        if turn == 1:
            yield from try_illegal_act(game, seat)
        act = players[seat].act(view)
        game.step(act)
        yield f"{seat} acts: {act}" if game.infos[seat]["valid"] else f"{seat} acts (illegal): {act}"
        yield from format_rewards(game)
    yield from ("", "# End")
    for seat in game.possible_agents:
        yield from (f"{seat} reads {message.sender}: {message.text}" for message in game.messages(seat))
    yield "payoffs: " + ", ".join(f"{seat} {value:+g}" for seat, value in game.payoffs().items())
    yield from (f"{key}: {format_value(value)}" for key, value in game.report().items())


def format_observation(view: View) -> Iterator[str]:
    """Yield the seat's observation: new messages, public and private facts, legal acts."""
    yield from (f"  {message.sender}: {line}" for message in view.messages for line in message.text.splitlines())
    for label, facts in (("public", view.public), ("private", view.private)):
        yield from (f"  {label}.{key} = {format_value(value)}" for key, value in facts.items())
    yield f"  legal acts: {', '.join(view.legal) if view.legal else 'not listed'}"


def try_illegal_act(game: TextGame, seat: str) -> Iterator[str]:
    """Play an illegal act on a copy of the match, and yield its rewards and the referee's answer."""
    copy = game.clone()
    copy.step(ILLEGAL_ACT)
    if copy.infos[seat]["valid"] is False:
        yield f"{seat} could act: {ILLEGAL_ACT} (illegal)"
        yield from format_rewards(copy)
        yield from (f"  {message.sender}: {message.text}" for message in copy.messages(seat)[-1:])


def format_rewards(game: TextGame) -> Iterator[str]:
    """Yield the named rewards of the last act, for each seat that has any."""
    for seat in game.possible_agents:
        if parts := game.infos[seat]["rewards"]:
            yield f"  rewards of {seat}: " + ", ".join(f"{part} {value:+g}" for part, value in parts.items())


def format_value(value: Any) -> str:
    """Return a JSON-able value on one line, floats with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def clip(line: str) -> str:
    """Return the line on one row of at most `MAX_WIDTH` characters."""
    line = " ".join(line.splitlines())
    return line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 1] + "…"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in sys.argv[1:] or NAMES:
        (FOLDER / f"{each}.txt").write_text(record_match(each), "utf-8")
