"""A run as one page of HTML that needs nothing else: alarms, figures, pictures, matches with their credit, settings.

All texts are a model's or a stranger's and can only be read: Jinja2 escapes every one, control and bidi characters are
dropped, and the page's own policy (CSP) lets a browser run no script, load nothing and use no style but the page's,
which it knows by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.alarms import alarms
from analysis.comparison import figures_of
from analysis.frames import Frames, load
from analysis.texts import Embedding
from arena.errors import ConfigError, StoreError
from arena.plain import printable
from arena.statistics import Bounds, Interval, difference_ci, mean_ci, range_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHADES = 5
"""Steps of credit on either side of nothing."""
STRONG = 0.95
"""The quantile of the advantages' sizes from which on the colour is the strongest."""
LONGEST = 2000
"""Characters of a text that are shown."""


def report(run: Frames | str | Path, embedding: Embedding = "hashed") -> str:
    """The page of one run, finished or live; StoreError as `load`, ConfigError where pictures cannot be drawn.

    The map of strategies is by `embedding`, and left out where faiss is not installed.

    >>> page = report("runs/latest")
    >>> page.startswith("<!doctype html>"), "<script" in page
    (True, False)
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    log = run if isinstance(run, Frames) else load(run)
    if len(log.readers) != 1:
        raise ConfigError("a report is of one run: name one, or compare them (arena compare)")
    rooms = Environment(
        loader=PackageLoader("analysis", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    from markupsafe import Markup

    style = (files("analysis") / "templates" / "report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return rooms.get_template("report.html").render(
        told=_page_values(log, embedding),
        style=Markup(style),  # ours, of the package
        style_hash=f"sha256-{digest}",
    )


def _page_values(log: Frames, embedding: Embedding) -> dict[str, Any]:
    """All that the page says, every text harmless."""
    about = {str(name): None if pd.isna(value) else value for name, value in log.runs.iloc[0].items()}
    return {
        "name": _text(about["run"]),
        "iterations": log.matches["iteration"].nunique(),
        "matches": len(log.matches),
        "failed": int((log.matches["status"] == "failed").sum()),
        "turns": len(log.turns),
        "games": [_text(game) for game in log.matches["game"].unique()],
        "started": f"{about['started']:%Y-%m-%d %H:%M} UTC" if about["started"] else "",
        "arena": _text(about["arena"] or ""),
        "alarms": [
            {"name": a.name, "who": _text(a.who), "before": _interval(a.before), "after": _interval(a.after)}
            for a in alarms(log)
        ],
        "figures": list(_figures(log)),
        "pictures": list(_pictures(log, embedding)),
        "shown": list(_matches(log)),
        "settings": [
            (_text(name.removeprefix("config.")), _text(value))
            for name, value in about.items()
            if name.startswith("config.") and value is not None
        ],
    }


def _figures(log: Frames) -> Iterator[dict[str, str]]:
    """Each figure of the first and of the last iteration."""
    values = figures_of(log)
    if values.empty:
        return
    first, last = (values[values["iteration"] == k] for k in (values["iteration"].min(), values["iteration"].max()))
    for name in values.columns[5:]:
        one, two = (part[name].dropna().astype("float64").tolist() for part in (first, last))
        bounds = range_of(f"report.{name}", [*one, *two])
        if one and two:
            difference = _difference(one, two, bounds)
            mark = "▲" if difference.low > 0 else "▼" if difference.high < 0 else "≈"
            told = {"first": mean_ci(one, bounds), "last": mean_ci(two, bounds), "difference": difference}
            yield {"name": _text(name), "mark": mark, **{part: _interval(value) for part, value in told.items()}}


def _difference(one: list[float], two: list[float], bounds: Bounds) -> Interval:
    if len(one) < 2 or len(two) < 2:
        return Interval(float(np.mean(two) - np.mean(one)), float("nan"), float("nan"))
    return difference_ci(one, two, bounds)


def _pictures(log: Frames, embedding: Embedding) -> Iterator[dict[str, str]]:
    try:
        from analysis import league_plots, plots
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'arena-selfplay[analysis]'") from None
    if log.matches.empty:
        return
    yield _picture("Curves", plots.curves(log))
    yield _picture("Payoffs", plots.payoffs(log))
    with suppress(StoreError):  # of more sides than two, or fewer, there is none
        yield _picture("Outcomes", plots.outcomes(log))
    if log.seats["policy"].nunique() > 1:
        yield _picture("League", league_plots.drawn(log))
    if map_of := _map(log, embedding):
        yield map_of


def _map(log: Frames, embedding: Embedding) -> dict[str, str] | None:
    """Whole matches by what was said; None where nothing was, or where it cannot be made."""
    from analysis.map_plots import drawn
    from analysis.maps import strategy_map

    try:
        found = strategy_map(log, embedding=embedding)
    except StoreError:
        return None
    except ConfigError:
        if embedding == "minilm":  # which somebody asked for
            raise
        return None
    change = found.change
    note = f"by {'meaning' if embedding == 'minilm' else 'words'}"
    if change and change.p <= 0.05:
        note += f"; play changed most at iteration {change.iteration} (chance of as much by luck: {change.p:.3f})"
    return _picture("Strategies", drawn(found), note)


def _picture(title: str, figure: Figure, note: str = "") -> dict[str, str]:
    kept = io.BytesIO()
    figure.savefig(kept, format="png", dpi=100)
    return {"title": title, "note": note, "data": base64.b64encode(kept.getvalue()).decode()}


def _matches(log: Frames) -> Iterator[dict[str, Any]]:
    """The worst, the middle and the best paid of the first and the last iteration."""
    paid = log.seats.dropna(subset=["payoff"]).groupby(["iteration", "match"])["payoff"].mean().reset_index()
    if paid.empty:
        return
    sizes = log.turns["advantage"].dropna().abs().astype("float64")
    scale = float(sizes.quantile(STRONG)) if len(sizes) else 0.0
    scale = scale or float(sizes.max() if len(sizes) else 0.0)
    for k in dict.fromkeys([paid["iteration"].min(), paid["iteration"].max()]):
        own = paid[paid["iteration"] == k].sort_values("payoff", kind="stable")["match"].tolist()
        for match in dict.fromkeys([own[0], own[len(own) // 2], own[-1]]):
            yield _match(log, match, scale)


def _match(log: Frames, match: str, scale: float) -> dict[str, Any]:
    head = log.matches[log.matches["match"] == match].iloc[0]
    turns = log.turns[log.turns["match"] == match].to_dict("records")
    seats = log.seats[log.seats["match"] == match].dropna(subset=["payoff"])
    payoffs = [f"{_text(s)} {float(p):g}" for s, p in zip(seats["seat"], seats["payoff"], strict=True)]
    told = [
        f"{_text(n[7:])} {_figure(head[n])}" for n in head.index if n.startswith("report.") and not pd.isna(head[n])
    ]
    return {
        "id": _text(match),
        "game": _text(head["game"]),
        "iteration": int(head["iteration"]),
        "turns": [_turn({str(name): value for name, value in turn.items()}, scale) for turn in turns],
        "ending": "; ".join(", ".join(part) for part in (payoffs, told) if part),
    }


def _turn(turn: dict[str, Any], scale: float) -> dict[str, Any]:
    given = not pd.isna(turn["advantage"])
    parts = [f"{_text(n[7:])} {v:+.2f}" for n, v in turn.items() if n.startswith("reward.") and v]
    earned = f"earned {turn['reward']:+.2f}" + (f" ({', '.join(parts)})" if parts else "")
    return {
        **{name: _text(turn[name]) for name in ("seat", "role", "policy", "action", "public", "private")},
        "valid": bool(turn["valid"]),
        "shade": shade(float(turn["advantage"]), scale) if given else "none",
        "credit": f"{earned}, advantage {turn['advantage']:+.3f}" if given else f"{earned}, not credited",
    }


def shade(advantage: float, scale: float) -> str:
    """The class of a turn's colour: c1 to c5 for better than expected, m1 to m5 for worse, c0 for neither.

    >>> shade(0.5, 1.0), shade(-9.0, 1.0), shade(0.01, 1.0)
    ('c3', 'm5', 'c0')
    """
    step = round(SHADES * min(1.0, abs(advantage) / scale) + 1e-9) if scale > 0 else 0
    return "c0" if not step else f"{'c' if advantage > 0 else 'm'}{step}"


def _interval(interval: Interval) -> str:
    known = np.isfinite(interval.low)
    return f"{interval.estimate:.3g} [{interval.low:.3g}, {interval.high:.3g}]" if known else f"{interval.estimate:.3g}"


def _figure(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else _text(value)


def _text(value: Any) -> str:
    """Clean a text for the page: without control and bidi characters, its lines kept, and not without end."""
    whole = str(value)
    lines = "\n".join(printable(line) for line in whole[:LONGEST].splitlines())
    return f"{lines} …" if len(whole) > LONGEST else lines
