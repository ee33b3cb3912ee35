"""Error rates of verdicts, measured on synthetic studies with known effects.

    python benchmarks/verdicts.py            # 100 families of 26 studies: some minutes of one core

A family is as large as docs/claims.md: ten mechanisms without an effect on the figure, ten that add `EFFECT` to it,
three that never act, and three in a world whose ceiling both arms reach. Each is a study of ten seeds with the
mechanism's arm, its baseline and `zero`. The figure is a share of 128 matches per iteration, with random differences
between seeds and between runs. Verdicts are computed as for real runs, by `Results.verdict` and `correct_family`.
Writes results/verdicts.json and .png, and prints the table of docs/studies.md.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from reporting import RESULTS, format_command, write_result

from arena.config.study import StudySpec
from arena.doctor import describe_environment
from arena.evaluate.study.family import correct_family
from arena.evaluate.study.inference import benjamini_hochberg
from arena.evaluate.study.results import Results
from arena.statistics import rate_ci
from arena.store.plots import encode_png

SEEDS, ITERATIONS, LAST, MATCHES = 10, 6, 4, 128
EFFECT = 0.1
"""True effect on a share, about as large as the largest differences in docs/claims.md."""
BASE, ZERO, BY_SEED, BY_RUN = 0.5, 0.2, 0.05, 0.05
"""Shares of the baseline and of `zero`; standard deviations between seeds, shared by all arms, and between runs."""
FAMILY = {"null": 10, "effect": 10, "idle": 3, "full": 3}
"""Number of studies per family: no effect, `EFFECT`, a mechanism that never acts, and a ceiling."""
FAMILIES = 100


def make_spec() -> StudySpec:
    """Return the specification that all studies share."""
    return StudySpec.model_validate({
        "replicates": "nobody", "claim": "it is better", "published": "none", "family": "made", "figure": "success",
        "last": LAST, "arm": "own", "arms": {"base": [], "zero": []}, "seeds": SEEDS,
        "gauges": [{"figure": "gauge"}], "room": {"best": 1.0, "within": 0.02},
        "verdict": {"better_than": ["base", "zero"]},
    })  # fmt: skip


def make_study(truth: str, rng: np.random.Generator) -> Results:
    """Draw the results of a study. `truth` is its kind, a key of `FAMILY`."""
    by_seed = rng.normal(0.0, BY_SEED, SEEDS)
    gain = EFFECT if truth == "effect" else 0.0
    curves: dict[str, dict[int, Sequence[float]]] = {}
    for arm, share in (("own", BASE + gain), ("base", BASE), ("zero", ZERO)):
        chance = np.clip(share + by_seed + rng.normal(0.0, BY_RUN, SEEDS), 0.0, 1.0)
        if truth == "full" and arm != "zero":
            chance = np.full(SEEDS, 0.995)
        win_rates = rng.binomial(MATCHES, chance[:, None], (SEEDS, ITERATIONS)) / MATCHES
        curves[arm] = {seed: win_rates[seed].tolist() for seed in range(SEEDS)}
    gauge = 0.0 if truth == "idle" else 0.1
    gauges: dict[str, dict[str, dict[int, float | None]]] = {
        "gauge": {arm: {seed: gauge if arm == "own" else 0.0 for seed in range(SEEDS)} for arm in curves}
    }
    return Results(name="made", spec=make_spec(), seeds=SEEDS, curves=curves, gauges=gauges)


def judge_by_extension(study: Results) -> str:
    """Return the verdict by the former rule: with five seeds, and with ten if five are not conclusive."""
    for seeds in (5, SEEDS):
        free = make_spec().model_copy(update={"seeds": None, "gauges": [], "room": None})
        verdict = Results(
            name=study.name, spec=free, seeds=seeds, curves=_select_seeds(study.curves, seeds)
        ).verdict.verdict
        if verdict != "not shown":
            break
    return verdict


def _select_seeds(curves: Any, seeds: int) -> dict[str, dict[int, Any]]:
    return {arm: {seed: runs[seed] for seed in range(seeds)} for arm, runs in curves.items()}


def simulate_studies(families: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a row per study of every family, with its kind and its verdict by each procedure."""
    rng = np.random.default_rng(seed)
    truths = [truth for truth, count in FAMILY.items() for _ in range(count)]
    for number in range(families):
        studies = [make_study(truth, rng) for truth in truths]
        rows: list[dict[str, Any]] = [{"family": number, "truth": truth} for truth in truths]
        for row, study in zip(rows, studies, strict=True):
            row["five, then ten"] = judge_by_extension(study)
        corrected = correct_family(studies)
        q_values = benjamini_hochberg([judgement.decision.p for judgement in corrected])
        for row, judgement, q in zip(rows, corrected, q_values, strict=True):
            alone = judgement.results.verdict.verdict
            decided = alone in ("holds", "contradicted")
            row["alone"], row["Holm"] = alone, judgement.verdict
            row["BH"] = "not shown" if decided and q > 0.05 else alone
        yield from rows


