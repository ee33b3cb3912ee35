"""Results of evaluations against a panel: means with intervals whose unit is the deal, and differences by deal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arena.evaluate.evaluation import plain
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, paired_ci
from arena.store.evaluations import Cell, Deals, Evaluation


class Compared(NamedTuple):
    """A figure before and after learning, deal by deal; where there is one evaluation only, after alone."""

    before: Interval | None
    after: Interval
    difference: Interval | None
    best: float | None = None
    """Payoff of best play on these deals, where theory knows it."""
    best_against_mixture: float | None = None
    """Of the panel's mean: payoff of the best play that does not know which member it meets."""

    def to_json(self) -> dict[str, Any]:
        """Plain values: intervals as [estimate, low, high]."""
        told = {"before": self.before, "after": self.after, "difference": self.difference}
        intervals = {name: plain(each) for name, each in told.items() if each is not None}
        best = {"best_response": self.best, "best_against_mixture": self.best_against_mixture}
        return intervals | {name: worth for name, worth in best.items() if worth is not None}


def payoffs(evaluation: Evaluation) -> Deals:
    """The panel's mean of every deal, over members and seats; None where a match is missing."""
    return [_whole(row) for row in _by_deal([cell.payoff for cell in evaluation.cells])]


def valid_rates(evaluation: Evaluation) -> Deals:
    """Average over each deal's matches the share of acts that were valid."""
    return [_known(row) for row in _by_deal([cell.valid for cell in evaluation.cells])]


def deal_rates(evaluation: Evaluation) -> Deals | None:
    """The share of matches with a deal, by deal; None in games without deals."""
    told = [cell.deal for cell in evaluation.cells if cell.deal is not None]
    return [_known(row) for row in _by_deal(told)] if told else None


def best_response(evaluation: Evaluation) -> float | None:
    """Return best play's payoff over the whole panel; None where theory does not know it of every member."""
    bests = [_best(cell) for cell in evaluation.cells]
    return _whole(bests)


def best_against_mixture(evaluation: Evaluation) -> float | None:
    """Return the payoff over the whole panel of the best play that does not know whom it meets; None if unknown."""
    by_seat = [evaluation.best_against_mixture.get(seat) for seat in dict.fromkeys(c.seat for c in evaluation.cells)]
    return _whole([_whole(deals) if deals else None for deals in by_seat])


def figures(evaluation: Evaluation) -> dict[str, float]:
    """For a row of metrics: mean payoff, valid acts, and deals where there are any; NaN for what is not known."""
    found = {"payoff": payoffs(evaluation), "valid": valid_rates(evaluation)}
    if (deals := deal_rates(evaluation)) is not None:
        found["deal"] = deals
    return {name: mean_ci(_numbers(values)).estimate for name, values in found.items()}


def compared_cells(after: Evaluation, before: Evaluation | None = None) -> list[tuple[Cell, Compared]]:
    """Every member and seat, with what was earned there."""
    olds = before.cells if before else [None] * len(after.cells)
    return [
        (new, _compared(new.payoff, old.payoff if old else None, ANY, _best(new)))
        for new, old in zip(after.cells, olds, strict=True)
    ]


def compared_means(after: Evaluation, before: Evaluation | None = None) -> dict[str, Compared]:
    """The panel's mean payoff, then its share of valid acts and of deals."""
    paid = _compared(payoffs(after), payoffs(before) if before else None, ANY, best_response(after))
    found = {"payoff": paid._replace(best_against_mixture=best_against_mixture(after))}
    found["valid"] = _compared(valid_rates(after), valid_rates(before) if before else None, SHARE)
    if (deals := deal_rates(after)) is not None:
        found["deal"] = _compared(deals, deal_rates(before) if before else None, SHARE)
    return found


def to_json(after: Evaluation, before: Evaluation | None = None) -> dict[str, Any]:
    """Everything for scripts: what was played, every interval, and the evaluations with the values of every deal."""
    return {
        "panel": after.panel, "game": after.game, "options": after.options, "seed": after.seed, "deals": after.deals,
        "members": [
            {"member": cell.member, "seat": cell.seat, **told.to_json()} for cell, told in compared_cells(after, before)
        ],
        "mean": {name: told.to_json() for name, told in compared_means(after, before).items()},
        "before": before and before.model_dump(mode="json"),
        "after": after.model_dump(mode="json"),
    }  # fmt: skip


def _compared(after: Deals, before: Deals | None, bounds: Bounds, best: float | None = None) -> Compared:
    new = mean_ci(_numbers(after), bounds)
    if before is None:
        return Compared(None, new, None, best)
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    moved = paired_ci([a for a, _ in pairs], [b for _, b in pairs], bounds)
    return Compared(mean_ci(_numbers(before), bounds), new, moved, best)


def _best(cell: Cell) -> float | None:
    """The mean over deals; None where one of them is not known."""
    return _whole(cell.best_response) if cell.best_response else None


def _by_deal(lists: Sequence[Deals]) -> list[Deals]:
    return [list(row) for row in zip(*lists, strict=True)]


def _whole(values: Sequence[float | None]) -> float | None:
    """The mean, None where one is missing."""
    known = _numbers(values)
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _known(values: Sequence[float | None]) -> float | None:
    """The mean of those there are."""
    known = _numbers(values)
    return sum(known) / len(known) if known else None


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
