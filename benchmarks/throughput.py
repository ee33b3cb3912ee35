"""Simulated dialogues per second with many in flight, and the share of play outside of the model.

    python benchmarks/throughput.py            # about ten minutes on one core
    python benchmarks/throughput.py --quick    # one small round of everything: does it still work?

Persons are scripted. `scripted`: agents are scripted, too, and yield before every act, so that the reported number of
matches is really in flight; records are written to the log as in a run. The upper limit is a bare loop with the same
game, seeds and players, but without orchestrator and records. Arms alternate within a round. `held`: memory, open files
and processes with 1,000 matches in flight, after their end, and after Ctrl-C in the middle. `models`: the recipes' own
matches with a model at the agent's seat; all time outside the engine's calls counts as outside the model.

Writes results/throughput.json.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from processes import read_status, run_script
from reporting import format_command, write_result
from timing import compute_ratios
from workload import open_lab

import games
from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import describe_environment
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.records import MatchRecord, Seating
from arena.store.matchlog import MatchBatch, MatchLog
from games.contracts import Act, MatchId, View

WORLDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "clinic": ("clinic", {}, "random_asker"),
    "desk, shop": ("desk", {"domain": "shop"}, "oracle"),
    "desk, airline": ("desk", {"domain": "airline"}, "oracle"),
    "reasoning": ("reasoning", {}, "oracle"),
    "proposer_solver": ("proposer_solver", {}, "oracle"),
    "recommender": ("recommender", {}, "listening"),
    "recommender, 100,000 items": ("recommender", {"catalogue": 100_000}, "listening"),
}
"""Game, options, and the script of all seats. In the clinic, the script asks until nothing is left to ask."""
IN_FLIGHT = (1, 32, 256, 1000)
MODELS: dict[str, tuple[str, list[str]]] = {
    "clinic, nano": ("clinic-nano", ["policies.doctor.imitate.matches=128"]),
    "desk, nano": ("desk-nano", ["policies.agent.imitate.matches=128"]),
    "reasoning, nano": ("ufo-nano", ["policies.shared.imitate={scripted: [swapper], matches: 128, lr: 3e-3}"]),
    "proposer_solver, nano": (
        "proposer_solver-nano",
        ["policies.proposer.imitate.matches=64", "policies.solver.imitate.matches=128"],
    ),
    "recommender, nano": ("recommender-nano", ["policies.recommender.imitate.matches=128"]),
    "clinic, SmolLM2-135M": ("clinic", ["policies.doctor.imitate=null"]),
    "desk, SmolLM2-135M": ("desk", ["policies.agent.imitate=null"]),
    "recommender, SmolLM2-135M": ("recommender", ["policies.recommender.imitate=null"]),
}
"""Recipes and their overrides. Warm starts are short or left out, because their effect is not measured."""
MEMORY_WORLDS = ("clinic", "desk, shop", "recommender", "recommender, 100,000 items")
FEW_MATCHES = 8
"""Number of matches of the larger model."""


class YieldingPlayer(ScriptedPlayer):
    """Scripted player that lets all other matches proceed before each of its acts."""

    async def act(self, view: View) -> Act:
        """Yield to the other matches, then play."""
        await asyncio.sleep(0)
        return self.answer(view)


def make_plans(world: str, matches: int) -> list[MatchPlan]:
    """Return plans of matches between the world's scripted players, with the seeds 0, 1, 2, …"""
    game, options, script = WORLDS[world]
    seats = {seat: Seating(seat, script, 0, False, "brain") for seat in games.make(game, **options).seats}
    return [MatchPlan(identity=MatchId(0, i), game=game, options=options, seed=i, seats=seats) for i in range(matches)]


def make_table(plan: MatchPlan, kind: type[ScriptedPlayer]) -> tuple[Any, dict[str, ScriptedPlayer]]:
    """Return a match's game, not yet reset, and its players by seat."""
    game = games.make(plan.game, **plan.options)
    return game, {s: kind(make_scripted(seating.policy, plan.seed, game)) for s, seating in plan.seats.items()}


