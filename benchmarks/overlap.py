"""Wall time of an iteration that plays ahead beside one that plays and learns in turns, and what taking enough biases.

    python benchmarks/overlap.py             # about ten minutes on one quiet core
    python benchmarks/overlap.py --enough    # seconds: the part without a model alone; the rest of the results stays
    python benchmarks/overlap.py --quick     # does it still work?

Worlds: the service desk whose agent waits 200 ms for every act, as for a tool, and negotiation, which does not wait;
both with nano weights, in one process with one thread. The arms (`play.ahead` 0, 1 and 2) take turns round by round.
The first two iterations of each run are left out, in which the optimiser is made and play gets ahead, and so are the
last two, in which less is played ahead. A run's figure is the mean over its iterations, since long and short ones
alternate where play is ahead; the world's is the median over rounds. Then a world without a model whose long matches
pay 1 and whose short ones pay 0: what updates learn with `play.enough`, beside what is left where stragglers are
dropped. Writes results/overlap.json. The learning curves by staleness are the study benchmarks/overlap.yaml.
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
from arena.build import Makers
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer
from arena.doctor import environment
from arena.lab import Lab
from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec
from arena.play.stragglers import SelectLogged, Stragglers
from arena.records import MatchRecord, Seating
from arena.store.run import RunFolder
from games.contracts import MatchId

RESULT = Path(__file__).resolve().parent / "results" / "overlap.json"
TOOL = 0.2
"""Seconds."""
WORLDS = {
    "desk-nano, tools of 200 ms": ("desk-nano", "agent", TOOL),
    "negotiation-nano": ("negotiation-nano", "shared", 0.0),
}
ARMS = {
    "in turns": [],
    "ahead 1": ["play.ahead=1", "learn.loss.policy_gradient.correction=truncated"],
    "ahead 2": ["play.ahead=2", "learn.loss.policy_gradient.correction=truncated"],
}


class Slow(InProcessEngine):
    """An engine whose replies to matches come after a wait, as if a tool had run; others are sampled meanwhile."""

    seconds = 0.0

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Sample, then wait."""
        replies = await super().generate(requests)
        if self.seconds and not requests[0].key.startswith("gate/"):  # these are for the gate, and no tool runs
            await asyncio.sleep(self.seconds)
        return replies


