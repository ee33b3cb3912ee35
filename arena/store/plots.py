"""Common parts of matplotlib figures: a colour per arm, curves of several seeds, and PNG files of 256 colours."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.store.outputs import PICTURE, write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARM_COLOURS = ("tab:blue", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:cyan", "tab:olive", "black", "gold")
CONTROL_COLOURS = {"shuffled": "tab:orange", "outcome only": "tab:green", "zero": "tab:grey"}
"""Fixed colours of control arms, by a part of the arm's name, so that they look the same in every figure."""


def assign_colours(arms: Iterable[str]) -> dict[str, str]:
    """Return a matplotlib colour for each arm's label. Call it once per figure, so that all panels agree."""
    unused = itertools.cycle(ARM_COLOURS)  # colours repeat after nine arms
    colours: dict[str, str] = {}
    for arm in arms:
        fixed = next((colour for word, colour in CONTROL_COLOURS.items() if word in arm), None)
        colours[arm] = fixed if fixed and fixed not in colours.values() else next(unused)
    return colours


def draw_seeds(axis: Axes, x: Sequence[float], curves: Sequence[Sequence[float]], label: str, colour: str) -> None:
    """Draw a curve per seed (thin) and their mean (thick). Curves may have fewer points than `x`."""
    for values in curves if len(curves) > 1 else ():
        axis.plot(x[: len(values)], values, color=colour, alpha=0.25, linewidth=0.7)
    columns = [[value for value in column if value is not None] for column in zip_longest(*curves)]
    means = [sum(column) / len(column) for column in columns]
    axis.plot(x[: len(means)], means, color=colour, linewidth=1.8, label=label)


def escape_tex(text: str) -> str:
    """Escape dollar signs, which matplotlib reads as TeX."""
    return text.replace("$", r"\$")


def encode_png(figure: Figure) -> bytes:
    """Return the figure as a PNG of 256 colours, a fifth of the usual size."""
    from PIL import Image, PngImagePlugin

    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, dpi=110, format="png")
    reduced = Image.open(full).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    info = PngImagePlugin.PngInfo()
    info.add_text("Software", "arena")  # by which `write_output` knows its own pictures
    reduced.save(small, "PNG", optimize=True, pnginfo=info)
    return small.getvalue()


def save_plot(draw: Callable[[], Figure], path: Path) -> None:
    """Draw the figure of a command's option --plot and write it as PNG. Raises ConfigError if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("--plot needs matplotlib: pip install 'arena-selfplay[analysis]'") from None
    write_output("--plot", path, PICTURE, encode_png(draw()))
