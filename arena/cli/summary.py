"""Figures of a run's last iteration against its first, with 95 % intervals, and the match most worth reading."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from arena.cli.live import finite_or_none
from arena.league.pool import parse_version
from arena.rows import is_zero_sum
from arena.statistics import Interval, difference_ci, mean_ci, range_of
from arena.store.losses import select_complete
from arena.store.reader import RunReader
from games.contracts import UNREAD

Row = dict[str, Any]
MEAN = "mean payoff"
SOLUTIONS = ("equilibrium", "nash")
"""Solution concepts whose theoretical values games may report."""


@dataclass(frozen=True)
class Change:
    """Means of a figure in the first and last iteration and their difference, with 95 % intervals."""

    name: str
    first: Interval
    last: Interval
    difference: Interval | None
    """None if the first iteration is the last."""
    theory: dict[str, float]
    """Mean value of each solution concept over the deals of the last iteration; often empty."""


def compute_changes(run: Path) -> list[Change]:
    """Return each figure's change from the first to the last iteration, with intervals over matches; [] if none."""
    ends = _read_end_matches(run)
    if not ends:
        return []
    comparisons = []
    optional = (("truncated per match", _truncated_rate), ("ended by a full context", _ended_by_context))
    occurred = [each for each in optional if any(map(each[1], (row for rows in ends for row in rows)))]
    for name, figure in (("valid per match", _valid_rate), *occurred, *_list_figures(ends[1])):
        first, last = ([v for row in rows if (v := finite_or_none(figure(row))) is not None] for rows in ends)
        if first and last:
            bounds = range_of(name, [*first, *last])
            means = mean_ci(first, bounds), mean_ci(last, bounds)
            difference = difference_ci(first, last, bounds) if ends[0] is not ends[1] else None
            comparisons.append(Change(name, *means, difference, _mean_theory(name, ends[1])))
    return comparisons


def _mean_theory(name: str, rows: list[Row]) -> dict[str, float]:
    """Return the mean value of a figure by solution concept: `nash_payoff_first` in the reports for `payoff first`."""
    key, means = name.rpartition(": ")[2].replace(" ", "_"), dict[str, float]()
    for solution in SOLUTIONS:
        figure = _make_report_figure(f"{solution}_{key}")
        values = [value for row in rows if (value := figure(row)) is not None]
        means |= {solution: fmean(values)} if values else {}
    return means


def _read_end_matches(run: Path) -> list[list[Row]]:
    """Return the finished matches of the first and of the last iteration as two lists; [] before any iteration."""
    reader = RunReader(run)
    numbers = _list_finished_iterations(reader)
    finished = {k: select_complete(reader.log.read(k, streams=False)) for k in {*numbers[:1], *numbers[-1:]}}
    return [finished[numbers[0]], finished[numbers[-1]]] if numbers else []


def find_uninformative_games(run: Path) -> list[str]:
    """Return the zero-sum games that only learners played; payoffs there do not measure strength."""
    rows = [row for end in _read_end_matches(run) for row in end]
    games = {str(row["game"]) for row in rows if len(row["payoffs"]) > 1}
    with_opponents = {str(row["game"]) for row in rows if find_opponents(row)}
    return sorted(game for game in games - with_opponents if _is_zero_sum([row for row in rows if row["game"] == game]))


def find_games_without_rivals(run: Path) -> list[str]:
    """Return the games that learners played with frozen opponents whose seats are not rivals."""
    rows = [row for end in _read_end_matches(run) for row in end]
    return sorted({str(row["game"]) for row in rows if find_opponents(row) and _has_no_rivals(row)})


def _has_no_rivals(row: Row) -> bool:
    """Return True for a simulator's match, whose report has `score` and `success`."""
    return len(row["payoffs"]) > 1 and {"score", "success"} <= row["report"].keys()


def _is_zero_sum(rows: list[Row]) -> bool:
    return is_zero_sum((row["payoffs"], row["report"]) for row in rows)


def find_opponents(row: Row) -> dict[str, str]:
    """Return the learners' frozen opponents by seat: `past` for a past version, else the policy's name."""
    seats = row["seats"]
    learners = {seat["policy"] for seat in seats.values() if seat["trained"]}
    frozen = {name: seat["policy"] for name, seat in seats.items() if not seat["trained"]} if learners else {}
    return {name: "past" if parse_version(policy) else policy for name, policy in frozen.items()}


