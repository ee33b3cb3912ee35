"""Format answers to agent programs as in OpenAI's API: chat completions and responses, as one body or as events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from agents.chat_messages import RequestError
from agents.harness.request import AgentRequest
from agents.harness.session import Answer, dump_arguments
from agents.tool_formats import ToolCall

Json = dict[str, Any]


def format_body(request: AgentRequest, answer: Answer) -> Json:
    """Return the answer as the body of a response to the request."""
    return _format_completion(request, answer) if request.api == "chat" else _format_response(request, answer)


def format_events(request: AgentRequest, answer: Answer) -> Iterator[str]:
    """Yield the answer as server-sent events."""
    if request.api == "chat":
        for chunk in _format_chunks(request, answer):
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"
        return
    for number, event in enumerate(_format_response_events(_format_response(request, answer))):
        yield f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': number})}\n\n"


def format_error(error: RequestError) -> Json:
    """Return a refusal in the API's error format."""
    kind = "authentication_error" if error.status == 401 else "invalid_request_error"
    kind = "server_error" if error.status >= 500 else kind
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}


# -- chat completions -------------------------------------------------------------------------------------------------


def _format_head(request: AgentRequest, answer: Answer, kind: str) -> Json:
    return {"id": f"chatcmpl-{answer.number}", "object": kind, "created": int(time.time()), "model": request.model}


def _format_usage(answer: Answer) -> Json:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _format_finish_reason(answer: Answer) -> str:
    return "length" if answer.finish == "length" else "tool_calls" if answer.calls else "stop"


def _format_calls(calls: Sequence[ToolCall]) -> list[Json]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dump_arguments(call)}}
        for call in calls
    ]


def _format_completion(request: AgentRequest, answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": answer.text or (None if answer.calls else ""), "refusal": None}
    if answer.calls:
        message["tool_calls"] = _format_calls(answer.calls)
    choice = {"index": 0, "message": message, "finish_reason": _format_finish_reason(answer), "logprobs": None}
    return _format_head(request, answer, "chat.completion") | {"choices": [choice], "usage": _format_usage(answer)}


def _format_chunks(request: AgentRequest, answer: Answer) -> Iterator[Json]:
    head = _format_head(request, answer, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    yield chunk({"role": "assistant", "content": "" if answer.text or not answer.calls else None})
    if answer.text:
        yield chunk({"content": answer.text})
    for index, call in enumerate(_format_calls(answer.calls)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, _format_finish_reason(answer))
    if request.wants_usage:
        yield head | {"choices": [], "usage": _format_usage(answer)}


# -- responses --------------------------------------------------------------------------------------------------------


def _format_response(request: AgentRequest, answer: Answer) -> Json:
    status, is_truncated = "completed", answer.finish == "length"
    output: list[Json] = []
    if answer.text or not answer.calls:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{answer.number}", "role": "assistant", "status": status}
        output.append(message | {"content": [part]})
    for call in answer.calls:
        item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name}
        output.append(item | {"arguments": dump_arguments(call), "status": status})
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }
    return {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if is_truncated else status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_truncated else None,
        "instructions": None,
        "metadata": {},
        "model": request.model,
        "output": output,
        "parallel_tool_calls": request.is_parallel,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": usage,
    }


def _format_response_events(response: Json) -> Iterator[Json]:
    started = response | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": started}
    for index, item in enumerate(response["output"]):
        place = {"item_id": item["id"], "output_index": index}
        unfinished: Json = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield _item_event("added", index, item | unfinished | {"status": "in_progress"})
        if item["type"] == "message":
            (part,) = item["content"]
            part_place = place | {"content_index": 0}
            yield part_place | {"type": "response.content_part.added", "part": part | {"text": ""}}
            yield part_place | {"type": "response.output_text.delta", "delta": part["text"], "logprobs": []}
            yield part_place | {"type": "response.output_text.done", "text": part["text"], "logprobs": []}
            yield part_place | {"type": "response.content_part.done", "part": part}
        else:
            text = item["arguments"]
            yield place | {"type": "response.function_call_arguments.delta", "delta": text}
            yield place | {"type": "response.function_call_arguments.done", "arguments": text, "name": item["name"]}
        yield _item_event("done", index, item)
    event_name = "incomplete" if response["status"] == "incomplete" else "completed"
    yield {"type": f"response.{event_name}", "response": response}


def _item_event(kind: str, index: int, item: Json) -> Json:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}
