"""Picture of a study: every seed's curve (thin), their mean, and the interval of the final value."""

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
from arena.store.files import explain_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("tab:blue", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:cyan", "tab:olive", "black")
CONTROLS = {"zero": "tab:grey", "shuffled": "tab:orange"}
"""Colours of the controls in all pictures."""


def write_plot(results: Results, path: Path) -> bool:
    """Write the study's picture to `path` as PNG. Returns False if matplotlib is missing."""
    return write_picture(lambda: draw(results), path)


def write_picture(draw: Callable[[], "Figure"], path: Path) -> bool:
    """Draw a figure and write it atomically as PNG. Returns False if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    beside = path.with_name(f".{path.name}.tmp")
    with explain_errors(path):
        _write(draw(), beside)
        beside.replace(path)
    return True


def _write(figure: "Figure", path: Path) -> None:
    """Write a figure in 256 colours, which makes the file four times smaller."""
    from PIL import Image

    buffer = BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    reduced = Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    reduced.save(path, "PNG", optimize=True)


def draw(results: Results) -> "Figure":
    """Draw each arm's curves and final interval, under a heading with the verdict and its reason."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.add_subplot()
    unused_colours = iter(COLOURS)
    for place, summary in enumerate(results.arms):
        colour = CONTROLS.get(summary.arm) or next(unused_colours, "black")
        curves = list(results.curves[summary.arm].values())
        _draw_curves(axis, curves, summary.arm, colour)
        low, high = (abs(end - summary.last.estimate) if end == end else 0.0 for end in summary.last[1:])
        end = max(map(len, curves)) * (1.03 + 0.02 * place)
        axis.errorbar([end], [summary.last.estimate], [[low], [high]], fmt="o", color=colour, capsize=2, markersize=3.5)
    if results.ends.bounds == SHARE:
        axis.set_ylim(-0.02, 1.02)
    is_evaluated = results.spec.figure.startswith((EVALUATED, PANEL))
    axis.set(xlabel="evaluation" if is_evaluated else "iteration", ylabel=escape_tex(results.spec.figure))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    ends = "evaluation" if is_evaluated else f"{results.spec.last} iterations"
    seeds = f"{results.seeds} seeds (thin), their mean, 95 % intervals of the last {ends}"
    heading = (f"{results.name}: {results.verdict.verdict}", seeds, results.verdict.because)
    figure.suptitle(escape_tex("\n".join(fill(line, 95) for line in heading)), fontsize=8)
    return figure


def _draw_curves(axis: "Axes", curves: Sequence[Curve], arm: str, colour: str) -> None:
    for values in curves if len(curves) > 1 else ():
        axis.plot(range(1, len(values) + 1), values, color=colour, alpha=0.25, linewidth=0.7)
    columns = [[v for v in column if v is not None] for column in zip_longest(*curves)]
    means = [sum(column) / len(column) for column in columns]
    axis.plot(range(1, len(means) + 1), means, color=colour, linewidth=1.8, label=escape_tex(arm))


def escape_tex(text: str) -> str:
    """Escape dollar signs, which matplotlib reads as TeX."""
    return text.replace("$", r"\$")
