"""What an iteration looked like, in numbers: one row for the metrics log, the table and TensorBoard."""

from collections.abc import Mapping, Sequence
from typing import Any

from arena.credit.assign import Credited
from arena.league.ratings import Ratings
from arena.records import MatchRecord


def iteration_metrics(
    iteration: int,
    records: Sequence[MatchRecord],
    failures: Sequence[MatchRecord],
    credited: Sequence[Credited],
    learned: Mapping[str, Mapping[str, float]],
    ratings: Ratings,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Means over the iteration's finished matches; seconds are wall time, tokens those sampled."""
    turns = [turn for record in records for turn in record.turns]
    tokens = sum(turn.tokens for turn in turns)
    seats = sorted({seat for record in records for seat in record.payoffs})
    return {
        "iteration": iteration,
        "matches": len(records),
        "failed": len(failures),
        "turns": len(turns),
        "tokens": tokens,
        "matches_per_second": len(records) / max(seconds["play"], 1e-9),
        "tokens_per_second": tokens / max(seconds["play"], 1e-9),
        "valid_rate": _mean([turn.valid for turn in turns]),
        "payoff": {seat: _mean([r.payoffs[seat] for r in records]) for seat in seats},
        "mean_payoff": _mean([p for r in records for p in r.payoffs.values()]),
        "report": _report(records),
        "reward": _role_rewards(credited),
        "learn": {policy: dict(stats) for policy, stats in learned.items()},
        "ratings": {name: mu for name, (mu, _) in ratings.state().items()},
        "seconds": dict(seconds),
    }


def _report(records: Sequence[MatchRecord]) -> dict[str, float]:
    """Means of the game's own numeric figures, and the share of each way a match ended."""
    means: dict[str, float] = {}
    for name in sorted({name for record in records for name in record.report}):
        values = [record.report[name] for record in records if name in record.report]
        if all(isinstance(value, bool | int | float) for value in values):
            means[name] = _mean([float(value) for value in values])
        else:
            for kind in sorted({str(value) for value in values}):
                means[f"{name}.{kind}"] = _mean([value == kind for value in values])
    return means


def _role_rewards(credited: Sequence[Credited]) -> dict[str, float]:
    """Mean total reward of a trajectory, by role."""
    roles: dict[str, list[float]] = {}
    for item in credited:
        roles.setdefault(item.trajectory.role, []).append(float(item.rewards.sum()))
    return {role: _mean(totals) for role, totals in sorted(roles.items())}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
