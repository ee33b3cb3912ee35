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
    """Alpha-beta search to the end of the game, or by `minimax:4` four acts deep; the seed decides among ties."""

    def __init__(self, seed: int, game: Game, depth: int | None = None) -> None:
        self.rng, self.game, self.depth = random.Random(seed), game, depth
        self.table: Bounds = {}
        if depth is None and isinstance(game, SpielRules):
            self.table = _FULL_SEARCHES.setdefault(str(game.spiel), {})

    def act(self, view: View) -> str:
        """Return a best act at the game's current position, drawn at random among equally good ones."""
        position = make_position(self.game)
        if self.depth is not None:
            self.table = {}
        values = self.values(position)
        best = max(values.values())
        return position.word(self.rng.choice([act for act, value in values.items() if value >= best - TOLERANCE]))

    def values(self, position: Position) -> dict[Any, float]:
        """Return the value of each act to the seat to move: exact for the best acts, an upper bound for the others."""
        sign, best, values = (1 if position.mover == 0 else -1), -math.inf, {}
        depth = math.inf if self.depth is None else self.depth - 1
        for act in position.acts():
            floor = best - 2 * TOLERANCE
            low, high = (floor, math.inf) if sign > 0 else (-math.inf, -floor)
            values[act] = sign * DISCOUNT * self.value(position.after(act), depth, low / DISCOUNT, high / DISCOUNT)
            best = max(best, values[act])
        return values

    def value(self, position: Position, depth: float, low: float, high: float) -> float:
        """Return a position's value to the first seat by a search `depth` acts deep, exact between `low` and `high`.

        The value is half the difference of payoffs, times `DISCOUNT` per act.
        """
        if position.mover < 0 or depth == 0:
            own, other = position.payoffs()
            return (own - other) / 2
        key, window = (position.key, depth), (low, high)
        lower, upper = self.table.get(key, (-math.inf, math.inf))
        if lower >= high or lower == upper:
            return lower
        if upper <= low:
            return upper
        first = position.mover == 0
        best = -math.inf if first else math.inf
        for act in position.acts():
            value = DISCOUNT * self.value(position.after(act), depth - 1, low / DISCOUNT, high / DISCOUNT)
            if first:
                best = max(best, value)
                low = max(low, best)
            else:
                best = min(best, value)
                high = min(high, best)
            if low >= high:
                break
        # A value inside the window is exact. Below the window it is an upper bound, above it a lower bound.
        self.table[key] = best if best > window[0] else lower, best if best < window[1] else upper
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
        """Return a proven win if there is one, else the most visited act."""
        return self.game.word(self.bot.step(self.game.state))


class Node:
    """Node of the search tree: a position, its number of visits and each seat's total payoff over them."""

    def __init__(self, position: ClonePosition) -> None:
        self.position, self.visits, self.totals = position, 0, [0.0] * len(position.seats)
        self.children: dict[str, Node] = {}


class CloneMcts:
    """Policy that plays by Monte Carlo tree search (UCT) on clones, assuming that every seat maximises its payoff."""

    def __init__(self, seed: int, game: Game, simulations: int, rollouts: int) -> None:
        self.rng, self.game, self.simulations, self.rollouts = random.Random(seed), game, simulations, rollouts
        self.min_payoff, self.max_payoff = math.inf, -math.inf

    def act(self, view: View) -> str:
        """Run the simulations from the current position and return the most visited act."""
        root = Node(ClonePosition(self.game))
        for _ in range(self.simulations):
            self._simulate(root)
        me = root.position.mover
        return max(root.children, key=lambda a: (root.children[a].visits, root.children[a].totals[me]))

    def _simulate(self, root: Node) -> None:
        path = [root]
        while path[-1] is root or (path[-1].visits and path[-1].position.mover >= 0):
            path.append(self._select_child(path[-1]))
        payoffs = self._evaluate(path[-1].position)
        for node in path:
            node.visits += 1
            node.totals = [total + payoff for total, payoff in zip(node.totals, payoffs, strict=True)]

    def _select_child(self, node: Node) -> Node:
        """Add and return a random unvisited child, else return the child with the highest upper confidence bound."""
        unvisited = [act for act in node.position.acts() if act not in node.children]
        if unvisited:
            act = self.rng.choice(unvisited)
            node.children[act] = Node(node.position.after(act))
            return node.children[act]
        bonus = UCT * ((self.max_payoff - self.min_payoff) / 2 or 1.0) * math.sqrt(math.log(node.visits))
        mover = node.position.mover
        return max(node.children.values(), key=lambda c: c.totals[mover] / c.visits + bonus / math.sqrt(c.visits))

    def _evaluate(self, position: ClonePosition) -> Sequence[float]:
        is_terminal = position.mover < 0
        ends = [position.payoffs()] if is_terminal else [position.play_out(self.rng) for _ in range(self.rollouts)]
        self.min_payoff = min(self.min_payoff, *map(min, ends))
        self.max_payoff = max(self.max_payoff, *map(max, ends))
        return [sum(payoffs) / len(ends) for payoffs in zip(*ends, strict=True)]


def make_mcts(seed: int, game: Game, effort: tuple[int, int]) -> ScriptedPolicy:
    """Play by Monte Carlo tree search: `mcts:100` runs 100 simulations of 10 random rollouts, `mcts:100x1` of one."""
    return SpielMcts(seed, game, *effort) if isinstance(game, SpielRules) else CloneMcts(seed, game, *effort)


# -- arguments, and games that the players can play ---------------------------------------------------------


def parse_depth(text: str | None) -> int | None:
    """Parse minimax's argument, the search depth in acts; None means to the end. Raises ValueError if malformed."""
    if text is None:
        return None
    return _read_count(text, "minimax needs a number of acts to look ahead, such as minimax:4")


def parse_effort(text: str | None) -> tuple[int, int]:
    """Parse mcts's argument `N` or `NxR`, and return the numbers of simulations and of rollouts in each.

    None means 100 simulations of 10 rollouts. Raises ValueError if malformed.
    """
    expected = "mcts needs a number of simulations, such as mcts:100, or also of rollouts in each, such as mcts:100x1"
    simulations, x, rollouts = ("100" if text is None else text).partition("x")
    return _read_count(simulations, expected), _read_count(rollouts, expected) if x else ROLLOUTS


def _read_count(text: str, expected: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text)):
        raise ValueError(expected)
    return int(text)


def find_mcts_obstacle(game: Game, effort: tuple[int, int]) -> str:
    """Return the reason why Monte Carlo tree search cannot play a game; "" if it can."""
    return _explain_cheating("mcts", game)


def _explain_cheating(player: str, game: Game) -> str:
    """Return the reason why a player that sees the whole state would cheat in a game; "" if the game hides nothing."""
    if game.hides_nothing():
        return ""
    return f"{player} would cheat: it looks at the whole state, and {get_title(game)} hides something, or may do so"


def find_minimax_obstacle(game: Game, depth: int | None) -> str:
    """Return the reason why minimax cannot play a game, to the end or `depth` acts deep; "" if it can."""
    if obstacle := _explain_cheating("minimax", game):
        return obstacle
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
