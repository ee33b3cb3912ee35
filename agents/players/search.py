"""Players that search: minimax with alpha-beta, and Monte Carlo tree search.

They use the full position, so they only play games without hidden information. Games with OpenSpiel rules are searched
as OpenSpiel states, other games through `clone()`, listed acts and payoffs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Sequence
from typing import Any

from agents.player import ScriptedPolicy
from agents.players.positions import (
    MAX_POSITIONS,
    ClonePosition,
    Position,
    get_title,
    is_contest,
    is_small,
    make_position,
)
from games.abilities import SpielRules
from games.contracts import Game, View

DISCOUNT = 0.999
"""Factor on a value per act, so that an early win is better than a late one."""
TOLERANCE = 1e-9
"""Maximum difference of values that count as equal."""
UCT = 2.0
"""Weight of exploration, for payoffs between -1 and 1."""
ROLLOUTS = 10
"""Default number of random rollouts per simulation."""

Bounds = dict[Hashable, tuple[float, float]]
"""Lower and upper bounds on the values of positions."""

_FULL_SEARCHES: dict[str, Bounds] = {}
"""Bounds by OpenSpiel game, for full searches. All matches of a process share them."""


class Minimax:
    """Alpha-beta search to the end of the game, or `minimax:4` acts deep; the seed picks among equally good acts."""

    def __init__(self, seed: int, game: Game, depth: int | None = None) -> None:
        self.rng, self.game, self.depth = random.Random(seed), game, depth
        self.table: Bounds = {}
        if depth is None and isinstance(game, SpielRules):
            self.table = _FULL_SEARCHES.setdefault(str(game.spiel), {})

    def act(self, view: View) -> str:
        """Return a best act at the game's current position, drawn at random among equally good ones."""
        here = make_position(self.game)
        if self.depth is not None:
            self.table = {}
        values = self.values(here)
        best = max(values.values())
        return here.word(self.rng.choice([act for act, value in values.items() if value >= best - TOLERANCE]))

    def values(self, here: Position) -> dict[Any, float]:
        """Return the value of each act to the seat to move: exact for the best acts, an upper bound for the others."""
        sign, best, values = (1 if here.mover == 0 else -1), -math.inf, {}
        left = math.inf if self.depth is None else self.depth - 1
        for act in here.acts():
            floor = best - 2 * TOLERANCE
            low, high = (floor, math.inf) if sign > 0 else (-math.inf, -floor)
            values[act] = sign * DISCOUNT * self.value(here.after(act), left, low / DISCOUNT, high / DISCOUNT)
            best = max(best, values[act])
        return values

    def value(self, at: Position, left: float, low: float, high: float) -> float:
        """Return a position's value to the first seat, exact between `low` and `high`, searching `left` acts ahead.

        The value is half the difference of payoffs, times `DISCOUNT` per act.
        """
        if at.mover < 0 or left == 0:
            own, other = at.payoffs()
            return (own - other) / 2
        key, window = (at.key, left), (low, high)
        least, most = self.table.get(key, (-math.inf, math.inf))
        if least >= high or least == most:
            return least
        if most <= low:
            return most
        first = at.mover == 0
        best = -math.inf if first else math.inf
        for act in at.acts():
            value = DISCOUNT * self.value(at.after(act), left - 1, low / DISCOUNT, high / DISCOUNT)
            if first:
                best = max(best, value)
                low = max(low, best)
            else:
                best = min(best, value)
                high = min(high, best)
            if low >= high:
                break
        # A value inside the window is exact. Below the window it is an upper bound, above it a lower bound.
        self.table[key] = best if best > window[0] else least, best if best < window[1] else most
        return best


class SpielMcts:
    """Policy that plays by OpenSpiel's Monte Carlo tree search, which also proves wins and losses."""

    def __init__(self, seed: int, game: SpielRules, simulations: int, rollouts: int) -> None:
        import pyspiel

        self.game, seed = game, seed % 2**31  # OpenSpiel takes signed 32-bit seeds
        self.evaluator = pyspiel.RandomRolloutEvaluator(rollouts, seed)
        self.bot = pyspiel.MCTSBot(
            game.spiel, self.evaluator, UCT, simulations, max_memory_mb=1000, solve=True, seed=seed, verbose=False
        )

    def act(self, view: View) -> str:
        """Return the most visited act, or a proven win."""
        return self.game.word(self.bot.step(self.game.state))


class Node:
    """Position in the search tree, with its number of visits and each seat's total payoff."""

    def __init__(self, at: ClonePosition) -> None:
        self.at, self.visits, self.totals = at, 0, [0.0] * len(at.seats)
        self.children: dict[str, Node] = {}


