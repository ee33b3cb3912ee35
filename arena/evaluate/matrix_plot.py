"""A matrix of agents and persons as a picture."""

import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.evaluate.matrix import Cell
from arena.store.outputs import PICTURE, write_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(cells: Sequence[Cell], title: str, path: Path) -> None:
    """Write the heat maps as PNG."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'arena-selfplay[analysis]'") from None
    kept = io.BytesIO()
    drawn(cells, title).savefig(kept, dpi=85, format="png")
    write_output("--plot", path, PICTURE, kept.getvalue())


def drawn(cells: Sequence[Cell], title: str) -> "Figure":
    """Heat maps of pass^1 and pass^k with their intervals, agents by persons."""
    from matplotlib.figure import Figure

    agents, persons = list(dict.fromkeys(c.agent for c in cells)), list(dict.fromkeys(c.person for c in cells))
    shown = sorted({1, cells[0].k})
    size = (max(5.0, 2.2 + 0.95 * len(persons)), 1.9 + 0.42 * len(agents) * len(shown))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(shown), squeeze=False, sharex=True)
    for axis, k in zip(axes[:, 0], shown, strict=True):
        values = [[float("nan")] * len(persons) for _ in agents]
        for cell in cells:
            row, column, rate = agents.index(cell.agent), persons.index(cell.person), cell.reliability(k)
            values[row][column] = rate.estimate
            label = f"{rate.estimate:.2f}\n{rate.low:.2f}–{rate.high:.2f}" if rate.low == rate.low else "–"
            shade = "white" if rate.estimate > 0.6 else "black"
            axis.text(column, row, label, ha="center", va="center", fontsize=7, color=shade)
        axis.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(persons)), [_folded(name) for name in persons], rotation=30)
        axis.set_yticks(range(len(agents)), [_folded(name) for name in agents])
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
        axis.tick_params(labelsize=8)
        axis.set_title(f"pass^{k}", fontsize=10)
    figure.suptitle(fill(title, int(11 * size[0])), fontsize=10)
    return figure


def _folded(name: str) -> str:
    """A persona and who words it on a line each, no longer than fits; names have no markup."""
    persona, plus, words = name.partition("+")
    lines = [line if len(line) <= 26 else f"{line[:25]}…" for line in (persona, plus + words) if line]
    return "\n".join(lines).replace("$", r"\$")
