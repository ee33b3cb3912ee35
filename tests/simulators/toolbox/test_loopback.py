"""Connections to local MCP servers over HTTP, and oversized answers."""

import gzip
import json
import resource
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from simulators.toolbox import loopback
from simulators.toolbox.limits import ServerEnded
from simulators.toolbox.mcp_server import McpServer
from tests.factories.mcp_server import answer_request

BOMB = gzip.compress(b" " * 100_000_000, 1)


class Handler(BaseHTTPRequestHandler):
    """Handler of an MCP server; its tool `act` answers as `fault` says."""

    protocol_version = "HTTP/1.1"
    fault = ""

    def log_message(self, *_: object) -> None:
        """Suppress the log."""

    def do_GET(self) -> None:
        self._reply(405, b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            return self._reply(202, b"")
        mcp_result = answer_request(request["method"], request.get("params") or {})
        fault = self.fault if request.get("params", {}).get("name") == "act" else ""
        if fault == "endless":
            return self._endless()
        result = {"error": {"code": -32601, "message": "no"}} if mcp_result is None else {"result": mcp_result}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **result}).encode()
        if fault == "compressed":
            return self._reply(200, BOMB, encoding="gzip")
        return self._reply(200, body)

    def _reply(self, status: int, body: bytes, encoding: str = "identity") -> None:
        self.send_response(status)
        for name, value in (("Type", "application/json"), ("Encoding", encoding), ("Length", str(len(body)))):
            self.send_header(f"Content-{name}", value)
        self.end_headers()
        self.wfile.write(body)

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 1_000_000)
        except OSError:
            self.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[McpServer]:
    monkeypatch.setattr(loopback, "MAX_MESSAGE_BYTES", 2 << 20)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nothing listens there
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    client = McpServer(f"http://127.0.0.1:{http_server.server_port}/mcp")
    yield client
    client.close()
    http_server.shutdown()
    http_server.server_close()


def test_server_over_http_ignores_proxy_settings(server: McpServer) -> None:
    assert [tool.name for tool in server.tools()] == ["add", "count", "act", "greet"]
    assert server.call("add", {"a": 2, "b": 3}, 20).text == "5"


@pytest.mark.parametrize("fault", ["endless", "compressed"])
def test_answers_that_would_fill_memory_end_the_connection(
    server: McpServer, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "fault", fault)
    assert server.call("add", {"a": 2}, 20).text == "3"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ServerEnded):
        server.call("act", {}, 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 << 10
    assert server.call("add", {"a": 1}, 20).text == "2", "the next connection fails"