class CloneMcts:
    """Policy that plays by Monte Carlo tree search (UCT) on clones, assuming that every seat maximises its payoff."""

    def __init__(self, seed: int, game: Game, simulations: int, rollouts: int) -> None:
        self.rng, self.game, self.simulations, self.rollouts = random.Random(seed), game, simulations, rollouts
        self.least, self.most = math.inf, -math.inf

    def act(self, view: View) -> str:
        """Run the simulations from the current position and return the most visited act."""
        root = Node(ClonePosition(self.game))
        for _ in range(self.simulations):
            self._visit(root)
        me = root.at.mover
        return max(root.children, key=lambda a: (root.children[a].visits, root.children[a].totals[me]))

    def _visit(self, root: Node) -> None:
        path = [root]
        while path[-1] is root or (path[-1].visits and path[-1].at.mover >= 0):
            path.append(self._step(path[-1]))
        payoffs = self._evaluate(path[-1].at)
        for node in path:
            node.visits += 1
            node.totals = [total + payoff for total, payoff in zip(node.totals, payoffs, strict=True)]

    def _step(self, node: Node) -> Node:
        """Add and return a child for a random new act; without one, return the child of highest confidence bound."""
        fresh = [act for act in node.at.acts() if act not in node.children]
        if fresh:
            act = self.rng.choice(fresh)
            node.children[act] = Node(node.at.after(act))
            return node.children[act]
        curiosity = UCT * ((self.most - self.least) / 2 or 1.0) * math.sqrt(math.log(node.visits))
        mover = node.at.mover
        return max(node.children.values(), key=lambda c: c.totals[mover] / c.visits + curiosity / math.sqrt(c.visits))

    def _evaluate(self, at: ClonePosition) -> Sequence[float]:
        ends = [at.payoffs()] if at.mover < 0 else [at.play_out(self.rng) for _ in range(self.rollouts)]
        self.least, self.most = min(self.least, *map(min, ends)), max(self.most, *map(max, ends))
        return [sum(payoffs) / len(ends) for payoffs in zip(*ends, strict=True)]


def make_mcts(seed: int, game: Game, effort: tuple[int, int]) -> ScriptedPolicy:
    """Play by Monte Carlo tree search: `mcts:100` runs 100 simulations of 10 random rollouts, `mcts:100x1` of one."""
    return SpielMcts(seed, game, *effort) if isinstance(game, SpielRules) else CloneMcts(seed, game, *effort)


# -- arguments, and games that the players can play ---------------------------------------------------------


def parse_depth(text: str | None) -> int | None:
    """Parse minimax's argument: the number of acts to search; None means to the end. Raises ValueError if malformed."""
    if text is None:
        return None
    return _read_count(text, "minimax needs a number of acts to look ahead, such as minimax:4")


def parse_effort(text: str | None) -> tuple[int, int]:
    """Parse mcts's argument `N` or `NxR`: return the numbers of simulations and of rollouts in each.

    None means 100 simulations of 10 rollouts. Raises ValueError if malformed.
    """
    expected = "mcts needs a number of simulations, such as mcts:100, or also of rollouts in each, such as mcts:100x1"
    simulations, x, rollouts = ("100" if text is None else text).partition("x")
    return _read_count(simulations, expected), _read_count(rollouts, expected) if x else ROLLOUTS


def _read_count(text: str, expected: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text)):
        raise ValueError(expected)
    return int(text)


def unfit_for_mcts(game: Game, effort: tuple[int, int]) -> str:
    """Return the reason why Monte Carlo tree search cannot play a game; "" if it can."""
    return _explain_cheating("mcts", game)


def _explain_cheating(player: str, game: Game) -> str:
    """Return the reason why a player that sees the whole state would cheat in a game; "" if the game hides nothing."""
    if game.hides_nothing():
        return ""
    return f"{player} looks at the whole state: {get_title(game)} hides something, or does not say: it would cheat"


def unfit_for_minimax(game: Game, depth: int | None) -> str:
    """Return the reason why minimax cannot play a game, to the end or `depth` acts deep; "" if it can."""
    if hidden := _explain_cheating("minimax", game):
        return hidden
    if len(game.possible_agents) != 2:
        return f"minimax plays for two seats: {game.name} has {len(game.possible_agents)}"
    if isinstance(game, SpielRules) and (kind := game.spiel.get_type()).chance_mode != kind.ChanceMode.DETERMINISTIC:
        return f"minimax plays games without chance: {game.name} has some"
    if not is_contest(game):
        return f"minimax plays games in which a gain of one side is the other's loss: {game.name} is not one"
    if depth is None and not is_small(game):
        size = f"{get_title(game)} has over {MAX_POSITIONS:,} positions, or slow ones"
        return f"{size}: give minimax a depth, such as minimax:4"
    return ""
