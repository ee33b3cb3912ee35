"""Scripted players in worlds of others, 200 episodes each, and acts per second beside the bare package.

    python benchmarks/others.py overcooked      # in an environment that has the package
    python benchmarks/others.py overcooked --quick

Success and score are the original's. Rates are those of random play, per second of CPU time of this process and its
children; arms alternate. Writes results/others-NAME.json.
"""

import argparse
import contextlib
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
    chance, library = random.Random(seed), type(game).name
    return lambda view: chance.choice(view.legal) if view.legal else FIXED[library](chance)


def episode(game: TextGame, name: str, seed: int, most: int | None = None) -> int:
    """Play a match, all seats by players of this name, to its end or for `most` acts. Returns the number of acts."""
    game.reset(seed=seed)
    acts = {seat: player(game, name, 1000 * seed + n) for n, seat in enumerate(game.seats)}
    while not game.ended and (most is None or game.turns < most):
        seat = game.agent_selection
        game.step(acts[seat](View.of(game, seat, game.turns)))
    return game.turns


def cpu() -> float:
    """Return the CPU seconds of this process and of its living descendants, with those of their ended children."""
    tick, parents, used = os.sysconf("SC_CLK_TCK"), dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            used[int(stat.parent.name)] = sum(map(int, fields[11:15])) / tick
    family, size = {os.getpid()}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return time.process_time() + sum(used[each] for each in family - {os.getpid()})


def bare_overcooked(rest: str, acts: int) -> int:
    """Step Overcooked-AI's rules alone, as its environment class does."""
    rules = importlib.import_module("overcooked_ai_py.mdp.overcooked_mdp").OvercookedGridworld.from_layout_name(rest)
    state, chance = rules.get_standard_start_state(), random.Random(0)
    actions = ["interact", (0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    for _ in range(acts // 2):
        state, _ = rules.get_state_transition(state, (chance.choice(actions), chance.choice(actions)))
    return acts


def bare_mpe2(rest: str, acts: int) -> int:
    """Step MPE2 alone, with an observation before each act."""
    env = importlib.import_module(rest).env()
    chance, done = random.Random(0), 0
    while done < acts:
        env.reset(seed=done)
        for agent in env.agent_iter():
            _, _, is_over, is_cut, _ = env.last()
            env.step(None if is_over or is_cut else chance.randrange(int(env.action_space(agent).n)))
            done += 1
    return done


def bare_scienceworld(rest: str, acts: int) -> int:
    """Step ScienceWorld alone, in this process; its step lists the valid acts, too."""
    from games.adapters.scienceworld_worlds import JAVA

    if not _SCIENCE:
        os.environ["JAVA_TOOL_OPTIONS"] = JAVA
        _SCIENCE.append(importlib.import_module("scienceworld").ScienceWorldEnv("", envStepLimit=10**6))
    env, chance, done = _SCIENCE[0], random.Random(0), 0
    while done < acts:
        env.load(rest, done % 5, "easy")
        _, info = env.reset()
        for _ in range(MOST_ACTS):
            _, _, is_over, info = env.step(chance.choice(info["valid"]))
            done += 1
            if is_over or done >= acts:
                break
    return done


_SCIENCE: list[Any] = []


def bare_openenv(rest: str, acts: int) -> int:
    """Step the same server over the same kind of session, without a game."""
    from games.adapters.openenv_server import begin_session

    session, _ = begin_session(rest, 0)
    for _ in range(acts):
        session.ask("step", {"message": "hello"})
    session.close()
    return acts


LEGS = "verifiers:verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv(gym=leg_counting)"
FIXED: Mapping[str, Callable[[random.Random], str]] = {
    "openenv": lambda chance: "hello",
    "verifiers": lambda chance: f"<answer>{chance.randrange(400)}</answer>",
}
"""Acts of random play by library, where none are listed."""
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "overcooked": {
        "games": {
            f"overcooked:{name}": {}
            for name in ("cramped_room", "asymmetric_advantages", "coordination_ring", "unident")
        },
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("points", "soups"),
        "bare": bare_overcooked,
    },
    "mpe2": {
        "games": {
            f"pettingzoo:mpe2.{name}": {}
            for name in ("simple_speaker_listener_v4", "simple_spread_v3", "simple_tag_v3")
        },
        "players": {"random": EPISODES},
        "figures": (),
        "bare": bare_mpe2,
    },
    "scienceworld": {
        "games": {"scienceworld:all": {"split": "test", "listed": False, "max_turns": 300}},
        "players": {"expert": 30},
        "figures": ("success", "score"),
    },
    "scienceworld-plant": {
        "games": {"scienceworld:find-plant": {"max_turns": 25}},
        "players": {"random": 20},
        "figures": ("success", "score"),
        "bare": bare_scienceworld,
    },
    "verifiers": {"games": {LEGS: {}}, "players": {"random": EPISODES}, "figures": ("reward",)},
    "openenv": {
        "games": {"openenv:my_echo.server.app:app": {"max_turns": 20}},  # of `openenv init my_echo`
        "players": {"random": EPISODES},
        "figures": ("reward",),
        "bare": bare_openenv,
    },
}
"""Benchmarks by name: games with options, episodes by player, averaged figures of the report, and the bare loop."""


def play_episodes(
    name: str, options: Mapping[str, Any], who: str, figures: tuple[str, ...], episodes: int
) -> dict[str, Any]:
    """Play episodes and return the means of the report's figures, their number, and mean acts."""
    game, reports, paid = games.make(name, **options), [], []
    begun = time.monotonic()
    for seed in range(episodes):
        episode(game, who, seed)
        reports.append(game.report())
        paid.append(fmean(game.payoffs().values()))
    wall = time.monotonic() - begun
    means = {figure: fmean(float(report[figure]) for report in reports) for figure in figures}
    faults = sum(float(report.get("faults", 0)) > 0 for report in reports)
    acts = fmean(float(report["turns"]) for report in reports)
    told = {"episodes": episodes, "acts": acts, "payoff": fmean(paid), "with_faults": faults}
    return {**means, **told, "seconds_an_act": wall / episodes / acts}


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
            who: play_episodes(name, options, who, world["figures"], 2 if chosen.quick else episodes)
            for who, episodes in world["players"].items()
        }
        if "bare" in world:
            row["rates"] = rates(name, options, world["bare"], 1 if chosen.quick else ROUNDS)
        found[name] = row
        print(name, json.dumps(row))
    result = {"command": f"python benchmarks/others.py {chosen.world}", "machine": environment(), "games": found}
    if not chosen.quick:
        (RESULTS / f"others-{chosen.world}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
