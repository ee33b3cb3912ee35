"""Picture of a study: every seed's curve (thin), their mean, and the interval of the final value."""

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from arena.config.study import EVALUATED, PANEL
from arena.evaluate.study.results import Results
from arena.statistics import SHARE
from arena.store.files import write_atomic
from arena.store.plots import assign_colours, draw_seeds, encode_png, escape_tex

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_plot(results: Results, path: Path) -> bool:
    """Write the study's picture to `path` as PNG. Returns False if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    write_atomic(path, encode_png(draw(results)))
    return True


def draw(results: Results) -> "Figure":
    """Draw each arm's curves and final interval, under a heading with the verdict and its reason."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.add_subplot()
    colours = assign_colours(summary.arm for summary in results.arms)
    for place, summary in enumerate(results.arms):
        colour = colours[summary.arm]
        curves = list(results.curves[summary.arm].values())
        length = max(map(len, curves))
        draw_seeds(axis, range(1, length + 1), curves, escape_tex(summary.arm), colour)
        low, high = (abs(end - summary.last.estimate) if end == end else 0.0 for end in summary.last[1:])
        end = length * (1.03 + 0.02 * place)
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
