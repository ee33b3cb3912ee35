"""Selection of the iterations, matches, policies and roles of a run to export."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from arena.errors import ConfigError
from arena.store.reader import RunReader, parse_iteration
from arena.store.schema import CreditRow
from games.names import nearest

Row = dict[str, Any]


class Iteration(NamedTuple):
    """Selected matches of an iteration as log rows, with the iteration's credit by (match id, turn index)."""

    number: int
    matches: list[Row]
    credit: Mapping[tuple[str, int], CreditRow]

    def reward(self, row: Row, turn: Row) -> float:
        """Return a turn's reward: the weighted sum stored by credit, or else the plain sum of its named rewards."""
        credit = self.credit.get((row["id"], turn["index"]))
        return sum(turn["rewards"].values()) if credit is None else credit.reward

    def returns(self, row: Row) -> dict[int, float]:
        """Return each turn's undiscounted return by turn index: its seat's rewards from that turn on."""
        by_seat, by_turn = dict[str, float](), dict[int, float]()
        for turn in reversed(row["turns"]):
            seat = turn["seat"]
            by_turn[turn["index"]] = by_seat[seat] = self.reward(row, turn) + by_seat.get(seat, 0.0)
        return by_turn


@dataclass(frozen=True)
class Selection:
    """Filters on a run's iterations, match ids, policies and roles. All must match; an empty one matches everything."""

    iterations: tuple[int, ...] = ()
    matches: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    _occurred: dict[str, set[str]] = field(default_factory=lambda: {"policy": set(), "role": set()}, compare=False)

    def iterations_of(self, reader: RunReader) -> Iterator[Iteration]:
        """Yield the selected matches, one `Iteration` per iteration in ascending order.

        Matches in which no seat has a selected policy and role are left out. Raises ConfigError for an unknown
        iteration, and StoreError for an unknown match.
        """
        for id in self.matches:
            reader.match(id)
        known = reader.iterations()
        if unknown := [k for k in self.iterations if k not in known]:
            has = f"{known[0]} to {known[-1]}" if known else "none yet"
            raise ConfigError(f"--iteration {unknown[0]}: {reader.path} has no such iteration (there are: {has})")
        iterations = {parse_iteration(id) for id in self.matches} or set(known)
        for number in known:
            if number in iterations and number in (self.iterations or known):
                rows = reader.log.read(number, streams=False, ids=self.matches or None)
                rows = [row for row in rows if any([self.has(seat) for seat in row["seats"].values()])]
                yield Iteration(number, rows, {(row.match, row.turn): row for row in reader.credit(number)})

    def has(self, seat: Mapping[str, Any]) -> bool:
        """Return True if a seat's or turn's policy and role are selected. Records both for `check_occurrence`."""
        for name in self._occurred:
            self._occurred[name].add(seat[name])
        is_policy = not self.policies or seat["policy"] in self.policies
        return is_policy and (not self.roles or seat["role"] in self.roles)

    def check_occurrence(self) -> None:
        """Raise ConfigError if a selected policy or role did not occur in any log row passed to `has` so far."""
        for name, required in (("policy", self.policies), ("role", self.roles)):
            occurred = sorted(self._occurred[name])
            if occurred and (unknown := [value for value in required if value not in occurred]):
                hint = nearest(unknown[0], occurred)
                raise ConfigError(
                    f"--{name} {unknown[0]}: not in these matches{hint} (there are: {', '.join(occurred)})"
                )
