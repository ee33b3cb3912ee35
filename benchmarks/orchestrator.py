"""Speed of matches without a model: Arena's orchestrator, bare loops, and games of other libraries.

    python benchmarks/orchestrator.py            # about five minutes on two cores
    python benchmarks/orchestrator.py --quick    # one small round of everything: does it still work?

Each arm plays uniformly random legal acts in one thread. Arms alternate within a round, and the process's CPU time is
compared, so that a busy machine slows all of them equally and waits for the disk do not count. Wall time is recorded,
too. The upper limit is a bare loop over Arena's games (reset, last, step, payoffs and report). Writes
results/orchestrator.json.
"""

import argparse
import asyncio
import json
import os
import random
import re
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyspiel
import textarena
from pettingzoo.classic import connect_four_v3
from reporting import format_command, write_result
from timing import compute_ratios

import games
from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.doctor import describe_environment
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from arena.store.matchlog import MatchBatch, MatchLog
from games.contracts import Act, MatchId, View

GAMES = {"kuhn_poker": 6000, "connect_four": 1000, "negotiation": 3000}
"""Number of matches per arm and round."""
SPIEL = {"kuhn_poker": "kuhn_poker", "connect_four": "connect_four", "negotiation": "bargaining"}
TEXTARENA = {"kuhn_poker": "KuhnPoker-v0", "connect_four": "ConnectFour-v0", "negotiation": "SimpleNegotiation-v0"}
TARGETS = {"records off / bare": 0.7, "records and log / bare": 0.4, "records off / textarena": 1.0}
"""Minimum ratios of acts per CPU second."""
FEWER_MATCHES = ("textarena", "pettingzoo")
"""Arms that play a fifth of the matches."""
Arm = Callable[[], int]
"""Function that plays and returns the number of acts."""


def play_openspiel(game: str, matches: int) -> int:
    """Play with OpenSpiel's own loop, where acts are numbers instead of texts, and return the number of acts."""
    rules, rng, acts = pyspiel.load_game(SPIEL[game]), random.Random(0), 0
    for _ in range(matches):
        state = rules.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes, chances = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(rng.choices(outcomes, chances)[0])
            else:
                state.apply_action(rng.choice(state.legal_actions()))
                acts += 1
    return acts


def play_bare(game: str, matches: int) -> int:
    """Play Arena's text game with PettingZoo's loop and return the number of acts."""
    rng, acts = random.Random(0), 0
    for seed in range(matches):
        env = games.make(game)
        env.reset(seed=seed)
        for _ in env.agent_iter():
            _, _, terminated, truncated, info = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(rng.choice(info["legal"]))
                acts += 1
        env.payoffs(), env.report()
    return acts


def play_pettingzoo(matches: int) -> int:
    """Play PettingZoo's connect four with its documented loop over arrays, and return the number of acts."""
    env, acts = connect_four_v3.env(), 0
    for seed in range(matches):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            observation, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(env.action_space(agent).sample(observation["action_mask"]))
                acts += 1
    return acts


def play_textarena(game: str, matches: int) -> int:
    """Play with TextArena's loop and default wrappers, and return the number of acts.

    Environments are not reused, because reuse slows them down match by match.
    """
    rng, acts, act = random.Random(0), 0, TEXTARENA_ACTS[game]
    for seed in range(matches):
        env = textarena.make(TEXTARENA[game])
        env.reset(num_players=2, seed=seed)
        done = False
        while not done:
            _, observation = env.get_observation()
            done, _ = env.step(act(observation, rng))
            acts += 1
        env.close()
    return acts


def _choose_kuhn_act(observation: str, rng: random.Random) -> str:
    listed = observation.rsplit("available actions are:", 1)[-1]
    return str(rng.choice(re.findall(r"\[\w+\]", listed)))


def _choose_column(observation: str, rng: random.Random) -> str:
    top = observation.rsplit("-------------\n", 1)[-1].split("\n", 1)[0].split()
    return f"[{rng.choice([column for column, disc in enumerate(top) if disc == '.'])}]"


