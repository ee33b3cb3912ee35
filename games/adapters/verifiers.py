"""Environments of Prime Intellect's verifiers as single-agent games, run and scored in a child process."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from games.adapters import verifiers_child
from games.adapters.child import Child, ChildError
from games.adapters.foreign import SingleAgentGame, sanitise, shorten, split_options
from games.adapters.modules import require_allowed
from games.adapters.named import split_settings
from games.base import ACTION_LENGTH, IllegalAct, choice, to_one_line, whole_number
from games.calls import read_calls
from games.contracts import REFEREE, TOOL
from games.untrusted_json import decode_text

REWARD = "reward"
PYTHON = "ARENA_VERIFIERS_PYTHON"
"""Environment variable with the path of a Python that has verifiers. Defaults to Arena's Python."""
START_SECONDS, STEP_SECONDS = 300.0, 600.0
PROMPT_LENGTH = 16_000
MAX_CALLS = 8
ID = re.compile(r"[\w./-]+")
MODULE = re.compile(r"[\w.]+:\w+")
_CHILDREN: dict[tuple[int, str, str, str], Child] = {}
_SIZES: dict[tuple[int, str, str, str], dict[str, int]] = {}
_STARTING = threading.Lock()


def parse_name(name: str) -> tuple[str, dict[str, Any]]:
    """Split a name such as `wordle(num_train_examples=50)` or `module:callable(…)` into id and settings.

    Raises ValueError, in one line, for another form, or if no Python with verifiers is found.
    """
    id, settings = split_settings(name)
    if not (ID.fullmatch(id) or MODULE.fullmatch(id)):
        raise ValueError(f"'{to_one_line(id, 80)}' is no environment: write verifiers:ID or verifiers:MODULE:CALLABLE")
    require_allowed(f"verifiers:{id}")
    python = os.environ.get(PYTHON)
    if python and not Path(python).is_file():
        raise ValueError(f"{PYTHON} names no file: {to_one_line(python)}")
    if not python and importlib.util.find_spec("verifiers") is None:
        raise ValueError(
            f"verifiers:{to_one_line(id, 80)} needs verifiers in a Python without Arena: python -m venv V; "
            f"V/bin/pip install 'verifiers<0.2'; export {PYTHON}=$PWD/V/bin/python"
        )
    return id, settings


def start_process(id: str, settings: Mapping[str, Any]) -> tuple[Child, dict[str, int]]:
    """Return the child process of an environment, started if necessary, and the numbers of data rows by split.

    The environment's matches share the process. Raises ChildError if the environment cannot be loaded.
    """
    key = _make_key(id, settings)
    with _STARTING:
        child = _CHILDREN.get(key)
        if child is None or not child.is_alive:
            if child is not None:
                child.close()  # ends the processes that it started
            child = Child(key[1], verifiers_child, f"the process of verifiers:{id}")
            _SIZES[key] = child.ask({"load": id, "settings": dict(settings)}, START_SECONDS)
            _CHILDREN[key] = child
        return child, _SIZES[key]


