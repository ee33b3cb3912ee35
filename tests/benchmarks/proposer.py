"""Does a proposer raise the solver's accuracy on a fixed test set of reasoning-gym, against training the solver alone?

    python tests/benchmarks/proposer.py --seeds 5      # 3 arms × 5 seeds
    python tests/benchmarks/proposer.py --seeds 1 --set iterations=2 --set evaluate.matches=40     # does it run?

Every run is an ordinary `arena run selfplay --recipe proposer_solver-nano` from the same warm start (one per seed), and
ends with the recipe's own evaluation on two fixed sets of reasoning-gym's questions: `train`, which may be practised,
and `test`, which a proposal may never be. Arms: `proposer_solver`
as the recipe is (4 s (1 - s)), `hard` (1 - s), `solver_only` (a scripted proposer of random tasks within the same
limits, so that only the solver learns) and `zero` (advantages 0). Differences are paired over seeds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from arena.doctor import environment
from arena.statistics import mean_ci

RESULTS = Path(__file__).parent / "results"
ARMS: dict[str, list[str]] = {
    "proposer_solver": [],
    "hard": ["game.options.pay=hard"],
    "solver_only": ["seats.proposer.policy=random"],
    "zero": ["credit.estimator=zero"],
}
CHOSEN = ["proposer_solver", "solver_only", "zero"]


def arena(*words: str) -> str:
    """What an arena command prints."""
    command = [sys.executable, "-m", "arena", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def run(seed: int, settings: list[str], out: Path) -> str:
    """One run of the recipe with these settings."""
    words = [word for setting in settings for word in ("--set", setting)]
    recipe = ["--recipe", "proposer_solver-nano"]
    return arena("run", "selfplay", *recipe, "--seed", str(seed), "--out", str(out), "--json", *words)


def warmed(seed: int, folder: Path) -> Path:
    """Weights that have imitated, and learned nothing by themselves."""
    out, weights = folder / f"warm-{seed}", folder / f"weights-{seed}"
    once = ["iterations=1", "learn.lr=0.0", "play.matches=1", "evaluate=null"]
    run(seed, [f"policies.shared.model=nano-{seed}", *once], out)
    arena("export", str(out), "--policy", "shared", "--to", str(weights))
    return weights


def play(arm: str, seed: int, settings: list[str], weights: Path, folder: Path) -> dict[str, Any]:
    """One run: its accuracy before and after on each question set, and its curves."""
    out, started = folder / f"{arm}-{seed}", time.perf_counter()
    begun = [f"policies.shared.model={weights}", "policies.shared.imitate=null"]
    printed = run(seed, [*begun, *ARMS[arm], *settings], out)
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    rows = [row for row in rows if "report" in row]
    found = json.loads((out / "evaluation.json").read_text())
    scores = {
        when: {result["options"]["split"]: result["figures"]["score"][0] for result in found[key]}
        for when, key in (("before", "before"), ("after", "results"))
    }
    seconds = time.perf_counter() - started
    told = ", ".join(
        f"{split} {scores['before'][split]:.3f} -> {scores['after'][split]:.3f}" for split in scores["after"]
    )
    print(f"{arm} seed {seed}: {told}; {seconds:.0f} s", flush=True)
    curves = {figure: [row["report"].get(figure) for row in rows] for figure in ("s", "valid", "terms", "digits")}
    return {"arm": arm, "seed": seed, "seconds": round(seconds, 1), "scores": scores, "curves": curves}


def summary(runs: list[dict[str, Any]], arms: list[str]) -> dict[str, Any]:
    """Accuracy by arm and split with 95 % intervals over seeds, and the first arm's less each other's, paired."""
    found: dict[str, Any] = {}
    for split in ("train", "test"):
        ends = {arm: [r["scores"]["after"][split] for r in runs if r["arm"] == arm] for arm in arms}
        begins = {arm: [r["scores"]["before"][split] for r in runs if r["arm"] == arm] for arm in arms}
        found[split] = {
            "before": {arm: mean_ci(values)._asdict() for arm, values in begins.items()},
            "after": {arm: mean_ci(values)._asdict() for arm, values in ends.items()},
            f"{arms[0]}_minus": {
                arm: mean_ci([a - b for a, b in zip(ends[arms[0]], ends[arm], strict=True)])._asdict()
                for arm in arms[1:]
            },
        }
    return found


def main() -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", nargs="+", default=CHOSEN, choices=list(ARMS))
    parser.add_argument("--set", action="append", default=[], help="one setting laid over all arms, A.B=C")
    parser.add_argument("--out", type=Path, default=RESULTS / "proposer.json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for seed in range(chosen.seeds):
            weights = warmed(seed, Path(folder))
            runs += [play(arm, seed, chosen.set, weights, Path(folder)) for arm in chosen.arms]
    command = " ".join(["python tests/benchmarks/proposer.py", *sys.argv[1:]])
    found = {"command": command, "seeds": chosen.seeds, "settings": chosen.set, **summary(runs, chosen.arms)}
    chosen.out.write_text(json.dumps(found | {"runs": runs, "machine": environment()}, indent=1) + "\n")
    for split in ("train", "test"):
        for when in ("before", "after", f"{chosen.arms[0]}_minus"):
            told = "  ".join(
                f"{arm} {ci['estimate']:.3f} [{ci['low']:.3f}, {ci['high']:.3f}]"
                for arm, ci in found[split][when].items()
            )
            print(f"{split} {when}: {told}")


if __name__ == "__main__":
    main()