def compute_rates(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each procedure's error rates (per null, per family, among its verdicts) and its power."""
    found = {}
    for name in (key for key in rows[0] if key not in ("family", "truth")):
        words = {truth: [row[name] for row in rows if row["truth"] == truth] for truth in FAMILY}
        errors = [row for row in rows if row["truth"] != "effect" and row[name] in ("holds", "contradicted")]
        errors += [row for row in rows if row["truth"] == "effect" and row[name] == "contradicted"]
        right, families = words["effect"].count("holds"), len({row["family"] for row in rows})
        nulls = sum(word in ("holds", "contradicted") for word in words["null"])
        decided = right + len(errors)
        found[name] = {
            "null": rate_ci(nulls, len(words["null"])),
            "family": rate_ci(len({row["family"] for row in errors}), families),
            "false": len(errors) / decided if decided else 0.0,
            "power": rate_ci(right, len(words["effect"])),
            "idle": words["idle"].count("did not act") / len(words["idle"]),
            "full": words["full"].count("world cannot tell") / len(words["full"]),
            "idle or full by mistake": Counter(words["null"] + words["effect"])["did not act"]
            + Counter(words["null"] + words["effect"])["world cannot tell"],
        }
    return found


def format_table(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of docs/studies.md."""
    lines = [
        "| procedure | a null is judged | a family errs | of verdicts wrong | effects found | idle | ceiling |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rates in found.items():
        cells = [
            _format_rate(rates["null"]),
            _format_rate(rates["family"]),
            f"{rates['false']:.3f}",
            _format_rate(rates["power"]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} | {rates['idle']:.2f} | {rates['full']:.2f} |")
    return "\n".join(lines)


def _format_rate(interval: Sequence[float]) -> str:
    estimate, low, high = interval
    return f"{estimate:.3f} [{low:.3f}, {high:.3f}]"


def draw(found: dict[str, dict[str, Any]]) -> Any:
    """Draw the error rates and the power by procedure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.8), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    names = list(found)
    for axis, (key, title) in zip(
        axes, (("null", "nulls judged"), ("family", "families that err"), ("power", "effects found")), strict=True
    ):
        for index, name in enumerate(names):
            estimate, low, high = found[name][key]
            axis.errorbar([estimate], [index], xerr=[[estimate - low], [high - estimate]], fmt="o", color="tab:blue")
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
    """Simulate all families and write the results."""
    if sys.argv[1:] == ["--redraw"]:
        saved = json.loads((RESULTS / "verdicts.json").read_text())
        (RESULTS / "verdicts.png").write_bytes(encode_png(draw(saved["rates"])))
        return
    families = int(sys.argv[1]) if sys.argv[1:] else FAMILIES
    found = compute_rates(list(simulate_studies(families)))
    settings = {"seeds": SEEDS, "effect": EFFECT, "by_seed": BY_SEED, "by_run": BY_RUN, "family": FAMILY}
    command = format_command()
    result = {"command": command, "families": families, **settings, "machine": describe_environment(), "rates": found}
    write_result("verdicts", result)
    (RESULTS / "verdicts.png").write_bytes(encode_png(draw(found)))
    print(format_table(found))


if __name__ == "__main__":
    main()
