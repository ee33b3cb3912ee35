"""MCP server over stdio without the library: starts fast, and misbehaves as its argument says.

    python mcp_server.py [crash_at_start | silent | garbage | slow | crash | hang | huge | endless | shouting |
                          malformed | error | stubborn | schema | picture | bomb | child]

Tools: add(a, b), count(), which counts its calls, act(), which misbehaves, and greet(name, self), whose parameters are
called like those of Python methods.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
PICTURE = (  # a PNG of 1 x 1 pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
NUMBER = {"type": "integer"}
TOOLS = [
    {"name": "add", "description": "Add two numbers.",
     "inputSchema": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a"]}},
    {"name": "count", "description": "Count calls.", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "act", "description": "Act.", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "greet", "description": "Greet.", "inputSchema": {
        "type": "object", "properties": {name: {"type": "string"} for name in ("name", "self", "arguments")}}},
]  # fmt: skip
calls = 0


def write_message(message: Any) -> None:
    """Write one message."""
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


def make_text_result(value: Any, is_error: bool = False) -> dict[str, Any]:
    """Return a result with one text."""
    return {"content": [{"type": "text", "text": str(value)}], "isError": is_error}


def misbehave() -> Any:
    """Misbehave."""
    match FAULT:
        case "crash":
            os._exit(3)
        case "hang":
            time.sleep(1000)
        case "huge":
            return make_text_result("x" * 5_000_000)
        case "endless":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case "shouting":
            for _ in range(200):
                sys.stderr.write("x" * 1_000_000)
        case "child":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", __file__])
        case "malformed":
            return {"content": 7}
        case "error":
            return make_text_result("out of order", True)
        case "picture":
            return {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]}
        case "bomb":
            data = base64.b64encode(b"GIF89a" + b"\xff" * 40).decode()
            return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
    return make_text_result("fine")


def answer_request(method: str, params: dict[str, Any]) -> Any:
    """Return the result of a request; None if there is none."""
    global calls
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "test", "version": "1"},
            }  # fmt: skip
        case "tools/list":
            return (
                {"tools": [{**TOOLS[0], "inputSchema": {"type": "array"}}]} if FAULT == "schema" else {"tools": TOOLS}
            )
        case "tools/call":
            arguments = params.get("arguments") or {}
            match params["name"]:
                case "add":
                    return make_text_result(arguments["a"] + arguments.get("b", 1))
                case "count":
                    calls += 1
                    return make_text_result(calls)
                case "act":
                    return misbehave()
                case "greet":
                    return make_text_result(" ".join(f"{key}={value}" for key, value in sorted(arguments.items())))
    return None


def main() -> None:
    """Serve requests until standard input ends."""
    if FAULT == "crash_at_start":
        sys.stderr.write("no shop today\n")
        sys.exit(1)
    if FAULT == "silent":
        time.sleep(1000)
    if FAULT == "garbage":
        sys.stdout.write("hello\n{]\n" + "\x00" * 100 + "\n")
    if FAULT == "slow":
        time.sleep(1)
    if FAULT == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer_request(request["method"], request.get("params") or {})
        unknown = {"code": -32601, "message": "there is no such method"}
        write_message(
            {"jsonrpc": "2.0", "id": request["id"], **({"error": unknown} if result is None else {"result": result})}
        )
    if FAULT == "stubborn":
        time.sleep(1000)


if __name__ == "__main__":
    main()
