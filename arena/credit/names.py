"""Validation of reward names in credit settings.

A misspelt name would be a reward of 0 forever without a message. Games that declare their rewards
(`TextGame.reward_parts`) are checked before a run starts, other games by the rewards of its first iteration.
"""

from collections.abc import Collection, Iterator, Sequence

from arena.credit.assign import compute_named_rewards
from arena.credit.batch import TurnBatch
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.part_config import PartConfig
from games.base import STAKE
from games.contracts import ILLEGAL, Game
from games.names import nearest


def check_declared(
    rule: CreditSpec, replay: PartConfig | None, games: Sequence[Game], part_rewards: Collection[str] = ()
) -> None:
    """Check before a run that every reward name in the credit and replay settings exists.

    Raises ConfigError for a name that no game, reward stage or rollout part (`part_rewards`) pays. Checks nothing if
    some game does not declare its rewards, or if a user's reward stage fails on an empty batch.
    """
    if not all_declare_rewards(games):
        return
    stages = rule.stages
    empty_batch = TurnBatch([], measures={name: [] for stage in stages for name in stage.needs})
    try:
        stage_rewards = find_stage_rewards(stages, empty_batch)
    except ConfigError:  # a user's stage may fail without turns
        return
    check_names(rule, replay, stage_rewards.union(part_rewards, *(game.reward_parts for game in games)))


def all_declare_rewards(games: Sequence[Game]) -> bool:
    """Return True if every game declares the names of its rewards (`reward_parts`)."""
    return all(game.reward_parts for game in games)


def check_paid(rule: CreditSpec, replay: PartConfig | None, batch: TurnBatch) -> None:
    """Raise ConfigError if the settings name a reward that neither the batch's turns nor reward stages paid."""
    check_names(rule, replay, find_stage_rewards(rule.stages, batch) | {*compute_named_rewards(batch, ())})


def find_stage_rewards(stages: Sequence[PartConfig], batch: TurnBatch) -> set[str]:
    """Return the names of the rewards that the stages add, without names that their own settings refer to."""
    names = set()
    for number, stage in enumerate(stages):
        names |= {*stage(batch, compute_named_rewards(batch, stages[:number]))} - stage.rewards
    return names


def check_names(rule: CreditSpec, replay: PartConfig | None, rewards: Collection[str]) -> None:
    """Raise ConfigError for the first reward name in the credit and replay settings that is not in `rewards`.

    The rewards `illegal` and `stake`, which any game may pay, are always allowed.
    """
    known = {ILLEGAL, STAKE, *rewards}
    for field_name, name in list_reward_names(rule, replay):
        if name not in known:
            listed = ", ".join(sorted(known))
            raise ConfigError(f"{field_name}: no reward is called '{name}'{nearest(name, known)} (there are: {listed})")


def list_reward_names(rule: CreditSpec, replay: PartConfig | None) -> Iterator[tuple[str, str]]:
    """Yield (settings field, reward name) for every reward name in the credit and replay settings."""
    yield from (("credit.weights", name) for name in rule.weights)
    parts = [(f"credit.{field}", part) for field, part in rule.parts()]
    parts += [("learn.replay", replay)] if replay else []
    for field_name, part in parts:
        yield from ((f"{field_name}: {part.name}", name) for name in sorted(part.rewards))