Figure = Callable[[Row], float | None]


def _list_figures(rows: list[Row]) -> list[tuple[str, Figure]]:
    """Return name and function of each game's figures: payoffs, win rates and reported figures."""
    games = sorted({str(row["game"]) for row in rows})
    figures: list[tuple[str, Figure]] = []
    for game in games:
        sample = next(row for row in rows if row["game"] == game)
        title = f"{game}: " if len(games) > 1 else ""
        game_rows = [row for row in rows if row["game"] == game]
        hidden_name = MEAN if _is_zero_sum(game_rows) else ""
        game_figures = [(name, figure) for name, figure in _list_game_figures(sample) if name != hidden_name]
        if len(sample["payoffs"]) > 1 and "deal" not in sample["report"] and not _has_no_rivals(sample):
            opponents = sorted({name for row in game_rows for name in find_opponents(row).values()})
            game_figures = [
                *((f"win rate against {name}", _make_win_figure(name)) for name in opponents),
                *game_figures,
            ]
        figures += [(f"{title}{name}", _restrict_to_game(game, figure)) for name, figure in game_figures]
    return figures


def _make_win_figure(opponent: str) -> Figure:
    """Return a function of a match: 1 if the learners were paid more than this opponent, 0.5 if equal, 0 if less."""

    def score_win(row: Row) -> float | None:
        others = {seat for seat, name in find_opponents(row).items() if name == opponent}
        learners = [seat for seat, player in row["seats"].items() if player["trained"]]
        if not others or not learners:
            return None
        lead = max(row["payoffs"][s] for s in learners) - max(row["payoffs"][s] for s in others)
        return 0.5 if lead == 0 else float(lead > 0)

    return score_win


def _list_game_figures(sample: Row) -> list[tuple[str, Figure]]:
    """Return name and function of each figure of matches like this one: deal rate, payoffs, joint value."""
    figures: list[tuple[str, Figure]] = []
    if "deal" in sample["report"]:
        figures.append(("deal rate", _make_report_figure("deal")))
    figures.append((MEAN, _mean_payoff))
    if "payoff_first" in sample["report"]:
        figures += [(f"payoff {seat}", _make_report_figure(f"payoff_{seat}")) for seat in ("first", "second")]
    else:
        for seat in sample["payoffs"]:
            figures.append((f"payoff {seat}", lambda row, seat=seat: row["payoffs"].get(seat)))  # type: ignore[misc]
    if "efficiency" in sample["report"]:
        figures.append(("joint value / best", _make_report_figure("efficiency")))
    return figures


def _restrict_to_game(game: str, figure: Figure) -> Figure:
    return lambda row: figure(row) if row["game"] == game else None


def _make_report_figure(name: str) -> Figure:
    return lambda row: finite_or_none(row["report"].get(name))


def _mean_payoff(row: Row) -> float | None:
    return float(sum(row["payoffs"].values())) / len(row["payoffs"]) if row["payoffs"] else None


def _valid_rate(row: Row) -> float | None:
    turns = [turn for turn in row["turns"] if turn.get("source") not in UNREAD]
    return sum(bool(turn["valid"]) for turn in turns) / len(turns) if turns else None


def _truncated_rate(row: Row) -> float | None:
    truncated = [turn["finish"] == "length" for turn in row["turns"] if turn["finish"] != "script"]
    return sum(truncated) / len(truncated) if truncated else None


def _ended_by_context(row: Row) -> float | None:
    return float(row["report"].get("ended") == "context")


def _list_finished_iterations(reader: RunReader) -> list[int]:
    """Return the numbers of the committed iterations, or of all logged ones if none is committed."""
    logged = reader.iterations()
    finished = {row["iteration"] for row in reader.metrics()}
    return [number for number in logged if number in finished] or logged


def find_best_match(run: Path) -> str | None:
    """Return the id of the last iteration's match with the highest total payoff, then the most turns; None if none."""
    reader = RunReader(run)
    numbers = _list_finished_iterations(reader)
    rows = [r for r in reader.log.read(numbers[-1], streams=False) if r["status"] == "finished"] if numbers else []
    best = max(rows, key=lambda row: (sum(row["payoffs"].values()), len(row["turns"])), default=None)
    return None if best is None else str(best["id"])
