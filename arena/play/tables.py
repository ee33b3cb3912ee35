"""Tables: games with the loaded roles of their seats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import games
from agents.errors import RoleError
from agents.role import Role, load_role
from arena.errors import ConfigError
from arena.play.making import make_game
from arena.play.match import MatchPlan
from arena.play.settings import GameSpec
from games.contracts import Game
from games.names import nearest


@dataclass(frozen=True)
class Table:
    """Game with the loaded role of each seat. A run's matches are played at one or more tables."""

    game: GameSpec
    roles: dict[str, Role]
    """Roles by seat, in the game's order."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """In a run, the configured name of a policy or scripted policy by seat."""
    harnesses: Mapping[str, str] = field(default_factory=dict)
    """Agent program by seat, for the seats that have one."""
    share: float = 1.0
    """Share of a run's matches, relative to its other tables."""

    def make_game(self) -> Game:
        """Create the game with the table's options, not yet reset."""
        return make_game(self.game.name, self.game.options)

    def matches(self, plan: MatchPlan) -> bool:
        """Return True if the plan has this game, options and roles. The option `plan.capped` may differ."""
        own, options = self.game.options, dict(plan.options)
        if plan.capped in own:
            options[plan.capped] = own[plan.capped]
        return (plan.game, options, {seat: s.role for seat, s in plan.seats.items()}) == (
            self.game.name,
            own,
            {seat: role.role for seat, role in self.roles.items()},
        )


def make_table(
    game: GameSpec, roles: Mapping[str, str], role_folders: Sequence[str] = (), *, prefix: str = ""
) -> Table:
    """Build a table from a game and the name or path of each seat's role.

    Raises ConfigError, starting with `prefix`, for an unknown game, wrong options, and unknown or missing seats. Also
    raises it for a role that cannot be loaded.
    """
    if problem := games.find_problem(game.name):
        raise ConfigError(f"{prefix}{problem} (arena list games)")
    try:
        seats = list(make_game(game.name, game.options).possible_agents)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{prefix}game.options: {error}") from None
    for seat in roles:
        if seat not in seats:
            known = ", ".join(seats)
            raise ConfigError(
                f"{prefix}seats: {game.name} has no seat '{seat}'{nearest(seat, seats)} (its seats: {known})"
            )
    for seat in seats:
        if seat not in roles:
            raise ConfigError(
                f"{prefix}seats: seat '{seat}' of {game.name} has no role: add `{seat}: {{role: …, policy: …}}`"
            )
    try:
        return Table(game, {seat: load_role(roles[seat], list(role_folders)) for seat in seats})
    except RoleError as error:
        raise ConfigError(str(error)) from None
