"""Error rates of verdicts: made studies whose truth is known, through the whole procedure.

    python benchmarks/verdicts.py            # 100 families of 26 studies: some minutes of one core

A family is as large as docs/claims.md: ten mechanisms that do nothing for the figure, ten that add `EFFECT` to it,
three that never act, and three in a world whose ceiling both arms reach. Each is a study of ten seeds: the mechanism's
arm, its baseline and `zero`, with shares of 128 matches an iteration, seeds that differ, and runs that differ. What
judges them is what judges runs: `Results.verdict` and `family`. Writes results/verdicts.json and .png, and prints the
table of docs/studies.md.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arena.config.study import StudySpec
from arena.doctor import describe_environment
from arena.evaluate.study.family import correct_family
from arena.evaluate.study.inference import benjamini_hochberg
from arena.evaluate.study.results import Results
from arena.statistics import rate_ci

RESULTS = Path(__file__).parent / "results"
SEEDS, ITERATIONS, LAST, MATCHES = 10, 6, 4, 128
EFFECT = 0.1
"""What a true effect adds to a share: about the largest differences in docs/claims.md."""
BASE, ZERO, BY_SEED, BY_RUN = 0.5, 0.2, 0.05, 0.05
"""The baseline's share and that of `zero`; deviation of seeds, alike for all arms, and of single runs."""
FAMILY = {"null": 10, "effect": 10, "idle": 3, "full": 3}
"""Studies of a family by their truth: nothing, `EFFECT`, a mechanism that never acts, and a ceiling."""
FAMILIES = 100


def spec() -> StudySpec:
    """The rule of every study."""
    return StudySpec.model_validate({
        "replicates": "nobody", "claim": "it is better", "published": "none", "family": "made", "figure": "success",
        "last": LAST, "arm": "own", "arms": {"base": [], "zero": []}, "seeds": SEEDS,
        "gauges": [{"figure": "gauge"}], "room": {"best": 1.0, "within": 0.02},
        "verdict": {"better_than": ["base", "zero"]},
    })  # fmt: skip


def made(truth: str, rng: np.random.Generator) -> Results:
    """A study of this truth, all seeds of it."""
    by_seed = rng.normal(0.0, BY_SEED, SEEDS)
    gain = EFFECT if truth == "effect" else 0.0
    curves: dict[str, dict[int, Sequence[float]]] = {}
    for arm, share in (("own", BASE + gain), ("base", BASE), ("zero", ZERO)):
        chance = np.clip(share + by_seed + rng.normal(0.0, BY_RUN, SEEDS), 0.0, 1.0)
        if truth == "full" and arm != "zero":
            chance = np.full(SEEDS, 0.995)
        drawn = rng.binomial(MATCHES, chance[:, None], (SEEDS, ITERATIONS)) / MATCHES
        curves[arm] = {seed: drawn[seed].tolist() for seed in range(SEEDS)}
    acted = 0.0 if truth == "idle" else 0.1
    gauges: dict[str, dict[str, dict[int, float | None]]] = {
        "gauge": {arm: {seed: acted if arm == "own" else 0.0 for seed in range(SEEDS)} for arm in curves}
    }
    return Results(name="made", spec=spec(), seeds=SEEDS, curves=curves, gauges=gauges)


def extended(of: Results) -> str:
    """The verdict as it was reached before rules held their sample: five seeds, and ten where these were not enough."""
    for seeds in (5, SEEDS):
        free = spec().model_copy(update={"seeds": None, "gauges": [], "room": None})
        word = Results(name=of.name, spec=free, seeds=seeds, curves=_first(of.curves, seeds)).verdict.verdict
        if word != "not shown":
            break
    return word


def _first(curves: Any, seeds: int) -> dict[str, dict[int, Any]]:
    return {arm: {seed: runs[seed] for seed in range(seeds)} for arm, runs in curves.items()}


