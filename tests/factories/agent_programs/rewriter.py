"""An agent that rewrites its history: it summarises, drops old turns, edits a reply, and runs sub-agents."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from graph_loop import ask  # type: ignore[import-not-found]  # beside this program

task = json.loads(sys.stdin.readline())
messages = [{"role": "system", "content": "Talk."}, {"role": "user", "content": task["messages"][-1]["text"]}]
for turn in range(4):
    messages.append({"role": "assistant", "content": ask(messages=messages)["content"]})
    messages.append({"role": "user", "content": f"Go on, {turn}."})
summary = ask(messages=[*messages[:-1], {"role": "user", "content": "Sum up."}])["content"]
short = [messages[0], {"role": "user", "content": f"So far: {summary}"}, *messages[-3:]]
short.append({"role": "assistant", "content": ask(messages=short)["content"]})
edited = [*short[:-1], {"role": "assistant", "content": "EDITED"}, {"role": "user", "content": "Really?"}]
ask(messages=edited)
if len(sys.argv) > 1:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ask(messages=[{"role": "user", "content": f"Sub-agent {n}"}]), range(4)))
print(ask(messages=[*short, {"role": "user", "content": "The answer?"}])["content"] or "nothing")
