"""Deal of a match: the facts that each seat had when it first moved, from the deal's seed.

A log keeps no facts. The deal is dealt again and the logged acts are put to the game until every seat has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import games
from agents.errors import RoleError
from agents.facts import fact_lines, literal
from arena.errors import ConfigError, StoreError
from games.contracts import UNREAD, Deal, Game, View

_WITHOUT = "what was dealt cannot be shown"
_EMPTY = ('""', "[]", "{}")


@dataclass(frozen=True)
class Dealt:
    """The facts of a match at its beginning."""

    public: Mapping[str, Any] = field(default_factory=dict)
    """What every seat sees, when the first of them moves."""
    private: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By seat, what it alone sees when it first moves; a seat that never moved is missing."""

    def lines(self) -> Iterator[str]:
        """A line for all and one for each seat, as `arena show game` writes facts; nothing where there are none."""
        told = {"dealt to all": ("public", self.public)}
        told |= {f"dealt to {seat}": ("private", facts) for seat, facts in self.private.items()}
        for who, (scope, facts) in told.items():
            known = {name: value for name, value in facts.items() if value is not None and literal(value) not in _EMPTY}
            if known:
                yield f"{who}: {', '.join(fact_lines(scope, known))}"


def deal_of(run: Path, row: Mapping[str, Any], trust: bool = False) -> Dealt:
    """The deal of a match of a run, `row` being its row of the log.

    StoreError, one line, where it cannot be dealt again: code that nobody trusts, or other rules.
    """
    try:
        name = row["game"] if row["game"] in games.GAMES else _own(run, row["game"], trust)
    except (ConfigError, StoreError, RoleError) as error:
        raise StoreError(f"{_WITHOUT}: {error}") from None
    return dealt(Deal(name, row["options"], row["seed"]), _acts(row["turns"]), row["rules"])


def dealt(deal: Deal, acts: Iterable[tuple[str, str]], rules: int = 0) -> Dealt:
    """The facts of a deal, as its seats see them on the way through these acts, by seat; StoreError as above.

    `rules` is the version of the game's rules by which the acts were taken, 0 where it is not known.
    """
    try:
        game = games.deal(deal)
        if rules not in (0, game.rules_version):
            raise ValueError(f"the rules of {deal.game} were changed since")
        return _seen(game, acts)
    except Exception as error:  # noqa: BLE001 a game of others, or an edited log, may fail in any way
        raise StoreError(f"{_WITHOUT}: {error}") from None


def _own(run: Path, game: str, trust: bool) -> str:
    """The run's name for a game that does not come with Arena, found in the run's folder from now on."""
    from arena.config.kept import experiment_of
    from arena.config.own_files import same_game, with_own_roles

    return same_game(game, with_own_roles(run, experiment_of(run, trust=trust), trust))


def _acts(turns: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["seat"], turn["action"]) for turn in turns if turn.get("source") not in UNREAD]


def _seen(game: Game, acts: Iterable[tuple[str, str]]) -> Dealt:
    """The facts of a game that was just reset, until every seat has moved."""
    public: Mapping[str, Any] | None = None
    private: dict[str, dict[str, Any]] = {}
    for seat, act in acts:
        while game.agents and (game.terminations[game.agent_selection] or game.truncations[game.agent_selection]):
            game.step(None)
        if not game.agents or game.agent_selection != seat:
            break  # the log tells of another match: what was dealt is known as far as here
        if seat not in private:
            view = View.of(game, seat)
            public = dict(view.public) if public is None else public
            private[seat] = dict(view.private)
            if len(private) == len(game.possible_agents):
                break
        game.step(act)
    return Dealt(public or {}, private)
