"""Child process with a browser on one page of MiniWoB++, started by `games.adapters.miniwob`.

Requests are {load, seed, acts, picture} and {act, picture}. Imports no other module of Arena.
"""

import base64
import importlib
import os
import re
from typing import Any

ACT = re.compile(r"(click|type|press) (-?\d+|\S+)(?: (.*))?", re.S)
STOP_CLOCK = "core.EPISODE_MAX_TIME = 1e9; clearTimeout(core.EP_TIMER)"
"""Script that stops the page's clock, which would end the task after ten seconds."""


class Server:
    """Request handler with a browser, which is restarted only for another task."""

    def __init__(self) -> None:
        os.environ["HOME"] = os.environ["TMPDIR"]  # for the browser's files
        os.environ["SE_OFFLINE"] = "true"  # else selenium would download drivers
        self.task = ""
        self.env: Any = None
        self.observation: dict[str, Any] = {}
        self.reward, self.is_over = 0.0, False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the observation after a request. Its `refused` is the reason if the act is impossible, else ""."""
        refusal = ""
        if "load" in request:
            self.load(request["load"], request["seed"])
            for act in request["acts"]:
                self.act(act)
        else:
            refusal = self.act(request["act"])
        return {"refused": refusal, **self.observe(request["picture"])}

    def load(self, task: str, seed: int) -> None:
        """Load the task's page for a seed."""
        gymnasium, miniwob = importlib.import_module("gymnasium"), importlib.import_module("miniwob")
        if self.task != task:
            if self.env is not None:
                self.env.close()
            gymnasium.register_envs(miniwob)
            raw = importlib.import_module("miniwob.reward").get_raw_reward
            self.env = gymnasium.make(f"miniwob/{task}-v1", disable_env_checker=True, reward_processor=raw)
            self.task = task
        self.observation, _ = self.env.reset(seed=seed)
        self.reward, self.is_over = 0.0, False
        self.env.unwrapped.instance.driver.execute_script(STOP_CLOCK)

    def act(self, text: str) -> str:
        """Perform an act on the page. Returns "", or the reason if it is impossible."""
        kinds, inner = importlib.import_module("miniwob.action").ActionTypes, self.env.unwrapped
        match = ACT.fullmatch(text)
        if match is None:
            return "no such act"
        verb, target, typed_text = match.groups()
        refs = [int(element["ref"]) for element in self.observation["dom_elements"]]
        if verb == "press":
            keys = inner.action_space_config.allowed_keys
            if f"<{target}>" not in keys and target not in keys:
                return f"there is no key {target}"
            key = f"<{target}>" if f"<{target}>" in keys else target
            action = inner.create_action(kinds.PRESS_KEY, key=keys.index(key))
        elif int(target) not in refs:
            return f"the page has no element {target}"
        elif verb == "click":
            action = inner.create_action(kinds.CLICK_ELEMENT, ref=int(target))
        else:
            action = inner.create_action(kinds.FOCUS_ELEMENT_AND_TYPE_TEXT, ref=int(target), text=typed_text)
        try:
            self.observation, reward, is_over, is_cut, _ = self.env.step(action)
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
            for each in self.observation["dom_elements"]
        ]  # fmt: skip
        screenshot = self.observation["screenshot"]
        data = base64.b64encode(screenshot.tobytes()).decode() if picture else ""
        pixels = {"pixels": data, "shape": list(screenshot.shape)} if picture else {}
        observation = {"task": str(self.observation["utterance"]), "elements": elements, **pixels}
        return {**observation, "reward": self.reward, "done": self.is_over}
