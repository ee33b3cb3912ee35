"""A tournament as a picture: who gets what against whom, and how strong everybody is."""

from pathlib import Path

import numpy as np

from arena.errors import ConfigError
from arena.evaluate.tournament import Standings
from arena.store.files import explained


def plot(standings: Standings, path: Path) -> None:
    """Write a heat map of the payoffs and the contenders' ratings (or payoffs) with intervals, as PNG."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'arena-selfplay[analysis]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    table, names = standings.table, [str(name) for name in standings.table.index]
    payoffs = standings.payoffs.loc[names, names].to_numpy()
    bound = float(np.nanmax(np.abs(payoffs))) or 1.0
    size = 2.0 + 0.55 * len(names)
    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * size + 3, size + 1), layout="constrained")
    left.imshow(payoffs, cmap="RdBu", vmin=-bound, vmax=bound)
    for i, j in np.ndindex(payoffs.shape):
        if not np.isnan(payoffs[i, j]):
            shade = "white" if abs(payoffs[i, j]) > 0.6 * bound else "black"
            left.text(j, i, f"{payoffs[i, j]:.2g}", ha="center", va="center", fontsize=8, color=shade)
    left.set_xticks(range(len(names)), names, rotation=45, ha="right")
    left.set_yticks(range(len(names)), names)
    left.set_title(f"{standings.game.name}: mean payoff of row against column")
    rated = "elo" in table
    value, low, high = ("elo", "elo_low", "elo_high") if rated else ("payoff", "low", "high")
    ends = np.clip([table[value] - table[low], table[high] - table[value]], 0, None)
    right.errorbar(table[value], range(len(names)), xerr=ends, fmt="o", color="#1f4e79", capsize=3)
    right.set_yticks(range(len(names)), names)
    right.invert_yaxis()
    right.grid(axis="x", alpha=0.3)
    right.set_xlabel("Bradley–Terry rating (400 points: odds of 10 to 1), 95 %" if rated else "mean payoff, 95 %")
    right.set_title(f"{standings.matches} matches, {standings.deals} deals per pair")
    with explained(path):
        figure.savefig(path, dpi=150, format="png")
    plt.close(figure)
