"""Reading of conversations with their outcomes from a run's log, to train a reward model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agents.errors import WeightsError
from agents.policy import check_readable
from agents.weights import resolve
from arena.errors import ConfigError
from arena.records import MatchRecord, Trajectory, trajectories
from arena.reward_models.examples import Outcome
from arena.store.contents import check_newest
from arena.store.reader import RunReader
from games.names import nearest

PAYOFF, CREDITED = "payoff", "credited"


def read_outcomes(
    log: Path, policy: str, outcome: str, scope: Literal["deal", "game"], max_count: int, model: Path
) -> list[Outcome]:
    """Return up to `max_count` conversations of a policy with their outcomes from a run's log, newest iteration first.

    `outcome` is `payoff`, `credited` (the sum of all weighted rewards, including judges'), or the name of a game's
    reward. `scope` says what can be compared: conversations of the same deal and seat, or of the same game and seat. A
    conversation is the last stream of a seat in a match. Raises ConfigError if no trajectory has that outcome, or if
    the reward model in the folder `model` has other token ids than the policy.
    """
    reader = RunReader(log)
    check_newest(reader.path)
    outcomes, reward_names = list[Outcome](), set[str]()
    for trajectory, credit in _read_trajectories(reader, policy):
        worth = _compute_worth(trajectory, outcome, credit)
        if worth is not None and trajectory.streams:
            group = (
                (trajectory.game, trajectory.seed, trajectory.seat)
                if scope == "deal"
                else (trajectory.game, trajectory.seat)
            )
            outcomes.append(Outcome(trajectory.streams[-1], worth, (trajectory.game, trajectory.seed), group))
        reward_names |= {name for turn in trajectory.turns for name in turn.rewards}
        if len(outcomes) == max_count:
            break
    if not outcomes:
        known = ", ".join(sorted({PAYOFF, CREDITED, *reward_names}))
        hint = nearest(outcome, {PAYOFF, CREDITED, *reward_names})
        raise ConfigError(
            f"reward_model: {log} has no outcome '{outcome}' of policy '{policy}'{hint} (it has: {known})"
        )
    _check_tokens(reader, policy, model)
    return outcomes


def _read_trajectories(reader: RunReader, policy: str) -> Iterator[tuple[Trajectory, dict[tuple[str, int], float]]]:
    """Yield a policy's trajectories, newest iteration first, each with all turn rewards of its iteration.

    The rewards are credit's weighted sums, by (match, turn). Raises ConfigError if the log has no such policy.
    """
    policies = set[str]()
    for k in reversed(reader.iterations()):
        credit = {(row.match, row.turn): row.reward for row in reader.credit(k)}
        for row in reader.log.read(k):
            for trajectory in trajectories(MatchRecord.from_json(row)):
                policies.add(trajectory.policy)
                if trajectory.policy == policy and trajectory.turns:
                    yield trajectory, credit
    if policy not in policies:
        known = ", ".join(sorted(policies)) or "none"
        raise ConfigError(
            f"reward_model: {reader.path} has no policy '{policy}'{nearest(policy, policies)} (it has: {known})"
        )


def _compute_worth(trajectory: Trajectory, outcome: str, credit: dict[tuple[str, int], float]) -> float | None:
    """Return a trajectory's outcome: its payoff, or the sum of its rewards of that name; None if it has neither."""
    if outcome == PAYOFF:
        return trajectory.payoff
    if outcome == CREDITED:
        rewards = [
            credit[trajectory.match, turn.index]
            for turn in trajectory.turns
            if (trajectory.match, turn.index) in credit
        ]
    else:
        rewards = [turn.rewards[outcome] for turn in trajectory.turns if outcome in turn.rewards]
    return sum(rewards) if rewards else None


def _check_tokens(reader: RunReader, policy: str, model: Path) -> None:
    """Raise ConfigError unless the reward model has the policy's token ids, so that it can read its streams."""
    try:
        folder = resolve(reader.environment()["experiment"]["policies"][policy]["model"])
        check_readable(model, folder)
    except (KeyError, TypeError):
        raise ConfigError(f"reward_model: {reader.path} does not say which model policy '{policy}' is") from None
    except (ValueError, WeightsError) as error:
        raise ConfigError(f"reward_model: {error}") from None
