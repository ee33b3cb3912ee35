"""Iteration time with play ahead of learning compared with alternating phases, and the bias of `play.enough`.

    python benchmarks/overlap.py             # about ten minutes on one quiet core
    python benchmarks/overlap.py --enough    # seconds: only the part without a model; other saved results stay
    python benchmarks/overlap.py --quick     # does it still work?

The worlds are the service desk with an agent that waits 200 ms per act, as for a tool, and negotiation without waits.
Both use nano in one process with one thread. The arms (`play.ahead` 0, 1 and 2) alternate by round. Left out are each
run's first two iterations, in which the optimiser is created and play gets ahead, and its last two, in which less is
played ahead. A run's figure is the mean over its iterations, because long and short ones alternate with play ahead; a
world's figure is the median over rounds. The second part uses matches without a model, of which long ones pay 1 and
short ones pay 0. It compares the payoffs that updates learn from with `play.enough`, and with stragglers dropped.
Writes results/overlap.json. benchmarks/overlap.yaml is a study of the learning curves by staleness.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.engines.spec import EngineSpec
from agents.precision import Precision
from arena.build import Factories
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import describe_environment
from arena.lab import Lab
from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec
from arena.play.stragglers import SelectLogged, Stragglers
from arena.play.watchers import Watcher
from arena.records import MatchRecord, Seating
from arena.store.run import RunFolder
from games.contracts import MatchId

RESULT = Path(__file__).resolve().parent / "results" / "overlap.json"
TOOL_SECONDS = 0.2
"""Simulated seconds of a tool call."""
WORLDS = {
    "desk-nano, tools of 200 ms": ("desk-nano", "agent", TOOL_SECONDS),
    "negotiation-nano": ("negotiation-nano", "shared", 0.0),
}
ARMS = {
    "in turns": [],
    "ahead 1": ["play.ahead=1", "learn.loss.policy_gradient.correction=truncated"],
    "ahead 2": ["play.ahead=2", "learn.loss.policy_gradient.correction=truncated"],
}


class SlowEngine(InProcessEngine):
    """Engine that delays replies to matches by `seconds`, as if a tool had run. It samples other replies meanwhile."""

    seconds = 0.0

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample, then wait."""
        replies = await super().generate(requests)
        if self.seconds and not requests[0].key.startswith("gate/"):  # the gate's requests use no tool
            await asyncio.sleep(self.seconds)
        return replies


class IterationTimer(Watcher):
    """Watcher that records the end time and the metrics of each iteration."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.rows: list[dict[str, Any]] = []

    def iteration(self, row: dict[str, Any]) -> None:
        """Record the time and the metrics."""
        self.ends.append(perf_counter())
        self.rows.append(row)


def run_experiment(folder: Path, experiment: Experiment, seconds: float) -> dict[str, Any]:
    """Run an experiment and return its iterations' seconds and lags, without the first and last two iterations."""
    clock = IterationTimer()

    def make_engine(spec: EngineSpec, precision: Precision) -> SlowEngine:
        engine = SlowEngine(precision)
        engine.seconds = seconds
        return engine

    async def run_lab() -> None:
        lab = await Lab.open(
            RunFolder.create(folder, to_yaml(experiment), {}),
            experiment,
            clock,
            factories=Factories(engine=make_engine),
        )
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(run_lab())
    updates = [next(iter(row["learn"].values())) for row in clock.rows[2:-2]]
    return {
        "seconds": np.diff(clock.ends)[1:-2].round(3).tolist(),
        "learning": [round(row["seconds"]["learn"], 3) for row in clock.rows[2:-2]],
        "lag": [round(each.get("lag", 0.0), 3) for each in updates],
        "gated": [each.get("gated") for each in updates],
    }


def compare_arms(recipe: str, policy: str, seconds: float, rounds: int, sizes: Sequence[str]) -> dict[str, Any]:
    """Run all arms alternately from the same warm start, and return their times and ratios."""
    runs_by_arm: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}

    def make_experiment(*settings: str) -> Experiment:
        return compose([recipe_layer(recipe), *map(set_layer, ("threads=1", "study=null", *sizes, *settings))])

    with TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        run_experiment(
            first, make_experiment("iterations=1", "play.matches=2", "checkpoint.every=1", "checkpoint.keep=9"), 0.0
        )
        warm = first / "checkpoints" / "0000" / "policies" / policy
        warm_start = [f"policies.{policy}.model={warm}", f"policies.{policy}.imitate=null"]
        for number in range(rounds):
            for arm in list(ARMS)[:: 1 if number % 2 == 0 else -1]:
                runs_by_arm[arm].append(
                    run_experiment(Path(folder) / f"{arm}-{number}", make_experiment(*warm_start, *ARMS[arm]), seconds)
                )
                print(recipe, arm, runs_by_arm[arm][-1]["seconds"], flush=True)
    means = {arm: round(median(fmean(run["seconds"]) for run in runs), 3) for arm, runs in runs_by_arm.items()}
    ratios = {f"{arm} / in turns": round(means[arm] / means["in turns"], 3) for arm in list(ARMS)[1:]}
    return {"settings": list(sizes), "iteration_seconds": means, "ratios": ratios, "runs": runs_by_arm}