def _choose_trade(observation: str, rng: random.Random) -> str:
    return rng.choice(("[Offer: 1 Wood -> 1 Gold]", "[Offer: 2 Wheat -> 1 Sheep]", "[Accept]", "[Deny]"))


TEXTARENA_ACTS = {"kuhn_poker": _choose_kuhn_act, "connect_four": _choose_column, "negotiation": _choose_trade}


def make_plans(game: str, matches: int) -> list[MatchPlan]:
    """Return plans of matches between two random players."""
    seats = {seat: Seating(seat, "random", 0, False, "brain") for seat in games.make(game).seats}
    return [MatchPlan(identity=MatchId(0, i), game=game, options={}, seed=i, seats=seats) for i in range(matches)]


def play_orchestrated(game: str, matches: int, in_flight: int, keep: str) -> int:
    """Play with Arena's orchestrator and return the number of acts.

    `keep` is "nothing" (only outcomes), "records", "log" (also on the disk) or "sealed" (also as Parquet).
    """
    acts = 0

    async def play(plan: MatchPlan) -> MatchRecord:
        nonlocal acts
        env = games.make(game)
        players = {s: ScriptedPlayer(make_scripted("random", 2 * plan.seed + i, env)) for i, s in enumerate(plan.seats)}
        record = await play_match(plan, env, players, Limits(), keep_turns=keep != "nothing")
        acts += env.turns
        return record

    with tempfile.TemporaryDirectory() as folder:
        log = MatchLog(Path(folder))
        batch = MatchBatch(log)
        done = batch.add if keep in ("log", "sealed") else lambda record: None
        asyncio.run(play_all(make_plans(game, matches), play, done, in_flight))
        batch.flush()
        if keep == "sealed":
            log.seal(0)
    return acts


