"""Success of scripted players in other libraries' worlds, and acts per second compared with the bare packages.

    python benchmarks/others.py overcooked      # in an environment that has the package
    python benchmarks/others.py overcooked --quick

Players play up to 200 episodes each. Success and score are those of the library. Rates are acts of random play (of the
expert in tau2) per CPU second of this process and its children; arms alternate. Start-up is the CPU time, and memory
the growth, until the first act in a new process. Writes results/others-NAME.json.
"""

import argparse
import contextlib
import json
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

import others_bare as bare
from processes import run_script
from reporting import write_result

import games
from arena.doctor import describe_environment
from games.base import TextGame
from games.contracts import View

EPISODES, ROUNDS = 200, 5


def make_player(game: TextGame, name: str, seed: int) -> Callable[[View], str]:
    """Return the game's scripted player of this name, or else a player of random legal acts."""
    if name in game.players:
        return game.players[name](game, seed)
    rng, library = random.Random(seed), type(game).name
    return lambda view: rng.choice(view.legal) if view.legal else DEFAULT_ACTS[library](rng)


def play_episode(game: TextGame, name: str, seed: int, max_acts: int | None = None) -> int:
    """Play a match with scripted players of this name, for at most `max_acts` acts, and return the number of acts."""
    game.reset(seed=seed)
    acts = {seat: make_player(game, name, 1000 * seed + n) for n, seat in enumerate(game.seats)}
    while not game.ended and (max_acts is None or game.turns < max_acts):
        seat = game.agent_selection
        game.step(acts[seat](View.of(game, seat, game.turns)))
    return game.turns


def read_cpu_by_process() -> dict[int, float]:
    """Return the CPU seconds of this process and its living descendants by id. Each includes its ended children."""
    tick, parents, seconds = os.sysconf("SC_CLK_TCK"), dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            seconds[int(stat.parent.name)] = sum(map(int, fields[11:15])) / tick
    family, size = {os.getpid()}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return {each: seconds[each] for each in family}


def read_cpu() -> float:
    """Return the CPU seconds of this process and its descendants."""
    return time.process_time() + sum(used for each, used in read_cpu_by_process().items() if each != os.getpid())


def read_memory() -> float:
    """Return the memory in MB of this process and its descendants, counting shared pages once."""
    total = 0
    for each in read_cpu_by_process():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


LEGS = "verifiers:verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv(gym=leg_counting)"
DEFAULT_ACTS: Mapping[str, Callable[[random.Random], str]] = {
    "openenv": lambda rng: "hello",
    "tau2": lambda rng: rng.choice(["Hello.", "I do not know.", "Can you tell me more?"]),
    "verifiers": lambda rng: f"<answer>{rng.randrange(400)}</answer>",
}
"""Functions that draw acts for random play in libraries that list no acts."""
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "overcooked": {
        "games": {
            f"overcooked:{name}": {}
            for name in ("cramped_room", "asymmetric_advantages", "coordination_ring", "unident")
        },
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("points", "soups"),
        "bare": bare.play_overcooked,
    },
    "mpe2": {
        "games": {
            f"pettingzoo:mpe2.{name}": {}
            for name in ("simple_speaker_listener_v4", "simple_spread_v3", "simple_tag_v3")
        },
        "players": {"random": EPISODES},
        "figures": (),
        "bare": bare.play_mpe2,
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
        "bare": bare.play_scienceworld,
    },
    "textworld": {
        "games": {
            f"textworld:{name}": {"games": 25, "split": "test", "max_turns": 20}
            for name in ("w2-o3-q4", "coin_collector(level=6)")
        },
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("success", "score"),
        "bare": bare.play_textworld,
    },
    "babyai": {
        "games": {f"babyai:{name}-v0": {} for name in ("GoToLocalS6N2", "GoToLocal", "PickupLoc")},
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("solved",),
        "bare": bare.play_babyai,
    },
    "miniwob": {
        "games": {f"miniwob:{name}": {} for name in ("click-button", "login-user")},
        "players": {"random": EPISODES},
        "figures": ("success", "reward"),
        "bare": bare.play_miniwob,
        "rounds": 2,
    },
    "tau2": {
        "games": {f"tau2:{name}": {"split": "base"} for name in ("airline", "retail", "telecom")},
        "players": {"random": EPISODES, "expert": EPISODES},
        "figures": ("success",),
        "bare": bare.play_tau2,
        "rated": "expert",
        "rounds": 3,
    },
    "verifiers": {"games": {LEGS: {}}, "players": {"random": EPISODES}, "figures": ("reward",)},
    "openenv": {
        "games": {"openenv:my_echo.server.app:app": {"max_turns": 20}},  # of `openenv init my_echo`
        "players": {"random": EPISODES},
        "figures": ("reward",),
        "bare": bare.play_openenv,
    },
}
"""Benchmarks by name: games with options, episodes by player, figures of the report to average, and the bare loop."""


