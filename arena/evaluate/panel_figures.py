"""Figures of panel evaluations: means with intervals over deals, and deal-paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arena.evaluate.evaluation import interval_to_json
from arena.statistics import ANY, SHARE, Bounds, Interval, mean_ci, paired_ci
from arena.store.evaluations import Cell, Deals, Evaluation


class Comparison(NamedTuple):
    """A figure's interval before and after learning, and of the difference; with one evaluation only `after` is set."""

    before: Interval | None
    after: Interval
    difference: Interval | None
    best: float | None = None
    """Payoff of best play on these deals, if known."""
    best_against_mixture: float | None = None
    """Payoff of best play that does not know which member it meets; only for the panel's mean."""

    def to_json(self) -> dict[str, Any]:
        """Return the values that are not None as JSON, with intervals as [estimate, low, high].

        Keys: `before`, `after`, `difference`, `best_response` and `best_against_mixture`.
        """
        means = {"before": self.before, "after": self.after, "difference": self.difference}
        intervals = {name: interval_to_json(each) for name, each in means.items() if each is not None}
        best = {"best_response": self.best, "best_against_mixture": self.best_against_mixture}
        return intervals | {name: payoff for name, payoff in best.items() if payoff is not None}


def mean_payoffs(evaluation: Evaluation) -> Deals:
    """Return, by deal, the contender's mean payoff over all members and seats; a deal with a missing match is None."""
    return [_mean_if_complete(row) for row in _transpose([cell.payoff for cell in evaluation.cells])]


def valid_rates(evaluation: Evaluation) -> Deals:
    """Return, by deal, the contender's mean share of legal acts over finished matches; None for a deal without any."""
    return [_mean_of_known(row) for row in _transpose([cell.valid for cell in evaluation.cells])]


def deal_rates(evaluation: Evaluation) -> Deals | None:
    """Return, by deal, the share of finished matches that reached an agreement; None for a deal without any.

    Returns None instead of a list for games without agreements.
    """
    agreements = [cell.deal for cell in evaluation.cells if cell.deal is not None]
    return [_mean_of_known(row) for row in _transpose(agreements)] if agreements else None


def best_response(evaluation: Evaluation) -> float | None:
    """Return the mean payoff of best responses to all members at all seats; None unless all are known."""
    return _mean_if_complete([_mean_best_response(cell) for cell in evaluation.cells])


def best_against_mixture(evaluation: Evaluation) -> float | None:
    """Return the mean payoff over seats and deals of best play that does not know which member it meets.

    Returns None if it is unknown for a seat or deal.
    """
    by_seat = [evaluation.best_against_mixture.get(seat) for seat in dict.fromkeys(c.seat for c in evaluation.cells)]
    return _mean_if_complete([_mean_if_complete(deals) if deals else None for deals in by_seat])


def compute_figures(evaluation: Evaluation) -> dict[str, float]:
    """Return the means over deals for a row of metrics: payoff, valid and, in games with agreements, deal.

    A mean without values is NaN.
    """
    values_by_figure = {"payoff": mean_payoffs(evaluation), "valid": valid_rates(evaluation)}
    if (deals := deal_rates(evaluation)) is not None:
        values_by_figure["deal"] = deals
    return {name: mean_ci(_drop_missing(values)).estimate for name, values in values_by_figure.items()}


def compare_cells(after: Evaluation, before: Evaluation | None = None) -> list[tuple[Cell, Comparison]]:
    """Return (cell, comparison of its payoffs, paired by deal) for each member and seat.

    Without `before` only the payoffs of `after` are in a comparison.
    """
    old_cells = before.cells if before else [None] * len(after.cells)
    return [
        (new, _compare(new.payoff, old.payoff if old else None, ANY, _mean_best_response(new)))
        for new, old in zip(after.cells, old_cells, strict=True)
    ]


def compare_means(after: Evaluation, before: Evaluation | None = None) -> dict[str, Comparison]:
    """Compare the panel's mean payoff, share of valid acts and, in games with agreements, share of agreements.

    The keys are payoff, valid and deal.
    """
    payoffs = _compare(mean_payoffs(after), mean_payoffs(before) if before else None, ANY, best_response(after))
    comparisons = {"payoff": payoffs._replace(best_against_mixture=best_against_mixture(after))}
    comparisons["valid"] = _compare(valid_rates(after), valid_rates(before) if before else None, SHARE)
    if (deals := deal_rates(after)) is not None:
        comparisons["deal"] = _compare(deals, deal_rates(before) if before else None, SHARE)
    return comparisons


def to_json(after: Evaluation, before: Evaluation | None = None) -> dict[str, Any]:
    """Return a panel evaluation as JSON values.

    Keys: the settings, `members` (comparison by member and seat), `mean` (comparison over the panel, by figure), and
    the evaluations `before` (None without one) and `after`.
    """
    return {
        "panel": after.panel, "game": after.game, "options": after.options, "seed": after.seed, "deals": after.deals,
        "members": [
            {"member": cell.member, "seat": cell.seat, **c.to_json()} for cell, c in compare_cells(after, before)
        ],
        "mean": {name: c.to_json() for name, c in compare_means(after, before).items()},
        "before": before and before.model_dump(mode="json"),
        "after": after.model_dump(mode="json"),
    }  # fmt: skip


def _compare(after: Deals, before: Deals | None, bounds: Bounds, best: float | None = None) -> Comparison:
    new = mean_ci(_drop_missing(after), bounds)
    if before is None:
        return Comparison(None, new, None, best)
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    change = paired_ci([a for a, _ in pairs], [b for _, b in pairs], bounds)
    return Comparison(mean_ci(_drop_missing(before), bounds), new, change, best)


def _mean_best_response(cell: Cell) -> float | None:
    """Return the mean payoff of a best response over deals; None if it is unknown for one."""
    return _mean_if_complete(cell.best_response) if cell.best_response else None


def _transpose(lists: Sequence[Deals]) -> list[Deals]:
    return [list(row) for row in zip(*lists, strict=True)]


def _mean_if_complete(values: Sequence[float | None]) -> float | None:
    known = _drop_missing(values)
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = _drop_missing(values)
    return sum(known) / len(known) if known else None


def _drop_missing(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
