"""State of a workspace (files, tickets, meetings), and comparison of a final state with a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri"]
DAYS: tuple[Day, ...] = ("Mon", "Tue", "Wed", "Thu", "Fri")
HOURS = range(9, 17)
"""Hours at which a meeting can begin; each lasts one hour."""
Key = tuple[str, str | int]
"""Kind of a record (`file`, `ticket`, `meeting`), and its path, its number or, for a new record, its content."""


@dataclass
class Ticket:
    """Ticket with its owner, its title and its age in days."""

    owner: str
    title: str
    days: int
    status: Literal["open", "closed"] = "open"
    assignee: str = ""
    comments: list[str] = field(default_factory=list)


@dataclass
class Meeting:
    """Meeting of one hour with a person."""

    person: str
    day: Day
    hour: int


@dataclass
class State:
    """State of a workspace: texts of files by path, tickets and meetings by number, and the known people."""

    people: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)

    def records(self, known: State) -> dict[Key, object]:
        """Return the contents of all records by key.

        Tickets and meetings that the state `known` lacks are keyed by their content instead of their number, because
        numbers depend on the order of calls.
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
        return all((meeting.day, meeting.hour) != (day, hour) for meeting in self.meetings.values())


@dataclass(frozen=True)
class Difference:
    """Difference between a final state and the target, as numbers of records."""

    needed: int
    """Number of records that had to be changed, created or deleted."""
    right: int
    """Number of these records that are as in the target."""
    collateral: int
    """Number of other records that changed."""

    @property
    def share(self) -> float:
        """Score (right − collateral) / needed, at least 0; 0 if no record had to change."""
        return max(0.0, (self.right - self.collateral) / self.needed) if self.needed else 0.0

    @property
    def is_equal(self) -> bool:
        """True if the final state equals the target."""
        return self.right == self.needed and not self.collateral


def compare(start: State, target: State, end: State) -> Difference:
    """Compare the final state `end`, reached from `start`, with `target`."""
    before, due, after = (state.records(start) for state in (start, target, end))
    needed = {key for key in before.keys() | due.keys() if before.get(key) != due.get(key)}
    others = (before.keys() | after.keys()) - needed
    return Difference(
        needed=len(needed),
        right=sum(after.get(key) == due.get(key) for key in needed),
        collateral=sum(after.get(key) != before.get(key) for key in others),
    )
