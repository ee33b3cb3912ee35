"""Metrics of an iteration, as one row for the metrics log, the live table and trackers.

In a run of several games, the names in `payoff`, `report`, `reward` and `ratings` start with the game's name, as in
`kuhn_poker.first`, and `report` has each game's `matches`, `valid_rate` and `truncated_rate`. Past versions of a policy
are counted together, as `shared@past`, so that all rows have the same names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from arena.credit.batch import CreditedTrajectory
from arena.league.matchmaking import score_match
from arena.league.pool import parse_version
from arena.league.ratings import Ratings
from arena.play.failures import count_failures
from arena.records import MatchRecord, is_excused, trained_trajectories
from arena.rows import is_zero_sum
from games.contracts import UNREAD


def compute_iteration_metrics(
    iteration: int,
    records: Sequence[MatchRecord],
    failures: Sequence[MatchRecord],
    credited: Sequence[CreditedTrajectory],
    learned: Mapping[str, Mapping[str, float]],
    ratings: Ratings,
    seconds: Mapping[str, float],
    left_out: Sequence[MatchRecord] = (),
) -> dict[str, Any]:
    """Return an iteration's row of metrics: counts, and means over its finished matches.

    Seconds are wall time, and tokens are sampled tokens. `failures` are failed attempts; the row's `failure` is their
    most common cause. The row's `given_up` counts matches that were not retried; finished matches of their deals are
    `left_out` of everything else. Branches count as matches, turns and tokens, but not in outcome metrics: which turns
    are branched depends on the match, so branches are not a fair sample of the policy. `ratings` are those of this
    iteration's players, with past versions averaged. `win_rate` is each trained policy's against each other policy that
    it met, where a draw counts half, and `payoff_against` is its payoff in these matches. `zero_sum` marks runs whose
    payoffs cancel out, so that their mean has no information.
    """
    turns = [turn for record in records for turn in record.turns]
    tokens = sum(turn.tokens for turn in turns)
    originals = [record for record in records if record.identity.parent is None]
    games = _group_by_game(originals)
    return {
        "iteration": iteration,
        "matches": len(records),
        **count_failures(failures),
        "failed_rate": len(failures) / max(len(records) + len(left_out) + len(failures), 1),
        "left_out": len(left_out),
        "turns": len(turns),
        "tokens": tokens,
        "matches_per_second": len(records) / max(seconds["play"], 1e-9),
        "tokens_per_second": tokens / max(seconds["play"], 1e-9),
        "valid_rate": _valid_rate(originals),
        "truncated_rate": _truncated_rate(originals),
        "payoff": _merge({prefix: _mean_payoffs(group) for prefix, group in games.items()}),
        "mean_payoff": _mean([p for r in originals for p in r.payoffs.values()]),
        "report": _merge(
            {prefix: _average_report(group, has_several_games=bool(prefix)) for prefix, group in games.items()}
        ),
        "selection": _count_selection(records, credited),
        "reward": _mean_role_rewards(credited, has_several_games=len(games) > 1),
        "learn": {policy: dict(stats) for policy, stats in learned.items()},
        "win_rate": _merge({prefix: _win_rates(group) for prefix, group in games.items()}),
        "payoff_against": _merge({prefix: _mean_payoffs_against(group) for prefix, group in games.items()}),
        "ratings": _mean_ratings(records, ratings),
        "seconds": dict(seconds),
        **({"branches": branches} if (branches := _measure_branches(records)) else {}),
    } | ({"zero_sum": True} if is_zero_sum((record.payoffs, record.report) for record in originals) else {})


def _group_by_game(records: Sequence[MatchRecord]) -> dict[str, list[MatchRecord]]:
    """Group records by the prefix of their metrics' names, which is "GAME." if there are several games, else ""."""
    names = sorted({record.game for record in records})
    if len(names) < 2:
        return {"": list(records)}
    return {f"{name}.": [record for record in records if record.game == name] for name in names}


