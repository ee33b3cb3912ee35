"""How a run ended: its last iteration against its first, with confidence intervals, and where to look next."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.cli.live import number
from arena.statistics import Interval, difference_ci, mean_ci, range_of
from arena.store.reader import RunReader

Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One figure in the first and the last iteration, and the difference; each with its 95 % interval."""

    name: str
    first: Interval
    last: Interval
    difference: Interval

    @property
    def clear(self) -> bool:
        """Whether the difference's interval leaves out 0."""
        return self.difference.low > 0 or self.difference.high < 0


def changes(run: Path) -> list[Change]:
    """What changed between the first and the last iteration, one value per match (the valid-act rate too)."""
    reader = RunReader(run)
    numbers = reader.iterations()
    if not numbers:
        return []
    ends = [
        [row for row in reader.log.read(k, streams=False) if row["status"] == "finished"]
        for k in (numbers[0], numbers[-1])
    ]
    comparisons = []
    for name, figure in _figures(ends[1]):
        first, last = ([v for row in rows if (v := number(figure(row))) is not None] for rows in ends)
        if first and last:
            bounds = range_of(name, [*first, *last])
            means = mean_ci(first, bounds), mean_ci(last, bounds)
            comparisons.append(Change(name, *means, difference_ci(first, last, bounds)))
    return comparisons


Figure = Callable[[Row], float | None]


def _figures(rows: list[Row]) -> list[tuple[str, Figure]]:
    """The figures to compare: valid acts, then each game's own and its payoffs."""
    games = sorted({str(row["game"]) for row in rows})
    figures: list[tuple[str, Figure]] = [("valid-act rate", _valid)]
    for game in games:
        sample = next(row for row in rows if row["game"] == game)
        title = f"{game}: " if len(games) > 1 else ""
        figures += [(f"{title}{name}", _of(game, figure)) for name, figure in _game_figures(sample)]
    return figures


def _game_figures(sample: Row) -> list[tuple[str, Figure]]:
    """What matches like this one tell."""
    figures: list[tuple[str, Figure]] = []
    if "deal" in sample["report"]:
        figures.append(("deal rate", _reported("deal")))
    figures.append(("mean payoff", _mean_payoff))
    for seat in sample["payoffs"]:
        figures.append((f"payoff {seat}", lambda row, seat=seat: row["payoffs"].get(seat)))  # type: ignore[misc]
    if "efficiency" in sample["report"]:
        figures.append(("joint value / best", _reported("efficiency")))
    return figures


def _of(game: str, figure: Figure) -> Figure:
    return lambda row: figure(row) if row["game"] == game else None


def _reported(name: str) -> Figure:
    return lambda row: number(row["report"].get(name))


def _mean_payoff(row: Row) -> float | None:
    return float(sum(row["payoffs"].values())) / len(row["payoffs"]) if row["payoffs"] else None


def _valid(row: Row) -> float | None:
    turns = row["turns"]
    return sum(bool(turn["valid"]) for turn in turns) / len(turns) if turns else None


def best_match(run: Path) -> str | None:
    """The match of the last iteration that is most worth reading: the highest total payoff, then the longest."""
    reader = RunReader(run)
    numbers = reader.iterations()
    rows = [r for r in reader.log.read(numbers[-1], streams=False) if r["status"] == "finished"] if numbers else []
    best = max(rows, key=lambda row: (sum(row["payoffs"].values()), len(row["turns"])), default=None)
    return None if best is None else str(best["id"])
