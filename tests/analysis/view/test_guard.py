"""The page server's access control: only this machine's page with its token."""

import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import analysis
from tests.factories.view import PORT, Client, serve_page

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example"
HOME = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="module")
def client() -> Client:
    return Client(EXAMPLE)


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "127.0.0.1", f"127.0.0.1.evil:{PORT}", ""]
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/app.js"])
def test_another_host_is_refused(client: Client, host: str, path: str) -> None:
    """Also a foreign name that resolves to this machine (DNS rebinding)."""
    answer = client.client.get(path, headers=client.headers | {"host": host})
    assert answer.status_code == 403 and "negotiation" not in answer.text


@pytest.mark.parametrize(
    "token", [None, "Bearer ", "Bearer wrong", "Bearer t0ken x", "Bearer t0kenx", "Basic t0ken", "Bearer \xe9"]
)
@pytest.mark.parametrize(
    "path", ["/api/runs", "/api/changes", "/api/runs/negotiation/matches/0005-0000", "/api/nothing"]
)
def test_data_needs_the_token(client: Client, token: str | None, path: str) -> None:
    headers = {} if token is None else {"authorization": token.encode("latin-1")}
    answer = client.client.get(path, headers=headers)
    assert answer.status_code == 401 and set(answer.json()) == {"error"}
    assert client.client.get(f"{path}?token=t0ken").status_code == 401


def test_no_cookie_is_set_and_every_answer_has_the_policy(client: Client) -> None:
    for path in ("/", "/app.js", "/vendor/preact.js", "/api/runs", "/api/nothing", "/nothing"):
        answer = client.client.get(path, headers=client.headers)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff" and "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml", "/%2e%2e/%2e%2e/app.py", "/vendor/../../app.py", "/static/app.js", "//etc/passwd",
        "/app.py",
        "/vendor/LICENSES.txt/..", "/api/runs/..%2f..%2fetc",
        "/api/runs/negotiation/images/..%2f..%2fconfig.yaml",
        "/api/runs/negotiation/images/" + "0" * 64, "/api/runs/negotiation/matches/..%2f..%2fconfig.yaml",
        "/api/runs/%00/matches", "/api/runs/negotiation%2flog/matches", "/api/runs/negotiation/matches/0005-0000%00",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(client: Client, path: str) -> None:
    answer = client.client.get(path, headers=client.headers)
    assert answer.status_code == 404 and "estimator" not in answer.text and "root:" not in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"https://127.0.0.1:{PORT}"}, 403),
        ({"origin": f"http://127.0.0.1:{PORT + 1}"}, 403),
        ({"origin": HOME, "sec-fetch-site": "cross-site"}, 403),
        ({"origin": HOME, "sec-fetch-site": "same-site"}, 403),
        ({"origin": HOME, "content-type": "text/plain"}, 415),
        ({"origin": HOME, "content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_posts_come_from_the_page_itself(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    from tests.factories.made_run import make_run

    run = make_run(tmp_path / "run").path
    client, body = Client(run), '{"match": "0000-0000", "turn": null, "text": "x"}'
    kinds = {"content-type": "application/json"}
    answer = client.client.post("/api/runs/run/notes", content=body, headers=client.headers | kinds | headers)
    assert answer.status_code == status and not (run / "notes.jsonl").exists()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(client: Client, method: str) -> None:
    assert client.client.request(method, "/api/runs", headers=client.headers).status_code == 405


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"[" * 100_000, b"\xff", b"nul"])
def test_refuses_non_object_in_one_line(client: Client, body: Any) -> None:
    headers = client.headers | {"origin": HOME, "content-type": "application/json"}
    answer = client.client.post("/api/sql", content=body, headers=headers)
    assert answer.status_code == 400 and answer.json()["error"].count("\n") == 0


def test_large_and_endless_posts_are_refused(client: Client) -> None:
    headers = client.headers | {"origin": HOME, "content-type": "application/json"}
    assert client.client.post("/api/sql", content=b" " * (10**6 + 1), headers=headers).status_code == 413
    endless = (b" " for _ in range(10))  # chunked: nobody says how much comes
    assert client.client.post("/api/sql", content=endless, headers=headers).status_code == 413


def test_unfinished_requests_block_no_others(tmp_path: Path) -> None:
    with serve_page(tmp_path) as link:
        home = link.partition("/#")[0]
        address = ("127.0.0.1", int(home.rpartition(":")[2]))
        with ExitStack() as stack:
            for number in range(200):
                half = stack.enter_context(socket.create_connection(address))
                half.sendall(b"POST /api/sql HTTP/1.1\r\nhost: x\r\n" if number % 2 else b"")
            with urllib.request.urlopen(f"{home}/app.js", timeout=20) as answer:
                assert answer.status == 200