def _merge(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{prefix}{name}": value for prefix, values in figures.items() for name, value in values.items()}


def _mean_payoffs(records: Sequence[MatchRecord]) -> dict[str, float]:
    """Return each seat's mean payoff over the matches that give it one, by seat."""
    seats = sorted({seat for record in records for seat in record.payoffs})
    return {seat: _mean([r.payoffs[seat] for r in records if seat in r.payoffs]) for seat in seats}


def _average_report(records: Sequence[MatchRecord], has_several_games: bool) -> dict[str, float]:
    """Return means of the numbers in the games' reports, and the share of each way to end, as `ended.KIND`.

    With several games, `matches`, `valid_rate` and `truncated_rate` are added.
    """
    means: dict[str, float] = {}
    if has_several_games:
        means["matches"] = float(len(records))
        means["valid_rate"] = _valid_rate(records)
        means["truncated_rate"] = _truncated_rate(records)
    for name in sorted({name for record in records for name in record.report}):
        values = [record.report[name] for record in records if name in record.report]
        if all(isinstance(value, bool | int | float) for value in values):
            means[name] = _mean([float(value) for value in values])
        elif name == "ended":  # other texts, such as the right answer, may differ in every deal
            for kind in sorted({str(value) for value in values}):
                means[f"{name}.{kind}"] = _mean([value == kind for value in values])
    return means


def _measure_branches(records: Sequence[MatchRecord]) -> dict[str, float]:
    """Return metrics of branches (matches that repeat another one up to some turn); {} if no matches share a deal.

    `count` is their number, and `taken` that number divided by the number of turns that could have had one. `turns` and
    `tokens` are those of learners, without the repeated part of branches. `outcomes` is the number of distinct act
    sequences divided by `turns`.
    """
    if all(record.group < 0 and record.identity.parent is None for record in records):
        return {}
    turns = tokens = branchable = 0
    for record in records:
        learned = [turn for turn in record.turns if record.seats[turn.seat].trained]
        new = [turn for turn in learned if turn.index >= record.identity.turn]
        turns, tokens = turns + len(new), tokens + sum(turn.tokens for turn in new)
        branchable += max(0, len(new) - 1)
    count = sum(record.identity.parent is not None for record in records)
    sequences = {(record.game, record.seed, *(turn.action for turn in record.turns)) for record in records}
    return {
        "count": float(count),
        "taken": count / max(1, branchable),
        "turns": float(turns),
        "tokens": float(tokens),
        "outcomes": len(sequences) / max(1, turns),
    }


def _valid_rate(records: Sequence[MatchRecord]) -> float:
    """Return the share of legal acts among those that a game processed; NaN if there are none."""
    return _mean([turn.valid for record in records for turn in record.turns if turn.source not in UNREAD])


def _truncated_rate(records: Sequence[MatchRecord]) -> float:
    """Return the share of sampled replies that were cut at their token limit; 0 if there are none."""
    is_cut = [turn.finish == "length" for record in records for turn in record.turns if turn.finish != "script"]
    return _mean(is_cut) if is_cut else 0.0


MAX_EXCUSED_SHARE = 0.3
"""Share of excused replies above which `find_excused_replies` reports a policy."""


def find_excused_replies(k: int, credited: Sequence[CreditedTrajectory]) -> dict[str, str]:
    """Return a note for each policy with many excused replies, which were cut at their limit without a legal act.

    Excused replies cost nothing, so a policy can learn to escape penalties by replies without end.
    """
    excused_turns: dict[str, list[bool]] = {}
    for item in credited:
        excused_turns.setdefault(item.trajectory.policy, []).extend(map(is_excused, item.trajectory.turns))
    return {
        name: f"policy '{name}': iteration {k} excuses {100 * share:.0f} % of its replies, which were cut at "
        "`max_tokens` without a legal act: raise it, or set `truncated: illegal` in the role's `sampling`"
        for name, excused in excused_turns.items()
        if (share := _mean(excused)) > MAX_EXCUSED_SHARE
    }


def _count_selection(records: Sequence[MatchRecord], credited: Sequence[CreditedTrajectory]) -> dict[str, int]:
    """Count deals, credited trajectories, and removals and additions by selection and replay.

    `dropped` counts played trajectories without credit, including those replaced by a replayed one. `out_of_loss`
    counts turns.
    """
    replayed = sum(item.trajectory.source == "recalled" for item in credited)
    return {
        "deals": len({(record.game, record.seed) for record in records}),
        "trajectories": len(credited),
        "replayed": replayed,
        "dropped": len(trained_trajectories(records)) - (len(credited) - replayed),
        "out_of_loss": sum(int((~item.learned).sum()) for item in credited if item.learned is not None),
        "out_of_statistics": sum(not item.counted for item in credited),
    }


def _mean_role_rewards(credited: Sequence[CreditedTrajectory], has_several_games: bool) -> dict[str, float]:
    """Return the mean total reward of trajectories by role, excluding replayed ones and branches.

    With several games, the key is `GAME.ROLE`.
    """
    roles: dict[str, list[float]] = {}
    for item in credited:
        trajectory = item.trajectory
        if trajectory.source == "recalled" or trajectory.parent:
            continue
        role = f"{trajectory.game}.{trajectory.role}" if has_several_games else trajectory.role
        roles.setdefault(role, []).append(float(item.rewards.sum()))
    return {role: _mean(totals) for role, totals in sorted(roles.items())}


def _win_rates(records: Sequence[MatchRecord]) -> dict[str, float]:
    """Return each trained policy's win rate against each untrained one, by a key such as `shared vs random`.

    A draw counts half.
    """
    by_pair: dict[str, list[float]] = {}
    for learner, opponent, score in (result for record in records for result in score_match(record)):
        by_pair.setdefault(f"{learner} vs {_group_past(opponent)}", []).append(score)
    return {pair: _mean(values) for pair, values in sorted(by_pair.items())}


def _mean_payoffs_against(records: Sequence[MatchRecord]) -> dict[str, float]:
    """Return each trained policy's mean payoff in matches with each untrained one, by a key like `shared vs random`."""
    by_pair: dict[str, list[float]] = {}
    for record in records:
        others = {seating.policy for seating in record.seats.values() if not seating.trained}
        for seat, seating in record.seats.items():
            for other in others if seating.trained and seat in record.payoffs else ():
                by_pair.setdefault(f"{seating.policy} vs {_group_past(other)}", []).append(record.payoffs[seat])
    return {pair: _mean(values) for pair, values in sorted(by_pair.items())}


def _mean_ratings(records: Sequence[MatchRecord], ratings: Ratings) -> dict[str, float]:
    """Return the mean rating (mu) of this iteration's players by name; past versions of a policy are averaged."""
    rating_state = ratings.state()
    played_names = {(ratings.name(r.game, s), s.policy) for r in records for s in r.seats.values()}
    by_name: dict[str, list[float]] = {}
    for name, policy in sorted(played_names):
        if name in rating_state:
            by_name.setdefault(name.removesuffix(policy) + _group_past(policy), []).append(rating_state[name][0])
    return {name: _mean(mus) for name, mus in sorted(by_name.items())}


def _group_past(policy: str) -> str:
    """Return `POLICY@past` for any past version of a policy, and other names unchanged."""
    past = parse_version(policy)
    return f"{past[0]}@past" if past else policy


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
