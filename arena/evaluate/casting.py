"""Casting: which policy takes a seat outside of a run, and in which role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.model_folder import parameters_in
from agents.policy import Policy
from agents.role import Role, load_role
from agents.weights import base_folder
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.play.contenders import Contender, ModelContender
from arena.play.settings import SeatSpec

PLAYER, NANO_PLAYER = "player", "nano_player"
TINY = 10_000_000
"""Parameters below which a model gets the terse role: it was made here and cannot read sentences."""


@dataclass(frozen=True)
class Casting:
    """Seats for one policy, or for a run's several, which each take the seats that they took in the run."""

    name: str
    policies: Mapping[str, Policy]
    """By the run's name for them; each is served under its own `name`."""
    experiment: Experiment | None = None
    """Experiment of the run they come from."""
    own_role: str = ""
    """A role's name or path: for every seat, instead of what would be chosen."""
    summaries: int | None = None
    """Number of summaries that a role whose memory is of that kind may write; None is the role's own."""
    _roles: dict[tuple[str, str], Role] = field(default_factory=dict)

    def __call__(self, game: str, seat: str) -> tuple[Policy, Role]:
        """Return the policy and the role for a seat; ConfigError where that cannot be said."""
        return self._policy(game, seat), self._role(game, seat)

    def took(self, game: str, seats: Sequence[str]) -> list[str]:
        """The seats that the run gave these policies in this game; all of them where it gave none."""
        given = [seat for seat in seats if any(spec.policy in self.policies for spec in self._seats(game, seat))]
        return given or [*seats]

    def stranger_to(self, game: str) -> str:
        """A line for the user where the run never played this game and none of its roles is for it, or for any; ""."""
        tables = self.experiment.all_tables() if self.experiment else []
        if self.own_role or not tables or any(table.game.name == game for table in tables) or self._for_any_game():
            return ""
        roles = ", ".join(dict.fromkeys(Path(spec.role).stem for table in tables for spec in table.seats.values()))
        return (
            f"{self.name} never played {game}, and none of its roles ({roles}) is for it: it plays in the role "
            f"{NANO_PLAYER if self.tiny else PLAYER} (--role NAME for another: arena list roles)"
        )

    @property
    def tiny(self) -> bool:
        """Return True if one of them can read terse roles only."""
        return min(parameters_in(base_folder(policy.source)) for policy in self.policies.values()) < TINY

    def _policy(self, game: str, seat: str) -> Policy:
        """The only policy, or whom the run seats there."""
        if len(self.policies) == 1:
            return next(iter(self.policies.values()))
        for spec in self._seats(game, seat):
            if spec.policy in self.policies:
                return self.policies[spec.policy]
        known = ", ".join(self.policies)
        example = f"{self.name}:{next(iter(self.policies))}"
        raise ConfigError(f"{self.name} has several policies ({known}), none at {game}'s {seat}: name one: {example}")

    def _role(self, game: str, seat: str) -> Role:
        """The given role, the run's for this seat, the run's for any game, or a built-in one for any game."""
        if (game, seat) not in self._roles:
            self._roles[game, seat] = self._with_summaries(self._choose_role(game, seat))
        return self._roles[game, seat]

    def _with_summaries(self, role: Role) -> Role:
        if self.summaries is None or role.memory.kind != "summary":
            return role
        return role.model_copy(update={"memory": role.memory.model_copy(update={"summaries": self.summaries})})

    def _choose_role(self, game: str, seat: str) -> Role:
        folders = [self.experiment.roles] if self.experiment and self.experiment.roles else []
        names = [self.own_role] if self.own_role else [spec.role for spec in self._seats(game, seat)]
        if names:
            return load_role(names[0], folders)
        if (role := self._for_any_game()) is not None:
            return role
        return load_role(NANO_PLAYER if parameters_in(base_folder(self._policy(game, seat).source)) < TINY else PLAYER)

    def _for_any_game(self) -> Role | None:
        """The first of the run's roles that is of no certain game."""
        if self.experiment is None:
            return None
        folders = [self.experiment.roles] if self.experiment.roles else []
        specs = (spec for table in self.experiment.all_tables() for spec in table.seats.values())
        return next((role for spec in specs if (role := load_role(spec.role, folders)).game is None), None)

    def _seats(self, game: str, seat: str) -> list[SeatSpec]:
        """Return the run's settings of this seat, at each of its tables of this game."""
        tables = self.experiment.all_tables() if self.experiment else []
        return [table.seats[seat] for table in tables if table.game.name == game and seat in table.seats]


def casts(contenders: Iterable[Contender]) -> list[Casting]:
    """The castings of those contenders that have weights."""
    return [c.cast for c in contenders if isinstance(c, ModelContender) and isinstance(c.cast, Casting)]


def strangers(contenders: Iterable[Contender], game: str) -> list[str]:
    """A line for each run among them that never played this game and has no role for it."""
    return list(dict.fromkeys(filter(None, (cast.stranger_to(game) for cast in casts(contenders)))))
