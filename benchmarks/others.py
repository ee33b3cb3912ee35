"""Scripted players in worlds of others, 200 episodes each, and acts per second beside the bare package.

    python benchmarks/others.py overcooked      # in an environment that has the package
    python benchmarks/others.py overcooked --quick

Success and score are the original's. Rates are those of random play (of the expert in tau2), per second of CPU time of
this process and its children; arms alternate. Start-up is the CPU time, and memory the growth, until the first act in a
fresh process. Writes results/others-NAME.json.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import others_bare as bare

import games
from arena.doctor import describe_environment
from games.base import TextGame
from games.contracts import View

RESULTS = Path(__file__).parent / "results"
EPISODES, ROUNDS = 200, 5


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


def family() -> dict[int, float]:
    """Return the CPU seconds, with those of ended children, of this process and its living descendants, by id."""
    tick, parents, used = os.sysconf("SC_CLK_TCK"), dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            used[int(stat.parent.name)] = sum(map(int, fields[11:15])) / tick
    found, size = {os.getpid()}, 0
    while len(found) > size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return {each: used[each] for each in found}


def cpu() -> float:
    """Return the CPU seconds of this process and of its descendants."""
    return time.process_time() + sum(used for each, used in family().items() if each != os.getpid())


def memory() -> float:
    """Return the memory in MB of this process and its descendants; shared pages count once."""
    total = 0
    for each in family():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


LEGS = "verifiers:verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv(gym=leg_counting)"
FIXED: Mapping[str, Callable[[random.Random], str]] = {
    "openenv": lambda chance: "hello",
    "tau2": lambda chance: chance.choice(["Hello.", "I do not know.", "Can you tell me more?"]),
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
        "bare": bare.overcooked,
    },
    "mpe2": {
        "games": {
            f"pettingzoo:mpe2.{name}": {}
            for name in ("simple_speaker_listener_v4", "simple_spread_v3", "simple_tag_v3")
        },
        "players": {"random": EPISODES},
        "figures": (),
        "bare": bare.mpe2,
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
        "bare": bare.scienceworld,
    },
    "textworld": {
        "games": {
            f"textworld:{name}": {"games": 25, "split": "test", "max_turns": 20}
            for name in ("w2-o3-q4", "coin_collector(level=6)")
        },
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("success", "score"),
        "bare": bare.textworld,
    },
    "babyai": {
        "games": {f"babyai:{name}-v0": {} for name in ("GoToLocalS6N2", "GoToLocal", "PickupLoc")},
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("solved",),
        "bare": bare.babyai,
    },
    "miniwob": {
        "games": {f"miniwob:{name}": {} for name in ("click-button", "login-user")},
        "players": {"random": 30},  # a page takes a second of CPU time
        "figures": ("success", "reward"),
        "bare": bare.miniwob,
        "rounds": 2,
    },
    "tau2": {
        "games": {f"tau2:{name}": {"split": "base"} for name in ("airline", "retail", "telecom")},
        "players": {"random": 2, "expert": 20},  # tau2 takes a second to score an episode
        "figures": ("success",),
        "bare": bare.tau2,
        "rated": "expert",
        "rounds": 3,
    },
    "verifiers": {"games": {LEGS: {}}, "players": {"random": EPISODES}, "figures": ("reward",)},
    "openenv": {
        "games": {"openenv:my_echo.server.app:app": {"max_turns": 20}},  # of `openenv init my_echo`
        "players": {"random": EPISODES},
        "figures": ("reward",),
        "bare": bare.openenv,
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


def rates(
    name: str, options: Mapping[str, Any], alone: Callable[[str, int], int], rounds: int, who: str
) -> dict[str, float]:
    """Return the median acts per second of CPU time of both arms, and the median ratio."""
    game, pairs = games.make(name, **options), []
    alone(name.partition(":")[2], 2)
    for seed in range(rounds):
        begun = cpu()
        acts = sum(episode(game, who, 10 * seed + n, bare.MOST_ACTS) for n in range(3))
        between = cpu()
        done = alone(name.partition(":")[2], acts)
        pairs.append((acts / (between - begun), done / (cpu() - between)))
    return {
        "ours": median(own for own, _ in pairs),
        "bare": median(rate for _, rate in pairs),
        "ratio": median(own / rate for own, rate in pairs),
    }


def start_up(world: str, name: str, arm: str) -> dict[str, float]:
    """Return the CPU seconds until the first act and the memory taken by then, of an arm in a fresh process."""
    command = [sys.executable, __file__, world, "--start", arm, "--game", name]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def measure_start(name: str, options: Mapping[str, Any], alone: Callable[[str, int], int] | None) -> dict[str, float]:
    """Do the first act, of a game or with the bare package, and return what it took."""
    held, begun = memory(), cpu()
    if alone is None:
        game = games.make(name, **options)  # which keeps its process until the memory is read
        episode(game, "noop" if "noop" in game.players else "random", 0, 1)
    else:
        alone(name.partition(":")[2], 1)
    return {"cpu_s": cpu() - begun, "memory_mb": memory() - held}


def main() -> None:
    """Play and measure the games of one world, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=sorted(WORLDS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--start", choices=("ours", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--game", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    world, found = WORLDS[chosen.world], {}
    if chosen.start:
        alone = world["bare"] if chosen.start == "bare" else None
        print(json.dumps(measure_start(chosen.game, world["games"][chosen.game], alone)))
        return
    for name, options in world["games"].items():
        row = {
            who: play_episodes(name, options, who, world["figures"], 2 if chosen.quick else episodes)
            for who, episodes in world["players"].items()
        }
        if "bare" in world:
            rounds = 1 if chosen.quick else world.get("rounds", ROUNDS)
            row["rates"] = rates(name, options, world["bare"], rounds, world.get("rated", "random"))
            row["start_up"] = {arm: start_up(chosen.world, name, arm) for arm in ("ours", "bare")}
        found[name] = row
        print(name, json.dumps(row), flush=True)
        result = {
            "command": f"python benchmarks/others.py {chosen.world}",
            "machine": describe_environment(),
            "games": found,
        }
        if not chosen.quick:
            (RESULTS / f"others-{chosen.world}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
