"""An agent on the OpenAI SDK: a loop with parallel tool calls, streamed or not, by either API."""

import json
import sys

import openai
from tools import TOOLS, call  # type: ignore[import-not-found]  # beside this program

api, streams, rounds = sys.argv[1], sys.argv[2] == "stream", 4
task = json.loads(sys.stdin.readline())
client = openai.OpenAI()
text = task["messages"][-1]["text"]


def chat() -> str:
    messages = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": text}]
    for _ in range(rounds):
        if streams:
            with client.chat.completions.stream(model="gpt-4o", messages=messages, tools=TOOLS) as stream:
                reply = stream.get_final_completion().choices[0].message
        else:
            reply = client.chat.completions.create(model="gpt-4o", messages=messages, tools=TOOLS).choices[0].message
        messages.append(reply)
        if not reply.tool_calls:
            break
        for tool_call in reply.tool_calls:
            result = call(tool_call.function.name, json.loads(tool_call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": result})
    return reply.content or "nothing"


def responses() -> str:
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    items = [{"role": "user", "content": text}]
    for _ in range(rounds):
        if streams:
            with client.responses.stream(model="gpt-4o", instructions="Use tools.", input=items, tools=tools) as stream:
                for _event in stream:
                    pass
                response = stream.get_final_response()
        else:
            response = client.responses.create(model="gpt-4o", instructions="Use tools.", input=items, tools=tools)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        for one in calls:
            result = call(one.name, json.loads(one.arguments))
            items.append({"type": "function_call_output", "call_id": one.call_id, "output": result})
        if not calls:
            break
    return response.output_text or "nothing"


print(chat() if api == "chat" else responses())
