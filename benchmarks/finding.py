"""Precision and recall at 10 of `arena find` for planted behaviours: by meaning (MiniLM) against plain words (BM25).

    python benchmarks/finding.py [--redraw]

The behaviours, how they are said and how they are asked for are in behaviours.yaml. Turns: every way of saying each of
them, lines that share the question's words and not its meaning, and 150 ordinary lines, in one run. Matches: for each
kind of match 12, put together from phrases with small talk around, and 60 of nothing but offers and small talk.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import analysis  # noqa: E402
from analysis.finding import By, find  # noqa: E402
from analysis.panels import sheet, written  # noqa: E402
from analysis.texts import Embedding, Unit  # noqa: E402
from arena.statistics import SHARE, mean_ci, paired_ci  # noqa: E402
from tests.factories.spoken_run import spoken_run  # noqa: E402

RESULTS = HERE / "results"
WAYS: dict[str, tuple[By, Embedding, str]] = {
    "meaning": ("meaning", "minilm", "ask"),
    "words": ("words", "minilm", "ask"),
    "hashed": ("meaning", "hashed", "ask"),
    "meaning of an example": ("meaning", "minilm", "example"),
    "words of an example": ("words", "minilm", "example"),
}
"""Sentence vectors; BM25; vectors of hashed words, which know no synonyms either; and the first two asked not for a
description, but for something that might be said (single turns alone)."""
LOOKS = {
    "meaning of an example": ("tab:cyan", "meaning, asked by an example"),
    "meaning": ("tab:blue", "meaning (MiniLM), asked by a description"),
    "words of an example": ("silver", "words, asked by an example"),
    "words": ("tab:grey", "words (BM25), asked by a description"),
}
AT, PLANTED, PLAIN, ORDINARY = 10, 12, 60, 150
Line = tuple[str, str]
"""A line: what it shows, and what is said."""


def turns(world: dict[str, Any], rng: random.Random) -> list[list[Line]]:
    """Matches of one line each: planted, traps, ordinary."""
    lines = [(name, said) for name, kind in world["turns"].items() for said in kind["said"]]
    lines += [("", said) for kind in world["turns"].values() for said in kind["traps"]]
    for _ in range(ORDINARY):
        thing = rng.choice(["hats", "books", "balls"])
        lines.append(("", rng.choice(world["ordinary"]).format(n=rng.randint(0, 5), thing=thing)))
    rng.shuffle(lines)
    return [[line] for line in lines]


def matches(world: dict[str, Any], rng: random.Random) -> list[list[Line]]:
    """Matches of several lines, of a kind or of none."""
    phrases, made = world["phrases"], []
    for name, kind in world["matches"].items():
        for _ in range(PLANTED):
            steps = [*["talk"] * rng.randint(0, 2), *kind["steps"]]
            made.append([(name, rng.choice(phrases[step])) for step in steps])
    for _ in range(PLAIN):
        steps = [rng.choice(["talk", "ask_much", "counter", "accept"]) for _ in range(rng.randint(2, 6))]
        made.append([("", rng.choice(phrases[step])) for step in steps])
    rng.shuffle(made)
    return made


def measured(made: list[list[Line]], kinds: dict[str, Any], of: Unit) -> list[dict[str, Any]]:
    """For each behaviour and each way, precision and recall among the first ten findings."""
    rows = []
    with TemporaryDirectory() as folder:
        log = analysis.load(spoken_run(Path(folder) / "run", [[said for _, said in match] for match in made]))
        shows = {f"0000-{number:04d}": match[0][0] for number, match in enumerate(made)}
        for name, kind in kinds.items():
            for way, (by, embedding, asked) in WAYS.items():
                if asked not in kind:
                    continue
                found = find(log, kind[asked], by, of, n=AT, embedding=embedding)
                hits = sum(shows[match] == name for match in found["match"])
                planted = len({tuple(said for _, said in match) for match in made if match[0][0] == name})
                rows.append({"of": of, "behaviour": name, "way": way, "precision": hits / AT, "recall": hits / planted})
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over behaviours with 95 % intervals, and meaning less words, behaviour by behaviour."""

    def values(of: str, way: str, figure: str) -> list[float]:
        return [row[figure] for row in rows if row["of"] == of and row["way"] == way]

    def table(of: str, figure: str) -> dict[str, list[float]]:
        own = {way: values(of, way, figure) for way in WAYS}
        means = {way: mean_ci(found, SHARE) for way, found in own.items() if found}
        for suffix in ("", " of an example"):
            if found := own[f"meaning{suffix}"]:
                means[f"meaning - words{suffix}"] = paired_ci(own[f"words{suffix}"], found, SHARE)
        return {name: [round(value, 3) for value in interval] for name, interval in means.items()}

    return {of: {figure: table(of, figure) for figure in ("precision", "recall")} for of in ("turns", "matches")}


def draw(kept: dict[str, Any]) -> Any:
    """Precision at 10 of every behaviour, by meaning and by words."""
    rows = kept["rows"]
    figure, axes = sheet(
        ["single turns", "whole matches"], "arena find: precision among the first ten, planted behaviours",
        along="precision at 10", height=4.2,
    )  # fmt: skip
    figure.set_figwidth(11)
    for axis, of in zip(axes, ("turns", "matches"), strict=True):
        own = {way: {r["behaviour"]: r["precision"] for r in rows if r["of"] == of and r["way"] == way} for way in WAYS}
        names = sorted(own["meaning"], key=lambda name: own["meaning"][name])
        drawn = [(way, *look) for way, look in LOOKS.items() if own[way]]
        for place, (way, colour, label) in enumerate(drawn):
            at = [y + 0.8 * (0.5 - (place + 0.5) / len(drawn)) for y in range(len(names))]
            axis.barh(at, [own[way][name] for name in names], 0.72 / len(drawn), color=colour, label=label)
        axis.set_yticks(range(len(names)), names)
        axis.set_xlim(-0.02, 1.02)
        axis.grid(axis="y", visible=False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Measure, or draw again what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redraw", action="store_true")
    file = RESULTS / "finding.json"
    if parser.parse_args().redraw:
        kept = json.loads(file.read_text())
    else:
        world = yaml.safe_load((HERE / "behaviours.yaml").read_text())
        rows = measured(turns(world, random.Random(0)), world["turns"], "turns")
        rows += measured(matches(world, random.Random(1)), world["matches"], "matches")
        kept = {"settings": {"at": AT, "planted_matches": PLANTED, "plain_matches": PLAIN, "ordinary": ORDINARY},
                "rows": rows}  # fmt: skip
    kept["summary"] = summary(kept["rows"])
    file.write_text(json.dumps(kept, indent=1) + "\n")
    written(draw(kept), file.with_suffix(".png"))
    for of, figures in kept["summary"].items():
        for name, ways in figures.items():
            for way, (mean, low, high) in ways.items():
                print(f"{of:8} {name:10} {way:29} {mean:.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