class Clock:
    """A watcher that notes when iterations end."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.rows: list[dict[str, Any]] = []

    def phase(self, iteration: int, name: str) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""

    def match(self, record: MatchRecord) -> None:
        """Ignore it."""

    def iteration(self, row: dict[str, Any]) -> None:
        """Note the time."""
        self.ends.append(perf_counter())
        self.rows.append(row)


def run(folder: Path, given: Experiment, seconds: float) -> dict[str, Any]:
    """One run: seconds of its iterations but the first two and the last two, and how old the replies were."""
    clock = Clock()

    def slow(spec: EngineSpec, precision: Precision) -> Slow:
        engine = Slow(precision)
        engine.seconds = seconds
        return engine

    async def live() -> None:
        lab = await Lab.open(RunFolder.create(folder, to_yaml(given), {}), given, clock, makers=Makers(engine=slow))
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(live())
    learned = [next(iter(row["learn"].values())) for row in clock.rows[2:-2]]
    return {
        "seconds": np.diff(clock.ends)[1:-2].round(3).tolist(),
        "learning": [round(row["seconds"]["learn"], 3) for row in clock.rows[2:-2]],
        "lag": [round(each.get("lag", 0.0), 3) for each in learned],
        "gated": [each.get("gated") for each in learned],
    }


def beside(recipe: str, policy: str, seconds: float, rounds: int, sizes: Sequence[str]) -> dict[str, Any]:
    """Both arms in turns, from the same warm start."""
    found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}

    def made(*settings: str) -> Experiment:
        return compose([recipe_layer(recipe), *map(set_layer, ("threads=1", "study=null", *sizes, *settings))])

    with TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        run(first, made("iterations=1", "play.matches=2", "checkpoint.every=1", "checkpoint.keep=9"), 0.0)
        warm = first / "checkpoints" / "0000" / "policies" / policy
        begin = [f"policies.{policy}.model={warm}", f"policies.{policy}.imitate=null"]
        for number in range(rounds):
            for arm in list(ARMS)[:: 1 if number % 2 == 0 else -1]:
                found[arm].append(run(Path(folder) / f"{arm}-{number}", made(*begin, *ARMS[arm]), seconds))
                print(recipe, arm, found[arm][-1]["seconds"], flush=True)
    means = {arm: round(median(fmean(one["seconds"]) for one in runs), 3) for arm, runs in found.items()}
    ratios = {f"{arm} / in turns": round(means[arm] / means["in turns"], 3) for arm in list(ARMS)[1:]}
    return {"settings": list(sizes), "iteration_seconds": means, "ratios": ratios, "runs": found}


# -- what taking enough biases -----------------------------------------------------------------------------

SEATS = {"one": Seating("role", "policy", 0, True, "model")}


def long(plan: MatchPlan, share: float) -> bool:
    """Return True if a match is one of the long ones, by its deal."""
    return bool(np.random.default_rng(plan.seed).random() < share)


async def updates(rule: PlaySpec, share: float, iterations: int) -> list[list[MatchRecord]]:
    """The matches that each update learns from: a long one lasts for many passes of the event loop and pays 1."""

    async def play(plans: list[MatchPlan], to_log: SelectLogged) -> None:
        async def one(plan: MatchPlan) -> None:
            slow = long(plan, share)
            for _ in range(40 + plan.identity.deal if slow else 2):
                await asyncio.sleep(0)
            paid = {"one": float(slow)}
            to_log(
                MatchRecord(
                    identity=plan.identity,
                    game="",
                    options={},
                    seed=plan.seed,
                    seats=SEATS,
                    status="finished",
                    reason="",
                    payoffs=paid,
                    report={},
                    turns=(),
                    streams={},
                    started="",
                    seconds=0.0,
                )
            )

        await asyncio.gather(*map(one, plans))

    stragglers, found = Stragglers(rule, iterations, play), []
    for k in range(1, iterations + 1):
        plans = [
            MatchPlan(identity=MatchId(k, i), game="", options={}, seed=10**4 * k + i, seats=SEATS)
            for i in range(rule.matches)
        ]
        found.append((await stragglers.matches(k, plans))[0])
    return found


def bias(iterations: int) -> list[dict[str, float]]:
    """Mean payoff of all matches, of what was learned, and of what would be left without stragglers."""
    rows = []
    for enough, share in ((0.95, 0.05), (0.95, 0.3), (0.8, 0.3)):
        rule = PlaySpec(matches=128, enough=enough)
        taken = asyncio.run(updates(rule, share, iterations))
        own = [[r.payoffs["one"] for r in update if r.identity.deal < rule.matches] for update in taken]
        every = [[r.payoffs["one"] for r in update] for update in taken]
        played = [
            float(long(MatchPlan(identity=MatchId(k, i), game="", options={}, seed=10**4 * k + i, seats=SEATS), share))
            for k in range(1, iterations + 1)
            for i in range(rule.matches)
        ]
        means = {
            "played": np.mean(played),
            "learned": np.mean(np.concatenate(every)),
            "mean_of_updates": np.mean([np.mean(update) for update in every]),
            "without_stragglers": np.mean(np.concatenate(own)),
        }
        rows.append({"enough": enough, "long": share} | {name: round(float(mean), 4) for name, mean in means.items()})
    return rows


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, and nothing is written")
    parser.add_argument("--enough", action="store_true", help="only the part without a model")
    parser.add_argument("--iterations", type=int, default=10, help="of each run: four are left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--matches", type=int, default=64, help="of an iteration")
    chosen = parser.parse_args()
    rounds, iterations, matches = (1, 5, 8) if chosen.quick else (chosen.rounds, chosen.iterations, chosen.matches)
    result = json.loads(RESULT.read_text()) if RESULT.exists() and not chosen.quick else {}
    about = {"machine": environment(), "seeds": [0], "load": os.getloadavg()}
    rows = bias(5 if chosen.quick else 40)
    result["enough"] = {"command": "python benchmarks/overlap.py --enough", **about, "rows": rows}
    if not chosen.enough:
        arguments = f"--rounds {rounds} --iterations {iterations} --matches {matches}"
        sizes = [f"iterations={iterations}", f"play.matches={matches}", "checkpoint.every=1000"]
        shown = 8 if chosen.quick else 96
        result["worlds"] = {"command": f"python benchmarks/overlap.py {arguments}", **about} | {
            name: beside(recipe, policy, seconds, rounds, [*sizes, f"policies.{policy}.imitate.matches={shown}"])
            for name, (recipe, policy, seconds) in WORLDS.items()
        }
    print(json.dumps(result, indent=1))
    if not chosen.quick:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
