"""Resolution of the names of games, roles and policies in an experiment, and checks that they fit their seats."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from agents.errors import EndpointError, HarnessError, ScriptedPolicyError
from agents.harness.command import is_url, parse_command
from agents.player import PREFIXES
from agents.players.scripted import SCRIPTED, check_scripted
from agents.players.servers import parse_endpoint
from agents.role import Role
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.play.best_first import find_search_obstacle
from arena.play.parts.base import check_tables
from arena.play.settings import TableSpec
from arena.play.tables import Table, make_table
from games.contracts import Game
from games.names import nearest

IMITATED = ("scripted", "against")
"""Settings of `imitate` that name scripted policies."""


def resolve_tables(experiment: Experiment) -> list[Table]:
    """Load the experiment's games with the roles and policies of their seats, one `Table` per game.

    Raises ConfigError for an unknown name, with the nearest one, and for a policy that cannot play its seat.
    """
    folders = [experiment.roles] if experiment.roles else []
    tables = []
    for i, spec in enumerate(experiment.all_tables()):
        prefix = f"tables[{i}]." if experiment.tables is not None else ""
        table = make_table(spec.game, {seat: s.role for seat, s in spec.seats.items()}, folders, prefix=prefix)
        harnesses = {seat: seat_spec.harness for seat, seat_spec in spec.seats.items() if seat_spec.harness}
        holders = {seat: seat_spec.policy for seat, seat_spec in spec.seats.items()}
        table = replace(table, holders=holders, harnesses=harnesses, share=spec.share)
        _check_holders(experiment, spec, table, prefix)
        _check_harnesses(experiment, table, prefix)
        _check_opponents(experiment, spec, table)
        tables.append(table)
    _check_role_names(tables)
    try:
        check_tables(experiment.play.parts, tables, {n: policy.train for n, policy in experiment.policies.items()})
    except ValueError as error:
        raise ConfigError(str(error)) from None
    _check_imitated(experiment, tables)
    return tables


def _check_holders(experiment: Experiment, spec: TableSpec, table: Table, prefix: str) -> None:
    """Raise ConfigError unless each seat has a known policy that can play there."""
    game = table.make_game()
    for seat, seat_spec in spec.seats.items():
        policy = experiment.policies.get(seat_spec.policy)
        if policy is None:
            _check_scripted(seat_spec.policy, game, seat, f"{prefix}seats.{seat}.policy", experiment.policies)
            continue
        role = table.roles[seat]
        if policy.train:
            _check_sampling(role, seat_spec.policy)
        if role.sampling.search and (obstacle := find_search_obstacle(game)):
            raise ConfigError(f"{prefix}seats.{seat}: role {role.role}: sampling.search: {obstacle}")


def _check_harnesses(experiment: Experiment, table: Table, prefix: str) -> None:
    """Raise ConfigError unless each agent program can be started and asks a policy that can answer it."""
    for seat, harness in table.harnesses.items():
        field, name = f"{prefix}seats.{seat}.harness", table.holders[seat]
        sampling = table.roles[seat].sampling
        if name not in experiment.policies:
            raise ConfigError(f"{field}: an agent program asks a policy with weights, and '{name}' has none")
        if sampling.selection or sampling.stop:
            rule = sampling.selection or "stop"
            raise ConfigError(f"{field}: role {table.roles[seat].role}: sampling.{rule} is not supported")
        if experiment.evaluate:
            raise ConfigError(f"{field}: evaluations play roles, not agent programs: leave `evaluate` out")
        if experiment.policies[name].imitate or experiment.learn.demonstrations or experiment.play.part("patch"):
            raise ConfigError(f"{field}: an agent program has no scripted replies: leave out imitate and patches")
        try:
            if not is_url(harness):
                parse_command(harness)
        except HarnessError as error:
            raise ConfigError(f"{field}: {error}") from None
        if missing := [package for package in _list_packages(harness) if not find_spec(package)]:
            raise ConfigError(f"{field}: {missing[0]} is not installed: pip install 'arena-selfplay[serve,endpoint]'")


def _list_packages(harness: str) -> list[str]:
    return ["starlette", "uvicorn", *(["httpx2"] if is_url(harness) else [])]


def _check_imitated(experiment: Experiment, tables: Sequence[Table]) -> None:
    """Raise ConfigError unless each imitated script can play a seat of its learner, and some script each such seat."""
    games = [table.make_game() for table in tables]
    for name, policy in experiment.policies.items():
        scripts_by_field = {f"policies.{name}.imitate.{key}": getattr(policy.imitate, key, ()) for key in IMITATED}
        if policy.train and experiment.learn.demonstrations:
            scripts_by_field["learn.demonstrations.scripted"] = experiment.learn.demonstrations.scripted
        seated_tables = zip(tables, games, strict=True)
        places = [
            (game, seat) for table, game in seated_tables for seat, holder in table.holders.items() if holder == name
        ]
        for field, scripts in scripts_by_field.items():
            results = [[_find_scripted_error(script, *place, field) for place in places] for script in scripts]
            for row in (*results, *zip(*results, strict=True)):  # of a script, and of a seat
                errors = [error for error in row if error]
                if errors and len(errors) == len(row):
                    raise errors[0]


def _find_scripted_error(script: str, game: Game, seat: str, field: str) -> ConfigError | None:
    """Return the error if a scripted policy cannot play at a seat, else None."""
    try:
        _check_scripted(script, game, seat, field)
    except ConfigError as error:
        return error
    return None


def _check_opponents(experiment: Experiment, spec: TableSpec, table: Table) -> None:
    """Raise ConfigError unless the league's scripted policies can play all seats that they may get."""
    trained = [seat for seat, seat_spec in spec.seats.items() if experiment.trained(seat_spec.policy)]
    for i, opponent in enumerate(experiment.league.opponents if experiment.league else ()):
        if opponent.policy and opponent.policy not in experiment.policies and len(trained) > 1:
            for seat in trained:
                field = f"league.opponents[{i}].policy"
                _check_scripted(opponent.policy, table.make_game(), seat, field, experiment.policies)


