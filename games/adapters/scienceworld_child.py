"""Child process with one ScienceWorld and its Java machine, started by `games.adapters.scienceworld_worlds`.

Requests are {load, variation, simplify, gold, acts, listed} and {act, listed}. Imports no other module of Arena.
"""

import importlib
from typing import Any


def observe(env: Any, text: str, listed: bool) -> dict[str, Any]:
    """Return the state after an act that was answered with `text`. Lists valid acts, in 0.1 s, only if `listed`."""
    server = env.server
    return {
        "text": text,
        "look": server.freeActionLook(),
        "inventory": server.freeActionInventory(),
        "score": round(100 * server.getScore()),
        "done": bool(server.getCompleted()),
        "acts": sorted(set(server.getValidActionObjectCombinations())) if listed else None,
    }


def load(env: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Load a variation and repeat its acts. Returns the state, the task, the splits and the gold path if requested."""
    env.load(request["load"], request["variation"], request["simplify"], generateGoldPath=request["gold"])
    server = env.server
    server.reset()
    text = server.step("look around")
    for act in request["acts"]:
        text = server.step(act)
    splits = {"train": server.getVariationsTrain, "dev": server.getVariationsDev, "test": server.getVariationsTest}
    return {
        **observe(env, text, request["listed"]),
        "task": server.getTaskDescription(),
        "splits": {split: sorted(variations()) for split, variations in splits.items()},
        "gold": list(server.getGoldActionSequence()) if request["gold"] else [],
    }


class Server:
    """Request handler with a ScienceWorld, which is started at the first request."""

    def __init__(self) -> None:
        self.env: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Handle a request and return the state after it."""
        if self.env is None:
            self.env = importlib.import_module("scienceworld").ScienceWorldEnv("", envStepLimit=10**6)
        if "load" in request:
            return load(self.env, request)
        return observe(self.env, self.env.server.step(request["act"]), request["listed"])
