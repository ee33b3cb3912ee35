"""Training examples of a reward model from a run's log: conversations with their outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agents.errors import WeightsError
from agents.names import nearest
from agents.policy import check_readable
from agents.weights import resolve
from arena.errors import ConfigError
from arena.records import MatchRecord, Trajectory, trajectories
from arena.reward_models.examples import Outcome
from arena.store.contents import check_newest
from arena.store.reader import RunReader

PAYOFF, CREDITED = "payoff", "credited"


def read_outcomes(
    log: Path, policy: str, outcome: str, scope: Literal["deal", "game"], max_count: int, model: Path
) -> list[Outcome]:
    """Return up to `max_count` conversations of a policy with their outcomes from a run's log, newest first.

    `outcome` is `payoff`, `credited` (the sum of all weighted rewards, including judges'), or the name of a game's
    reward. A conversation is the last stream of a seat in a match. Raises ConfigError if no trajectory has that
    outcome, or if the reward model in the folder `model` has other token ids than the policy.
    """
    reader = RunReader(log)
    check_newest(reader.path)
    found, seen = list[Outcome](), set[str]()
    for one, credit in _read_trajectories(reader, policy):
        worth = _compute_worth(one, outcome, credit)
        if worth is not None and one.streams:
            group = (one.game, one.seed, one.seat) if scope == "deal" else (one.game, one.seat)
            found.append(Outcome(one.streams[-1], worth, (one.game, one.seed), group))
        seen |= {name for turn in one.turns for name in turn.rewards}
        if len(found) == max_count:
            break
    if not found:
        known = ", ".join(sorted({PAYOFF, CREDITED, *seen}))
        hint = nearest(outcome, {PAYOFF, CREDITED, *seen})
        raise ConfigError(
            f"reward_model: {log} has no outcome '{outcome}' of policy '{policy}'{hint} (it has: {known})"
        )
    _check_tokens(reader, policy, model)
    return found


def _read_trajectories(reader: RunReader, policy: str) -> Iterator[tuple[Trajectory, dict[tuple[str, int], float]]]:
    """Yield the policy's trajectories, newest iteration first, each with its iteration's rewards by (match, turn).

    These are the weighted sums from credit assignment. Raises ConfigError if the log has no such policy.
    """
    met = set[str]()
    for k in reversed(reader.iterations()):
        credit = {(row.match, row.turn): row.reward for row in reader.credit(k)}
        for row in reader.log.read(k):
            for one in trajectories(MatchRecord.from_json(row)):
                met.add(one.policy)
                if one.policy == policy and one.turns:
                    yield one, credit
    if policy not in met:
        there = ", ".join(sorted(met)) or "none"
        raise ConfigError(
            f"reward_model: {reader.path} has no policy '{policy}'{nearest(policy, met)} (it has: {there})"
        )


def _compute_worth(one: Trajectory, outcome: str, credit: dict[tuple[str, int], float]) -> float | None:
    """Return a trajectory's outcome: its payoff, or the sum of the rewards of that name. None if it has none."""
    if outcome == PAYOFF:
        return one.payoff
    if outcome == CREDITED:
        paid = [credit[one.match, turn.index] for turn in one.turns if (one.match, turn.index) in credit]
    else:
        paid = [turn.rewards[outcome] for turn in one.turns if outcome in turn.rewards]
    return sum(paid) if paid else None


def _check_tokens(reader: RunReader, policy: str, model: Path) -> None:
    """Raise ConfigError unless the reward model has the policy's token ids, and so can read its streams."""
    try:
        folder = resolve(reader.environment()["experiment"]["policies"][policy]["model"])
        check_readable(model, folder)
    except (KeyError, TypeError):
        raise ConfigError(f"reward_model: {reader.path} does not say which model policy '{policy}' is") from None
    except (ValueError, WeightsError) as error:
        raise ConfigError(f"reward_model: {error}") from None
