"""A map of strategies as a picture: what lies where, how much of it is played when, how much of it is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.maps import StrategyMap
from analysis.panels import OTHERS, sheet, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL = 0.05
"""Of a change that is drawn."""
LABEL = 110
"""Characters of an exemplar in the legend."""


def drawn(found: StrategyMap, heading: str = "") -> Figure:
    """Four panels: texts in the plane and clusters' shares in one colour each, diversity, novelty; the change dashed.

    >>> [axis.get_title() for axis in drawn(analysis.maps.strategy_map(log, embedding="hashed")).axes]
    ['texts that mean alike', 'share of texts', 'diversity', 'novelty']
    """
    figure, axes = sheet(["texts that mean alike", "share of texts", "diversity", "novelty"], heading, height=2.9)
    figure.set_figwidth(9.5)
    palette = [OTHERS[place % len(OTHERS)] for place in range(len(found.clusters))]
    _scatter(axes[0], found, palette)
    _shares(axes[1], found, palette)
    for axis, name, told in (
        (axes[2], "diversity", "Vendi score"),
        (axes[3], "novelty", "distance to the nearest of before"),
    ):
        known = found.curves[name].dropna()
        axis.plot(known.index, known, "o-" if len(known) >= 5 else "o", color="tab:blue", markersize=3.5, linewidth=1.2)
        axis.set_ylabel(told, fontsize=8)
        axis.set_ylim(0 if name == "novelty" else 1, None)
    for axis in axes[1:]:
        _along(axis, found)
    entries = [_legend_line(row, place) for place, row in enumerate(found.clusters["exemplar"])]
    figure.legend(
        axes[1].collections[: len(entries)], entries, loc="outside lower left", ncols=1, frameon=False, fontsize=8
    )
    return figure


def _scatter(axis: Axes, found: StrategyMap, palette: list[str]) -> None:
    rows = found.rows
    shades = [palette[cluster] for cluster in rows["cluster"]]
    axis.scatter(rows["x"], rows["y"], c=shades, s=9, alpha=0.45, linewidths=0)
    axis.set_xlabel("first direction", fontsize=9)
    axis.set_ylabel("second direction", fontsize=9)


def _shares(axis: Axes, found: StrategyMap, palette: list[str]) -> None:
    shares = found.shares
    x = shares.index.to_numpy(dtype=float)
    if len(x) == 1:
        x, shares = np.array([x[0] - 0.5, x[0] + 0.5]), shares.iloc[[0, 0]]
    axis.stackplot(x, shares.to_numpy().T, colors=palette[: shares.shape[1]], alpha=0.8, linewidth=0)
    axis.set_ylim(0, 1)
    axis.set_xlim(x[0], x[-1])


def _along(axis: Axes, found: StrategyMap) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if found.change and found.change.p <= LEVEL:
        axis.axvline(found.change.iteration - 0.5, color="black", linestyle="--", linewidth=1)


def _legend_line(exemplar: str, place: int) -> str:
    """One line for the legend, however many the match has."""
    line = wrapped(" / ".join(exemplar.splitlines()), LABEL).partition("\n")[0]
    return f"{place + 1}  {line}"
