"""Server for a child process with one browser on a page of MiniWoB++, started by `games.adapters.miniwob`.

It answers requests {load, seed, acts, picture} and {act, picture}. It imports no other module of Arena.
"""

import base64
import importlib
import os
import re
from typing import Any

ACT = re.compile(r"(click|type|press) (-?\d+|\S+)(?: (.*))?", re.S)
STOP_CLOCK = "core.EPISODE_MAX_TIME = 1e9; clearTimeout(core.EP_TIMER)"
"""Script that stops a page's clock, which would end the task after ten seconds."""


class Server:
    """Request handler with a browser, which is reused while the task stays the same."""

    def __init__(self) -> None:
        os.environ["SE_OFFLINE"] = "true"  # else selenium would download drivers
        self.task = ""
        self.env: Any = None
        self.seen: dict[str, Any] = {}
        self.reward, self.is_over = 0.0, False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request and return the observation, with the reason in `refused` if an act cannot be done."""
        why = ""
        if "load" in request:
            self.load(request["load"], request["seed"])
            for act in request["acts"]:
                self.act(act)
        else:
            why = self.act(request["act"])
        return {"refused": why, **self.observe(request["picture"])}

    def load(self, task: str, seed: int) -> None:
        """Load the task's page that the seed determines."""
        gymnasium, miniwob = importlib.import_module("gymnasium"), importlib.import_module("miniwob")
        if self.task != task:
            if self.env is not None:
                self.env.close()
            gymnasium.register_envs(miniwob)
            raw = importlib.import_module("miniwob.reward").get_raw_reward
            self.env = gymnasium.make(f"miniwob/{task}-v1", disable_env_checker=True, reward_processor=raw)
            self.task = task
        self.seen, _ = self.env.reset(seed=seed)
        self.reward, self.is_over = 0.0, False
        self.env.unwrapped.instance.driver.execute_script(STOP_CLOCK)

    def act(self, text: str) -> str:
        """Carry out an act on the page. Returns "", or the reason if it cannot be done."""
        kinds, inner = importlib.import_module("miniwob.action").ActionTypes, self.env.unwrapped
        read = ACT.fullmatch(text)
        if read is None:
            return "no such act"
        verb, where, rest = read.groups()
        refs = [int(element["ref"]) for element in self.seen["dom_elements"]]
        if verb == "press":
            keys = inner.action_space_config.allowed_keys
            if f"<{where}>" not in keys and where not in keys:
                return f"there is no key {where}"
            key = f"<{where}>" if f"<{where}>" in keys else where
            action = inner.create_action(kinds.PRESS_KEY, key=keys.index(key))
        elif int(where) not in refs:
            return f"the page has no element {where}"
        elif verb == "click":
            action = inner.create_action(kinds.CLICK_ELEMENT, ref=int(where))
        else:
            action = inner.create_action(kinds.FOCUS_ELEMENT_AND_TYPE_TEXT, ref=int(where), text=rest)
        try:
            self.seen, reward, is_over, is_cut, _ = self.env.step(action)
        except Exception:  # noqa: BLE001 selenium raises many classes of errors
            inner.instance.driver.execute_script("return 1")  # raises if the browser itself is gone
            return f"the browser cannot {verb} there"
        self.reward, self.is_over = self.reward + float(reward), bool(is_over or is_cut)
        return ""

    def observe(self, picture: bool) -> dict[str, Any]:
        """Return the task, the page's elements, the reward so far, `done`, and the pixels if `picture` is True."""
        elements = [
            {"ref": int(each["ref"]), "parent": int(each["parent"]), "tag": str(each["tag"]), "text": str(each["text"]),
             "value": str(each["value"]), "focused": bool(each["flags"][0])}
            for each in self.seen["dom_elements"]
        ]  # fmt: skip
        shown = self.seen["screenshot"]
        pixels = {"pixels": base64.b64encode(shown.tobytes()).decode(), "shape": list(shown.shape)} if picture else {}
        told = {"task": str(self.seen["utterance"]), "elements": elements, **pixels}
        return {**told, "reward": self.reward, "done": self.is_over}