def _check_scripted(spec: str, game: Game, seat: str, field: str, policies: Iterable[str] | None = None) -> None:
    """Raise ConfigError unless `spec` is a scripted policy that can play at the seat.

    With the names of other `policies`, endpoints are accepted and a misspelt policy gets a hint.
    """
    try:
        if policies is not None and spec.startswith(PREFIXES):
            parse_endpoint(spec)
            return
        check_scripted(spec, game, seat)
    except EndpointError as error:
        raise ConfigError(f"{field}: {error}") from None
    except ScriptedPolicyError as error:
        if policies is None or ".py:" in spec or spec in SCRIPTED or spec.partition(":")[0] in SCRIPTED:
            raise ConfigError(f"{field}: {error}") from None
        near = nearest(spec, [*policies, *SCRIPTED])
        raise ConfigError(f"{field}: unknown policy '{spec}'{near} (arena list policies)") from None


def _check_sampling(role: Role, policy: str) -> None:
    """Raise ConfigError unless the role samples the full distribution, because the gradient assumes it."""
    sampling = role.sampling
    if rule := sampling.selection:
        raise ConfigError(
            f"role {role.role}: sampling.{rule} keeps one of several samples, which training does not support: "
            f"leave it out, or set policies.{policy}.train to false"
        )
    if sampling.top_p < 1 or sampling.top_k or sampling.temperature == 0:
        raise ConfigError(
            f"role {role.role}: policy '{policy}' is trained, so it must be sampled with top_p 1, top_k 0 and a "
            "temperature above 0; change the role's sampling, or set the policy's `train: false`"
        )


def _check_role_names(tables: Sequence[Table]) -> None:
    """Raise ConfigError if two roles share a name, by which credit, ratings and the log identify roles."""
    roles: dict[str, Role] = {}
    for role in (role for table in tables for role in table.roles.values()):
        if roles.setdefault(role.role, role) != role:
            raise ConfigError(f"two different roles are called '{role.role}': give one of them another `role:` name")
