"""Validation of reward names in credit settings.

A misspelt name would be a reward of 0 forever without a message. Games that declare their rewards
(`TextGame.reward_parts`) are checked before a run starts, other games by the rewards of its first iteration.
"""

from collections.abc import Collection, Iterator, Sequence

from agents.names import nearest
from arena.credit.assign import named_rewards
from arena.credit.batch import TurnBatch
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.chosen import Chosen
from games.base import STAKE
from games.contracts import ILLEGAL, Game


def check_declared(rule: CreditSpec, replay: Chosen | None, games: Sequence[Game], marks: Collection[str] = ()) -> None:
    """Check before a run that every reward name in the credit and replay settings exists.

    It must be paid by a game, a reward stage or a rule of play (`marks`); otherwise raises ConfigError. Checks nothing
    if some game does not declare its rewards, or if a user's reward stage fails on an empty batch.
    """
    if not declared(games):
        return
    stages = rule.stages
    nothing = TurnBatch([], measures={name: [] for stage in stages for name in stage.needs})
    try:
        made = made_by(stages, nothing)
    except ConfigError:  # in a stage of the user's own, which wants to see a turn
        return
    check_names(rule, replay, made.union(marks, *(game.reward_parts for game in games)))


def declared(games: Sequence[Game]) -> bool:
    """Return True if all of these games declare the names of their rewards."""
    return all(game.reward_parts for game in games)


def check_came(rule: CreditSpec, replay: Chosen | None, batch: TurnBatch) -> None:
    """Raise ConfigError if the settings name a reward that neither the batch's turns nor reward stages paid."""
    check_names(rule, replay, made_by(rule.stages, batch) | {*named_rewards(batch, ())})


def made_by(stages: Sequence[Chosen], batch: TurnBatch) -> set[str]:
    """Return the names of the rewards that the reward stages add, without those that their own settings refer to."""
    made = set()
    for number, stage in enumerate(stages):
        made |= {*stage(batch, named_rewards(batch, stages[:number]))} - stage.rewards
    return made


def check_names(rule: CreditSpec, replay: Chosen | None, paid: Collection[str]) -> None:
    """Raise ConfigError for the first reward name in the credit and replay settings that is not in `paid`.

    The rewards `illegal` and `stake`, which any game may pay, are always allowed.
    """
    known = {ILLEGAL, STAKE, *paid}
    for field_name, name in reward_names(rule, replay):
        if name not in known:
            there = ", ".join(sorted(known))
            raise ConfigError(f"{field_name}: no reward is called '{name}'{nearest(name, known)} (there are: {there})")


def reward_names(rule: CreditSpec, replay: Chosen | None) -> Iterator[tuple[str, str]]:
    """Yield (settings field, reward name) for every reward name in the credit and replay settings."""
    yield from (("credit.weights", name) for name in rule.weights)
    chosen = [(f"credit.{field}", part) for field, part in rule.parts()]
    chosen += [("learn.replay", replay)] if replay else []
    for field_name, part in chosen:
        yield from ((f"{field_name}: {part.name}", name) for name in sorted(part.rewards))
