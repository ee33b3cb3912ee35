"""Tasks of a workspace: templates of steps, each about one person, and the calls that carry them out.

A step's plan is a function that makes calls and reads their results, so it works in any state after earlier steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from simulators.workspace.apps import READS, Apps
from simulators.workspace.state import DAYS, HOURS, Day, State

Do = Callable[..., Any]
"""Function `do(tool, **arguments)` that makes a call and returns its result."""
TITLES = ("printer", "login", "invoice", "keyboard", "phone", "licence", "backup", "screen")
TITLES_TERSE = ("p", "l", "i", "k")
REMARKS = ("seen", "waiting", "urgent", "call back")


class Call(NamedTuple):
    """Tool call of a plan: the tool's full name and the arguments."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def is_write(self) -> bool:
        """True if the call changes the state."""
        return self.tool not in READS


class Step(NamedTuple):
    """Step of a task: its description, a short form for tiny models, and the plan that carries it out."""

    words: str
    short: str
    plan: Callable[[Do], None]


class Folders(NamedTuple):
    """Names of the folders of a workspace."""

    inbox: str = "inbox"
    archive: str = "archive"
    notes: str = "notes"


TERSE_FOLDERS = Folders("i", "o", "n")


class Draft(NamedTuple):
    """Input of a template: the match's random generator, the initial state, and whether texts are terse."""

    rng: np.random.Generator
    state: State
    terse: bool

    @property
    def folders(self) -> Folders:
        """Names of the folders."""
        return TERSE_FOLDERS if self.terse else Folders()

    def draw(self, elements: Any) -> Any:
        """Return a random element."""
        return elements[int(self.rng.integers(len(elements)))]

    def day(self) -> Day:
        """Return a random day."""
        return DAYS[int(self.rng.integers(len(DAYS)))]


def _find_oldest(do: Do, person: str) -> int:
    """Return the number of the person's oldest open ticket."""
    return int(max(do("find_tickets", owner=person, status="open"), key=lambda row: row["days"])["id"])


def _plan_close(draft: Draft, person: str) -> Step:
    tickets = [ticket for ticket in draft.state.tickets.values() if ticket.owner == person and ticket.status == "open"]
    ages = sorted(ticket.days for ticket in tickets)
    min_age = ages[-1] - 1 if len(ages) < 2 else int(draft.rng.integers(ages[0], ages[-1]))

    def plan(do: Do) -> None:
        for row in do("find_tickets", owner=person, status="open"):
            if row["days"] > min_age:
                do("close_ticket", ticket=row["id"])

    return Step(
        f"close every ticket of {person} that is older than {min_age} days", f"end {person} over {min_age}", plan
    )


def _plan_assign(draft: Draft, person: str) -> Step:
    other = draft.draw([name for name in draft.state.people if name != person])

    def plan(do: Do) -> None:
        do("assign_ticket", ticket=_find_oldest(do, person), person=other)

    return Step(f"assign {person}'s oldest open ticket to {other}", f"give {person} to {other}", plan)


def _plan_comment(draft: Draft, person: str) -> Step:
    remark = draft.draw(REMARKS)
    text = remark[0] if draft.terse else remark

    def plan(do: Do) -> None:
        do("comment_ticket", ticket=_find_oldest(do, person), text=text)

    return Step(f'comment "{text}" on {person}\'s oldest open ticket', f"say {text} to {person}", plan)


def _plan_create(draft: Draft, person: str) -> Step:
    title = draft.draw(TITLES_TERSE if draft.terse else TITLES)

    def plan(do: Do) -> None:
        do("create_ticket", owner=person, title=title)

    return Step(f'create a ticket for {person} with the title "{title}"', f"new {person} {title}", plan)


def _plan_intake(draft: Draft, person: str) -> Step:
    path = f"{draft.folders.inbox}/{person}"

    def plan(do: Do) -> None:
        do("create_ticket", owner=person, title=do("read_file", path=path))

    return Step(f"create a ticket for {person} whose title is the text of {path}", f"new {person} of {path}", plan)


