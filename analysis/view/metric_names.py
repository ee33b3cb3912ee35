"""Readable names of a run's figures, and their better direction: more or less.

`NAMES` is the only table of names: `learn.shared.kl` becomes "distance from the reference, shared". Unknown figures
keep their own name without underscores.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

Better = Literal["more", "less", ""]
"""Direction of an improvement, "" if it depends."""


class Name(NamedTuple):
    """Readable name of a figure (`words`), and whether `more` or `less` of it is better; "" if that depends."""

    words: str
    better: Better = ""


NAMES: Mapping[str, tuple[str, Better]] = {
    r"panel\.payoff": ("payoff against the panel", "more"),
    r"panel\.gap": ("distance to the best response", "less"),
    r"panel\.valid": ("valid acts against the panel", "more"),
    r"panel\.deal": ("deals with the panel", "more"),
    r"valid|valid per match": ("valid acts in a match", "more"),
    r"valid_rate": ("valid acts of all turns", "more"),
    r"truncated_rate|truncated per match": ("replies cut at the token limit", "less"),
    r"ended by a full context": ("matches ended by a full context", "less"),
    r"mean_payoff": ("mean payoff of all seats", ""),
    r"learners payoff": ("payoff of the learners", "more"),
    r"payoff[ .](.+)": ("payoff of {0}", ""),
    r"success": ("successes", "more"),
    r"solved": ("solved", "more"),
    r"won": ("won", "more"),
    r"correct": ("correct answers", "more"),
    r"deal": ("deals", "more"),
    r"trade": ("trades", "more"),
    r"efficiency": ("share of the best joint value", "more"),
    r"joint_value": ("joint value", "more"),
    r"best_joint_value": ("best possible joint value", ""),
    r"nash_product": ("Nash product, as a share of the best", "more"),
    r"nash_product_raw": ("Nash product", "more"),
    r"nash_distance": ("distance to the Nash bargain", "less"),
    r"pareto_distance": ("distance to the Pareto front", "less"),
    r"equilibrium_distance": ("distance to the equilibrium", "less"),
    r"(nash|equilibrium)_payoff_(\w+)": ("{0} payoff of the {1} mover", ""),
    r"payoff_(first|second)": ("payoff of the {0} mover", ""),
    r"turns": ("turns in a match", ""),
    r"ended\.(.+)": ("matches ended by {0}", ""),
    r"reward[ .](.+)": ("reward of {0}, a match", "more"),
    r"learn\.(.+)\.kl": ("distance from the reference (KL), {0}", ""),
    r"learn\.(.+)\.kl_term": ("penalty for that distance, {0}", ""),
    r"learn\.(.+)\.entropy": ("randomness of the acts (entropy), {0}", ""),
    r"learn\.(.+)\.entropy_term": ("bonus for randomness, {0}", ""),
    r"learn\.(.+)\.loss": ("loss, {0}", ""),
    r"learn\.(.+)\.clipped": ("share of tokens clipped, {0}", ""),
    r"learn\.(.+)\.advantage_size": ("mean size of the advantages, {0}", ""),
    r"learn\.(.+)\.correction": ("correction for the sampler, {0}", ""),
    r"learn\.(.+)\.logprob_gap": ("gap between sampler and trainer, {0}", "less"),
    r"learn\.(.+)\.grad_norm": ("size of the gradient, {0}", ""),
    r"learn\.(.+)\.steps": ("optimiser steps, {0}", ""),
    r"learn\.(.+)\.tokens": ("tokens learned from, {0}", ""),
    r"learn\.(.+)\.skipped": ("updates skipped, {0}", "less"),
    r"win_rate\.(.+)": ("wins, {0}", "more"),
    r"payoff_against\.(.+)": ("payoff of {0}", "more"),
    r"ratings\.(.+)": ("rating of {0}", ""),
    r"failed_rate": ("matches that failed", "less"),
    r"failed": ("failed matches", "less"),
    r"matches": ("matches", ""),
    r"tokens": ("tokens written", ""),
    r"tokens_per_second": ("tokens per second", "more"),
    r"matches_per_second": ("matches per second", "more"),
    r"selection\.deals": ("different deals", ""),
    r"selection\.trajectories": ("trajectories to learn from", ""),
    r"selection\.replayed": ("trajectories replayed", ""),
    r"selection\.dropped": ("trajectories dropped", ""),
    r"selection\.out_of_loss": ("turns left out of the loss", ""),
    r"selection\.out_of_statistics": ("trajectories left out of the statistics", ""),
    r"seconds\.play_model": ("seconds in the model while playing", "less"),
    r"seconds\.(.+)": ("seconds: {0}", "less"),
}
"""Names and directions by pattern of the whole key. `{0}` is the pattern's first group."""


def name_figure(key: str) -> Name:
    """Return a figure's readable name and the direction that is better. A leading `report.` is ignored.

    Unknown figures keep their name without underscores.

    >>> name_figure("learn.shared.kl").words, name_figure("report.deal").better, name_figure("my_own_score").words
    ('distance from the reference (KL), shared', 'more', 'my own score')
    """
    name = key.removeprefix("report.")
    for pattern, (words, better) in NAMES.items():
        if match := re.fullmatch(pattern, name, re.S):
            return Name(words.format(*(group.replace("_", " ") for group in match.groups())), better)
    game, dot, figure = name.partition(".")  # in runs of several games, a figure begins with the game's name
    if dot and any(re.fullmatch(pattern, figure, re.S) for pattern in NAMES):
        words, better = name_figure(figure)
        return Name(f"{game}: {words}", better)
    return Name(name.replace("_", " ").replace(".", ": "))


THEORY: Mapping[str, tuple[str, str]] = {
    "value": ("payoff.FIRST", "value of the game"),
    "equilibrium_payoff": ("payoff", "equilibrium"),
    "best": ("payoff", "the most there is"),
    "best_mean_payoff": ("payoff", "the most there is"),
    "mean_best_joint_value": ("report.joint_value", "best, on average"),
    "mean_nash_joint_value": ("report.joint_value", "Nash bargain, on average"),
    "equilibrium_revenue": ("report.revenue", "equilibrium"),
    "truthful_revenue": ("report.revenue", "truthful bids"),
    "max_efficiency": ("report.efficiency", "the most there is"),
    "least_turns": ("report.turns", "the fewest there are"),
}
"""Theory values of games: the metric that each belongs to (FIRST is the first seat), and its label."""