def make_arms(game: str, matches: int) -> dict[str, Arm]:
    """Return the arms of a game by name."""
    arms: dict[str, Arm] = {
        "openspiel": lambda: play_openspiel(game, matches),
        "bare": lambda: play_bare(game, matches),
        "records off": lambda: play_orchestrated(game, matches, 1, "nothing"),
        "records off, 1000 in flight": lambda: play_orchestrated(game, matches, 1000, "nothing"),
        "records": lambda: play_orchestrated(game, matches, 1, "records"),
        "records and log": lambda: play_orchestrated(game, matches, 1, "log"),
        "records and log, 1000 in flight": lambda: play_orchestrated(game, matches, 1000, "log"),
        "records, log, sealed": lambda: play_orchestrated(game, matches, 1, "sealed"),
        "textarena": lambda: play_textarena(game, max(1, matches // 5)),
    }
    if game == "connect_four":
        arms["pettingzoo"] = lambda: play_pettingzoo(max(1, matches // 5))
    return arms


def measure_speed(game: str, matches: int, rounds: int) -> dict[str, Any]:
    """Return acts and matches per CPU second and acts per second by arm, and the ratios of arms by round."""
    arms, rates, walls = (
        make_arms(game, matches),
        defaultdict[str, list[float]](list),
        defaultdict[str, list[float]](list),
    )
    per_match = {}
    for arm in arms.values():
        arm()  # warm-up: imports modules and makes tables
    for _ in range(rounds):
        for name, arm in arms.items():
            wall, cpu = time.perf_counter(), time.process_time()
            acts = arm()
            rates[name].append(acts / (time.process_time() - cpu))
            walls[name].append(acts / (time.perf_counter() - wall))
            per_match[name] = acts / (matches if name not in FEWER_MATCHES else max(1, matches // 5))
    pairs = [(a, "bare") for a in arms if a.startswith("records")] + [("bare", "openspiel")]
    pairs += [(a, b) for a in ("records off", "bare") for b in ("textarena", "pettingzoo") if b in arms]
    return {
        "acts_per_cpu_second": {name: median(each) for name, each in rates.items()},
        "matches_per_cpu_second": {name: median(each) / per_match[name] for name, each in rates.items()},
        "acts_per_second_of_wall_time": {name: median(each) for name, each in walls.items()},
        "acts_per_match": per_match,
        "ratio": {f"{a} / {b}": compute_ratios(rates[a], rates[b]) for a, b in pairs},
    }


class WaitingPlayer:
    """Wrapper of a player that waits until all matches have started, so that all are in flight at once."""

    def __init__(self, player: ScriptedPlayer, started: list[int], gate: asyncio.Event) -> None:
        self.player, self.started, self.gate = player, started, gate
        self.streams, self.stream_keys, self.version = player.streams, player.stream_keys, 0

    async def act(self, view: View) -> Act:
        """Wait for all other matches before the first act, then play."""
        if not self.gate.is_set():
            self.started[0] += 1
            await self.gate.wait()
        return await self.player.act(view)


def measure_growth(game: str, sizes: list[int]) -> list[dict[str, float]]:
    """Return the memory per match in flight, and the time per match from a separate run, for each number of matches."""
    rows = []
    for size in sizes:
        timing = asyncio.run(_measure_in_flight(game, size))
        tracemalloc.start()
        traced = asyncio.run(_measure_in_flight(game, size))
        tracemalloc.stop()
        rows.append({**timing, "kib_per_match": traced["kib_per_match"]})
    return rows


async def _measure_in_flight(game: str, size: int) -> dict[str, float]:
    started, gate, acts = [0], asyncio.Event(), 0
    plans = make_plans(game, size)
    memory_before, start = tracemalloc.get_traced_memory()[0], time.perf_counter()

    async def play(plan: MatchPlan) -> MatchRecord:
        nonlocal acts
        env = games.make(game)
        scripted = (ScriptedPlayer(make_scripted("random", 2 * plan.seed + i, env)) for i in range(len(plan.seats)))
        players = {s: WaitingPlayer(script, started, gate) for s, script in zip(plan.seats, scripted, strict=True)}
        record = await play_match(plan, env, players, Limits())
        acts += len(record.turns)
        return record

    task = asyncio.create_task(play_all(plans, play, lambda record: None, size))
    while started[0] < size:
        await asyncio.sleep(0)
    memory, gathered = tracemalloc.get_traced_memory()[0] - memory_before, time.perf_counter()
    gate.set()
    await task
    ended = time.perf_counter()
    return {
        "matches": size, "kib_per_match": memory / size / 1024, "start_us_per_match": (gathered - start) / size * 1e6,
        "us_per_act": (ended - start) / acts * 1e6, "matches_per_second": size / (ended - start),
    }  # fmt: skip


def judge_targets(found: dict[str, Any]) -> dict[str, Any]:
    """Return each target's ratios by game, and whether all games reach it."""
    reached = {name: {game: f["ratio"][name]["median"] for game, f in found.items()} for name in TARGETS}
    return {
        name: {
            "target": target,
            "games": {game: {"reached": ratio, "met": ratio >= target} for game, ratio in reached[name].items()},
            "met": min(reached[name].values()) >= target,
        }
        for name, target in TARGETS.items()
    }


def main() -> None:
    """Measure all games and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg(), "seeds": "0, 1, 2, … a match"}
    sizes = [10, 100, 1000] if quick else [10, 100, 1000, 10_000]
    result["games"] = {g: measure_speed(g, n // 50 if quick else n, 1 if quick else 5) for g, n in GAMES.items()}
    result["growth"] = {game: measure_growth(game, sizes) for game in GAMES}
    result |= {"verdict": judge_targets(result["games"]), "load_at_end": os.getloadavg()}
    write_result("orchestrator", result, quick)
    for game, found in result["games"].items():
        print(f"{game}, acts per CPU second")
        print(*(f"    {name:34} {rate:>9.0f}" for name, rate in found["acts_per_cpu_second"].items()), sep="\n")
        print(*(f"    {name:46} {r['median']:.2f}" for name, r in found["ratio"].items()), sep="\n")
    print(json.dumps({"growth": result["growth"], "verdict": result["verdict"]}, indent=1))


if __name__ == "__main__":
    main()
