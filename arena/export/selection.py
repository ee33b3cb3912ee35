"""Choice of what is exported of a run: iterations, matches, and the seats of some policies or roles."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.names import nearest
from arena.errors import ConfigError
from arena.store.reader import RunReader, iteration_of
from arena.store.schema import CreditRow

Row = dict[str, Any]


class Iteration(NamedTuple):
    """The chosen matches of an iteration, rows of the log by id, and credit by match and turn where it was given."""

    number: int
    matches: list[Row]
    credit: Mapping[tuple[str, int], CreditRow]

    def earned(self, row: Row, turn: Row) -> float:
        """A turn's reward: credit's weighted sum, or the plain sum of its named rewards where there was none."""
        credit = self.credit.get((row["id"], turn["index"]))
        return sum(turn["rewards"].values()) if credit is None else credit.reward

    def returns(self, row: Row) -> dict[int, float]:
        """Undiscounted returns: what each turn's seat earned from there to the end of the match."""
        left, found = dict[str, float](), dict[int, float]()
        for turn in reversed(row["turns"]):
            found[turn["index"]] = left[turn["seat"]] = self.earned(row, turn) + left.get(turn["seat"], 0.0)
        return found


@dataclass(frozen=True)
class Selection:
    """Empty is all."""

    iterations: tuple[int, ...] = ()
    matches: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    _seen: dict[str, set[str]] = field(default_factory=lambda: {"policy": set(), "role": set()}, compare=False)

    def of(self, reader: RunReader) -> Iterator[Iteration]:
        """The chosen matches, an iteration at a time; ConfigError or StoreError for one that there is not."""
        for id in self.matches:
            reader.match(id)
        for number in self.numbers(reader):
            rows = reader.log.read(number, streams=False, ids=self.matches or None)
            rows = [row for row in rows if any([self.has(seat) for seat in row["seats"].values()])]
            credit = {(row.match, row.turn): row for row in reader.credit(number)}
            yield Iteration(number, rows, credit)

    def numbers(self, reader: RunReader) -> list[int]:
        """The iterations that are looked at."""
        known = reader.iterations()
        if unknown := [k for k in self.iterations if k not in known]:
            has = f"{known[0]} to {known[-1]}" if known else "none yet"
            raise ConfigError(f"--iteration {unknown[0]}: {reader.path} has no matches of it (there are: {has})")
        asked = {iteration_of(id) for id in self.matches}
        return [k for k in known if k in (self.iterations or known) and k in (asked or known)]

    def has(self, seat: Mapping[str, Any]) -> bool:
        """Return True if the holder of a seat, or who took a turn, is among the policies and roles asked for."""
        for name in self._seen:
            self._seen[name].add(seat[name])
        return seat["policy"] in (self.policies or (seat["policy"],)) and seat["role"] in (
            self.roles or (seat["role"],)
        )

    def check_met(self) -> None:
        """ConfigError, once all was read, for a policy or role that nobody had."""
        for name, asked in (("policy", self.policies), ("role", self.roles)):
            met = sorted(self._seen[name])
            if met and (unknown := [one for one in asked if one not in met]):
                raise ConfigError(
                    f"--{name} {unknown[0]}: nobody had it{nearest(unknown[0], met)} (there are: {', '.join(met)})"
                )
