"""A matrix of agents and persons as a picture."""

from collections.abc import Sequence
from pathlib import Path

from arena.errors import ConfigError
from arena.evaluate.matrix import Cell
from arena.store.files import explained


def plot(cells: Sequence[Cell], title: str, path: Path) -> None:
    """Write heat maps of pass^1 and pass^k with their intervals, agents by persons, as PNG."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'arena-selfplay[analysis]'") from None
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    agents, persons = list(dict.fromkeys(c.agent for c in cells)), list(dict.fromkeys(c.person for c in cells))
    shown = sorted({1, cells[0].k})
    size = (2.2 + 0.95 * len(persons), 1.7 + 0.42 * len(agents) * len(shown))
    figure, axes = plt.subplots(len(shown), figsize=size, layout="constrained", squeeze=False, sharex=True)
    for axis, k in zip(axes[:, 0], shown, strict=True):
        values = [[float("nan")] * len(persons) for _ in agents]
        for cell in cells:
            row, column, rate = agents.index(cell.agent), persons.index(cell.person), cell.reliability(k)
            values[row][column] = rate.estimate
            label = f"{rate.estimate:.2f}\n{rate.low:.2f}–{rate.high:.2f}" if rate.estimate == rate.estimate else "–"
            shade = "white" if rate.estimate > 0.6 else "black"
            axis.text(column, row, label, ha="center", va="center", fontsize=7, color=shade)
        axis.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(persons)), [name.replace("+", "\n+") for name in persons], rotation=30, ha="right")
        axis.set_yticks(range(len(agents)), agents)
        axis.tick_params(labelsize=8)
        axis.set_title(f"pass^{k}", fontsize=10)
    figure.suptitle(title, fontsize=10)
    with explained(path):
        figure.savefig(path, dpi=85, format="png")
    plt.close(figure)