def simulated(families: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Every study of every family: its truth, and its verdict by each procedure, alone and corrected."""
    rng = np.random.default_rng(seed)
    truths = [truth for truth, count in FAMILY.items() for _ in range(count)]
    for number in range(families):
        studies = [made(truth, rng) for truth in truths]
        rows: list[dict[str, Any]] = [{"family": number, "truth": truth} for truth in truths]
        for row, study in zip(rows, studies, strict=True):
            row["five, then ten"] = extended(study)
        judged = correct_family(studies)
        shared = benjamini_hochberg([one.decision.p for one in judged])
        for row, one, q in zip(rows, judged, shared, strict=True):
            alone = one.results.verdict.verdict
            decided = alone in ("holds", "contradicted")
            row["alone"], row["Holm"] = alone, one.verdict
            row["BH"] = "not shown" if decided and q > 0.05 else alone
        yield from rows


def rates(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Error rates of each procedure on nulls, in a family at all, and among what it finds; and what it finds."""
    found = {}
    for name in (key for key in rows[0] if key not in ("family", "truth")):
        words = {truth: [row[name] for row in rows if row["truth"] == truth] for truth in FAMILY}
        wrong = [row for row in rows if row["truth"] != "effect" and row[name] in ("holds", "contradicted")]
        wrong += [row for row in rows if row["truth"] == "effect" and row[name] == "contradicted"]
        right, families = words["effect"].count("holds"), len({row["family"] for row in rows})
        nulls = sum(word in ("holds", "contradicted") for word in words["null"])
        decided = right + len(wrong)
        found[name] = {
            "null": rate_ci(nulls, len(words["null"])),
            "family": rate_ci(len({row["family"] for row in wrong}), families),
            "false": len(wrong) / decided if decided else 0.0,
            "power": rate_ci(right, len(words["effect"])),
            "idle": words["idle"].count("did not act") / len(words["idle"]),
            "full": words["full"].count("world cannot tell") / len(words["full"]),
            "idle or full by mistake": Counter(words["null"] + words["effect"])["did not act"]
            + Counter(words["null"] + words["effect"])["world cannot tell"],
        }
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """As it stands in docs/studies.md."""
    lines = [
        "| procedure | a null is judged | a family errs | of verdicts wrong | effects found | idle | ceiling |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, of in found.items():
        cells = [_rate(of["null"]), _rate(of["family"]), f"{of['false']:.3f}", _rate(of["power"])]
        lines.append(f"| {name} | {' | '.join(cells)} | {of['idle']:.2f} | {of['full']:.2f} |")
    return "\n".join(lines)


def _rate(interval: Sequence[float]) -> str:
    estimate, low, high = interval
    return f"{estimate:.3f} [{low:.3f}, {high:.3f}]"


def draw(found: dict[str, dict[str, Any]]) -> Any:
    """Rates of error, and what is found, by procedure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.8), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    names = list(found)
    for axis, (key, title) in zip(
        axes, (("null", "nulls judged"), ("family", "families that err"), ("power", "effects found")), strict=True
    ):
        for place, name in enumerate(names):
            estimate, low, high = found[name][key]
            axis.errorbar([estimate], [place], xerr=[[estimate - low], [high - estimate]], fmt="o", color="tab:blue")
        if key != "power":
            axis.vlines(0.05, -0.5, len(names) - 0.5, color="tab:red", linewidth=0.8)
        axis.set_title(title, fontsize=8)
        axis.set_xlim(-0.02, 1.02 if key != "null" else 0.22)
        axis.grid(alpha=0.3, axis="x")
        axis.tick_params(labelsize=7)
    axes[0].set_yticks(range(len(names)), names, fontsize=7)
    axes[0].invert_yaxis()
    figure.suptitle(f"verdicts on made studies; an effect is {EFFECT:g}; red: .05", fontsize=8)
    return figure


def main() -> None:
    """Simulate all families, and write the results."""
    from arena.evaluate.study.plot import write_picture

    if sys.argv[1:] == ["--redraw"]:
        kept = json.loads((RESULTS / "verdicts.json").read_text())
        write_picture(lambda: draw(kept["rates"]), RESULTS / "verdicts.png")
        return
    families = int(sys.argv[1]) if sys.argv[1:] else FAMILIES
    found = rates(list(simulated(families)))
    settings = {"seeds": SEEDS, "effect": EFFECT, "by_seed": BY_SEED, "by_run": BY_RUN, "family": FAMILY}
    command = " ".join(["python benchmarks/verdicts.py", *sys.argv[1:]])
    result = {"command": command, "families": families, **settings, "machine": describe_environment(), "rates": found}
    (RESULTS / "verdicts.json").write_text(json.dumps(result, indent=1) + "\n")
    write_picture(lambda: draw(found), RESULTS / "verdicts.png")
    print(table(found))


if __name__ == "__main__":
    main()
