"""Players of solved games: mixed strategies that are unexploitable, or nearly so.

They play small two-player zero-sum games with OpenSpiel rules, and use only their own information state. A game is
solved once per process, when it is first played.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents.player import ScriptedPolicy
from agents.players.search import Minimax, find_minimax_obstacle
from games.abilities import SpielRules
from games.contracts import Game, View

MAX_HISTORIES = 50_000
"""Maximum number of histories of a game to solve. Leduc hold'em has 9,457."""
ITERATIONS = 1000
"""Default number of iterations of CFR."""
ALPHA = 1 / 6
"""Default probability with which the first seat of Kuhn poker bets a jack."""

Strategy = Mapping[str, Sequence[tuple[int, float]]]
"""Strategy of both seats: information state -> (action, probability) of each legal action."""


class MixedStrategyPlayer:
    """Policy that draws its acts from a mixed strategy of an OpenSpiel game, with the random numbers of `seed`."""

    def __init__(self, seed: int, game: SpielRules, strategy: Strategy) -> None:
        self.rng, self.game, self.strategy = random.Random(seed), game, strategy

    def act(self, view: View) -> str:
        """Return an act drawn from the strategy at the seat's information state."""
        player = self.game.possible_agents.index(view.seat)
        actions, chances = zip(*self.strategy[self.game.state.information_state_string(player)], strict=True)
        return self.game.word(self.rng.choices(actions, chances)[0])


def make_cfr(seed: int, game: SpielRules, iterations: int) -> ScriptedPolicy:
    """Play the average strategy of counterfactual regret minimisation; `cfr:N` sets N iterations (default 1,000)."""
    return MixedStrategyPlayer(seed, game, compute_cfr_strategy(str(game.spiel), iterations))


def make_nash(seed: int, game: Game, alpha: float | None) -> ScriptedPolicy:
    """Play a Nash equilibrium (minimax if nothing is hidden); `nash:ALPHA` sets Kuhn poker's bluff rate, 0 to 1/3."""
    if game.perfect_information:
        return Minimax(seed, game)
    assert isinstance(game, SpielRules), "find_nash_obstacle rejects all other games"
    if is_kuhn(game):
        return MixedStrategyPlayer(seed, game, kuhn_strategy(ALPHA if alpha is None else alpha))
    return MixedStrategyPlayer(seed, game, solve_equilibrium(str(game.spiel)))


@functools.cache
def compute_cfr_strategy(name: str, iterations: int) -> Strategy:
    """Compute the average strategy of OpenSpiel's CFR (Zinkevich et al. 2007) for the game of an OpenSpiel name."""
    import pyspiel

    solver = pyspiel.CFRSolver(pyspiel.load_game(name))
    for _ in range(iterations):
        solver.evaluate_and_update_policy()
    strategy: Strategy = solver.tabular_average_policy().policy_table()
    return strategy


def kuhn_strategy(alpha: float) -> Strategy:
    """Return an equilibrium of Kuhn poker (Kuhn 1950): the first seat bets a jack with probability alpha, 0 to 1/3.

    Information states are OpenSpiel's: the card (0, 1, 2 for J, Q, K), then the acts so far (p, b).
    """
    bets = {
        "0": alpha, "1": 0.0, "2": 3 * alpha,  # the first seat opens
        "0pb": 0.0, "1pb": alpha + 1 / 3, "2pb": 1.0,  # and answers a bet
        "0p": 1 / 3, "1p": 0.0, "2p": 1.0,  # the second seat after a pass
        "0b": 0.0, "1b": 1 / 3, "2b": 1.0,  # and after a bet
    }  # fmt: skip
    return {infostate: [(0, 1.0 - chance), (1, chance)] for infostate, chance in bets.items()}


@dataclass
class Sequences:
    """Sequences of a seat's own acts from the root, by number (0 is the empty one), and its information states."""

    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    """(information state, action) -> number of the sequence that ends with the action."""
    parents: dict[str, int] = field(default_factory=dict)
    """Information state -> number of the sequence that leads to it."""

    def add(self, infostate: str, actions: Sequence[int], sequence: int) -> None:
        """Add an information state after `sequence`, and number the sequences that end with its actions.

        Does nothing if the state is known.
        """
        if infostate not in self.parents:
            self.parents[infostate] = sequence
            for action in actions:
                self.numbers[infostate, action] = len(self.numbers) + 1


@functools.cache
def solve_equilibrium(name: str) -> Strategy:
    """Compute a Nash equilibrium of a two-player zero-sum game by linear programming in sequence form.

    Source: Koller, Megiddo and von Stengel (1996). The realisation weights of one seat's sequences maximise the value
    against the other seat's best response. Exact to the solver's tolerance, 1e-7.
    """
    import pyspiel

    game = pyspiel.load_game(name)
    seats, leaves = (Sequences(), Sequences()), []
    stack = [(game.new_initial_state(), 1.0, (0, 0))]
    while stack:
        state, chance, sequences = stack.pop()
        if state.is_terminal():
            leaves.append((*sequences, chance * state.returns()[0]))
        elif state.is_chance_node():
            stack += [(state.child(a), chance * p, sequences) for a, p in state.chance_outcomes()]
        else:
            player = state.current_player()
            infostate, actions = state.information_state_string(player), state.legal_actions()
            seats[player].add(infostate, actions, sequences[player])
            for action in actions:
                longer = seats[player].numbers[infostate, action]
                extended = (longer, sequences[1]) if player == 0 else (sequences[0], longer)
                stack.append((state.child(action), chance, extended))
    first = _compute_weights(seats[0], seats[1], [(a, b, value) for a, b, value in leaves])
    second = _compute_weights(seats[1], seats[0], [(b, a, -value) for a, b, value in leaves])
    return _convert_weights(seats[0], first) | _convert_weights(seats[1], second)


