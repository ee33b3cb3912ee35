"""An OpenAI-compatible HTTP server on loopback with scripted, possibly malformed answers."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def make_completion(content="BET", finish="stop", usage=(10, 2)):
    body: dict[str, Any] = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}]
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return body


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 200


class Server:
    """Server that gives its answers in turn and then repeats the last one; records all requests."""

    def __init__(self, *answers, models=None):
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.times: list[float] = []
        self.model_requests: list[Any] = []
        self.models = models or reply_with({"error": {"message": "no such route"}}, 404)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                server.times.append(time.monotonic())
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    answer(self)

            def do_GET(self):
                server.model_requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    server.models(self)

            def log_message(self, *_):
                pass

        self.http = Listener(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


def reply_with(body, status=200, **headers):
    """Return an answer with this status and body (JSON, or raw bytes)."""

    def answer(handler):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def reply_with_models(*models):
    """Return an answer to `/models`."""
    return reply_with({"object": "list", "data": [{"id": model, "object": "model"} for model in models]})
