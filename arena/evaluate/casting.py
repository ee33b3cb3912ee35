"""Casting: the policy and role of each seat in matches outside a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.model_folder import count_parameters
from agents.policy import Policy
from agents.role import Role, load_role
from agents.weights import resolve_base
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.play.contenders import Contender, ModelContender, add_instruction
from arena.play.settings import SeatSpec

PLAYER, NANO_PLAYER = "player", "nano_player"
MIN_PARAMETERS = 10_000_000
"""Parameters below which a model gets the terse role `nano_player`. Such models are trained by Arena from scratch and
cannot read sentences."""


@dataclass(frozen=True, kw_only=True)
class Casting:
    """Function from a game and a seat to policy and role, for one policy or for several policies of a run.

    Several policies keep their seats of the run.
    """

    name: str
    policies: Mapping[str, Policy]
    """Policies by their name in the run; each is served under its own `name`."""
    experiment: Experiment | None = None
    """Experiment of the policies' run; None outside a run."""
    own_role: str = ""
    """Name or path of a role for every seat, instead of the usual choice."""
    summaries: int | None = None
    """Maximum number of summaries for roles with summary memory; None for the role's own number."""
    instructions: Callable[[], Mapping[str, str]] = dict
    """Function that returns the texts that end the system prompts of the run's roles, by role."""
    _roles: dict[tuple[str, str], Role] = field(default_factory=dict)

    def __call__(self, game: str, seat: str) -> tuple[Policy, Role]:
        """Return the policy and the role of a game's seat. Raises ConfigError if several policies could take it."""
        role = self._role(game, seat)
        instruction = "" if self.own_role else self.instructions().get(role.role, "")
        return self._policy(game, seat), add_instruction(role, instruction)

    def seats_in_run(self, game: str, seats: Sequence[str]) -> list[str]:
        """Return the seats that these policies have in the run's tables of this game; all of `seats` if none."""
        own = [seat for seat in seats if any(spec.policy in self.policies for spec in self._seat_specs(game, seat))]
        return own or [*seats]

    def warn_unknown_game(self, game: str) -> str:
        """Return a warning if the policies' run never played this game and has no role for any game; "" otherwise."""
        tables = self.experiment.all_tables() if self.experiment else []
        if self.own_role or not tables or any(table.game.name == game for table in tables) or self._find_general_role():
            return ""
        roles = ", ".join(dict.fromkeys(Path(spec.role).stem for table in tables for spec in table.seats.values()))
        return (
            f"{self.name} never played {game}, and none of its roles ({roles}) is for it: it plays in the role "
            f"{NANO_PLAYER if self.is_tiny else PLAYER} (choose another with --role NAME: arena list roles)"
        )

    @property
    def is_tiny(self) -> bool:
        """True if a policy has fewer than `MIN_PARAMETERS`: it cannot read sentences, and needs a terse role."""
        return min(count_parameters(resolve_base(policy.source)) for policy in self.policies.values()) < MIN_PARAMETERS

    def _policy(self, game: str, seat: str) -> Policy:
        """Return the only policy, or the run's policy at this seat. Raises ConfigError if no policy has the seat."""
        if len(self.policies) == 1:
            return next(iter(self.policies.values()))
        for spec in self._seat_specs(game, seat):
            if spec.policy in self.policies:
                return self.policies[spec.policy]
        known = ", ".join(self.policies)
        example = f"{self.name}:{next(iter(self.policies))}"
        raise ConfigError(f"{self.name} has several policies ({known}), none at {game}'s {seat}: name one: {example}")

    def _role(self, game: str, seat: str) -> Role:
        """Return the seat's role: `own_role`, else the run's role of this seat or of any game, else a built-in one."""
        if (game, seat) not in self._roles:
            self._roles[game, seat] = self._with_summaries(self._choose_role(game, seat))
        return self._roles[game, seat]

    def _with_summaries(self, role: Role) -> Role:
        if self.summaries is None or role.memory.kind != "summary":
            return role
        return role.model_copy(update={"memory": role.memory.model_copy(update={"summaries": self.summaries})})

    def _choose_role(self, game: str, seat: str) -> Role:
        folders = [self.experiment.roles] if self.experiment and self.experiment.roles else []
        names = [self.own_role] if self.own_role else [spec.role for spec in self._seat_specs(game, seat)]
        if names:
            return load_role(names[0], folders)
        if (role := self._find_general_role()) is not None:
            return role
        return load_role(
            NANO_PLAYER if count_parameters(resolve_base(self._policy(game, seat).source)) < MIN_PARAMETERS else PLAYER
        )

    def _find_general_role(self) -> Role | None:
        """Return the first of the run's roles that is not written for one game; None if there is none."""
        if self.experiment is None:
            return None
        folders = [self.experiment.roles] if self.experiment.roles else []
        specs = (spec for table in self.experiment.all_tables() for spec in table.seats.values())
        return next((role for spec in specs if (role := load_role(spec.role, folders)).game is None), None)

    def _seat_specs(self, game: str, seat: str) -> list[SeatSpec]:
        """Return the settings of this seat in each of the run's games of that name; [] if it has none."""
        tables = self.experiment.all_tables() if self.experiment else []
        return [table.seats[seat] for table in tables if table.game.name == game and seat in table.seats]


def list_casts(contenders: Iterable[Contender]) -> list[Casting]:
    """Return the seat assignments (`Casting`) of those contenders that have weights."""
    return [c.cast for c in contenders if isinstance(c, ModelContender) and isinstance(c.cast, Casting)]


def warn_unknown_games(contenders: Iterable[Contender], game: str) -> list[str]:
    """Return a warning for each contender from a run that never played this game and has no role for it."""
    return list(dict.fromkeys(filter(None, (cast.warn_unknown_game(game) for cast in list_casts(contenders)))))
