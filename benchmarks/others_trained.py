"""Train nano policies by reward in environments of other libraries, which are used as installed.

    python benchmarks/others_trained.py frozen_lake      # in an environment that has the package
    python benchmarks/others_trained.py frozen_lake --seeds 0

A policy imitates random play, then learns from the environment's reward. Figures are the mean reward in matches with
held-out seeds, before and after. Writes results/others-trained-NAME.json after each seed. `letters` and `echo` need the
settings of docs/adapters.md for verifiers and OpenEnv; `echo` also needs `openenv init my_echo`.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from reporting import format_command, write_result

import arena
from arena.doctor import describe_environment

HERE = Path(__file__).parent
BASE: Mapping[str, Any] = {
    "precision": "fp32",
    "threads": 1,
    "credit": {"estimator": "grpo"},
    "learn": {"warmup_steps": 10, "minibatches": 4, "token_budget": 8192},
}
IMITATION: Mapping[str, Any] = {"scripted": ["random"], "matches": 128, "epochs": 2, "minibatches": 16, "lr": 2e-3}
EXPERIMENTS: Mapping[str, Mapping[str, Any]] = {
    "frozen_lake": {
        "game": "gymnasium:FrozenLake-v1(is_slippery=false)", "options": {"max_turns": 30},
        "iterations": 30, "matches": 256, "group": 256, "lr": 4e-4,
    },
    "guess": {
        "game": "others_players.py:GuessTheNumber", "options": {"max_turns": 5}, "imitate": {"scripted": ["guesser"]},
        "iterations": 30, "matches": 256, "group": 16, "lr": 1e-3,
    },
    "letters": {
        "game": "others_players.py:LetterCounting", "imitate": {"scripted": ["guesser"]},
        "iterations": 12, "matches": 256, "group": 8, "lr": 1e-3,
    },
    "echo": {
        "game": "others_players.py:Echo", "options": {"max_turns": 3}, "imitate": {"scripted": ["talker"]},
        "iterations": 8, "matches": 64, "group": 64, "lr": 1e-3,
    },
    "button": {
        "game": "miniwob:click-button", "imitate": {"matches": 192, "epochs": 4},
        "iterations": 12, "matches": 64, "group": 8, "lr": 8e-4,
    },
}  # fmt: skip
"""Experiments by the names of their roles, as differences to `BASE`."""


def build_experiment(name: str) -> dict[str, Any]:
    """Return the experiment of this name as `arena.run` reads it."""
    spec = EXPERIMENTS[name]
    game = {"name": spec["game"], "options": {"illegal": "end", "penalty": 0.2, **spec.get("options", {})}}
    role = str(HERE / "others_roles" / f"{name}.yaml")
    return {
        **BASE,
        "name": name,
        "iterations": spec["iterations"],
        "game": game,
        "policies": {"shared": {"model": "nano", "imitate": {**IMITATION, **spec.get("imitate", {})}}},
        "seats": {"agent": {"role": role, "policy": "shared"}},
        "play": {"matches": spec["matches"], "group": spec["group"], "in_flight": 64},
        "learn": {**BASE["learn"], "lr": spec["lr"]},
        "checkpoint": {"every": spec["iterations"], "keep": 1},
        "evaluate": {"games": [game], "matches": 100},
    }


def train(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train one policy and return its mean rewards, before and after, with 95 % intervals, and the seconds it took."""
    started = time.monotonic()
    result = arena.run(build_experiment(name), seed=seed, out=folder, progress=print)
    evaluation = json.loads((folder / "evaluation.json").read_text())
    before, after = evaluation["before"][0], evaluation["results"][0]
    return {
        "seed": seed,
        "before": before["figures"]["payoff"],
        "after": after["figures"]["payoff"],
        "difference": evaluation["changes"][0]["figures"]["payoff"],
        "played": [float(result.metrics["mean_payoff"].iloc[row]) for row in (0, -1)],
        "matches": int(result.metrics["matches"].sum()),
        "seconds": time.monotonic() - started,
    }


def main() -> None:
    """Train the policies of one experiment, print their rewards, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=EXPERIMENTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102])
    arguments = parser.parse_args()
    rows = []
    with contextlib.chdir(HERE), tempfile.TemporaryDirectory(prefix="others-") as folder:
        for seed in arguments.seeds:
            rows.append(train(arguments.name, seed, Path(folder, str(seed))))
            print(json.dumps(rows[-1]), flush=True)
            result = {
                "command": format_command(),
                "machine": describe_environment(),
                "game": EXPERIMENTS[arguments.name]["game"],
                "mean": {key: fmean(row[key][0] for row in rows) for key in ("before", "after", "difference")},
                "runs": rows,
            }
            write_result(f"others-trained-{arguments.name}", result)
    print(arguments.name, result["mean"])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
