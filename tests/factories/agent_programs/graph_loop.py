"""A small LangGraph-like agent in plain Python, which re-serialises JSON in its own way."""

import json
import os
import sys
import urllib.request
from typing import Any

from tools import TOOLS, call  # type: ignore[import-not-found]  # beside this program


def ask(**body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps({"model": "any", "temperature": 0.2, **body}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    answer: dict[str, Any] = json.load(urllib.request.urlopen(request))
    return answer["choices"][0]["message"]


def model(state: dict[str, Any]) -> str:
    reply = ask(messages=state["messages"], tools=TOOLS)
    calls = [
        {
            **one,
            "function": {
                **one["function"],
                "arguments": json.dumps(json.loads(one["function"]["arguments"]), indent=1),
            },
        }
        for one in reply.get("tool_calls", [])
    ]
    state["messages"].append(
        {"role": "assistant", "content": reply["content"] or "", **({"tool_calls": calls} if calls else {})}
    )
    state["rounds"] += 1
    return "tools" if calls and state["rounds"] < 4 else "end"


def tools(state: dict[str, Any]) -> str:
    for one in state["messages"][-1]["tool_calls"]:
        result = call(one["function"]["name"], json.loads(one["function"]["arguments"]))
        state["messages"].append(
            {"role": "tool", "tool_call_id": one["id"], "content": [{"type": "text", "text": result}]}
        )
    return "model"


if __name__ == "__main__":
    for line in sys.stdin:
        task = json.loads(line)
        state: dict[str, Any] = {"messages": [{"role": "user", "content": task["messages"][-1]["text"]}], "rounds": 0}
        node = "model"
        while node != "end":
            node = {"model": model, "tools": tools}[node](state)
        print(json.dumps({"act": state["messages"][-1]["content"] or "nothing"}), flush=True)
