"""Tables: a game with the roles at its seats, loaded and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import games
from agents.errors import RoleError
from agents.names import nearest
from agents.role import Role, load_role
from arena.errors import ConfigError
from arena.play.match import MatchPlan
from arena.play.settings import GameSpec
from games.contracts import Game


@dataclass(frozen=True)
class Table:
    """A game and the roles at its seats, loaded and checked."""

    game: GameSpec
    roles: dict[str, Role]
    """By seat, in the game's order of seats."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """In a run, by seat: the name of a policy or scripted policy, as configured."""
    share: float = 1.0
    """Share of a run's matches, relative to its other tables."""

    def make_game(self) -> Game:
        """A new game, not yet reset."""
        return games.make(self.game.name, **self.game.options)

    def fits(self, plan: MatchPlan) -> bool:
        """Return True if the plan is of this game, with these options, for these roles."""
        own, options = self.game.options, dict(plan.options)
        if plan.capped in own:
            options[plan.capped] = own[plan.capped]
        return (plan.game, options, {seat: s.role for seat, s in plan.seats.items()}) == (
            self.game.name,
            own,
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
