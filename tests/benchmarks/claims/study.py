"""Do published claims hold in small worlds? Arms × seeds at equal environment steps, as JSON and a figure.

    python tests/benchmarks/claims/study.py igpo       # one study: the name of a file next to this one
    python tests/benchmarks/claims/study.py table      # all results as one Markdown table

Every study has an outcome-only arm and a matched-random one. Numbers are means over seeds with Student-t intervals,
differences have Welch's, or Student's over seeds where a study says `paired`; none of them knows that a rate ends at
0 and 1. The verdict follows from them by the rule that the study's file states.
"""

import argparse
import importlib
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claim import Claim, Ends
from world import Learner

from arena.doctor import environment
from arena.statistics import Interval, mean_ci

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
SHARED = ("world", "claim", "study", "controls", "gradients")
STUDIES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in SHARED)
Curves = dict[str, list[float]]


def play(claim: Claim, seeds: int) -> dict[tuple[str, str], list[Curves]]:
    """(setting, arm) -> the curves of every seed."""
    runs: dict[tuple[str, str], list[Curves]] = {}
    for place, setting in claim.settings.items():
        for name, arm in setting.arms.items():
            started = time.perf_counter()
            learners = (Learner(setting.world(s), arm, s, setting.matches, setting.group) for s in range(seeds))
            runs[place, name] = [with_means(claim, learner.run(setting.steps)) for learner in learners]
            ends = [mean_ci([run[f][-1] for run in runs[place, name]]) for f in claim.figures]
            told = "; ".join(f"{f} {short(end)}" for f, end in zip(claim.figures, ends, strict=True))
            print(f"{place}, {name}: {told}; {time.perf_counter() - started:.0f} s", flush=True)
    return runs


def with_means(claim: Claim, curves: Curves) -> Curves:
    """The curves, and for a figure named `X_over_the_run` the mean of X up to each point."""
    for name in claim.figures:
        if name.endswith("_over_the_run"):
            values = np.array(curves[name.removesuffix("_over_the_run")])
            curves[name] = (np.cumsum(values) / np.arange(1, len(values) + 1)).tolist()
    return curves


def result(name: str, claim: Claim, runs: dict[tuple[str, str], list[Curves]], seconds: float) -> dict[str, Any]:
    """All that is kept of a study."""
    ends = {(s, a, f): [run[f][-1] for run in found] for (s, a), found in runs.items() for f in found[0]}
    verdict = claim.verdict(Ends(ends, claim.figures[0], claim.paired))
    command = f"python tests/benchmarks/claims/study.py {name}"
    return {
        "claim": claim.claim,
        "source": claim.source,
        "published": claim.published,
        "ours": ours(claim, ends),
        "verdict": verdict.verdict,
        "because": verdict.because,
        "rule": claim.rule,
        "notes": claim.notes,
        "paired": claim.paired,
        "figure": claim.figures[0],
        "seeds": len(next(iter(runs.values()))),
        "environment_steps": {place: setting.steps for place, setting in claim.settings.items()},
        "settings": {
            place: {
                "arms": {
                    arm: {f: mean_ci(ends[place, arm, f])._asdict() for f in claim.figures} for arm in setting.arms
                },
                "differences": {
                    f"{a} - {b}": {f: Ends(ends, f, claim.paired).minus(place, a, b)._asdict() for f in claim.figures}
                    for a, b in claim.compare
                    if a in setting.arms and b in setting.arms
                },
                "ends": {
                    arm: {f: [round(v, 4) for v in ends[place, arm, f]] for f in claim.figures} for arm in setting.arms
                },
                "curves": {
                    arm: {f: np.mean([run[f] for run in runs[place, arm]], 0).round(4).tolist() for f in claim.figures}
                    for arm in setting.arms
                },
                "spec": {
                    arm: {"credit": a.credit.model_dump(), "learn": a.learn.model_dump()}
                    for arm, a in setting.arms.items()
                },
            }
            for place, setting in claim.settings.items()
        },
        "also": claim.also() if claim.also else {},
        "command": command,
        "seconds": round(seconds, 1),
        "machine": environment() | {"command": command},
    }


def written(found: dict[str, Any]) -> str:
    """As JSON, a list of numbers on one line."""
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    return re.sub(r"\[[-\d.e,\s]+\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), text)


def ours(claim: Claim, ends: dict[tuple[str, str, str], list[float]]) -> str:
    """The first figure of the arms that the claim shows, in one line."""
    figure = claim.figures[0]
    shown = claim.shown or {place: list(setting.arms) for place, setting in claim.settings.items()}
    told = (
        (f"{place}: " if len(shown) > 1 else "")
        + ", ".join(f"{arm} {short(mean_ci(ends[place, arm, figure]))}" for arm in arms)
        for place, arms in shown.items()
    )
    return f"{figure.replace('_', ' ')}. " + "; ".join(told)


def short(interval: Interval) -> str:
    """A mean with its interval."""
    mean, low, high = (round(value, 2) + 0.0 for value in interval)  # + 0.0: no minus zero
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def draw(claim: Claim, runs: dict[tuple[str, str], list[Curves]], path: Path) -> None:
    """A row per setting and a column per figure: thin lines are seeds, thick ones their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    rows, columns = len(claim.settings), len(claim.figures)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.0 * rows), squeeze=False)
    for row, (place, setting) in zip(axes, claim.settings.items(), strict=True):
        for axis, name in zip(row, claim.figures, strict=True):
            for colour, arm in enumerate(setting.arms):
                curves = np.array([run[name] for run in runs[place, arm]])
                steps = np.linspace(0, setting.steps, curves.shape[1] + 1)[1:]
                axis.plot(steps, curves.T, color=f"C{colour}", alpha=0.2, linewidth=0.6)
                axis.plot(steps, curves.mean(0), color=f"C{colour}", linewidth=2, label=arm)
            axis.set_title(f"{name.replace('_', ' ')}\n{place}", fontsize=9)
            axis.grid(alpha=0.3)
        row[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("turns played")
    figure.tight_layout()
    kept = io.BytesIO()
    figure.savefig(kept, dpi=100)
    few = Image.open(kept).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)  # a fifth of the size


def table() -> str:
    """All results as Markdown."""
    lines = ["| claim | published | ours | verdict |", "| --- | --- | --- | --- |"]
    for path in sorted(RESULTS.glob("claims-*.json")):
        found = json.loads(path.read_text())
        said = f"**{found['verdict']}**: {found['because']}"
        lines.append(f"| {found['claim']} ({found['source']}) | {found['published']} | {found['ours']} | {said} |")
    return "\n".join(lines)


def main() -> None:
    """Run a study and write its results, or print the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*STUDIES, "table"])
    parser.add_argument("--seeds", type=int, help="for a trial with fewer: prints, writes nothing")
    args = parser.parse_args()
    if args.what == "table":
        print(table())
        return
    torch.set_num_threads(1)  # tables are small: threads only wait for one another
    claim: Claim = importlib.import_module(args.what).CLAIM
    started = time.perf_counter()
    runs = play(claim, args.seeds or claim.seeds)
    found = result(args.what, claim, runs, time.perf_counter() - started)
    print(json.dumps({key: found[key] for key in ("ours", "verdict", "because", "also", "seconds")}, indent=1))
    if args.seeds is None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"claims-{args.what}.json").write_text(written(found))
        draw(claim, runs, RESULTS / f"claims-{args.what}.png")


if __name__ == "__main__":
    main()
