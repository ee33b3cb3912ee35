"""Scripted players in worlds of others, 200 episodes each, and acts per second beside the bare package.

    python benchmarks/others.py overcooked      # in an environment that has the package
    python benchmarks/others.py overcooked --quick

Success and score are the original's. Rates are those of random play, per second of CPU time of this process and its
children; arms alternate. Writes results/others-NAME.json.
"""

import argparse
import importlib
import json
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import games
from arena.doctor import environment
from games.base import TextGame
from games.contracts import View

RESULTS = Path(__file__).parent / "results"
EPISODES, ROUNDS, MOST_ACTS = 200, 5, 100


def player(game: TextGame, name: str, seed: int) -> Callable[[View], str]:
    """Return a scripted player of the game; random plays listed acts if the game has none of its own."""
    if name in game.players:
        return game.players[name](game, seed)
    chance = random.Random(seed)
    return lambda view: chance.choice(view.legal or ("look",))


def episode(game: TextGame, name: str, seed: int, most: int | None = None) -> int:
    """Play a match, all seats by players of this name, to its end or for `most` acts. Returns the number of acts."""
    game.reset(seed=seed)
    acts = {seat: player(game, name, 1000 * seed + n) for n, seat in enumerate(game.seats)}
    while not game.ended and (most is None or game.turns < most):
        seat = game.agent_selection
        game.step(acts[seat](View.of(game, seat, game.turns)))
    return game.turns


def cpu() -> float:
    """Return the CPU seconds of this process and of its children, running or not."""
    total = time.process_time()
    tick = os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            total += sum(map(int, fields[11:15])) / tick
    return total


def bare_overcooked(rest: str, acts: int) -> int:
    """Step Overcooked-AI's rules alone, as its environment class does."""
    rules = importlib.import_module("overcooked_ai_py.mdp.overcooked_mdp").OvercookedGridworld.from_layout_name(rest)
    state, chance = rules.get_standard_start_state(), random.Random(0)
    actions = ["interact", (0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    for _ in range(acts // 2):
        state, _ = rules.get_state_transition(state, (chance.choice(actions), chance.choice(actions)))
    return acts


WORLDS: Mapping[str, Mapping[str, Any]] = {
    "overcooked": {
        "games": {
            f"overcooked:{name}": {}
            for name in ("cramped_room", "asymmetric_advantages", "coordination_ring", "unident")
        },
        "players": ("random", "expert"),
        "figures": ("points", "soups"),
        "bare": bare_overcooked,
    },
}
"""By name: the games with their options, players, figures of the report that are averaged, and the bare loop."""


def played(name: str, options: Mapping[str, Any], who: str, figures: tuple[str, ...], episodes: int) -> dict[str, Any]:
    """Play episodes and return the means of the report's figures, their number, and mean acts."""
    game, reports = games.make(name, **options), []
    for seed in range(episodes):
        episode(game, who, seed)
        reports.append(game.report())
    means = {figure: fmean(float(report[figure]) for report in reports) for figure in figures}
    faults = sum(float(report.get("faults", 0)) > 0 for report in reports)
    return {**means, "episodes": episodes, "acts": fmean(float(r["turns"]) for r in reports), "with_faults": faults}


def rates(name: str, options: Mapping[str, Any], bare: Callable[[str, int], int], rounds: int) -> dict[str, float]:
    """Return the median acts per second of CPU time of both arms, and the median ratio."""
    game, pairs = games.make(name, **options), []
    bare(name.partition(":")[2], 2)
    for seed in range(rounds):
        begun = cpu()
        acts = sum(episode(game, "random", 10 * seed + n, MOST_ACTS) for n in range(3))
        between = cpu()
        done = bare(name.partition(":")[2], acts)
        pairs.append((acts / (between - begun), done / (cpu() - between)))
    return {
        "ours": median(own for own, _ in pairs),
        "bare": median(alone for _, alone in pairs),
        "ratio": median(own / alone for own, alone in pairs),
    }


def main() -> None:
    """Play and measure the games of one world, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=sorted(WORLDS))
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    world, found = WORLDS[chosen.world], {}
    for name, options in world["games"].items():
        row = {
            who: played(name, options, who, world["figures"], 2 if chosen.quick else world.get("episodes", EPISODES))
            for who in world["players"]
        }
        row["rates"] = rates(name, options, world["bare"], 1 if chosen.quick else ROUNDS)
        found[name] = row
        print(name, json.dumps(row))
    result = {"command": f"python benchmarks/others.py {chosen.world}", "machine": environment(), "games": found}
    if not chosen.quick:
        (RESULTS / f"others-{chosen.world}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
