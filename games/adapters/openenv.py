"""OpenEnv's environments as single-agent games, played over the WebSocket of a local server."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from games.adapters.foreign import SingleAgentGame, sanitise, shorten
from games.adapters.modules import require_allowed
from games.adapters.openenv_server import (
    LOCAL_HOSTS,
    PYTHON,
    RequestRefused,
    ServerError,
    Session,
    action_schema,
    begin_session,
    is_url,
)
from games.base import ACTION_LENGTH, IllegalAct, to_one_line, whole_number
from games.untrusted_json import DECODER, is_too_deep

REWARD = "reward"
APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
LOCAL = re.compile(
    rf"(?:http|ws)://(?:{'|'.join(map(re.escape, LOCAL_HOSTS[:2]))}|\[::1\])(?::\d{{1,5}})?(?:/[\w./-]*)?"
)
SKIPPED = ("metadata",)
"""Fields of an action that the agent does not fill in."""
MAX_LISTED = 100


def check_name(name: str) -> str:
    """Return `name` if it is the URL of a server on this machine or an application `module:app`.

    Raises ValueError, in one line, for another form, or if a required package is missing.
    """
    if is_url(name):
        if not LOCAL.fullmatch(name):
            raise ValueError(f"openenv: supports only http:// servers on this machine, not {to_one_line(name, 80)}")
    elif not APP.fullmatch(name):
        raise ValueError(
            f"'{to_one_line(name, 80)}' is not a server: write openenv:http://127.0.0.1:8000 or MODULE:app"
        )
    require_allowed(f"openenv:{name}")
    python = os.environ.get(PYTHON)
    if python and not Path(python).is_file():
        raise ValueError(f"{PYTHON} names no file: {to_one_line(python)}")
    missing = [module for module in ("websockets",) if importlib.util.find_spec(module) is None]
    if not (is_url(name) or python) and importlib.util.find_spec("openenv") is None:
        missing.append("openenv-core")
    if missing:
        raise ValueError(
            f"openenv:{to_one_line(name, 80)} needs {' and '.join(missing)}: pip install 'arena-selfplay[openenv]', or "
            f"set {PYTHON} to a Python that has openenv-core"
        )
    return name


class OpenEnv(SingleAgentGame):
    """Single-agent game in an OpenEnv environment. `env` is the URL of a local server, or `module:app` to serve.

    An act is the action as a JSON object, or only the value if the action has a single field. An action that the server
    refuses is an illegal act. The environment receives the seed, but may ignore it. Options besides TextGame's:
    max_turns (default 100), the limit of acts. Reward part "reward": the environment's reward.
    """

    name = "openenv"
    library = "OpenEnv"
    blocks = True
    whole_acts = True
    metadata: ClassVar[dict[str, Any]] = {"name": "openenv_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {REWARD: "what the environment pays at the step"}

    def __init__(self, env: str, *, max_turns: int = 100, **options: Any) -> None:
        self.max_turns = whole_number("max_turns", max_turns, least=1, most=10_000)
        check_name(env)
        super().__init__(env, **options)
        try:
            schema = action_schema(env)
        except ServerError as error:
            raise ValueError(f"openenv:{env} cannot be played: {error}") from None
        fields = schema.get("properties", {})
        self._fields: dict[str, Any] = {
            name: field_schema for name, field_schema in fields.items() if name not in SKIPPED
        }
        self._required = [name for name in schema.get("required", ()) if name in self._fields]

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Open a session, reset it with a seed from `rng`, and show the first observation."""
        self.close()
        self._seed, self._history, self.total = int(rng.integers(2**31)), list[dict[str, Any]](), 0.0
        self.env = None
        self.env, answer = self._begin_session()
        self._show(answer)
        if answer.get("done"):
            self.end("over", "The match is over.")

    def rules(self) -> str:
        """Return how to act, including the fields of an action."""
        fields = "; ".join(
            _describe_field(name, field_schema, name in self._required) for name, field_schema in self._fields.items()
        )
        if len(self._fields) == 1:
            return f"{self.title}, by the rules of OpenEnv. Each turn write {fields}."
        return f"{self.title}, by the rules of OpenEnv. Each turn write a JSON object with {fields or 'any fields'}."

    def public(self) -> dict[str, Any]:
        """Return `turns_left`, the number of acts before the match is cut."""
        return {"turns_left": self.max_turns - self.turns}

    def legal(self, seat: str) -> list[str] | None:
        """Return the values that the schema lists if an action has a single field, else None."""
        if len(self._fields) != 1:
            return None
        (field_schema,) = self._fields.values()
        values = ["true", "false"] if field_schema.get("type") == "boolean" else field_schema.get("enum")
        if not isinstance(values, list) or not 0 < len(values) <= MAX_LISTED:
            return None
        return [value if isinstance(value, str) else json.dumps(value) for value in values]

    def play(self, seat: str, act: str) -> str:
        """Send an action and return its text in one line. Raises IllegalAct if it is malformed or refused."""
        text = act.strip().encode("utf-8", "replace").decode("utf-8")
        action = self._parse_action(text)
        try:
            answer = self.env.ask("step", action)
            reward = float(answer.get("reward") or 0.0)
        except RequestRefused as refused:
            if refused.code != "VALIDATION_ERROR":  # the environment failed, perhaps in the middle of the step
                self.faults.append(to_one_line(f"{refused.code}: {refused}"))
                self.env = self.copy_env()
            raise IllegalAct(str(refused).rstrip(".") or "the environment refuses it") from None
        self._history.append(action)
        self.total += reward
        if reward:
            self.pay(seat, REWARD, reward)
        self._show(answer)
        if answer.get("done") or self.turns + 1 >= self.max_turns:
            self.end("over" if answer.get("done") else "turns", "The match is over.")
            self.close()
        return to_one_line(text, ACTION_LENGTH)

    def figures(self) -> dict[str, float | bool | str]:
        """Return `faults` and `reward`, the sum of the environment's rewards."""
        return {**super().figures(), REWARD: self.total}

    def copy_env(self) -> Any:
        """Return a new session in which the same actions were repeated, or None if the match has ended."""
        if self.env is None:
            return None
        session, _ = self._begin_session()
        for action in self._history:
            session.ask("step", action)
        return session

    def close(self) -> None:
        """End the session."""
        session, self.env = self.env, None
        if session is not None:
            session.close()

    def _begin_session(self) -> tuple[Session, dict[str, Any]]:
        try:
            return begin_session(self.title, self._seed)
        except RequestRefused as refused:
            raise ServerError(f"openenv:{self.title} cannot be reset: {refused}") from None

    def _parse_action(self, text: str) -> dict[str, Any]:
        """Parse an act's text into an action. Raises IllegalAct if it is malformed."""
        if not text:
            raise IllegalAct("write an act")
        if len(self._fields) == 1:
            (name, field_schema), *_ = self._fields.items()
            return {
                name: text
                if field_schema.get("type") == "string" or ("enum" in field_schema and text in field_schema["enum"])
                else _parse_json(text)
            }
        value = _parse_json(text)
        if not isinstance(value, dict):
            raise IllegalAct("write a JSON object")
        if unknown := value.keys() - self._fields.keys():
            raise IllegalAct(f"an action has no field '{to_one_line(str(min(unknown)), 60)}'")
        return value

    def _show(self, answer: Mapping[str, Any]) -> None:
        """Send the agent an observation: the value of its single field, or all fields with their names."""
        fields = {str(name): value for name, value in answer["observation"].items() if value is not None}
        text = "\n".join(
            f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in fields.items()
        )
        if len(fields) == 1:
            (single,) = fields.values()
            text = single if isinstance(single, str) else json.dumps(single)
        self.tell(shorten(sanitise(text), ACTION_LENGTH) or "nothing")


def _parse_json(text: str) -> Any:
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise IllegalAct(f"no JSON: {to_one_line(str(error), 100)}") from None
    if is_too_deep(value):
        raise IllegalAct("the JSON is nested too deep")
    return value


def _describe_field(name: str, field_schema: Mapping[str, Any], is_required: bool) -> str:
    """Return a text about a field of an action: its name, type and description."""
    listed = field_schema.get("enum")
    kind = "one of " + ", ".join(map(str, listed[:MAX_LISTED])) if listed else str(field_schema.get("type", "any"))
    described = (
        f", {to_one_line(str(field_schema['description']).rstrip('.'))}" if field_schema.get("description") else ""
    )
    return f"{to_one_line(name, 60)} ({to_one_line(kind, 1000)}{described}{'' if is_required else ', optional'})"
