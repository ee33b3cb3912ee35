"""Does a proposer raise the solver's accuracy on a fixed test set of reasoning-gym, against training the solver alone?

    python tests/benchmarks/proposer.py --seeds 5      # 3 arms × 5 seeds
    python tests/benchmarks/proposer.py --seeds 1 --set iterations=2 --set evaluate.matches=40     # does it run?

Every run is an ordinary `arena run selfplay --recipe proposer_solver-nano` with the same warm start, and ends with the
recipe's own evaluation: questions that nobody practised, and questions that could have been. Arms: `proposer_solver`
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


def play(arm: str, seed: int, settings: list[str], folder: Path) -> dict[str, Any]:
    """One run: its accuracy before and after on each question set, and its curves."""
    out = folder / f"{arm}-{seed}"
    command = [sys.executable, "-m", "arena", "run", "selfplay", "--recipe", "proposer_solver-nano"]
    command += ["--seed", str(seed), "--out", str(out), "--json"]
    for setting in [f"policies.shared.model=nano-{seed}", *ARMS[arm], *settings]:
        command += ["--set", setting]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
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
    for split in ("test", "train"):
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
        runs = [play(arm, s, chosen.set, Path(folder)) for s in range(chosen.seeds) for arm in chosen.arms]
    command = " ".join(["python tests/benchmarks/proposer.py", *sys.argv[1:]])
    found = {"command": command, "seeds": chosen.seeds, "settings": chosen.set, **summary(runs, chosen.arms)}
    chosen.out.write_text(json.dumps(found | {"runs": runs, "machine": environment()}, indent=1) + "\n")
    for split in ("test", "train"):
        for when in ("before", "after", f"{chosen.arms[0]}_minus"):
            told = "  ".join(
                f"{arm} {ci['estimate']:.3f} [{ci['low']:.3f}, {ci['high']:.3f}]"
                for arm, ci in found[split][when].items()
            )
            print(f"{split} {when}: {told}")


if __name__ == "__main__":
    main()
