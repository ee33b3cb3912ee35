"""README's picture, from kept results: what a model earns by learning, and how near to perfect play it comes.

    python benchmarks/landing.py     # after benchmarks/panel.py; writes docs/learning.svg

Left: payoff against each bargainer of the panel (panel-negotiation.json), before and after, beside the best response.
Right: distance to the equilibrium of Kuhn poker (strength-kuhn.json), seed by seed. Means are over seeds. The picture
is a card of its own, light or dark as its reader's system is, so that it can be read on any page.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from svg import Scale, apart, drawn, path, ticks

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
    """A line of the left half: what was earned before and after, and what could be."""

    name: str
    before: float
    after: float
    best: float | None
    kind: str = "name"


def rows(kept: dict[str, Any]) -> Iterator[Row]:
    """The whole panel, each of its members (both seats together), and the controls."""
    arms = {arm: [run for run in kept["runs"] if run["arm"] == arm] for arm in (kept["arm"], *CONTROLS)}
    own = arms[kept["arm"]]
    yield Row("all six", *_ends([run["payoff"] for run in own]), "strong")
    members = dict.fromkeys(cell.split(", ")[0] for cell in own[0]["cells"])
    found = [
        Row(
            member.replace("_", " "),
            *_ends([c for run in own for n, c in run["cells"].items() if n.startswith(f"{member},")]),
        )
        for member in members
    ]
    yield from sorted(found, key=lambda row: row.before - row.after)
    for arm, name in CONTROLS.items():
        if arms[arm]:
            before, after, _ = _ends([run["payoff"] for run in arms[arm]])
            yield Row(name, before, after, None, "quiet")


def _ends(cells: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    return (
        mean([cell["before"][0] for cell in cells]),
        mean([cell["after"][0] for cell in cells]),
        mean([cell["best_response"] for cell in cells]),
    )


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


def words(x: float, y: float, said: str, kind: str = "") -> Markup:
    """A text of the picture."""
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(f"{x:.1f}", f"{y:.1f}", kind, said)


def dot(x: float, y: float, kind: str, size: float = 6) -> Markup:
    """A disc or ring."""
    return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"/>').format(f"{x:.1f}", f"{y:.1f}", size, kind)


def payoffs(kept: dict[str, Any]) -> Iterator[Markup]:
    """The left half: a line for each bargainer from before to after, and on to the best response."""
    found = list(rows(kept))
    seeds = sum(run["arm"] == kept["arm"] for run in kept["runs"])
    yield words(28, 40, "Bargaining: payoff against players that never learn", "title")
    yield words(28, 62, f"SmolLM2-135M on two CPU cores, mean of {seeds} runs; at most 10")
    x, top = Scale(0, 10, 186, 482), 124
    bottom = top + 32 * (len(found) - 1) + 10
    yield drawn("grid", "".join(f"M{x(v):.1f} {top - 18}V{bottom + 8}" for v in (0, 2, 4, 6, 8, 10)))
    yield from (words(x(v), bottom + 26, str(v), "middle") for v in (0, 2, 4, 6, 8, 10))
    head = found[0]
    yield words(x(head.before), top - 26, "before", "middle")
    yield words(x(head.after), top - 26, "after", "after middle")
    yield words(x(head.best or 0) - 10, top - 26, "best response", "name")
    for place, row in enumerate(found):
        y = top + 32 * place + (10 if row.best is None else 0)
        yield words(172, y + 5, row.name, f"{row.kind} end")
        yield drawn("same" if row.best is None else "gain", path([(x(row.before), y), (x(row.after), y)]))
        if row.best is not None:
            yield drawn("gap", path([(x(row.after), y), (x(row.best), y)]))
            yield drawn("best", f"M{x(row.best):.1f} {y - 8}v16")
        yield dot(x(row.before), y, "ring")
        yield dot(x(row.after), y, "grey" if row.best is None else "disc")
        yield words(496, y + 5, f"{row.before:.1f} → {row.after:.1f}", "value")


def distances(kept: dict[str, Any]) -> Iterator[Markup]:
    """The right half: NashConv of every seed over the iterations, their mean, and the control's."""
    yield words(596, 40, "Kuhn poker: distance to equilibrium", "title")
    runs = {arm: [run["curve"] for run in kept["runs"] if run["arm"] == arm] for arm in ("mars", "zero")}
    yield words(596, 62, f"NashConv of a 0.9M model, exact, {len(runs['mars'])} seeds")
    steps = [int(k) for k in runs["mars"][0]]
    means = {arm: [mean([run[str(k)]["nash_conv"] for run in own]) for k in steps] for arm, own in runs.items()}
    most = max(run[str(k)]["nash_conv"] for own in runs.values() for run in own for k in steps)
    x, y = Scale(0, steps[-1], 628, 806), Scale(0, most, 398, 98)
    marks = [value for value in ticks(0, most) if value]
    yield drawn("grid", "".join(f"M628 {y(v):.1f}H806" for v in marks))
    yield from (words(618, y(v) + 5, f"{v:g}", "end") for v in [0.0, *marks])
    yield from (words(x(k), 424, str(k) if k else "iteration 0", "middle") for k in (0, steps[-1] // 2, steps[-1]))
    yield drawn("level", "M628 398H806")
    for run in runs["mars"]:
        yield drawn("seed", path((x(k), y(run[str(k)]["nash_conv"])) for k in steps))
    yield drawn("control", path((x(k), y(v)) for k, v in zip(steps, means["zero"], strict=True)))
    yield drawn("mean", path((x(k), y(v)) for k, v in zip(steps, means["mars"], strict=True)))
    ends = [y(means["zero"][-1]), y(means["mars"][-1]), y(0)]
    said = [("no advantages", "quiet"), (f"by reward {means['mars'][-1]:.2f}", "after"), ("equilibrium", "name")]
    for at, (label, kind) in zip(apart(ends, 20, 98, 400), said, strict=True):
        yield words(816, at + 5, label, kind)


def picture() -> str:
    """The whole picture as SVG."""
    panel, kuhn = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in ("panel-negotiation", "strength-kuhn")
    )
    title = "Payoff against six bargainers before and after learning, and distance to equilibrium in Kuhn poker"
    frame = Markup('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}">\n').format(
        WIDTH, HEIGHT, title
    )
    card = Markup('<rect x="0.5" y="0.5" width="{}" height="{}" rx="12" class="card"/>').format(WIDTH - 1, HEIGHT - 1)
    parts = [card, *payoffs(panel), *distances(kuhn)]
    return f"{frame}<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
