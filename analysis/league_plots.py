"""The league as a picture: who beats whom, in cycles or not, what everybody gets, ratings, who speaks to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.frames import Frames
from analysis.league import alpha_rank, beats, cycles, payoff_matrix, ratings, speech
from analysis.panels import colours, points, sheet, wrapped
from arena.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_RATED = 8
RING = "tab:red"
SIZE = 1700
"""Of a node, in square points."""


def drawn(log: Frames, heading: str = "") -> Figure:
    """Draw who beats whom (the shortest cycle in red), mean payoffs, ratings over time, who speaks to whom.

    Of a run in which nobody was paid yet there is little to see, and the picture says so.

    >>> [axis.get_title() for axis in drawn(log).axes]
    ['who beats whom', 'mean payoff of row with column', 'rating ± sigma (openskill)', 'who speaks to whom (messages)']
    """
    titles = [
        "who beats whom",
        "mean payoff of row with column",
        "rating ± sigma (openskill)",
        "who speaks to whom (messages)",
    ]
    figure, axes = sheet(titles, heading, height=3.6)
    figure.set_figwidth(10)
    graph = beats(log)
    rings = cycles(graph)
    ring = {*zip(rings[0], rings[0][1:] + rings[0][:1], strict=True)} if rings else set()
    shown = {(a, b): f"+{ahead:.2g}" for a, b, ahead in graph.edges(data="ahead") if (a, b) in ring}
    _graph(axes[0], graph, shown, ring)
    axes[0].set_xlabel(f"cycle: {wrapped(' > '.join([*rings[0], rings[0][0]]), 60)}" if rings else "no cycle")
    _matrix(axes[1], payoff_matrix(log), alpha_rank(log))
    _ratings(axes[2], ratings(log))
    said = speech(log)
    _graph(axes[3], said, {(a, b): str(n) for a, b, n in said.edges(data="messages")}, set())
    return figure


def _graph(axis: Axes, graph: Any, labels: dict[tuple[str, str], str], ring: set[tuple[str, str]]) -> None:
    import networkx as nx

    axis.grid(visible=False)
    axis.set_xlabel("")
    axis.set_xticks([])
    axis.set_yticks([])
    place = nx.circular_layout(graph, scale=1.05)
    edges = list(graph.edges)
    nx.draw_networkx_nodes(graph, place, ax=axis, node_size=SIZE, node_color="#dce6f2", edgecolors="#1f4e79")
    names = {node: wrapped(node, 11) for node in graph}
    nx.draw_networkx_labels(graph, place, names, ax=axis, font_size=6.5)
    if edges:
        nx.draw_networkx_edges(
            graph, place, edgelist=edges, ax=axis, node_size=SIZE, arrowsize=12, width=1.4,
            edge_color=[RING if edge in ring else "grey" for edge in edges],
            connectionstyle="arc3,rad=0.12" if any((b, a) in edges for a, b in edges) else "arc3",
        )  # fmt: skip
        nx.draw_networkx_edge_labels(
            graph, place, labels, ax=axis, font_size=7, label_pos=0.4, rotate=False,
            connectionstyle="arc3,rad=0.12" if any((b, a) in edges for a, b in edges) else "arc3",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip
    axis.set_xlim(-1.45, 1.45)
    axis.set_ylim(-1.35, 1.35)


def _matrix(axis: Axes, payoffs: pd.DataFrame, mass: pd.Series[Any]) -> None:
    axis.grid(visible=False)
    axis.set_xlabel("")
    names = [str(name) for name in mass.index]
    if not names:
        axis.set_xlabel("nobody was paid")
        return
    values = payoffs.loc[names, names].to_numpy()
    known = np.abs(values[np.isfinite(values)])
    bound = float(known.max()) if len(known) and known.max() > 0 else 1.0
    axis.imshow(values, cmap="RdBu", vmin=-bound, vmax=bound, aspect="auto")
    for row, column in np.argwhere(np.isfinite(values)):
        shade = "white" if abs(values[row, column]) > 0.6 * bound else "black"
        axis.text(column, row, f"{values[row, column]:.2g}", ha="center", va="center", fontsize=8, color=shade)
    told = [f"{wrapped(name, 16)}  α {mass[name]:.2f}  {place}" for place, name in enumerate(names, 1)]
    axis.set_yticks(range(len(names)), told)
    axis.set_xticks(range(len(names)), [str(place) for place, _ in enumerate(names, 1)])


def _ratings(axis: Axes, rated: pd.DataFrame) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if rated.empty:
        return
    runs = rated["run"].unique()
    last = rated[rated["run"] == runs[0]]
    best = last.groupby("policy")["matches"].max().sort_values(ascending=False, kind="stable").index[:MOST_RATED]
    for place, (name, colour) in enumerate(colours(sorted(best)).items()):
        own = last[last["policy"] == name]
        x, mu, sigma = (own[column].to_numpy(dtype=float) for column in ("iteration", "mu", "sigma"))
        bars = [Interval(m, m - s, m + s) for m, s in zip(mu, sigma, strict=True)]
        points(axis, x.tolist(), bars, wrapped(name, 18), colour, place)
    axis.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