def play_bare(world: str, matches: int) -> None:
    """Play the matches with PettingZoo's loop alone."""
    for plan in make_plans(world, matches):
        game, players = make_table(plan, ScriptedPlayer)
        game.reset(seed=plan.seed)
        for turn, seat in enumerate(game.agent_iter()):
            observation, _, terminated, _, info = game.last()
            if terminated:
                game.step(None)
                continue
            legal = None if info["legal"] is None else tuple(info["legal"])
            view = View(
                seat, turn, observation["messages"], info["rules"], info["public"], info["private"], legal
            )  # fmt: skip
            game.step(players[seat].answer(view).action)
        game.payoffs(), game.report()


def play_orchestrated(world: str, matches: int, in_flight: int, on_begin: Callable[[], None] = lambda: None) -> int:
    """Play the matches with records and log, and return the number of acts. Calls `on_begin` as each match begins."""
    acts = 0

    async def play(plan: MatchPlan) -> MatchRecord:
        nonlocal acts
        on_begin()
        record = await play_match(plan, *make_table(plan, YieldingPlayer), Limits())
        acts += len(record.turns)
        return record

    with tempfile.TemporaryDirectory() as folder, contextlib.closing(MatchLog(Path(folder))) as log:
        batch = MatchBatch(log)
        found = asyncio.run(play_all(make_plans(world, matches), play, batch.add, in_flight))
        batch.flush()
    assert len(found) == matches
    return acts


def measure_scripted(world: str, quick: bool) -> dict[str, Any]:
    """Return the dialogues per second and per CPU second by number in flight, and their ratios to the bare loop."""
    few, rounds = (10, 1) if quick else (100, 2)
    sizes = {n: (20 if quick else 1000) if n == 1000 else few for n in IN_FLIGHT}
    arms: dict[str, tuple[int, Callable[[], object]]] = {"bare": (few, lambda: play_bare(world, few))}
    for n, size in sizes.items():
        arms[f"{n} in flight"] = size, lambda n=n, size=size: play_orchestrated(world, size, n)  # type: ignore[misc]
    acts = play_orchestrated(world, few, 1) / few  # warm-up: imports modules and makes tables
    cpu, wall = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(rounds):
        for name, (matches, arm) in arms.items():
            started, used = time.perf_counter(), time.process_time()
            arm()
            cpu[name].append(matches / (time.process_time() - used))
            wall[name].append(matches / (time.perf_counter() - started))
    return {
        "player": WORLDS[world][2],
        "acts_per_dialogue": acts,
        "dialogues_per_second": {name: median(each) for name, each in wall.items()},
        "dialogues_per_cpu_second": {name: median(each) for name, each in cpu.items()},
        "of_bare_by_cpu_time": {name: compute_ratios(cpu[name], cpu["bare"]) for name in arms if name != "bare"},
    }


# -- memory, files and processes while matches run -----------------------------------------------------------


def read_usage() -> dict[str, int]:
    """Return this process's memory in MB (10^6 bytes), open files and child processes."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "rss_mb": read_status("VmRSS") // 10**6,
        "open_files": len(os.listdir("/proc/self/fd")),
        "children": len(children),
    }


def measure_held(world: str, in_flight: int) -> dict[str, Any]:
    """Measure memory, files and processes before, with all matches in flight, afterwards, and after an interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    play_orchestrated(world, 2, 2)
    found = {"before": read_usage()}
    count = 0

    def call_when_all_began(callback: Callable[[], None]) -> Callable[[], None]:
        def count_begun() -> None:
            nonlocal count
            count += 1
            if count == in_flight:  # the last one begins while all others wait for their first turn
                callback()

        return count_begun

    play_orchestrated(
        world, in_flight, in_flight, call_when_all_began(lambda: found.update({"in flight": read_usage()}))
    )
    found["after"] = read_usage()
    count = 0
    try:
        play_orchestrated(world, in_flight, in_flight, call_when_all_began(lambda: os.kill(os.getpid(), signal.SIGINT)))
        raise AssertionError("Ctrl-C did not end the matches")
    except KeyboardInterrupt:
        pass
    found["after Ctrl-C"] = read_usage()
    found["peak_rss_mb"] = {"all": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 10**6}
    return found


def run_measure_held(world: str, in_flight: int) -> dict[str, Any]:
    """Run `measure_held` in a new process, and add the memory per match."""
    found: dict[str, Any] = run_script("throughput.py", "--hold", world, "--matches", str(in_flight))
    grown = found["in flight"]["rss_mb"] - found["before"]["rss_mb"]
    return {"matches": in_flight, **found, "kb_per_match": 1000 * grown / in_flight}


