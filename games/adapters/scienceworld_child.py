"""Child process with one ScienceWorld and its Java machine, run by `games.adapters.scienceworld_worlds`.

Answers each line of JSON with one: {load, variation, simplify, gold, acts, listed} or {act, listed}. Imports no other
module of Arena. Ends with its standard input, and the Java machine with it.
"""

import json
import os
import sys
import threading
from queue import SimpleQueue
from typing import Any


def observe(env: Any, text: str, listed: bool) -> dict[str, Any]:
    """Return the state after an act. Valid acts are listed only on request, as that takes 0.1 s."""
    server = env.server
    return {
        "text": text,
        "look": server.freeActionLook(),
        "inventory": server.freeActionInventory(),
        "score": round(100 * server.getScore()),
        "done": bool(server.getCompleted()),
        "acts": sorted(set(server.getValidActionObjectCombinations())) if listed else None,
    }


def load(env: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Load a variation, do the acts that were done in it, and return the state, the task and the variations."""
    env.load(asked["load"], asked["variation"], asked["simplify"], generateGoldPath=asked["gold"])
    server = env.server
    server.reset()
    text = server.step("look around")
    for act in asked["acts"]:
        text = server.step(act)
    splits = {"train": server.getVariationsTrain, "dev": server.getVariationsDev, "test": server.getVariationsTest}
    return {
        **observe(env, text, asked["listed"]),
        "task": server.getTaskDescription(),
        "splits": {split: sorted(variations()) for split, variations in splits.items()},
        "gold": list(server.getGoldActionSequence()) if asked["gold"] else [],
    }


def main() -> None:
    """Serve until standard input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    requests: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    env: Any = None
    while True:
        asked = json.loads(requests.get())
        try:
            if env is None:
                from scienceworld import ScienceWorldEnv

                env = ScienceWorldEnv("", envStepLimit=10**6)
            if "load" in asked:
                answer = load(env, asked)
            else:
                answer = observe(env, env.server.step(asked["act"]), asked["listed"])
        except Exception as error:  # noqa: BLE001 Java's errors come as many classes
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