# -- the bias of `play.enough` -------------------------------------------------------------------------------

SEATS = {"one": Seating("role", "policy", 0, True, "model")}


def is_long(plan: MatchPlan, share: float) -> bool:
    """Return whether the match is a long one, which its seed decides with probability `share`."""
    return bool(np.random.default_rng(plan.seed).random() < share)


def make_plans(k: int, matches: int) -> list[MatchPlan]:
    """Return the plans of iteration k."""
    return [
        MatchPlan(identity=MatchId(k, i), game="", options={}, seed=10**4 * k + i, seats=SEATS) for i in range(matches)
    ]


async def play_updates(rule: PlaySpec, share: float, iterations: int) -> list[list[MatchRecord]]:
    """Return the matches that each update learns from. Long ones take many passes of the event loop and pay 1."""

    async def play(plans: list[MatchPlan], to_log: SelectLogged) -> None:
        async def play_match(plan: MatchPlan) -> None:
            is_slow = is_long(plan, share)
            for _ in range(40 + plan.identity.deal if is_slow else 2):
                await asyncio.sleep(0)
            payoffs = {"one": float(is_slow)}
            to_log(
                MatchRecord(
                    identity=plan.identity,
                    game="",
                    options={},
                    seed=plan.seed,
                    seats=SEATS,
                    status="finished",
                    reason="",
                    payoffs=payoffs,
                    report={},
                    turns=(),
                    streams={},
                    started="",
                    seconds=0.0,
                )
            )

        await asyncio.gather(*map(play_match, plans))

    stragglers, found = Stragglers(rule, iterations, play), []
    for k in range(1, iterations + 1):
        found.append((await stragglers.matches(k, make_plans(k, rule.matches)))[0])
    return found


def measure_bias(iterations: int) -> list[dict[str, float]]:
    """Return the mean payoffs of all planned matches, of the learned ones, and of those in time, by setting."""
    rows = []
    for enough, share in ((0.95, 0.05), (0.95, 0.3), (0.8, 0.3)):
        rule = PlaySpec(matches=128, enough=enough)
        updates = asyncio.run(play_updates(rule, share, iterations))
        in_time = [[r.payoffs["one"] for r in update if r.identity.deal < rule.matches] for update in updates]
        learned = [[r.payoffs["one"] for r in update] for update in updates]
        plans = [plan for k in range(1, iterations + 1) for plan in make_plans(k, rule.matches)]
        means = {
            "played": np.mean([float(is_long(plan, share)) for plan in plans]),
            "learned": np.mean(np.concatenate(learned)),
            "mean_of_updates": np.mean([np.mean(update) for update in learned]),
            "without_stragglers": np.mean(np.concatenate(in_time)),
        }
        rows.append({"enough": enough, "long": share} | {name: round(float(mean), 4) for name, mean in means.items()})
    return rows


def main() -> None:
    """Measure all parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, and nothing is written")
    parser.add_argument("--enough", action="store_true", help="only the part without a model")
    parser.add_argument("--iterations", type=int, default=10, help="iterations of each run, of which four are left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--matches", type=int, default=64, help="matches of an iteration")
    options = parser.parse_args()
    rounds, iterations, matches = (1, 5, 8) if options.quick else (options.rounds, options.iterations, options.matches)
    result = json.loads(RESULT.read_text()) if RESULT.exists() and not options.quick else {}
    environment = {"machine": describe_environment(), "seeds": [0], "load": os.getloadavg()}
    rows = measure_bias(5 if options.quick else 40)
    result["enough"] = {"command": "python benchmarks/overlap.py --enough", **environment, "rows": rows}
    if not options.enough:
        arguments = f"--rounds {rounds} --iterations {iterations} --matches {matches}"
        sizes = [f"iterations={iterations}", f"play.matches={matches}", "checkpoint.every=1000"]
        demonstrations = 8 if options.quick else 96
        result["worlds"] = {"command": f"python benchmarks/overlap.py {arguments}", **environment} | {
            name: compare_arms(
                recipe, policy, seconds, rounds, [*sizes, f"policies.{policy}.imitate.matches={demonstrations}"]
            )
            for name, (recipe, policy, seconds) in WORLDS.items()
        }
    print(json.dumps(result, indent=1))
    if not options.quick:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
