"""Forks of matches of a trained run in which the responder accepted the first offer: what if it had refused?

    python benchmarks/forks.py [--run RUN] [--redraw]

Trains negotiation-nano for 20 iterations (a minute or two) unless a run is named. Of its last iteration, every match
whose second turn is ACCEPT, up to sixteen, goes on from there forty times after a counter-offer of one of everything
instead, both seats played by the run's own newest weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import analysis  # noqa: E402
from analysis.panels import colours, fit, legend, points, sheet, written  # noqa: E402
from arena.cli.loop import wait  # noqa: E402
from arena.statistics import ANY, Interval, mean_ci  # noqa: E402

RESULTS = HERE / "results"
ACT, TURN, MOST, FORKS = "OFFER 1 1 1", 1, 16, 40
SEATS = ("responder", "opener")
SETTINGS = {"recipe": "negotiation-nano", "iterations": 20, "seed": 0, "act": ACT, "matches": MOST, "forks": FORKS}


def trained(folder: Path) -> Path:
    """A run of the recipe, by the command that anybody has."""
    from arena.__main__ import main as arena

    run = folder / "run"
    sys.argv = ["arena", "run", "selfplay", "--recipe", str(SETTINGS["recipe"]), "--seed", str(SETTINGS["seed"])]
    sys.argv += ["--iterations", str(SETTINGS["iterations"]), "--out", str(run)]
    try:
        arena()
    except SystemExit as end:
        if end.code:
            raise
    return run


def accepted(run: Path) -> list[tuple[str, float]]:
    """Matches of the last iteration in which the responder accepted at once, and the credit of that turn."""
    log = analysis.load(run)
    turns = log.turns[(log.turns["turn"] == TURN) & (log.turns["iteration"] == log.turns["iteration"].max())]
    own = turns[(turns["action"] == "ACCEPT") & turns["valid"]].head(MOST)
    return list(zip(own["match"], own["advantage"].astype("float64"), strict=True))


def measured(run: Path) -> list[dict[str, Any]]:
    """For each of these matches, what came of accepting and what comes of refusing."""
    from arena.evaluate.fork import fork
    from arena.evaluate.specs import Contenders

    loader, rows = Contenders(), []
    for match, credit in accepted(run):
        forked = wait(fork(run, match, TURN, act=ACT, n=FORKS, loader=loader))
        rows.append({
            "match": match, "credit": credit,
            "accepted": {seat: forked.logged[f"payoff {seat}"] for seat in SEATS},
            "refused": {seat: [round(v, 3) for v in forked.mean(forked.forked, f"payoff {seat}")] for seat in SEATS},
            "deals": round(forked.mean(forked.forked, "deal").estimate, 3),
        })  # fmt: skip
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over matches with 95 % intervals: what refusing gains, and how many deals survive it.

    And the correlation of credit with accepting less refusing, which is partly made: both hold what accepting paid.
    """
    gains = {seat: [row["refused"][seat][0] - row["accepted"][seat] for row in rows] for seat in SEATS}
    found = {f"gain {seat}": [round(v, 3) for v in mean_ci(own)] for seat, own in gains.items()}
    said = np.corrcoef([row["credit"] for row in rows], [-gain for gain in gains["responder"]])[0, 1]
    return found | {
        "credit and forks": round(float(said), 3),
        "deals": [round(v, 3) for v in mean_ci([row["deals"] for row in rows], (0.0, 1.0))],
        "worse refused": sum(row["refused"]["responder"][2] < row["accepted"]["responder"] for row in rows),
        "better refused": sum(row["refused"]["responder"][1] > row["accepted"]["responder"] for row in rows),
    }


def draw(kept: dict[str, Any]) -> Any:
    """Payoffs of accepting and refusing match by match, and what credit said of accepting."""
    rows = sorted(kept["rows"], key=lambda row: row["accepted"]["responder"])
    titles = ["responder's payoff", "opener's payoff", "what credit said of accepting"]
    heading = f"What if the responder had refused ({ACT}) instead of accepting at once? {FORKS} forks a match, 95 %"
    figure, axes = sheet(titles, heading, along="match, by what accepting paid", height=3.1)
    figure.set_figwidth(11)
    hues = colours(["refused", "accepted"])
    for axis, seat in zip(axes, SEATS, strict=False):
        place = [float(number) for number in range(1, len(rows) + 1)]
        points(axis, place, [Interval(*row["refused"][seat]) for row in rows], "refused", hues["refused"])
        for line in axis.lines:
            line.set_linestyle("None")  # matches are no curve
        paid = [row["accepted"][seat] for row in rows]
        axis.plot(place, paid, "D", color=hues["accepted"], markersize=5, label="accepted", linestyle="None")
        axis.set_xticks([])
        fit(axis, ANY)
    last = axes[2]
    gain = [row["accepted"]["responder"] - row["refused"]["responder"][0] for row in rows]
    last.plot([row["credit"] for row in rows], gain, "o", color="black", markersize=4.5, linestyle="None")
    last.axhline(0, color="grey", linewidth=0.8)
    last.set_xlabel("advantage of accepting, by credit", fontsize=9)
    last.set_ylabel("accepted less refused, by forks", fontsize=9)
    legend(figure)
    return figure


def main() -> None:
    """Train, fork, write down and draw; or draw again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--redraw", action="store_true")
    arguments, file = parser.parse_args(), RESULTS / "forks.json"
    if arguments.redraw:
        kept = json.loads(file.read_text())
    else:
        with TemporaryDirectory() as folder:
            kept = {"settings": SETTINGS, "rows": measured(arguments.run or trained(Path(folder)))}
    kept["summary"] = summary(kept["rows"])
    file.write_text(json.dumps(kept, indent=1) + "\n")
    written(draw(kept), file.with_suffix(".png"))
    print(json.dumps(kept["summary"], indent=1))


if __name__ == "__main__":
    main()
