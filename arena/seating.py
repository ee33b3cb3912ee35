"""Who sits where: checks an experiment's names against what there is, and seats players for a match.

Nothing here but `set_tables` knows of experiments: a table is laid for any game and roles, and whoever has a
policy, by object, or a brain, by its spec, is seated there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import games
from agents.engines.base import Engine
from agents.errors import RoleError
from agents.names import nearest
from agents.players.brains import BRAINS, BrainError, check_brain, make_brain
from agents.players.endpoint import PREFIX, Answer, Endpoint, model_of
from agents.players.model import BrainPlayer, ChatPlayer, Writer, demonstrator, model_writer, recalled, spoken
from agents.players.spend import EndpointError
from agents.policy import Policy
from agents.role import Role, load_role
from arena.branching import Branch
from arena.config import ConfigError, Experiment, GameSpec, TableSpec
from arena.match import MatchPlan, SeatedPlayer
from arena.records import Seating


@dataclass(frozen=True)
class Table:
    """A game and the roles at its seats, found and checked."""

    game: GameSpec
    roles: dict[str, Role]
    """By seat, in the game's order of seats."""

    def make_game(self) -> Any:
        """A new game, not yet reset."""
        return games.make(self.game.name, **self.game.options)

    def fits(self, plan: MatchPlan) -> bool:
        """Whether the plan is of this game, with these options, for these roles."""
        return (plan.game, plan.options, {seat: s.role for seat, s in plan.seats.items()}) == (
            self.game.name,
            self.game.options,
            {seat: role.role for seat, role in self.roles.items()},
        )


def lay_table(game: GameSpec, roles: Mapping[str, str], role_folders: Sequence[str] = (), *, where: str = "") -> Table:
    """The table of a game for roles (a name or a path) by seat; ConfigError, after `where`, for what there is not."""
    if complaint := games.complaint(game.name):
        raise ConfigError(f"{where}{complaint} (arena list games)")
    try:
        seats = list(games.make(game.name, **game.options).possible_agents)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}game.options: {error}") from None
    for seat in roles:
        if seat not in seats:
            known = ", ".join(seats)
            raise ConfigError(
                f"{where}seats: {game.name} has no seat '{seat}'{nearest(seat, seats)} (its seats: {known})"
            )
    for seat in seats:
        if seat not in roles:
            raise ConfigError(
                f"{where}seats: nobody sits at '{seat}' of {game.name}: add `{seat}: {{role: …, policy: …}}`"
            )
    try:
        return Table(game, {seat: load_role(roles[seat], list(role_folders)) for seat in seats})
    except RoleError as error:
        raise ConfigError(str(error)) from None


def seatings(table: Table, holders: Mapping[str, str], policies: Mapping[str, Policy]) -> dict[str, Seating]:
    """Who sits where, in the game's order: `holders` has a policy's name or a brain for every seat."""
    return {seat: seated(role.role, holders[seat], policies) for seat, role in table.roles.items()}


def seated(role: str, name: str, policies: Mapping[str, Policy]) -> Seating:
    """A policy among `policies`, or else an endpoint or a brain, in this role."""
    policy = policies.get(name)
    if policy is None:
        return Seating(role, name, 0, False, "endpoint" if name.startswith(PREFIX) else "brain")
    return Seating(role, name, policy.version, policy.trained, "model")


@dataclass(frozen=True)
class House:
    """What players of a run have in common."""

    policies: Mapping[str, Policy]
    engine: Engine
    endpoint: Endpoint | None
    """One for all matches: it holds the account of what they have spent. None where nobody sits behind one."""
    seed: int
    """The run's."""


def players_at(table: Table, plan: MatchPlan, game: Any, house: House) -> dict[str, SeatedPlayer]:
    """The players of all seats in one match of `game`."""
    return {seat: player_at(seat, plan, game, table, house) for seat in plan.seats}


def player_at(seat: str, plan: MatchPlan, game: Any, table: Table, house: House) -> SeatedPlayer:
    """The player of one seat in one match of `game`. All its chance comes from (run, match, attempt, seat).

    Until a branch parts from its match, models and endpoints say again what they said. Brains are asked again, so that
    they are in the right state at the parting: their chance is that of the match, so they answer the same again, and
    afterwards draw what they would have drawn there (common random numbers).
    """
    policy, branch = plan.seats[seat].policy, plan.branch
    seed = _seat_seed(seat, plan, house.seed)
    if policy in house.policies:
        write = model_writer(house.engine)
        write = recalled(branch.replies(seat), write) if branch else write
        return _chat_player(seat, plan, table, house.policies[policy], seed, write)
    if house.endpoint and policy.startswith(PREFIX):
        return house.endpoint.player(model_of(policy), table.roles[seat], _number(seed), _answers(branch, seat))
    if branch:
        seed = _seat_seed(seat, replace(plan, attempt=branch.match.attempt, branch=None), house.seed)
    return BrainPlayer(make_brain(policy, _number(seed), game))


def demonstrator_at(seat: str, plan: MatchPlan, game: Any, table: Table, house: House, brain: str) -> SeatedPlayer:
    """A brain that plays in the words and tokens of the policy that is to imitate it; for an endpoint it just plays."""
    policy, seed = house.policies.get(plan.seats[seat].policy), _seat_seed(seat, plan, house.seed)
    player = make_brain(brain, _number(seed), game)
    if policy is None:
        return BrainPlayer(player)
    writer = demonstrator(player, table.roles[seat], policy.frame)
    return _chat_player(seat, plan, table, policy, seed, writer)


