"""Pictures of `arena tournament` and `arena matrix`: heat maps of players against players or simulated persons."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.evaluate.matrix import Cell
from arena.evaluate.tournament import Standings
from arena.store.plots import escape_tex

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_tournament(standings: Standings) -> "Figure":
    """Draw a heat map of mean payoffs beside the Elo ratings (in cooperative games the payoffs) with intervals."""
    from matplotlib.figure import Figure

    table, names = standings.table, [str(name) for name in standings.table.index]
    payoffs = standings.payoffs.loc[names, names].to_numpy()
    bound = float(np.nanmax(np.abs(payoffs))) or 1.0
    size = 2.0 + 0.55 * len(names)
    figure = Figure(figsize=(2 * size + 3, size + 1), layout="constrained")
    left, right = figure.subplots(1, 2)
    labels = [["" if np.isnan(value) else f"{value:.2g}" for value in row] for row in payoffs]
    _heat_map(left, payoffs, labels, cmap="RdBu", vmin=-bound, vmax=bound)
    places = [str(place) for place, _ in enumerate(names, 1)]
    left.set_xticks(range(len(names)), places)
    left.set_yticks(range(len(names)), [f"{_fold(name)}  {place}" for name, place in zip(names, places, strict=True)])
    left.set_title(fill(f"{standings.game.name}: mean payoff of row against column", int(8 * size)), fontsize=10)
    rated = "elo" in table
    value, low, high = ("elo", "elo_low", "elo_high") if rated else ("payoff", "low", "high")
    ends = np.nan_to_num(np.clip([table[value] - table[low], table[high] - table[value]], 0, None))
    right.errorbar(table[value], range(len(names)), xerr=ends, fmt="o", color="#1f4e79", capsize=3)
    right.set_yticks(range(len(names)), places)
    right.invert_yaxis()
    right.grid(axis="x", alpha=0.3)
    scale = "Bradley–Terry rating (400: odds of 10 to 1), 95 %" if rated else "mean payoff, 95 %"
    right.set_xlabel(fill(scale, int(8 * size)), fontsize=9)
    counts = f"{standings.matches} matches, {standings.deals} deals per pair"
    right.set_title(fill(counts, int(8 * size)), fontsize=10)
    right.locator_params(axis="x", nbins=5)
    return figure


def draw_matrix(cells: Sequence[Cell], title: str) -> "Figure":
    """Draw a heat map of pass^1, and one of pass^k, with their intervals: a row per agent, a column per person."""
    from matplotlib.figure import Figure

    agents, persons = list(dict.fromkeys(c.agent for c in cells)), list(dict.fromkeys(c.person for c in cells))
    ks = sorted({1, cells[0].k})
    size = (max(5.0, 2.2 + 0.95 * len(persons)), 1.9 + 0.42 * len(agents) * len(ks))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(ks), squeeze=False, sharex=True)
    for axis, k in zip(axes[:, 0], ks, strict=True):
        values = np.full((len(agents), len(persons)), np.nan)
        labels = [[""] * len(persons) for _ in agents]
        for cell in cells:
            row, column, rate = agents.index(cell.agent), persons.index(cell.person), cell.reliability(k)
            values[row, column] = rate.estimate
            labels[row][column] = (
                f"{rate.estimate:.2f}\n{rate.low:.2f}–{rate.high:.2f}" if rate.low == rate.low else "–"
            )
        _heat_map(axis, values, labels, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(persons)), [_fold(name) for name in persons], rotation=30)
        axis.set_yticks(range(len(agents)), [_fold(name) for name in agents])
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
        axis.tick_params(labelsize=8)
        axis.set_title(f"pass^{k}", fontsize=10)
    figure.suptitle(fill(title, int(11 * size[0])), fontsize=10)
    return figure


def _heat_map(axis: "Axes", values: np.ndarray, labels: Sequence[Sequence[str]], **style: Any) -> None:
    axis.imshow(values, **style)
    for row, column in np.ndindex(values.shape):
        shade = "white" if abs(values[row, column]) > 0.6 * style["vmax"] else "black"
        axis.text(column, row, labels[row][column], ha="center", va="center", fontsize=7, color=shade)


def _fold(name: str) -> str:
    """Return a name broken before its `+`, with each line cut at 26 characters and TeX escaped."""
    first, plus, rest = name.partition("+")
    lines = [line if len(line) <= 26 else f"{line[:25]}…" for line in (first, plus + rest) if line]
    return escape_tex("\n".join(lines))
