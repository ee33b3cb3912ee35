"""Names of rewards: those that an experiment's credit speaks of, and those that there are.

A name that nobody is paid under would be 0 for ever, unheard. Games that say what they pay (`TextGame.reward_parts`)
are checked before a run begins, others by what came in its first iteration.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from agents.names import nearest
from arena.config.experiment import Experiment
from arena.config.parts import Chosen
from arena.credit.assign import named_rewards
from arena.credit.batch import TurnBatch
from arena.errors import ConfigError
from games.base import ILLEGAL, STAKE


def check_declared(experiment: Experiment, games: Sequence[Any]) -> None:
    """ConfigError for a reward that credit names and neither game nor stage pays, where all games say what they pay."""
    if not declared(games):
        return
    stages = experiment.credit.stages
    nothing = TurnBatch([], measures={name: [] for stage in stages for name in stage.needs})
    try:
        made = made_by(stages, nothing)
    except ConfigError:  # in a stage of the user's own, which wants to see a turn
        return
    check_names(experiment, made.union(*(game.reward_parts for game in games)))


def declared(games: Sequence[Any]) -> bool:
    """Whether all of these games say what they pay."""
    return all(getattr(game, "reward_parts", {}) for game in games)


def check_came(experiment: Experiment, batch: TurnBatch) -> None:
    """ConfigError for a reward that credit names and that nobody was paid."""
    check_names(experiment, made_by(experiment.credit.stages, batch) | {*named_rewards(batch, ())})


def made_by(stages: Sequence[Chosen], batch: TurnBatch) -> set[str]:
    """The rewards that stages add to those that they are told of."""
    made = set()
    for number, stage in enumerate(stages):
        made |= {*stage(batch, named_rewards(batch, stages[:number]))} - stage.rewards
    return made


def check_names(experiment: Experiment, paid: Collection[str]) -> None:
    """ConfigError for the first reward that credit names and that is not among those that are paid."""
    known = {ILLEGAL, STAKE, *paid}
    for place, name in spoken_of(experiment):
        if name not in known:
            there = ", ".join(sorted(known))
            raise ConfigError(f"{place}: no reward is called '{name}'{nearest(name, known)} (there are: {there})")


def spoken_of(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Every name of a reward in what credits and replays, after the place where it stands."""
    credit, replay = experiment.credit, experiment.learn.replay
    yield from (("credit.weights", name) for name in credit.weights)
    chosen = {
        "credit.stages": credit.stages, "credit.select": credit.select, "credit.estimator": [credit.estimator],
        "credit.transforms": credit.transforms, "learn.replay": [replay] if replay else [],
    }  # fmt: skip
    for place, parts in chosen.items():
        for part in parts:
            yield from ((f"{place}: {part.name}", name) for name in sorted(part.rewards))
