"""State of a workspace (files, tickets, meetings), and the score of a difference between two states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri"]
DAYS: tuple[Day, ...] = ("Mon", "Tue", "Wed", "Thu", "Fri")
HOURS = range(9, 17)
"""Full hours at which a meeting can begin; each takes one."""
Key = tuple[str, str | int]
"""Kind of a record (`file`, `ticket`, `meeting`), and its path, number or, if it is new, content."""


@dataclass
class Ticket:
    """A ticket: whose it is, its title and its age in days."""

    owner: str
    title: str
    days: int
    status: Literal["open", "closed"] = "open"
    assignee: str = ""
    comments: list[str] = field(default_factory=list)


@dataclass
class Meeting:
    """A meeting of one hour with a person."""

    person: str
    day: Day
    hour: int


@dataclass
class State:
    """All records of a workspace: texts by path, tickets and meetings by number, and the known people."""

    people: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)

    def records(self, known: State) -> dict[Key, object]:
        """Return the content of each record.

        Tickets and meetings that the state `known` lacks are named by their content, so that their numbers, which
        depend on the order of calls, make no difference.
        """
        found: dict[Key, object] = {("file", path): text for path, text in self.files.items()}
        kinds: Mapping[str, tuple[Mapping[int, object], Mapping[int, object]]] = {
            "ticket": (self.tickets, known.tickets), "meeting": (self.meetings, known.meetings)
        }  # fmt: skip
        for kind, (own, old) in kinds.items():
            new: Counter[str] = Counter()
            for number, record in own.items():
                content = repr(record)
                new[content] += number not in old
                found[kind, number if number in old else f"new {content} {new[content]}"] = content
        return found

    def is_free(self, day: Day, hour: int) -> bool:
        """Return True if no meeting begins at this hour."""
        return all((one.day, one.hour) != (day, hour) for one in self.meetings.values())


@dataclass(frozen=True)
class Difference:
    """Comparison of an end state with the wanted one, in records."""

    needed: int
    """Records that had to change, appear or go."""
    right: int
    """Those of them that are as wanted."""
    collateral: int
    """Other records that changed, too."""

    @property
    def share(self) -> float:
        """Right records less collateral ones, as a share of those needed, at least 0. 1 if the states are equal."""
        return max(0.0, (self.right - self.collateral) / self.needed) if self.needed else 0.0

    @property
    def is_equal(self) -> bool:
        """Whether both states are equal."""
        return self.right == self.needed and not self.collateral


def compare(start: State, wanted: State, end: State) -> Difference:
    """Compare the state `end`, which was reached from `start`, with the wanted state."""
    before, due, after = (state.records(start) for state in (start, wanted, end))
    needed = {key for key in before.keys() | due.keys() if before.get(key) != due.get(key)}
    others = (before.keys() | after.keys()) - needed
    return Difference(
        needed=len(needed),
        right=sum(after.get(key) == due.get(key) for key in needed),
        collateral=sum(after.get(key) != before.get(key) for key in others),
    )
