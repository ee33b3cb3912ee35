"""A study as a picture: every seed's curve (thin), their mean, and the interval of its end."""

from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from arena.config.study import EVALUATED, PANEL
from arena.evaluate.study.results import Results
from arena.evaluate.study.summary import Curve
from arena.statistics import SHARE
from arena.store.files import explained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("tab:blue", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:cyan", "tab:olive", "black")
CONTROLS = {"zero": "tab:grey", "shuffled": "tab:orange"}
"""As in all other pictures."""


def plot(results: Results, path: Path) -> bool:
    """Write it as PNG; false where matplotlib is not installed (`pip install 'arena-selfplay[analysis]'`)."""
    return write_picture(lambda: drawn(results), path)


def write_picture(draw: Callable[[], "Figure"], path: Path) -> bool:
    """Write what is drawn, whole or not at all; false where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    beside = path.with_name(f".{path.name}.tmp")
    with explained(path):
        _write(draw(), beside)
        beside.replace(path)
    return True


def _write(figure: "Figure", path: Path) -> None:
    """Reduce a picture to 256 colours, a quarter of its size."""
    from PIL import Image

    kept = BytesIO()
    figure.savefig(kept, dpi=110, format="png")
    few = Image.open(kept).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, "PNG", optimize=True)


def drawn(results: Results) -> "Figure":
    """Curves by arm, and what the rule makes of them."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.add_subplot()
    free = iter(COLOURS)
    for place, of in enumerate(results.arms):
        colour = CONTROLS.get(of.arm) or next(free, "black")
        curves = list(results.curves[of.arm].values())
        _curves(axis, curves, of.arm, colour)
        low, high = (abs(end - of.last.estimate) if end == end else 0.0 for end in of.last[1:])
        end = max(map(len, curves)) * (1.03 + 0.02 * place)
        axis.errorbar([end], [of.last.estimate], [[low], [high]], fmt="o", color=colour, capsize=2, markersize=3.5)
    if results.ends.bounds == SHARE:
        axis.set_ylim(-0.02, 1.02)
    outside = results.spec.figure.startswith((EVALUATED, PANEL))
    axis.set(xlabel="time that it was judged" if outside else "iteration", ylabel=plain_text(results.spec.figure))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    ends = "time" if outside else f"{results.spec.last} iterations"
    seeds = f"{results.seeds} seeds (thin), their mean, 95 % intervals of the last {ends}"
    heading = (f"{results.name}: {results.verdict.verdict}", seeds, results.verdict.because)
    figure.suptitle(plain_text("\n".join(fill(line, 95) for line in heading)), fontsize=8)
    return figure


def _curves(axis: "Axes", curves: Sequence[Curve], arm: str, colour: str) -> None:
    for values in curves if len(curves) > 1 else ():
        axis.plot(range(1, len(values) + 1), values, color=colour, alpha=0.25, linewidth=0.7)
    columns = [[v for v in column if v is not None] for column in zip_longest(*curves)]
    means = [sum(column) / len(column) for column in columns]
    axis.plot(range(1, len(means) + 1), means, color=colour, linewidth=1.8, label=plain_text(arm))


def plain_text(text: str) -> str:
    """No TeX."""
    return text.replace("$", r"\$")