def _plan_count(draft: Draft, person: str) -> Step:
    path = f"{draft.folders.notes}/{person}"

    def plan(do: Do) -> None:
        do("write_file", path=path, text=str(len(do("find_tickets", owner=person, status="open"))))

    return Step(f"write the number of {person}'s open tickets into {path}", f"total {person} in {path}", plan)


def _plan_archive(draft: Draft, person: str) -> Step:
    path, to = f"{draft.folders.inbox}/{person}", f"{draft.folders.archive}/{person}"
    return Step(f"move the file {path} to {to}", f"mv {path} {to}", lambda do: do("move_file", path=path, to=to))


def _plan_delete(draft: Draft, person: str) -> Step:
    path = f"{draft.folders.inbox}/{person}"
    return Step(f"delete the file {path}", f"rm {path}", lambda do: do("delete_file", path=path))


def _find_meeting(do: Do, person: str) -> int:
    """Return the number of the person's first meeting."""
    return int(do("list_meetings", person=person)[0]["id"])


def _plan_move(draft: Draft, person: str) -> Step:
    """Return a step that moves a meeting to a given hour if that is free, and else to the next hour.

    Half of the time, the given hour is taken by another person's meeting in the initial state.
    """
    day, hour = draft.day(), int(draft.rng.integers(HOURS[0], HOURS[-1]))
    others = [other for other in draft.state.meetings.values() if other.person != person and other.hour < HOURS[-1]]
    if others and draft.rng.random() < 0.5:
        other = draft.draw(others)
        day, hour = other.day, other.hour

    def plan(do: Do) -> None:
        number = _find_meeting(do, person)
        do("move_meeting", meeting=number, day=day, hour=hour if hour in do("free_hours", day=day) else hour + 1)

    return Step(
        f"move the meeting with {person} to {day} {hour}:00 if that hour is free, else to {hour + 1}:00",
        f"move {person} {day} {hour} or {hour + 1}", plan,
    )  # fmt: skip


def _plan_cancel(draft: Draft, person: str) -> Step:
    def plan(do: Do) -> None:
        do("cancel_meeting", meeting=_find_meeting(do, person))

    return Step(f"cancel the meeting with {person}", f"drop {person}", plan)


def _plan_book(draft: Draft, person: str) -> Step:
    day = draft.draw([meeting.day for meeting in draft.state.meetings.values()])

    def plan(do: Do) -> None:
        do("book_meeting", person=person, day=day, hour=do("free_hours", day=day)[0])

    return Step(f"book a meeting with {person} at the first free hour of {day}", f"book {person} {day}", plan)


TEMPLATES: Mapping[str, Callable[[Draft, str], Step]] = {
    "close": _plan_close, "assign": _plan_assign, "comment": _plan_comment, "create": _plan_create,
    "intake": _plan_intake, "count": _plan_count,
    "archive": _plan_archive, "delete": _plan_delete, "move": _plan_move, "cancel": _plan_cancel, "book": _plan_book,
}  # fmt: skip
"""Templates of steps by name. The person must have an open ticket, a file in the inbox and a meeting."""


def solve(steps: list[Step], apps: Apps) -> list[Call]:
    """Carry out the steps and return their calls. Raises ValueError for a step that fails or changes nothing."""
    calls: list[Call] = []

    def do(tool: str, **arguments: Any) -> Any:
        calls.append(Call(tool, arguments))
        return getattr(apps, tool)(**arguments)

    for step in steps:
        before = copy.deepcopy(apps.state)
        step.plan(do)
        if apps.state == before:
            raise ValueError(f"nothing changes: {step.words}")
    return calls


def shuffle_numbers(rng: np.random.Generator, low: int, high: int) -> Iterator[int]:
    """Return an iterator over the integers from `low` to below `high` in random order."""
    return iter(int(number) for number in rng.permutation(np.arange(low, high)))
