"""An agent that shows the policy pictures, two in its first request and one later, and requests a remote one."""

import base64
import hashlib
import io
import json
import sys
from typing import Any

import numpy as np
from graph_loop import ask  # type: ignore[import-not-found]  # beside this program
from PIL import Image


def shown(seed: int) -> dict[str, Any]:
    """A picture of noise as a part of a message."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 24, 3), np.uint8)).save(file, "PNG")
    print(hashlib.sha256(file.getvalue()).hexdigest(), file=sys.stderr)
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


task = json.loads(sys.stdin.readline())
text = {"type": "text", "text": task["messages"][-1]["text"]}
messages: list[dict[str, Any]] = [{"role": "user", "content": [text, shown(1), shown(2)]}]
messages.append({"role": "assistant", "content": ask(messages=messages)["content"]})
try:
    remote = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x.png"}}
    ask(messages=[{"role": "user", "content": [remote]}])
except Exception:  # noqa: BLE001 any refusal
    pass
else:
    sys.exit("a remote image was accepted")
messages.append({"role": "user", "content": [shown(3)]})
print(ask(messages=messages)["content"] or "nothing")
