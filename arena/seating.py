"""Who sits where: checks an experiment's names against what there is, and seats players for a match."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import games
from agents.engines.base import Engine
from agents.names import nearest
from agents.players.brains import BRAINS, make_brain
from agents.players.model import BrainPlayer, ChatPlayer, Writer, demonstrator, model_writer
from agents.policy import Policy
from agents.role import Role, RoleError, load_role
from arena.config import ConfigError, Experiment
from arena.credit.estimators import ESTIMATORS
from arena.credit.rewards import STAGES
from arena.learn.losses import LOSSES
from arena.match import MatchPlan, SeatedPlayer
from arena.records import Seating


@dataclass(frozen=True)
class Table:
    """An experiment's game and roles, found and checked."""

    make_game: Callable[[], Any]
    roles: dict[str, Role]
    """By seat."""


def set_table(experiment: Experiment) -> Table:
    """Find everything the experiment names; ConfigError with the nearest name for what there is not."""
    make_game = _game(experiment)
    _known("estimator", experiment.credit.estimator, ESTIMATORS)
    _known("loss", experiment.learn.loss, LOSSES)
    for stage in experiment.credit.stages:
        _known("reward stage", stage.stage, STAGES)
    for policy in experiment.policies.values():
        for brain in policy.imitate.brains if policy.imitate else ():
            _known("brain", brain, BRAINS)
    roles = {}
    folders = [experiment.roles] if experiment.roles else []
    for seat, spec in experiment.seats.items():
        _known("policy", spec.policy, [*experiment.policies, *BRAINS])
        try:
            roles[seat] = load_role(spec.role, folders)
        except RoleError as error:
            raise ConfigError(str(error)) from None
        _check_sampling(roles[seat], spec.policy, experiment)
    return Table(make_game, roles)


def _known(kind: str, name: str, choices: Any) -> None:
    if name not in choices:
        where = {
            "game": "games",
            "policy": "policies",
            "brain": "policies",
            "loss": "losses",
            "estimator": "estimators",
        }
        see = f" (arena list {where[kind]})" if kind in where else f" (known: {', '.join(choices)})"
        raise ConfigError(f"unknown {kind} '{name}'{nearest(name, choices)}{see}")


def _game(experiment: Experiment) -> Callable[[], Any]:
    name, options = experiment.game.name, experiment.game.options
    _known("game", name, games.GAMES)

    def make() -> Any:
        return games.make(name, **options)

    try:
        game = make()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"game.options: {error}") from None
    seats = list(game.possible_agents)
    for seat in experiment.seats:
        if seat not in seats:
            raise ConfigError(
                f"seats: {name} has no seat '{seat}'{nearest(seat, seats)} (its seats: {', '.join(seats)})"
            )
    for seat in seats:
        if seat not in experiment.seats:
            raise ConfigError(f"seats: nobody sits at '{seat}' of {name}: add `{seat}: {{role: …, policy: …}}`")
    return make


def _check_sampling(role: Role, policy: str, experiment: Experiment) -> None:
    """A trained policy must be sampled from whole: a cut tail has no gradient that would explain it."""
    spec, sampling = experiment.policies.get(policy), role.sampling
    if spec and spec.train and (sampling.top_p < 1 or sampling.top_k or sampling.temperature == 0):
        raise ConfigError(
            f"role {role.role}: policy '{policy}' is trained, so it must be sampled with top_p 1, top_k 0 and a "
            "temperature above 0; change the role's sampling, or set the policy's `train: false`"
        )


def player_at(
    seat: str, plan: MatchPlan, game: Any, table: Table, policies: Mapping[str, Policy], engine: Engine, run_seed: int
) -> SeatedPlayer:
    """The player of one seat in one match of `game`. All its chance comes from (run, match, attempt, seat)."""
    policy = plan.seats[seat].policy
    seed = _seat_seed(seat, plan, run_seed)
    if policy not in policies:
        return BrainPlayer(make_brain(policy, _number(seed), game))
    return _chat_player(seat, plan, table, policies[policy], seed, model_writer(engine))


def demonstrator_at(
    seat: str, plan: MatchPlan, game: Any, table: Table, policies: Mapping[str, Policy], brain: str, run_seed: int
) -> SeatedPlayer:
    """A brain that plays in the words and tokens of the policy that is to imitate it."""
    policy, seed = policies[plan.seats[seat].policy], _seat_seed(seat, plan, run_seed)
    writer = demonstrator(make_brain(brain, _number(seed), game), table.roles[seat], policy.frame)
    return _chat_player(seat, plan, table, policy, seed, writer)


def _chat_player(
    seat: str, plan: MatchPlan, table: Table, policy: Policy, seed: tuple[int, ...], writer: Writer
) -> ChatPlayer:
    return ChatPlayer(table.roles[seat], policy.frame, policy.name, f"{plan.id}/{seat}", seed, writer)


def _number(seed: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def _seat_seed(seat: str, plan: MatchPlan, run_seed: int) -> tuple[int, ...]:
    return (run_seed, plan.seed, plan.attempt, list(plan.seats).index(seat))


def seatings(experiment: Experiment, table: Table, policies: Mapping[str, Policy]) -> dict[str, Seating]:
    """Who sits where in this experiment, in the game's order of seats."""
    found = {}
    for seat in table.make_game().possible_agents:
        name = experiment.seats[seat].policy
        policy = policies.get(name)
        trained = policy is not None and policy.trained
        version = policy.version if policy else 0
        found[seat] = Seating(table.roles[seat].role, name, version, trained, "model" if policy else "brain")
    return found
