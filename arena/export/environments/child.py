"""Server of matches over stdin and stdout, one JSON object per line, for programs that cannot import Arena.

The library verifiers is such a case: it needs openai-agents, whose package is called `agents`, like one of Arena's.
Start this module with the Python of Arena's virtual environment: `python -m arena.export.environments.child`. The first
line is a task, and each further line a request.

{"game": "kuhn_poker", "options": {}, "seat": "first", "against": "random"}
{"deal": 7, "match": "a"}          starts match a with this seed
{"act": "PASS", "match": "a"}      plays an act
{"end": true, "match": "a"}        abandons the match if it is not over, and closes it

Each answer is the seat's `text`, `images` (data URLs), `done`, `payoff` and `reward`, or an `error`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from arena.errors import ConfigError
from arena.export.environments.episode import Episode, Task, deal


def answer_all(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the answer to each line. The answer to an invalid task or request is an error."""
    requests = iter(lines)
    try:
        task = Task(**json.loads(next(requests))).resolve()
    except (ConfigError, StopIteration, TypeError, ValueError) as error:
        yield {"error": f"no task: {error}"}
        return
    yield {"seat": task.seat}
    matches: dict[str, Episode] = {}
    for line in requests:
        try:
            yield _answer(task, matches, json.loads(line))
        except (ConfigError, LookupError, RuntimeError, TypeError, ValueError) as error:
            yield {"error": f"{type(error).__name__}: {error}"}


def _answer(task: Task, matches: dict[str, Episode], request: Mapping[str, Any]) -> dict[str, Any]:
    name = str(request["match"])
    if "deal" in request:
        if name in matches:
            raise ValueError(f"match {name} was dealt already")
        matches[name] = deal(task, int(request["deal"]))
    episode = matches[name]
    if "act" in request:
        episode.act(str(request["act"]))
    if "end" in request:
        episode.abandon()
        matches.pop(name).close()
    images = [image.url for image in episode.images]
    state = {"done": episode.done, "payoff": episode.payoff, "reward": episode.reward}
    return {"text": episode.text, "images": images, **state}


if __name__ == "__main__":
    out, sys.stdout = sys.stdout, sys.stderr  # output of games must not mix with the answers
    for answer in answer_all(sys.stdin):
        print(json.dumps(answer), file=out, flush=True)
