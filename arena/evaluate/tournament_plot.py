"""A tournament as a picture: who gets what against whom, and how strong everybody is."""

import io
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from arena.errors import ConfigError
from arena.evaluate.tournament import Standings
from arena.store.outputs import PICTURE, write_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(standings: Standings, path: Path) -> None:
    """Write the heat map and the ratings as PNG."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'arena-selfplay[analysis]'") from None
    kept = io.BytesIO()
    drawn(standings).savefig(kept, dpi=110, format="png")
    write_output("--plot", path, PICTURE, kept.getvalue())


def drawn(standings: Standings) -> "Figure":
    """A heat map of the payoffs, and beside it the contenders' ratings (or payoffs) with intervals."""
    from matplotlib.figure import Figure

    table, names = standings.table, [str(name) for name in standings.table.index]
    payoffs = standings.payoffs.loc[names, names].to_numpy()
    bound = float(np.nanmax(np.abs(payoffs))) or 1.0
    size = 2.0 + 0.55 * len(names)
    figure = Figure(figsize=(2 * size + 3, size + 1), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.imshow(payoffs, cmap="RdBu", vmin=-bound, vmax=bound)
    for i, j in np.ndindex(payoffs.shape):
        if not np.isnan(payoffs[i, j]):
            shade = "white" if abs(payoffs[i, j]) > 0.6 * bound else "black"
            left.text(j, i, f"{payoffs[i, j]:.2g}", ha="center", va="center", fontsize=8, color=shade)
    shown = [fill(name, 22, max_lines=2, placeholder=" …").replace("$", r"\$") for name in names]
    left.set_xticks(range(len(names)), [str(place) for place, _ in enumerate(names, 1)])
    left.set_yticks(range(len(names)), [f"{name}  {place}" for place, name in enumerate(shown, 1)])
    left.set_title(fill(f"{standings.game.name}: mean payoff of row against column", int(8 * size)), fontsize=10)
    rated = "elo" in table
    value, low, high = ("elo", "elo_low", "elo_high") if rated else ("payoff", "low", "high")
    ends = np.nan_to_num(np.clip([table[value] - table[low], table[high] - table[value]], 0, None))
    right.errorbar(table[value], range(len(names)), xerr=ends, fmt="o", color="#1f4e79", capsize=3)
    right.set_yticks(range(len(names)), [str(place) for place, _ in enumerate(names, 1)])
    right.invert_yaxis()
    right.grid(axis="x", alpha=0.3)
    scale = "Bradley–Terry rating (400: odds of 10 to 1), 95 %" if rated else "mean payoff, 95 %"
    right.set_xlabel(fill(scale, int(8 * size)), fontsize=9)
    counts = f"{standings.matches} matches, {standings.deals} deals per pair"
    right.set_title(fill(counts, int(8 * size)), fontsize=10)
    right.locator_params(axis="x", nbins=5)
    return figure
