"""README's picture, drawn from saved results: payoffs before and after learning, and the distance to an equilibrium.

    python benchmarks/landing.py     # after benchmarks/panel.py; writes docs/learning.svg

Left: payoff against each bargainer of the panel (panel-negotiation.json) before and after learning, with the best
response. Right: distance to the equilibrium of Kuhn poker (strength-kuhn.json) by seed. Means are over seeds. The
picture follows the reader's light or dark mode.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from markupsafe import Markup
from svg import Scale, draw_path, path_data, round_ticks, spread

HERE = Path(__file__).parent
RESULTS, PICTURE = HERE / "results", HERE.parent / "docs" / "learning.svg"
WIDTH, HEIGHT = 960, 452
CONTROLS = {"zero": "no advantages", "shuffled": "random advantages"}
STYLE = """
svg {
  --card: #ffffff; --edge: #d9dee5; --ink: #17202b; --soft: #526070;
  --grid: #e4e8ee; --blue: #0b62b3; --grey: #66748a;
}
@media (prefers-color-scheme: dark) {
  svg {
    --card: #11161d; --edge: #303a47; --ink: #e7ecf2; --soft: #a3b0be;
    --grid: #262f3a; --blue: #6db1f5; --grey: #93a1b0;
  }
}
text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--soft); }
.title { font-size: 16px; font-weight: 600; fill: var(--ink); }
.name, .value { fill: var(--ink); } .strong { font-weight: 600; fill: var(--ink); }
.after { fill: var(--blue); font-weight: 600; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.card { fill: var(--card); stroke: var(--edge); }
.grid { stroke: var(--grid); fill: none; }
.gain { stroke: var(--blue); stroke-width: 5; stroke-opacity: .35; stroke-linecap: round; }
.same { stroke: var(--grey); stroke-width: 5; stroke-opacity: .35; stroke-linecap: round; }
.gap { stroke: var(--soft); stroke-dasharray: 1 4; }
.best { stroke: var(--ink); stroke-width: 2; }
.ring { fill: var(--card); stroke: var(--grey); stroke-width: 2; }
.disc { fill: var(--blue); } .grey { fill: var(--grey); }
.seed { stroke: var(--blue); stroke-opacity: .35; fill: none; }
.mean { stroke: var(--blue); stroke-width: 3; fill: none; stroke-linejoin: round; }
.control { stroke: var(--grey); stroke-width: 2.5; stroke-dasharray: 7 4; fill: none; }
.level { stroke: var(--ink); stroke-dasharray: 5 4; }
"""


class Row(NamedTuple):
    """Row of the left half: payoff before and after learning, the best response's payoff, and the name's CSS class."""

    name: str
    before: float
    after: float
    best: float | None
    kind: str = "name"


def make_rows(result: dict[str, Any]) -> Iterator[Row]:
    """Yield rows for the panel, for each member (both seats together, largest gain first) and for each control."""
    arms = {arm: [run for run in result["runs"] if run["arm"] == arm] for arm in (result["arm"], *CONTROLS)}
    learned = arms[result["arm"]]
    yield Row("all six", *_average([run["payoff"] for run in learned]), "strong")
    members = dict.fromkeys(cell.split(", ")[0] for cell in learned[0]["cells"])
    rows = [
        Row(
            member.replace("_", " "),
            *_average([c for run in learned for n, c in run["cells"].items() if n.startswith(f"{member},")]),
        )
        for member in members
    ]
    yield from sorted(rows, key=lambda row: row.before - row.after)
    for arm, name in CONTROLS.items():
        if arms[arm]:
            before, after, _ = _average([run["payoff"] for run in arms[arm]])
            yield Row(name, before, after, None, "quiet")


def _average(cells: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    return (
        fmean([cell["before"][0] for cell in cells]),
        fmean([cell["after"][0] for cell in cells]),
        fmean([cell["best_response"] for cell in cells]),
    )


def draw_text(x: float, y: float, text: str, css_class: str = "") -> Markup:
    """Return an SVG text element."""
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(f"{x:.1f}", f"{y:.1f}", css_class, text)


def draw_dot(x: float, y: float, css_class: str, size: float = 6) -> Markup:
    """Return an SVG circle, drawn as disc or ring by its CSS class."""
    return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"/>').format(f"{x:.1f}", f"{y:.1f}", size, css_class)


def draw_payoffs(result: dict[str, Any]) -> Iterator[Markup]:
    """Yield the elements of the left half: per bargainer, payoffs before and after, and the best response."""
    rows = list(make_rows(result))
    seeds = sum(run["arm"] == result["arm"] for run in result["runs"])
    yield draw_text(28, 40, "Bargaining: payoff against players that never learn", "title")
    yield draw_text(28, 62, f"SmolLM2-135M on two CPU cores, mean of {seeds} runs; at most 10")
    x, top = Scale(0, 10, 186, 482), 124
    bottom = top + 32 * (len(rows) - 1) + 10
    yield draw_path("grid", "".join(f"M{x(v):.1f} {top - 18}V{bottom + 8}" for v in (0, 2, 4, 6, 8, 10)))
    yield from (draw_text(x(v), bottom + 26, str(v), "middle") for v in (0, 2, 4, 6, 8, 10))
    panel_row = rows[0]
    yield draw_text(x(panel_row.before), top - 26, "before", "middle")
    yield draw_text(x(panel_row.after), top - 26, "after", "after middle")
    yield draw_text(x(panel_row.best or 0) - 10, top - 26, "best response", "name")
    for index, row in enumerate(rows):
        y = top + 32 * index + (10 if row.best is None else 0)
        yield draw_text(172, y + 5, row.name, f"{row.kind} end")
        yield draw_path("same" if row.best is None else "gain", path_data([(x(row.before), y), (x(row.after), y)]))
        if row.best is not None:
            yield draw_path("gap", path_data([(x(row.after), y), (x(row.best), y)]))
            yield draw_path("best", f"M{x(row.best):.1f} {y - 8}v16")
        yield draw_dot(x(row.before), y, "ring")
        yield draw_dot(x(row.after), y, "grey" if row.best is None else "disc")
        yield draw_text(496, y + 5, f"{row.before:.1f} → {row.after:.1f}", "value")


def draw_distances(result: dict[str, Any]) -> Iterator[Markup]:
    """Yield the elements of the right half: NashConv over iterations by seed, its mean, and the control's mean."""
    yield draw_text(596, 40, "Kuhn poker: distance to equilibrium", "title")
    runs = {arm: [run["curve"] for run in result["runs"] if run["arm"] == arm] for arm in ("mars", "zero")}
    yield draw_text(596, 62, f"NashConv of a 0.9M model, exact, {len(runs['mars'])} seeds")
    steps = [int(k) for k in runs["mars"][0]]
    means = {arm: [fmean([run[str(k)]["nash_conv"] for run in curves]) for k in steps] for arm, curves in runs.items()}
    highest = max(run[str(k)]["nash_conv"] for curves in runs.values() for run in curves for k in steps)
    x, y = Scale(0, steps[-1], 628, 806), Scale(0, highest, 398, 98)
    marks = [value for value in round_ticks(0, highest) if value]
    yield draw_path("grid", "".join(f"M628 {y(v):.1f}H806" for v in marks))
    yield from (draw_text(618, y(v) + 5, f"{v:g}", "end") for v in [0.0, *marks])
    yield from (draw_text(x(k), 424, str(k) if k else "iteration 0", "middle") for k in (0, steps[-1] // 2, steps[-1]))
    yield draw_path("level", "M628 398H806")
    for run in runs["mars"]:
        yield draw_path("seed", path_data((x(k), y(run[str(k)]["nash_conv"])) for k in steps))
    yield draw_path("control", path_data((x(k), y(v)) for k, v in zip(steps, means["zero"], strict=True)))
    yield draw_path("mean", path_data((x(k), y(v)) for k, v in zip(steps, means["mars"], strict=True)))
    ends = [y(means["zero"][-1]), y(means["mars"][-1]), y(0)]
    labels = [("no advantages", "quiet"), (f"by reward {means['mars'][-1]:.2f}", "after"), ("equilibrium", "name")]
    for position, (label, kind) in zip(spread(ends, 20, 98, 400), labels, strict=True):
        yield draw_text(816, position + 5, label, kind)


def draw_picture() -> str:
    """Return the picture as SVG."""
    panel, kuhn = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in ("panel-negotiation", "strength-kuhn")
    )
    title = "Payoff against six bargainers before and after learning, and distance to equilibrium in Kuhn poker"
    frame = Markup('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}">\n').format(
        WIDTH, HEIGHT, title
    )
    card = Markup('<rect x="0.5" y="0.5" width="{}" height="{}" rx="12" class="card"/>').format(WIDTH - 1, HEIGHT - 1)
    parts = [card, *draw_payoffs(panel), *draw_distances(kuhn)]
    return f"{frame}<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), "utf-8")
