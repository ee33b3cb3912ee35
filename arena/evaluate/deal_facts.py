"""Recovery of the facts that each seat of a logged match saw at its first move.

A log does not hold them. So the deal is replayed from its seed with the logged acts until every seat has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import games
from agents.errors import RoleError
from agents.facts import format_facts, format_literal
from arena.errors import ConfigError, StoreError
from arena.play.making import SEAT_TOOLS, deal_game, skip_ended_seats
from games.abilities import Mark, Marks
from games.contracts import UNREAD, Deal, Game, View

_CANNOT_SHOW = "what was dealt cannot be shown"
MAX_MARKS = 100
"""Maximum marks of one act."""
_EMPTY = ('""', "[]", "{}")


@dataclass(frozen=True)
class DealFacts:
    """Facts that the seats of a match saw at their first moves: public ones, and private ones by seat."""

    public: Mapping[str, Any] = field(default_factory=dict)
    """Facts that every seat sees, at the first move."""
    private: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Facts that only this seat sees, at its first move, by seat; seats that never moved are missing."""

    def lines(self) -> Iterator[str]:
        """Yield a text line for the public facts and one for each seat's private ones, without empty facts."""
        facts_by_label = {"dealt to all": ("public", self.public)}
        facts_by_label |= {f"dealt to {seat}": ("private", facts) for seat, facts in self.private.items()}
        for label, (scope, facts) in facts_by_label.items():
            known = {
                name: value
                for name, value in facts.items()
                if value is not None and format_literal(value) not in _EMPTY
            }
            if known:
                yield f"{label}: {', '.join(format_facts(scope, known))}"


def recover_facts(run: Path, row: Mapping[str, Any], trust: bool = False) -> DealFacts:
    """Recover the facts that each seat saw at its first move, from the row of a match in a run's log.

    With `trust`, code in the run's folder may run. Raises StoreError if the deal cannot be replayed, because its game's
    code is not trusted or its rules have changed.
    """
    try:
        is_plain = row["game"] in games.GAMES and not row["options"].get(SEAT_TOOLS)
        name = row["game"] if is_plain else _import_own_game(run, row, trust)
    except (ConfigError, StoreError, RoleError) as error:
        raise StoreError(f"{_CANNOT_SHOW}: {error}") from None
    return replay_facts(Deal(name, row["options"], row["seed"]), _list_acts(row["turns"]), row["rules"])


def replay_facts(deal: Deal, acts: Iterable[tuple[str, str]], rules: int = 0) -> DealFacts:
    """Replay (seat, act) pairs on a deal and return the facts that each seat saw at its first move.

    `rules` is the rules version of the logged acts, 0 if unknown. Raises StoreError if the replay fails.
    """
    try:
        game = deal_game(deal)
        if rules not in (0, game.rules_version):
            raise ValueError(f"the rules of {deal.game} were changed since")
        return _replay(game, acts)
    except Exception as error:  # noqa: BLE001 a user's game or an edited log may fail in any way
        raise StoreError(f"{_CANNOT_SHOW}: {error}") from None


def replay_marks(deal: Deal, acts: Iterable[tuple[str, str]], rules: int = 0) -> list[list[Mark]]:
    """Replay (seat, act) pairs on a deal and return the marks of each act: the places in images that it names.

    Returns [] if the game has no marks. Raises StoreError as `replay_facts` does.
    """
    try:
        game = deal_game(deal)
        if rules not in (0, game.rules_version):
            raise ValueError(f"the rules of {deal.game} were changed since")
        if not isinstance(game, Marks):
            return []
        found = []
        for seat, act in acts:
            skip_ended_seats(game)
            if not game.agents or game.agent_selection != seat:
                break  # the log is of another match
            found.append([Mark(str(hash), *map(float, place)) for hash, *place in game.marks(act)][:MAX_MARKS])
            game.step(act)
        return found
    except Exception as error:  # noqa: BLE001 as in replay_facts
        raise StoreError(f"{_CANNOT_SHOW}: {error}") from None


def _import_own_game(run: Path, row: Mapping[str, Any], trust: bool) -> str:
    """Make a logged match's game and tools loadable from the run's folder, and return the game's name."""
    from arena.config.own_files import require_own_tools, resolve_game_name, with_own_roles
    from arena.config.saved_config import load_experiment

    experiment = with_own_roles(run, load_experiment(run, trust=trust), trust)
    require_own_tools(run, experiment, row["options"])
    return resolve_game_name(row["game"], experiment)


def _list_acts(turns: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["seat"], turn["action"]) for turn in turns if turn.get("source") not in UNREAD]


def _replay(game: Game, acts: Iterable[tuple[str, str]]) -> DealFacts:
    """Return the facts of a freshly dealt game, replaying (seat, act) pairs until every seat has moved."""
    public: Mapping[str, Any] | None = None
    private: dict[str, dict[str, Any]] = {}
    for seat, act in acts:
        skip_ended_seats(game)
        if not game.agents or game.agent_selection != seat:
            break  # the log is of another match: return the facts so far
        if seat not in private:
            view = View.of(game, seat)
            public = dict(view.public) if public is None else public
            private[seat] = dict(view.private)
            if len(private) == len(game.possible_agents):
                break
        game.step(act)
    return DealFacts(public or {}, private)