def _compute_weights(own: Sequences, other: Sequences, leaves: list[tuple[int, int, float]]) -> list[float]:
    """Compute the optimal realisation weights of a seat's sequences, by number, with a linear programme.

    `leaves` are (own sequence, other's sequence, the seat's payoff times the probability of chance). The variables are
    the weights, then the game's value and a value for each information state of the other seat. Raises RuntimeError if
    there is no solution.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    weights, choices = len(own.numbers) + 1, {infostate: n for n, infostate in enumerate(other.parents, 1)}
    columns = weights + len(choices) + 1
    # The value of an information state of the other seat is at most what any of its acts leaves to us, later acts
    # included.
    worth = [(b, a, -value) for a, b, value in leaves] + [(0, weights, 1.0)]
    worth += [(b, weights + choices[infostate], 1.0) for (infostate, _), b in other.numbers.items()]
    worth += [(b, weights + choices[infostate], -1.0) for infostate, b in other.parents.items()]
    # Weights flow: the empty sequence has 1, and the acts at an information state share the weight that leads to it.
    rows = {infostate: n for n, infostate in enumerate(own.parents, 1)}
    flow = [(0, 0, 1.0)] + [(rows[infostate], a, 1.0) for (infostate, _), a in own.numbers.items()]
    flow += [(rows[infostate], a, -1.0) for infostate, a in own.parents.items()]

    def matrix(entries: list[tuple[int, int, float]], height: int) -> Any:
        row, column, value = zip(*entries, strict=True)
        return coo_array((value, (row, column)), shape=(height, columns)).tocsr()

    goal = np.zeros(columns)
    goal[weights] = -1.0
    solution = linprog(
        goal, matrix(worth, len(other.numbers) + 1), np.zeros(len(other.numbers) + 1),
        matrix(flow, len(rows) + 1), np.eye(1, len(rows) + 1)[0],
        bounds=[(0, None)] * weights + [(None, None)] * (columns - weights), method="highs",
    )  # fmt: skip
    if not solution.success:
        raise RuntimeError(f"no equilibrium was found: {solution.message}")
    return [max(0.0, float(x)) for x in solution.x[:weights]]


def _convert_weights(own: Sequences, plan: list[float]) -> dict[str, list[tuple[int, float]]]:
    """Convert realisation weights to (action, probability) by information state; uniform for states of weight 0."""
    acts: dict[str, list[tuple[int, float]]] = {}
    for (infostate, action), number in own.numbers.items():
        acts.setdefault(infostate, []).append((action, plan[number]))
    for infostate, weights in acts.items():
        total = math.fsum(weight for _, weight in weights)
        acts[infostate] = [(action, weight / total if total else 1 / len(weights)) for action, weight in weights]
    return acts


# -- arguments, and games that the players can play ---------------------------------------------------------


def parse_iterations(text: str | None) -> int:
    """Parse cfr's argument: the number of iterations, by default 1,000. Raises ValueError if malformed."""
    if text is None:
        return ITERATIONS
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text)):
        raise ValueError("cfr needs a number of iterations, such as cfr:1000")
    return int(text)


def parse_alpha(text: str | None) -> float | None:
    """Parse nash's argument: alpha of Kuhn poker's equilibria, or None. Raises ValueError if malformed."""
    if text is None:
        return None
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not 0 <= alpha <= 1 / 3:
        raise ValueError(
            "nash needs the probability with which Kuhn poker's first seat bets a jack, 0 to 1/3, such as nash:0.2"
        )
    return alpha


def is_kuhn(game: Game) -> bool:
    """Return True if the game is OpenSpiel's Kuhn poker for two."""
    if not isinstance(game, SpielRules) or len(game.possible_agents) != 2:
        return False
    return bool(game.spiel.get_type().short_name == "kuhn_poker")


def find_cfr_obstacle(game: Game, iterations: int) -> str:
    """Return the reason why CFR cannot solve a game; "" if it can. `iterations` has no effect."""
    return _explain_unsolvable(game, "cfr")


def find_nash_obstacle(game: Game, alpha: float | None) -> str:
    """Return the reason why `nash` cannot play a game; "" if it can. `alpha` is only for Kuhn poker."""
    if alpha is not None and not is_kuhn(game):
        return f"nash:{alpha:g} is an equilibrium of kuhn_poker: write nash for {game.name}"
    if game.perfect_information:
        return find_minimax_obstacle(game, None).replace("give minimax a depth", "use minimax with a depth")
    return _explain_unsolvable(game, "nash")


def _explain_unsolvable(game: Game, script: str) -> str:
    if not isinstance(game, SpielRules):
        return f"{script} solves games with OpenSpiel's rules: {game.name} is not one"
    kind = game.spiel.get_type()
    if len(game.possible_agents) != 2 or kind.utility != kind.Utility.ZERO_SUM:
        return f"{script} solves two-player zero-sum games: {game.name} is not one"
    if not _is_small(str(game.spiel)):
        return f"{script} solves games of up to {MAX_HISTORIES:,} histories: {game.name} has more"
    return ""


@functools.cache
def _is_small(name: str) -> bool:
    import pyspiel

    stack, count = [pyspiel.load_game(name).new_initial_state()], 0
    while stack and count <= MAX_HISTORIES:
        state = stack.pop()
        count += 1
        if not state.is_terminal():
            stack += [state.child(action) for action in state.legal_actions()]
    return count <= MAX_HISTORIES