def play_episodes(
    name: str, options: Mapping[str, Any], player: str, figures: tuple[str, ...], episodes: int
) -> dict[str, Any]:
    """Play episodes and return the means of the report's figures, acts and payoffs, and the seconds per act."""
    game, reports, payoffs = games.make(name, **options), [], []
    start = time.monotonic()
    for seed in range(episodes):
        play_episode(game, player, seed)
        reports.append(game.report())
        payoffs.append(fmean(game.payoffs().values()))
    wall = time.monotonic() - start
    means = {figure: fmean(float(report[figure]) for report in reports) for figure in figures}
    faults = sum(float(report.get("faults", 0)) > 0 for report in reports)
    acts = fmean(float(report["turns"]) for report in reports)
    totals = {"episodes": episodes, "acts": acts, "payoff": fmean(payoffs), "with_faults": faults}
    return {**means, **totals, "seconds_an_act": wall / episodes / acts}


def measure_rates(
    name: str, options: Mapping[str, Any], bare_loop: Callable[[str, int], int], rounds: int, player: str
) -> dict[str, float]:
    """Return the median acts per CPU second of both arms, and the median of their ratios."""
    game, pairs = games.make(name, **options), []
    bare_loop(name.partition(":")[2], 2)
    for seed in range(rounds):
        start = read_cpu()
        acts = sum(play_episode(game, player, 10 * seed + n, bare.MAX_ACTS) for n in range(3))
        between = read_cpu()
        done = bare_loop(name.partition(":")[2], acts)
        pairs.append((acts / (between - start), done / (read_cpu() - between)))
    return {
        "ours": median(ours for ours, _ in pairs),
        "bare": median(rate for _, rate in pairs),
        "ratio": median(ours / rate for ours, rate in pairs),
    }


def run_start_up(world: str, name: str, arm: str) -> dict[str, float]:
    """Return the CPU seconds until an arm's first act and the memory used by then, measured in a new process."""
    found: dict[str, float] = run_script("others.py", world, "--start", arm, "--game", name)
    return found


def measure_start_up(
    name: str, options: Mapping[str, Any], bare_loop: Callable[[str, int], int] | None
) -> dict[str, float]:
    """Perform one act, in the game or with `bare_loop`, and return the CPU seconds and the memory growth."""
    memory, start = read_memory(), read_cpu()
    if bare_loop is None:
        game = games.make(name, **options)  # referenced until the memory is read, to keep its process alive
        play_episode(game, "noop" if "noop" in game.players else "random", 0, 1)
    else:
        bare_loop(name.partition(":")[2], 1)
    return {"cpu_s": read_cpu() - start, "memory_mb": read_memory() - memory}


def main() -> None:
    """Play and measure the games of one world, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=sorted(WORLDS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--start", choices=("ours", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--game", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    world, found = WORLDS[arguments.world], {}
    if arguments.start:
        bare_loop = world["bare"] if arguments.start == "bare" else None
        print(json.dumps(measure_start_up(arguments.game, world["games"][arguments.game], bare_loop)))
        return
    for name, options in world["games"].items():
        row = {
            player: play_episodes(name, options, player, world["figures"], 2 if arguments.quick else episodes)
            for player, episodes in world["players"].items()
        }
        if "bare" in world:
            rounds = 1 if arguments.quick else world.get("rounds", ROUNDS)
            row["rates"] = measure_rates(name, options, world["bare"], rounds, world.get("rated", "random"))
            row["start_up"] = {arm: run_start_up(arguments.world, name, arm) for arm in ("ours", "bare")}
        found[name] = row
        print(name, json.dumps(row), flush=True)
        result = {
            "command": f"python benchmarks/others.py {arguments.world}",
            "machine": describe_environment(),
            "games": found,
        }
        if not arguments.quick:
            write_result(f"others-{arguments.world}", result)


if __name__ == "__main__":
    main()
