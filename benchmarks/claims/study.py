"""Do published claims hold in small worlds? Arms × seeds at equal environment steps, as JSON and a figure.

    python benchmarks/claims/study.py igpo       # one study: the name of a file next to this one
    python benchmarks/claims/study.py igpo --redraw    # sums up and draws what is kept, without running
    python benchmarks/claims/study.py table      # all results as one Markdown table

Every study has an outcome-only arm and a matched-random one. Numbers are means over seeds with 95 % intervals that
keep to a figure's range (arena/statistics.py), differences are of independent seeds, or seed by seed where a study
says `paired`. The verdict follows from them by the rule that the study's file states.
"""

import argparse
import importlib
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claim import Claim, Ends, bounds
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from world import Learner

from analysis.panels import colours, curve, fit, legend, sheet, written
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
            ends = [mean_ci([run[f][-1] for run in runs[place, name]], bounds(f)) for f in claim.figures]
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


Kept = dict[str, dict[str, Any]]
"""Results of every setting: `ends` and `curves`, by arm and figure: the last value of each seed and the means over
seeds; and `spec`, by arm: its credit and learning."""


def kept_of(claim: Claim, runs: dict[tuple[str, str], list[Curves]]) -> Kept:
    """Return the results that are kept of the runs."""
    return {
        place: {
            "ends": {
                arm: {f: [round(run[f][-1], 4) for run in runs[place, arm]] for f in claim.figures}
                for arm in setting.arms
            },
            "curves": {
                arm: {f: np.mean([run[f] for run in runs[place, arm]], 0).round(4).tolist() for f in claim.figures}
                for arm in setting.arms
            },
            "spec": {
                arm: {"credit": a.credit.model_dump(), "learn": a.learn.model_dump()} for arm, a in setting.arms.items()
            },
        }
        for place, setting in claim.settings.items()
    }


def measured(name: str, claim: Claim, seconds: float) -> dict[str, Any]:
    """Return how the runs went, and where, to be kept beside their results."""
    command = f"python benchmarks/claims/study.py {name}"
    return {
        "also": claim.also() if claim.also else {},
        "command": command,
        "seconds": round(seconds, 1),
        "machine": environment() | {"command": command},
    }


def result(claim: Claim, kept: Kept, beside: dict[str, Any]) -> dict[str, Any]:
    """Return a study's result: intervals, the verdict, and all that they follow from."""
    ends = {(s, a, f): v for s, of in kept.items() for a, figures in of["ends"].items() for f, v in figures.items()}
    verdict = claim.verdict(Ends(ends, claim.figures[0], claim.paired))
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
        "seeds": len(next(iter(ends.values()))),
        "environment_steps": {place: setting.steps for place, setting in claim.settings.items()},
        "settings": {
            place: {
                "arms": {
                    arm: {f: mean_ci(ends[place, arm, f], bounds(f))._asdict() for f in claim.figures}
                    for arm in setting.arms
                },
                "differences": {
                    f"{a} - {b}": {f: Ends(ends, f, claim.paired).minus(place, a, b)._asdict() for f in claim.figures}
                    for a, b in claim.compare
                    if a in setting.arms and b in setting.arms
                },
                **kept[place],
            }
            for place, setting in claim.settings.items()
        },
        **beside,
    }


def as_text(found: dict[str, Any]) -> str:
    """As JSON, a list of numbers on one line."""
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    return re.sub(r"\[[-\d.e,\s]+\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), text)


def ours(claim: Claim, ends: dict[tuple[str, str, str], list[float]]) -> str:
    """The first figure of the arms that the claim shows, in one line."""
    figure = claim.figures[0]
    shown = claim.shown or {place: list(setting.arms) for place, setting in claim.settings.items()}
    told = (
        (f"{place}: " if len(shown) > 1 else "")
        + ", ".join(f"{arm} {short(mean_ci(ends[place, arm, figure], bounds(figure)))}" for arm in arms)
        for place, arms in shown.items()
    )
    return f"{figure.replace('_', ' ')}. " + "; ".join(told)


def short(interval: Interval) -> str:
    """A mean with its interval."""
    mean, low, high = (round(value, 2) + 0.0 for value in interval)  # + 0.0: no minus zero
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def draw(claim: Claim, found: dict[str, Any]) -> Figure:
    """The panels that the claim chooses: means over seeds, and their ends with intervals."""
    panels = claim.panels or [(place, claim.figures[0]) for place in claim.settings]
    titles = [f"{figure.replace('_', ' ')}: {place}" for place, figure in panels]
    heading = f"{found['source']}: means over {found['seeds']} seeds, and 95 % intervals of their ends"
    arms = dict.fromkeys(arm for setting in claim.settings.values() for arm in setting.arms)
    chosen = colours([arm for arm in arms if arm in (claim.drawn or arms)])
    figure, axes = sheet(titles, heading, "turns played")
    for axis, (place, name) in zip(axes, panels, strict=True):
        of = found["settings"][place]
        here = [arm for arm in chosen if arm in of["curves"]]
        for beside, arm in enumerate(here):
            values = of["curves"][arm][name]
            x = np.linspace(0, claim.settings[place].steps, len(values) + 1)[1:].tolist()
            curve(axis, x, [values], Interval(**of["arms"][arm][name]), arm, chosen[arm], beside)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=4))
        fit(axis, bounds(name))
    legend(figure, 40)
    return figure


def write(name: str, claim: Claim, found: dict[str, Any]) -> None:
    """Write the result that is kept, and its picture."""
    (RESULTS / f"claims-{name}.json").write_text(as_text(found))
    written(draw(claim, found), RESULTS / f"claims-{name}.png")


def summed_up(name: str, claim: Claim) -> dict[str, Any]:
    """Return a kept study, summed up again."""
    found = json.loads((RESULTS / f"claims-{name}.json").read_text())
    kept = {place: {what: of[what] for what in ("ends", "curves", "spec")} for place, of in found["settings"].items()}
    return result(claim, kept, {what: found[what] for what in ("also", "command", "seconds", "machine")})


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
    parser.add_argument("--redraw", action="store_true", help="sum up and draw the kept numbers, without running")
    args = parser.parse_args()
    if args.what == "table":
        print(table())
        return
    torch.set_num_threads(1)  # tables are small: threads only wait for one another
    claim: Claim = importlib.import_module(args.what).CLAIM
    if args.redraw:
        write(args.what, claim, summed_up(args.what, claim))
        return
    started = time.perf_counter()
    kept = kept_of(claim, play(claim, args.seeds or claim.seeds))
    found = result(claim, kept, measured(args.what, claim, time.perf_counter() - started))
    print(json.dumps({key: found[key] for key in ("ours", "verdict", "because", "also", "seconds")}, indent=1))
    if args.seeds is None:
        RESULTS.mkdir(exist_ok=True)
        write(args.what, claim, found)


if __name__ == "__main__":
    main()
