"""Files, tickets and calendar of a workspace as typed tools, which return data or raise ValueError to refuse a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from games.base import to_one_line
from simulators.tools import Tool
from simulators.workspace.state import HOURS, Day, Meeting, State, Ticket

PATH = re.compile(r"[\w-][\w.-]{0,39}(/[\w-][\w.-]{0,39}){0,2}")
MAX_RECORDS = 60
"""Maximum number of files, and of tickets; also of a ticket's comments."""
TEXT_LENGTH, TITLE_LENGTH = 400, 60
SHORT: Mapping[str, str] = {
    "list_files": "ls", "read_file": "read", "write_file": "write", "move_file": "mv", "delete_file": "rm",
    "find_tickets": "find", "show_ticket": "show", "create_ticket": "new", "assign_ticket": "give",
    "close_ticket": "end", "comment_ticket": "say", "list_meetings": "meet", "free_hours": "free",
    "book_meeting": "book", "move_meeting": "move", "cancel_meeting": "drop", "done": "done",
}  # fmt: skip
"""Short name of each tool, for tiny models."""
READS = ("list_files", "read_file", "find_tickets", "show_ticket", "list_meetings", "free_hours")
"""Tools that change nothing."""


class Apps:
    """Tools that read and change a state. `shown_values` collects the numbers, paths and texts that they returned."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.shown_values: set[int | str] = set()

    # Files.

    def list_files(self, folder: str = "") -> list[str]:
        """List the paths of all files, or of those in a folder."""
        inside = f"{folder.rstrip('/')}/" if folder else ""
        paths = sorted(path for path in self.state.files if path.startswith(inside))
        self.shown_values.update(paths)
        return paths

    def read_file(self, path: str) -> str:
        """Return the text of a file."""
        text = self._require_file(path)
        self.shown_values.update((path, text))
        return text

    def write_file(self, path: str, text: str) -> str:
        """Write a text to a file, new or not."""
        if len(self.state.files) >= MAX_RECORDS and path not in self.state.files:
            raise ValueError(f"there are {MAX_RECORDS} files already")
        self.state.files[_check_path(path)] = to_one_line(text, TEXT_LENGTH)
        return "ok"

    def move_file(self, path: str, to: str) -> str:
        """Move a file to another path, where no file is."""
        text = self._require_file(path)
        if to in self.state.files:
            raise ValueError(f"there is a file {to} already")
        self.state.files[_check_path(to)] = text
        del self.state.files[path]
        return "ok"

    def delete_file(self, path: str) -> str:
        """Delete a file."""
        self._require_file(path)
        del self.state.files[path]
        return "ok"

    def _require_file(self, path: str) -> str:
        if path not in self.state.files:
            raise ValueError(f"there is no file {to_one_line(path, 60)}")
        return self.state.files[path]

    # Tickets.

    def find_tickets(
        self, owner: str | None = None, status: Literal["open", "closed"] | None = None
    ) -> list[dict[str, Any]]:
        """Find tickets, of an owner or of all, with a status or any; days is their age."""
        if owner is not None:
            self._require_person(owner)
        found = {
            number: ticket
            for number, ticket in self.state.tickets.items()
            if owner in (None, ticket.owner) and status in (None, ticket.status)
        }
        self.shown_values.update(found)
        return [_make_row(number, ticket) for number, ticket in found.items()]

    def show_ticket(self, ticket: int) -> dict[str, Any]:
        """Show a ticket with its comments."""
        found = self._require_ticket(ticket)
        self.shown_values.add(ticket)
        return {**_make_row(ticket, found), "comments": list(found.comments)}

    def create_ticket(self, owner: str, title: str) -> int:
        """Create a ticket for an owner, and return its number."""
        self._require_person(owner)
        if len(self.state.tickets) >= MAX_RECORDS or not title.strip():
            raise ValueError("a ticket needs a title" if not title.strip() else "there are too many tickets")
        number = max(self.state.tickets, default=0) + 1
        self.state.tickets[number] = Ticket(owner, to_one_line(title, TITLE_LENGTH), 0)
        self.shown_values.add(number)
        return number

    def assign_ticket(self, ticket: int, person: str) -> str:
        """Assign a ticket to a person."""
        self._require_person(person)
        self._require_ticket(ticket).assignee = person
        return "ok"

    def close_ticket(self, ticket: int) -> str:
        """Close an open ticket."""
        found = self._require_ticket(ticket)
        if found.status == "closed":
            raise ValueError(f"ticket {ticket} is closed already")
        found.status = "closed"
        return "ok"

    def comment_ticket(self, ticket: int, text: str) -> str:
        """Add a comment to a ticket."""
        found = self._require_ticket(ticket)
        if len(found.comments) >= MAX_RECORDS:
            raise ValueError(f"ticket {ticket} has too many comments")
        found.comments.append(to_one_line(text, TEXT_LENGTH))
        return "ok"

    def _require_ticket(self, number: int) -> Ticket:
        if number not in self.state.tickets:
            raise ValueError(f"there is no ticket {str(number)[:20]}")
        return self.state.tickets[number]

    def _require_person(self, name: str) -> None:
        if name not in self.state.people:
            raise ValueError(f"there is no person called {to_one_line(name, 40)}")

    # Calendar.

    def list_meetings(self, person: str | None = None, day: Day | None = None) -> list[dict[str, Any]]:
        """List meetings, with a person or all, on a day or all."""
        if person is not None:
            self._require_person(person)
        found = {
            number: meeting
            for number, meeting in self.state.meetings.items()
            if person in (None, meeting.person) and day in (None, meeting.day)
        }
        self.shown_values.update(found)
        return [{"id": number, **vars(meeting)} for number, meeting in found.items()]

    def free_hours(self, day: Day) -> list[int]:
        """List the hours of a day at which no meeting begins."""
        return [hour for hour in HOURS if self.state.is_free(day, hour)]

    def book_meeting(self, person: str, day: Day, hour: int) -> int:
        """Book a meeting at a free hour, and return its number."""
        self._require_person(person)
        self._require_free(day, hour)
        number = max(self.state.meetings, default=0) + 1
        self.state.meetings[number] = Meeting(person, day, hour)
        self.shown_values.add(number)
        return number

    def move_meeting(self, meeting: int, day: Day, hour: int) -> str:
        """Move a meeting to a free hour."""
        found = self._require_meeting(meeting)
        self._require_free(day, hour)
        found.day, found.hour = day, hour
        return "ok"

    def cancel_meeting(self, meeting: int) -> str:
        """Cancel a meeting."""
        self._require_meeting(meeting)
        del self.state.meetings[meeting]
        return "ok"

    def _require_meeting(self, number: int) -> Meeting:
        if number not in self.state.meetings:
            raise ValueError(f"there is no meeting {str(number)[:20]}")
        return self.state.meetings[number]

    def _require_free(self, day: Day, hour: int) -> None:
        if hour not in HOURS:
            raise ValueError(f"meetings begin at {HOURS[0]} to {HOURS[-1]}")
        if not self.state.is_free(day, hour):
            raise ValueError(f"{day} {hour} is not free")

    def done(self) -> str:
        """Say that the task is done."""
        return "ok"


def list_tools(apps: Apps, terse: bool = False) -> list[Tool]:
    """Return the tools of the apps. With `terse` they have short names and brief results (`format_briefly`)."""
    full = [Tool.of(getattr(apps, name)) for name in SHORT]
    return [_shorten(tool) for tool in full] if terse else full


def _shorten(tool: Tool) -> Tool:
    name, function = SHORT[tool.name], tool.function
    signature = tool.shape.signature.replace(tool.name, name, 1)
    shape = replace(tool.shape, name=name, signature=signature)
    return Tool(shape, lambda **arguments: format_briefly(function(**arguments)))


def format_briefly(data: object) -> str:
    """Return a tool's result in few tokens: the values of a record, records separated by `;`, `-` for none."""
    if isinstance(data, Mapping):
        return " ".join(format_briefly(value) for value in data.values() if value not in ("", []))
    if isinstance(data, Sequence) and not isinstance(data, str):
        return "; ".join(map(format_briefly, data)) or "-"
    return str(data)


def _check_path(path: str) -> str:
    """Return a file's path. Raises ValueError if it is invalid."""
    if not PATH.fullmatch(path):
        raise ValueError("a path is like notes/open.txt")
    return path


def _make_row(number: int, ticket: Ticket) -> dict[str, Any]:
    return {
        "id": number, "owner": ticket.owner, "title": ticket.title, "status": ticket.status, "days": ticket.days,
        "assignee": ticket.assignee,
    }  # fmt: skip
