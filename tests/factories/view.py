"""The application of `arena view`, called directly or served for a browser."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from analysis.view.services import Services
from arena.cli.page_data import compare_estimators, deal_facts, list_estimators, list_theory_values, token_texts

TOKEN, PORT = "t0ken", 8123
PROGRAM = [sys.executable, "-P", "-m", "arena"]
SERVICES = Services(deal_facts, list_theory_values, compare_estimators, list_estimators, token_texts, PROGRAM)


class Client:
    """Client that sends the page's token, and its origin in posts."""

    def __init__(self, *paths: Path, services: Services = SERVICES) -> None:
        testing = pytest.importorskip("starlette.testclient")
        from analysis.view.app import Viewer, make_application
        from analysis.view.runs import Library

        self.client = testing.TestClient(
            make_application(Viewer(Library(paths), services), TOKEN, PORT), base_url=f"http://127.0.0.1:{PORT}"
        )
        self.headers = {"authorization": f"Bearer {TOKEN}"}

    def get(self, path: str, code: int = 200, /, **query: str) -> Any:
        """Get the path and return the JSON answer."""
        answer = self.client.get(path, params=query, headers=self.headers)
        assert answer.status_code == code, answer.text[:300]
        return answer.json()

    def post(self, path: str, body: Any, code: int = 200) -> Any:
        """Post the body and return the JSON answer."""
        headers = self.headers | {"origin": f"http://127.0.0.1:{PORT}", "content-type": "application/json"}
        answer = self.client.post(path, content=json.dumps(body), headers=headers)
        assert answer.status_code == code, answer.text[:300]
        return answer.json()


@contextmanager
def serve_page(*paths: Path, services: Services = SERVICES) -> Iterator[str]:
    """Serve the page by a thread, and yield its link."""
    uvicorn = pytest.importorskip("uvicorn")
    from analysis.view.server import prepare_server

    server, listening, link = prepare_server(paths, services, 0)
    assert isinstance(server, uvicorn.Server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield link
    finally:
        server.should_exit = True
        thread.join(10)
