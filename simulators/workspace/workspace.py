"""Game of one agent that carries out a task in words by tool calls to three apps (after ARTIST)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, flag, whole_number
from games.contracts import TOOL
from simulators.base import Script, Simulator
from simulators.tools import Tool, describe, read_calls, run
from simulators.workspace import players, tasks
from simulators.workspace.apps import SHORT, Apps, list_tools
from simulators.workspace.state import HOURS, Difference, compare
from simulators.workspace.world import LETTERS, NAMES, draw_state

AGENT = "agent"
STATE, CALLS, INVALID = "state", "calls", "invalid"
WEIGHTS: Mapping[str, float] = {STATE: 0.8, CALLS: 0.2}
"""Payoff for reaching the wanted state, and for calling all required functions."""
COST, MAX_COST = 0.05, 0.25
"""Cost of an invalid call, and the maximum cost per match."""
ERROR = "Error: "


class Workspace(Simulator):
    """Game of one agent with tools over files, tickets and a calendar. Acts: up to four tool calls, or `done`.

    A task has 1 to `steps` steps in words, each from a template about a person. The match ends with `done` (as a word
    or call) or after `max_turns` acts. Options in addition to Simulator's: steps, 1 to 3; terse, for tiny models: short
    names of tools, texts and results, people named by letters; max_turns.

    Reward parts at the end: `state`, 0.8 × (needed records that are as wanted - other changed records) / needed
    records, at least 0, where needed records are those that had to change; `calls`, 0.2 × the share of required
    functions that were called without an error. During play: `invalid`, -0.05 for each call that returns an error, at
    most -0.25 per match. Success means that the wanted state was reached. The split is by pairs of template and person.
    """

    name = "workspace"
    seats = (AGENT,)
    whole_acts = True
    stakes = MAX_COST
    metadata: ClassVar[dict[str, Any]] = {"name": "workspace_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        STATE: "records as they should be", CALLS: "required functions were called", INVALID: "a call failed",
    }  # fmt: skip
    players: Mapping[str, Callable[[Workspace, int], Script]] = players.PLAYERS

    def __init__(self, *, steps: int = 2, terse: bool = False, max_turns: int | None = None, **options: Any) -> None:
        self.steps, self.terse = whole_number("steps", steps, 1, 3), flag("terse", terse)
        self.max_turns = whole_number("max_turns", 8 * self.steps if max_turns is None else max_turns, 1, 100)
        super().__init__(talk=False, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the steps' templates and people, a workspace with these and other people, and the wanted state."""
        count = int(rng.integers(1, self.steps + 1))
        while True:
            pairs = self._draw_pairs(rng, count)
            others = [name for name in self._names if name not in {person for _, person in pairs}]
            more = rng.choice(others, size=max(1, 3 - count) if self.terse else 4, replace=False).tolist()
            people = [str(name) for name in rng.permutation([person for _, person in pairs] + more)]
            start = draw_state(rng, people, self.terse)
            draft = tasks.Draft(rng, start, self.terse)
            steps = [tasks.TEMPLATES[template](draft, person) for template, person in pairs]
            target = Apps(copy.deepcopy(start))
            try:
                self.solution = tasks.solve(steps, target)
            except ValueError:  # these steps cannot be combined in this state
                continue
            break
        self.templates = [template for template, _ in pairs]
        self.task = (
            "; ".join(step.short for step in steps) if self.terse else _write_sentence([step.words for step in steps])
        )
        self.start, self.target, self.apps = start, target.state, Apps(copy.deepcopy(start))
        self.required = {call.tool for call in self.solution if call.tool != "free_hours"}
        self._called_functions: set[str] = set()
        self._calls = self._errors = 0

    @property
    def _names(self) -> tuple[str, ...]:
        return LETTERS if self.terse else NAMES

    def _draw_pairs(self, rng: np.random.Generator, count: int) -> list[tuple[str, str]]:
        """Draw `count` pairs of template and person of the split, with different templates and people."""
        found: list[tuple[str, str]] = []
        while len(found) < count:
            pair = self.draw_entity(
                lambda: (str(rng.choice(list(tasks.TEMPLATES))), str(rng.choice(self._names))), " ".join
            )
            if all(pair[0] != other[0] and pair[1] != other[1] for other in found):
                found.append(pair)
        return found

    def rules(self) -> str:
        """Return the rules: the tools and how to call them; one sentence in terse mode."""
        if self.terse:
            return f"Call {' '.join(SHORT.values())}."
        return (
            "You have files, tickets and a calendar, and a task. Change what it asks for and nothing else. Write one "
            'tool call at a time, as name(argument="value") or in your own format, and read its result. '
            f"Meetings begin at full hours from {HOURS[0]} to {HOURS[-1]}. A call that fails costs. When all is done, "
            f"write done. {self.max_turns} acts in all. Tools:\n{describe(self._tools())}"
        )

    def _tools(self) -> list[Tool]:
        return list_tools(self.apps, self.terse)

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of the tools, none in terse mode."""
        return () if self.terse else [tool.definition for tool in self._tools()]

    def public(self) -> dict[str, Any]:
        """Return the `task` in words and `left`, the number of remaining acts."""
        return {"task": self.task, "left": self.max_turns - self.turns}

    def legal(self, seat: str) -> list[str]:
        """Return some legal acts: `done`, reads, and calls on shown numbers and paths. There are many others."""
        calls = [tasks.Call(name, {}) for name in ("list_files", "find_tickets", "list_meetings")]
        for key in sorted(self.apps.shown_values, key=str):
            if isinstance(key, int):
                calls += [tasks.Call("close_ticket", {"ticket": key})] * (key in self.apps.state.tickets)
                calls += [tasks.Call("cancel_meeting", {"meeting": key})] * (key in self.apps.state.meetings)
            elif key in self.apps.state.files:
                calls += [tasks.Call(name, {"path": key}) for name in ("read_file", "delete_file")]
        return [players.DONE, *(players.format_call(call, self.terse) for call in calls)]

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the texts of unread files, by path."""
        return {path: (text,) for path, text in self.start.files.items() if text not in self.apps.shown_values}

    def play(self, seat: str, act: str) -> str:
        """Run the tool calls of an act and send the results to the seat, or end the match. Returns "".

        Raises IllegalAct for an act that is neither calls nor `done`.
        """
        calls = read_calls(act)
        if not calls and act.strip().lower() != players.DONE:
            raise IllegalAct('write a call, such as list_files(), or "done"')
        for call in calls:
            if call.name == players.DONE and not call.problem:
                calls = []
                break
            result = run(self._tools(), call)
            self._count(seat, call.name, result)
            self.tell(result, seat, sender=TOOL)
        if not calls:
            self._finish(seat, "done")
        elif self.turns + 1 >= self.max_turns:
            self._finish(seat, "turns")
        return ""

    def _count(self, seat: str, name: str, result: str) -> None:
        """Count a call and, if it failed, make the seat pay for it."""
        self._calls += 1
        if result.startswith(ERROR):
            self._errors += 1
            if self._errors * COST <= MAX_COST:
                self.pay(seat, INVALID, -COST)
        else:
            self._called_functions.add(next(full for full, short in SHORT.items() if name in (full, short)))

    def _finish(self, seat: str, reason: str) -> None:
        self.pay(seat, STATE, WEIGHTS[STATE] * self.difference.share)
        self.pay(seat, CALLS, WEIGHTS[CALLS] * self.called_share)
        self.end(reason, "The task is done." if self.difference.is_equal else "The task is not done.")

    @property
    def difference(self) -> Difference:
        """Difference between the current state and the wanted one."""
        return compare(self.start, self.target, self.apps.state)

    @property
    def called_share(self) -> float:
        """Share of the required functions that were called without an error."""
        return len(self._called_functions & self.required) / len(self.required)

    def figures(self) -> dict[str, float | bool | str]:
        """Return figures for the report.

        `score` is the payoff, at least 0; `success` is True if the wanted state was reached. A match that ended with an
        illegal act has score 0 and no success. Also `state` (share of right records), `functions` (share of required
        functions), the numbers of `collateral` records, `tool_calls`, `invalid_calls` and `steps`, and the `templates`.
        """
        difference, ended = self.difference, self.ended in ("done", "turns")
        return {
            "score": max(0.0, self.payoffs()[AGENT]) if ended else 0.0,
            "success": ended and difference.is_equal,
            "state": difference.share,
            "functions": self.called_share,
            "collateral": difference.collateral,
            "tool_calls": self._calls,
            "invalid_calls": self._errors,
            "steps": len(self.templates),
            "templates": " ".join(self.templates),
        }

    @property
    def floor(self) -> float:
        """Success rate of the player `random`, measured over 3,000 matches per option."""
        return 0.003 if self.terse and self.steps == 1 else 0.001


def _write_sentence(steps: list[str]) -> str:
    """Join the steps into one sentence."""
    text = ", then ".join(steps)
    return f"{text[0].upper()}{text[1:]}."
