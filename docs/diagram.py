"""Draw the diagram of docs/architecture.md: the data flow of a run, each step with its file.

python docs/diagram.py    # writes docs/architecture.svg

Mermaid is not used, because it would fetch a script from the network whenever the page is read.
"""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).with_name("architecture.svg")
STEPS = {
    "before": {
        "experiment": "arena/config/experiment.py",
        "preflight": "arena/preflight.py",
        "build": "arena/build.py",
        "lab": "arena/lab.py",
    },
    "play": {
        "matchmaking": "arena/league/matchmaking.py",
        "match": "arena/play/match.py",
        "turns": "agents/players/model.py",
        "streams": "agents/stream.py",
        "match log": "arena/store/matchlog.py",
    },
    "learn": {
        "rewards": "arena/credit/rewards/",
        "advantages": "arena/credit/estimators/",
        "batches": "arena/learn/plan.py",
        "loss": "arena/learn/losses.py",
        "step": "arena/learn/optimiser.py",
    },
    "keep": {
        "publish": "arena/policies.py",
        "rate": "arena/league/ratings.py",
        "admit": "arena/league/pool.py",
        "examine": "arena/evaluate/examination.py",
        "commit": "arena/store/checkpoints.py",
    },
}
"""Steps by row, in the order of the data flow, each with its file or folder."""
WIDTH, HEIGHT, GAP, ROW = 188, 44, 18, 84
"""Width and height of a box, gap between boxes of a row, and distance of rows, in pixels."""
LEFT, TOP = 74, 20
FILLS = {"arena": "#dbe9fb", "agents": "#d9f2e3"}
"""Colours of boxes, by top-level folder."""
INK = "#1f2933"


class Box(NamedTuple):
    """Box of a step, with the position of its upper left corner."""

    name: str
    place: str
    x: int
    y: int

    def to_svg(self) -> str:
        """Return the box as SVG: a rectangle with the step's name and file."""
        middle, fill = self.x + WIDTH // 2, FILLS[self.place.split("/")[0]]
        return (
            f'<rect x="{self.x}" y="{self.y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="{INK}"/>\n'
            f'<text x="{middle}" y="{self.y + 18}" class="name">{self.name}</text>\n'
            f'<text x="{middle}" y="{self.y + 34}" class="place">{self.place}</text>\n'
        )


def make_boxes() -> list[list[Box]]:
    """Return a box per step, by row."""
    return [
        [Box(name, place, LEFT + k * (WIDTH + GAP), TOP + n * ROW) for k, (name, place) in enumerate(steps.items())]
        for n, steps in enumerate(STEPS.values())
    ]


def draw_line(*points: tuple[int, int]) -> str:
    """Return an arrow along these points as SVG."""
    return f'<polyline points="{" ".join(f"{x},{y}" for x, y in points)}" class="line"/>\n'


def draw_arrows(rows: list[list[Box]]) -> str:
    """Return arrows between successive boxes and rows, and from the last step back to play, as SVG."""
    middle, half, between = HEIGHT // 2, WIDTH // 2, (ROW - HEIGHT) // 2
    svg = ""
    for row in rows:
        for one, other in pairwise(row):
            svg += draw_line((one.x + WIDTH, one.y + middle), (other.x, other.y + middle))
    for upper, lower in pairwise(rows):
        end, start = upper[-1], lower[0]
        turn, down = end.x + half, end.y + HEIGHT
        svg += draw_line(
            (turn, down), (turn, down + between), (start.x + half, down + between), (start.x + half, start.y)
        )
    last, first = rows[-1][-1], rows[1][0]
    below, margin, entry = last.y + HEIGHT + between, LEFT - 60, first.y + middle
    svg += draw_line(
        (last.x + half, last.y + HEIGHT),
        (last.x + half, below),
        (margin, below),
        (margin, entry),
        (first.x, entry),
    )
    return svg + f'<text x="{last.x - 8}" y="{below - 6}" class="note">next iteration</text>\n'


def draw_picture() -> str:
    """Return the diagram as SVG, without scripts or external fonts."""
    rows = make_boxes()
    width, height = rows[1][-1].x + WIDTH + 14, rows[-1][0].y + ROW + 6
    labels = "".join(
        f'<text x="{LEFT - 8}" y="{row[0].y + (14 if n == 1 else 26)}" class="row">{name}</text>\n'
        for n, (name, row) in enumerate(zip(STEPS, rows, strict=True))
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" fill="{INK}">
<title>The way of data through a run</title>
<style>
text {{ font-family: sans-serif }}
.name {{ font-size: 14px; font-weight: bold; text-anchor: middle }}
.place {{ font-family: monospace; font-size: 10px; text-anchor: middle }}
.row {{ font-size: 13px; font-style: italic; text-anchor: end }}
.note {{ font-size: 12px; font-style: italic; text-anchor: end }}
.line {{ fill: none; stroke: {INK}; stroke-width: 1.4; marker-end: url(#head) }}
</style>
<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M 0 0 L 10 5 L 0 10 z"/></marker>
<rect width="{width}" height="{height}" rx="8" fill="white"/>
{labels}{draw_arrows(rows)}{"".join(box.to_svg() for row in rows for box in row)}</svg>
"""


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), "utf-8")