def count_rows(id: str, settings: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of an environment's data rows by split. Raises ChildError if it cannot be loaded.

    They are cached, so that creating a game does not fail if the environment's process has just ended.
    """
    key = _make_key(id, settings)
    return _SIZES[key] if key in _SIZES else start_process(id, settings)[1]


def _make_key(id: str, settings: Mapping[str, Any]) -> tuple[int, str, str, str]:
    """Return the key of an environment's process: this process's id, the Python, the name and the settings."""
    python = os.environ.get(PYTHON) or sys.executable
    return os.getpid(), python, id, json.dumps(settings, sort_keys=True, default=str)


class Rollout:
    """Rollout in a child process, with its first request and the replies so far, from which it can be repeated."""

    numbers = itertools.count(1)

    def __init__(self, child: Child, first_request: Mapping[str, Any]) -> None:
        self.child, self.first_request = child, dict(first_request)
        self.replies: list[dict[str, Any]] = []
        self.number = next(self.numbers)
        self.is_over = False

    def begin(self) -> dict[str, Any]:
        """Start the rollout and return the child's answer, such as the first messages and tools."""
        return self._ask(self.first_request)

    def reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Send a reply and return the child's answer, such as the next messages and tools, or the final rewards."""
        answer = self._ask({"reply": reply})
        self.replies.append(reply)
        return answer

    def replay(self) -> Rollout:
        """Return a new rollout in which the same replies were repeated."""
        copied = Rollout(self.child, self.first_request)
        if self.is_over:
            copied.is_over = True
            return copied
        copied.begin()
        for reply in self.replies:
            copied.reply(reply)
        return copied

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.child.ask({"rollout": self.number, **request}, STEP_SECONDS)
        self.is_over = bool(answer.get("done"))
        return answer

    def drop(self) -> None:
        """Discard the rollout in the process. Kills the process if an answer is pending, as after a turn's timeout."""
        if self.child.owner == self.number:
            self.child.close()
        elif not self.is_over and self.child.is_alive:
            self.is_over = True
            self.child.discard_rollout(self.number)

    def __del__(self) -> None:
        self.drop()


class Verifiers(SingleAgentGame):
    """Single-agent game in the verifiers environment `env`: its id, or `module:callable`, with settings in brackets.

    The seed selects a row of the data set of the `split`, "train" or "test" (the evaluation set). The environment's own
    rollout loop and rubric run in a child process; an act takes the place of the model's reply. If the environment has
    tools, an act may be tool calls as JSON, in <tool_call> marks, or as Python. Options besides those of TextGame and
    the environment: max_turns (default 32), after which the rollout ends as if its prompt were too long. Reward part
    "reward": the rubric's weighted sum, at the end.
    """

    name = "verifiers"
    library = "verifiers"
    blocks = True
    whole_acts = True
    metadata: ClassVar[dict[str, Any]] = {"name": "verifiers_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {REWARD: "the rubric's weighted sum, at the end"}

    def __init__(
        self, env: str, *, split: Literal["train", "test"] = "train", max_turns: int = 32, **options: Any
    ) -> None:
        self.id, settings = parse_name(env)
        others, shared = split_options(options)
        self.settings = settings | others
        self.split = choice("split", split, "train", "test")
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=1000)
        super().__init__(env, **shared)
        try:
            sizes = count_rows(self.id, self.settings)
        except ChildError as error:
            raise ValueError(f"verifiers:{to_one_line(self.id, 80)} cannot be loaded: {error}") from None
        if not sizes[self.split]:
            raise ValueError(f"verifiers:{self.id} has no rows in the split {self.split}")

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Start a rollout of a row drawn with `rng`, and show its prompt."""
        child, sizes = start_process(self.id, self.settings)
        self.row = int(rng.integers(sizes[self.split]))
        self.reward, self.metrics, self.stopped = 0.0, dict[str, float](), ""
        self._prompt, self._calls = "", 0
        self.env = Rollout(child, {"split": self.split, "row": self.row, "seed": int(rng.integers(2**32))})
        self._read(self.env.begin())

    def rules(self) -> str:
        """Return how to act. The environment explains the task to the agent."""
        how = " To call tools, write only the calls, as name(argument=value) or as JSON." if self._tools else ""
        return f"{self.title}, by the rules of {self.library}.{how}"

    def public(self) -> dict[str, Any]:
        """Return `turns_left`, the number of acts before the match is cut."""
        return {"turns_left": self.max_turns - self.turns}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the environment's system prompt as `prompt`, and its `tools`. Each is left out if there is none."""
        facts = {"prompt": self._prompt} if self._prompt else {}
        return {**facts, "tools": describe_tools(self._tools)} if self._tools else facts

    def definitions(self, seat: str) -> list[dict[str, Any]]:
        """Return the tools in the format of OpenAI's API."""
        return [
            {"type": "function", "function": {key: tool[key] for key in ("name", "description", "parameters")}}
            for tool in self._tools
        ]

    def play(self, seat: str, act: str) -> str:
        """Send the act as the model's reply, and return it in one line.

        Raises IllegalAct for an empty reply or malformed calls.
        """
        text = sanitise(act.encode("utf-8", "replace").decode("utf-8"))
        if not text.strip():
            raise IllegalAct("write a reply")
        calls = [self._number_call(*call) for call in parse_calls(text, self._tools)] if self._tools else []
        self._read(self.env.reply({"text": "" if calls else text, "calls": calls}))
        if not self.env.is_over and self.turns + 1 >= self.max_turns:
            self._read(self.env.reply({"stop": True, "text": ""}))
        if self.env.is_over:
            self.pay(seat, REWARD, self.reward)
            self.end("turns" if self.stopped == "prompt_too_long" else "over", "The match is over.")
        return to_one_line(text, ACTION_LENGTH)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `faults`, `reward`, the rubric's functions as `metric_…`, `row`, and `stopped`, the stop reason."""
        metrics = {f"metric_{name}": value for name, value in self.metrics.items()}
        facts = {"row": str(self.row), "stopped": self.stopped}
        return {**super().figures(), REWARD: self.reward, **metrics, **facts}

    def copy_env(self) -> Any:
        """Return a new rollout in which the same replies were repeated."""
        return None if self.env is None else self.env.replay()

    def close(self) -> None:
        """Discard the rollout in the child process."""
        if self.env is not None:
            self.env.drop()

    def _read(self, answer: Mapping[str, Any]) -> None:
        """Send the agent the new messages of an answer. At the end, store the rubric's results."""
        self._tools: list[dict[str, Any]] = [] if answer.get("done") else list(answer["tools"])
        for message in answer["messages"]:
            text = shorten(sanitise(str(message["text"])), PROMPT_LENGTH)
            if message["role"] == "system":
                self._prompt = text
            elif text and message["role"] != "assistant":
                self.tell(text, sender=TOOL if message["role"] == "tool" else REFEREE)
        if answer.get("done"):
            self.reward, self.metrics = float(answer["reward"]), dict(answer["metrics"])
            self.stopped = to_one_line(str(answer["stop"]))

    def _number_call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        self._calls += 1
        return {"id": f"call_{self._calls}", "name": name, "arguments": json.dumps(arguments)}


def describe_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return one line of text per tool, with its name, parameters and description."""
    return "\n".join(
        f"{tool['name']}({', '.join(_describe_parameters(tool))}): {to_one_line(tool['description'])}" for tool in tools
    )


def _describe_parameters(tool: Mapping[str, Any]) -> list[str]:
    """Return a text per parameter of a tool: its name, "?" if it is optional, and its type."""
    schema = tool["parameters"]
    required = schema.get("required", ())
    return [
        f"{to_one_line(name, 64)}{'' if name in required else '?'}: {to_one_line(str(value.get('type', 'any')), 64)}"
        for name, value in schema.get("properties", {}).items()
    ]


def parse_calls(text: str, tools: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the tool calls of a reply as pairs of name and named arguments, or [] if it is plain text.

    Positional arguments are assigned to the tool's parameters in order. Raises IllegalAct, with the reason, for
    malformed calls.
    """
    calls = []
    for call in read_calls(text, MAX_CALLS):
        parameters: Mapping[str, Any] = next(
            (tool["parameters"].get("properties", {}) for tool in tools if tool["name"] == call.name), {}
        )
        if call.problem or len(call.positional) > len(parameters):
            raise IllegalAct(f"the call cannot be read: {to_one_line(call.problem or 'it has too many arguments')}")
        arguments = dict(zip(parameters, call.positional, strict=False)) | dict(call.arguments)
        if call.as_text:
            arguments = {
                name: text if _is_string(parameters.get(name)) else decode_text(text)
                for name, text in arguments.items()
            }
        calls.append((call.name[:64], arguments))
    return calls


def _is_string(parameter: Any) -> bool:
    return isinstance(parameter, Mapping) and parameter.get("type") == "string"