# -- with a model at the agent's seat ------------------------------------------------------------------------


def measure_model_share(name: str, quick: bool) -> dict[str, Any]:
    """Play up to two iterations of a recipe after its warm start, and return the share of play outside the engine."""
    recipe, settings = MODELS[name]
    matches = 4 if quick else FEW_MATCHES if "Smol" in name else 128
    settings = [*settings, f"play.matches={matches}", f"play.in_flight={matches}"]
    experiment = compose([recipe_layer(recipe), *map(set_layer, settings)])
    rows = []
    with open_lab(experiment) as lab:
        wait(lab.imitate())
        for k in range(1, 2 if quick or "Smol" in name else 3):
            wait(lab.publish())
            before, started = lab.engine.figures()["seconds"], time.perf_counter()
            records = wait(lab.play(k)).records
            seconds, model = time.perf_counter() - started, lab.engine.figures()["seconds"] - before
            turns = [turn for record in records for turn in record.turns]
            counts = {"dialogues": len(records), "turns": len(turns), "valid": sum(turn.valid for turn in turns)}
            rows.append({**counts, "seconds": seconds, "model_seconds": model})
    total, model = sum(r["seconds"] for r in rows), sum(r["model_seconds"] for r in rows)
    turns_played, dialogues = sum(r["turns"] for r in rows), sum(r["dialogues"] for r in rows)
    return {
        "recipe": recipe,
        "set": settings,
        "rounds": rows,
        "outside_model": 1 - model / total,
        "ms_a_turn": {"model": 1000 * model / turns_played, "outside": 1000 * (total - model) / turns_played},
        "dialogues_per_second": dialogues / total,
        "valid_rate": sum(r["valid"] for r in rows) / turns_played,
    }


def format_summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the printed summary."""
    for world, found in result["scripted"].items():
        yield f"{world} ({found['player']}, {found['acts_per_dialogue']:.1f} acts), per CPU second, per second"
        for arm, rate in found["dialogues_per_cpu_second"].items():
            share = found["of_bare_by_cpu_time"].get(arm, {"median": 1.0})["median"]
            yield f"    {arm:18} {rate:>7.0f} {found['dialogues_per_second'][arm]:>7.0f}    {share:.2f} of bare"
    for world, found in result["held"].items():
        stages = ("before", "in flight", "after", "after Ctrl-C")
        yield f"{world}, {found['matches']} in flight: {found['kb_per_match']:.0f} kB a match"
        for usage in ("rss_mb", "open_files", "children"):
            yield f"    {usage:12}" + "".join(f"  {stage} {found[stage][usage]}" for stage in stages)
    for name, found in result["models"].items():
        yield (
            f"{name:26} {100 * found['outside_model']:5.1f} % outside the model, "
            f"{found['ms_a_turn']['model']:.1f} + {found['ms_a_turn']['outside']:.1f} ms a turn, "
            f"{found['dialogues_per_second']:.1f} dialogues/s"
        )


def main() -> None:
    """Measure all parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hold", choices=WORLDS, help=argparse.SUPPRESS)
    parser.add_argument("--matches", type=int, default=1000, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        print(json.dumps(measure_held(options.hold, options.matches)))
        return
    quick, start = options.quick, time.perf_counter()
    result: dict[str, Any] = {"command": format_command()}
    result |= {"machine": describe_environment(), "load_at_start": os.getloadavg(), "seeds": "0, 1, 2, … a match"}
    result |= {"scripted": {}, "held": {}, "models": {}}
    parts: list[tuple[str, str, Callable[[], Any]]] = [
        *(("scripted", world, lambda world=world: measure_scripted(world, quick)) for world in WORLDS),
        *(
            ("held", world, lambda world=world: run_measure_held(world, 50 if quick else 1000))
            for world in MEMORY_WORLDS
        ),
        *(("models", name, lambda name=name: measure_model_share(name, quick)) for name in MODELS),
    ]
    for part, name, measure in parts:
        result[part][name] = measure()
        result |= {"load_at_end": os.getloadavg(), "seconds": time.perf_counter() - start}
        write_result("throughput", result, quick)
    print("\n".join(format_summary(result)))


if __name__ == "__main__":
    main()