def teller_at(
    seat: str, plan: MatchPlan, table: Table, house: House, said: Mapping[int, tuple[str, str]]
) -> SeatedPlayer:
    """A policy that says what was once said at this seat, (text, finish) by turn, in its own tokens."""
    policy = house.policies[plan.seats[seat].policy]
    again = {
        turn: spoken(policy.frame, text, "length" if finish == "length" else "stop")
        for turn, (text, finish) in said.items()
    }
    return _chat_player(seat, plan, table, policy, (), recalled(again))


def _chat_player(
    seat: str, plan: MatchPlan, table: Table, policy: Policy, seed: tuple[int, ...], writer: Writer
) -> ChatPlayer:
    return ChatPlayer(table.roles[seat], policy.frame, policy.name, f"{plan.id}/{seat}", seed, writer)


def _answers(branch: Branch | None, seat: str) -> dict[int, Answer]:
    """What a model behind an endpoint answered before the parting, by turn."""
    turns = branch.turns(seat) if branch else []
    return {t.index: Answer(t.raw, "length" if t.finish == "length" else "stop", t.tokens) for t in turns}


def _number(seed: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def _seat_seed(seat: str, plan: MatchPlan, run_seed: int) -> tuple[int, ...]:
    parted = (plan.branch.turn + 1,) if plan.branch else ()
    return (run_seed, plan.seed, plan.attempt, list(plan.seats).index(seat), *plan.draws, *parted)


def endpoint_for(experiment: Experiment) -> Endpoint | None:
    """The run's endpoint, where some seat is held, or may be taken, by a model behind one."""
    held = [seat.policy for table in experiment.all_tables() for seat in table.seats.values()]
    met = [opponent.policy or "" for opponent in experiment.league.opponents] if experiment.league else []
    return Endpoint(experiment.endpoint) if any(name.startswith(PREFIX) for name in (*held, *met)) else None


# -- experiments -------------------------------------------------------------------------------------------


def set_tables(experiment: Experiment) -> list[Table]:
    """Find everything the experiment names; ConfigError with the nearest name for what there is not."""
    folders = [experiment.roles] if experiment.roles else []
    tables = []
    for i, spec in enumerate(experiment.all_tables()):
        where = f"tables[{i}]." if experiment.tables is not None else ""
        table = lay_table(spec.game, {seat: s.role for seat, s in spec.seats.items()}, folders, where=where)
        _check_holders(experiment, spec, table, where)
        _check_opponents(experiment, spec, table)
        tables.append(table)
    _check_role_names(tables)
    return tables


def _known(kind: str, name: str, choices: Mapping[str, Any], see: str) -> None:
    if name not in choices:
        raise ConfigError(f"unknown {kind} '{name}'{nearest(name, choices)} ({see})")


def _check_holders(experiment: Experiment, spec: TableSpec, table: Table, where: str) -> None:
    """Every seat is held by a policy or by a brain that can play there, and so can the brains it is to imitate."""
    game = table.make_game()
    for seat, held in spec.seats.items():
        policy = experiment.policies.get(held.policy)
        if policy is None:
            _check_brain(held.policy, game, seat, f"{where}seats.{seat}.policy", experiment.policies)
            continue
        if policy.train:
            _check_sampling(table.roles[seat], held.policy)
            for brain in experiment.learn.shown.brains if experiment.learn.shown else ():
                _check_brain(brain, game, seat, "learn.shown.brains")
        for brain in policy.imitate.brains if policy.imitate else ():
            _check_brain(brain, game, seat, f"policies.{held.policy}.imitate.brains")


def _check_opponents(experiment: Experiment, spec: TableSpec, table: Table) -> None:
    """The league's brains can play wherever they may take a seat."""
    trained = [seat for seat, held in spec.seats.items() if experiment.trained(held.policy)]
    for i, opponent in enumerate(experiment.league.opponents if experiment.league else ()):
        if opponent.policy and opponent.policy not in experiment.policies and len(trained) > 1:
            for seat in trained:
                where = f"league.opponents[{i}].policy"
                _check_brain(opponent.policy, table.make_game(), seat, where, experiment.policies)


def _check_brain(spec: str, game: Any, seat: str, where: str, policies: Iterable[str] | None = None) -> None:
    """ConfigError for no brain, or one that cannot play; with `policies`, it may be one of those or an endpoint."""
    try:
        if policies is not None and spec.startswith(PREFIX):
            model_of(spec)
            return
        check_brain(spec, game, seat)
    except EndpointError as error:
        raise ConfigError(f"{where}: {error}") from None
    except BrainError as error:
        if policies is None or spec in BRAINS or spec.partition(":")[0] in BRAINS:
            raise ConfigError(f"{where}: {error}") from None
        near = nearest(spec, [*policies, *BRAINS])
        raise ConfigError(f"{where}: unknown policy '{spec}'{near} (arena list policies)") from None


def _check_sampling(role: Role, policy: str) -> None:
    """A trained policy must be sampled from whole: a cut tail has no gradient that would explain it."""
    sampling = role.sampling
    if sampling.top_p < 1 or sampling.top_k or sampling.temperature == 0:
        raise ConfigError(
            f"role {role.role}: policy '{policy}' is trained, so it must be sampled with top_p 1, top_k 0 and a "
            "temperature above 0; change the role's sampling, or set the policy's `train: false`"
        )


def _check_role_names(tables: Sequence[Table]) -> None:
    """Credit, ratings and the log know roles by name: one name is one role in a run."""
    known: dict[str, Role] = {}
    for role in (role for table in tables for role in table.roles.values()):
        if known.setdefault(role.role, role) != role:
            raise ConfigError(f"two different roles are called '{role.role}': give one of them another `role:` name")
