"""The endpoint through OpenAI's own client, over a socket, with a real policy."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from agents import connections
from agents.chat_writing import write_chat
from agents.connections import make_server
from agents.engines.in_process import InProcessEngine
from agents.policy import Policy
from agents.published import FolderWeights
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.serve import service as serving
from arena.serve.chat_request import parse_messages
from arena.serve.service import CHUNK_TOKENS, ServedModel, Service, _Reply, _update_text, find_roles
from tests.factories.commands import arena, get_refusal

JSON = {"content-type": "application/json"}
ASK: Any = [{"role": "user", "content": "your turn"}]
RECIPE = compose([recipe_layer("negotiation-nano"), set_layer("policies.shared.imitate=null")])


class RunningService:
    """Service in a thread with its own event loop."""

    def __init__(self, key: str | None = None, **settings: Any) -> None:
        folder = resolve("nano")
        self.engine = InProcessEngine()
        wait(self.engine.publish("served", 3, FolderWeights(folder)))
        policy = Policy.load("served", folder, folder, train=False)
        model = ServedModel(policy, 256, policy.frame.longest_token_length, find_roles(RECIPE, "shared"))
        app = Service(self.engine, {"shared": model}, key)
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)  # so that little is enough to fill it
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        self.address = listening.getsockname()
        self.server = make_server(app.app(["127.0.0.1"]), log_level="critical", lifespan="off", **settings)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve(sockets=[listening])))
        self.thread.start()

    def stop(self) -> None:
        """Stop the server and wait for its thread."""
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    service = RunningService()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def client(service: RunningService) -> openai.OpenAI:
    return openai.OpenAI(base_url=service.url, api_key="none", max_retries=0)


def test_policies_and_their_roles_are_the_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == ["shared", "shared:nano_opener", "shared:nano_responder"]
    assert client.models.retrieve("shared:nano_opener").owned_by == "arena"


def test_reply_is_the_policys_own(service: RunningService, client: openai.OpenAI) -> None:
    """Compares a greedy reply with the model's own."""
    import torch

    from agents.model_folder import load_model

    reply = client.chat.completions.create(model="shared", messages=ASK, temperature=0, max_tokens=20)
    folder = resolve("nano")
    frame, model = Policy.load("p", folder, folder, train=False).frame, load_model(folder)
    ids = [*frame.open(""), *frame.ask("your turn")]
    start = len(ids)
    with torch.no_grad():
        while len(ids) < start + 20 and (len(ids) == start or ids[-1] not in frame.stop_ids):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert reply.choices[0].message.content == frame.decode(ids[start:])
    assert reply.usage and (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (start, len(ids) - start)
    assert reply.choices[0].finish_reason == ("stop" if ids[-1] in frame.stop_ids else "length")


def test_stream_equals_the_whole_reply(client: openai.OpenAI) -> None:
    parameters: dict[str, Any] = {"model": "shared", "messages": ASK, "seed": 5, "max_tokens": 4 * CHUNK_TOKENS, "n": 2}
    whole = client.chat.completions.create(**parameters)
    texts, ends, usage, pieces = ["", ""], {}, None, 0
    for chunk in client.chat.completions.create(**parameters, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            pieces += bool(choice.delta.content)
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage and pieces > 2


def test_same_seed_gives_the_same_reply(client: openai.OpenAI) -> None:
    def sample(**more: Any) -> str | None:
        return (
            client.chat.completions.create(model="shared", messages=ASK, max_tokens=24, **more)
            .choices[0]
            .message.content
        )

    assert sample(seed=1) == sample(seed=1) != sample(seed=2)
    assert sample() != sample(), "without a seed replies differ"


def test_role_adds_its_system_text_and_parses_replies(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="shared", messages=ASK, seed=1, max_tokens=8)
    in_role = client.chat.completions.create(model="shared:nano_opener", messages=ASK, seed=1, max_tokens=8)
    assert plain.usage and in_role.usage and in_role.usage.prompt_tokens >= plain.usage.prompt_tokens
    extra = in_role.choices[0].model_extra
    assert extra and set(extra["arena"]) == {"action", "public", "private", "ok"}
    assert "arena" not in (plain.choices[0].model_extra or {})
    messages: Any = [{"role": "system", "content": "be brief"}, *ASK]
    own_system = client.chat.completions.create(model="shared:nano_opener", messages=messages, seed=1, max_tokens=8)
    plain_system = client.chat.completions.create(model="shared", messages=messages, seed=1, max_tokens=8)
    assert (
        own_system.usage and plain_system.usage and own_system.usage.prompt_tokens == plain_system.usage.prompt_tokens
    )


def test_conversation_continues(client: openai.OpenAI) -> None:
    talk: Any = [*ASK, {"role": "assistant", "content": "OFFER 1 1 1"}, {"role": "user", "content": "no"}]
    first = client.chat.completions.create(model="shared", messages=ASK, max_tokens=1)
    later = client.chat.completions.create(model="shared", messages=talk, max_tokens=1)
    assert first.usage and later.usage and later.usage.prompt_tokens > first.usage.prompt_tokens
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "your "}, {"type": "text", "text": "turn"}]}]
    reply = client.chat.completions.create(model="shared", messages=parts, max_tokens=1)
    assert reply.usage == first.usage


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_consecutive_messages_of_one_role_are_joined() -> None:
    frame = Policy.load("p", resolve("nano"), resolve("nano"), train=False).frame
    roles = ["system", "developer", "user", "user", "assistant", "assistant", "user"]
    messages = parse_messages([{"role": role, "content": str(i)} for i, role in enumerate(roles)], None)
    ids = [token for piece, _ in write_chat(frame, messages, examples=[("see", "say")]) for token in piece]
    opening = [*frame.open("0\n\n1", [("see", "say")]), *frame.ask("2\n\n3")]
    assert ids == [*opening, *frame.encode("4\n\n5"), frame.stop_id, *frame.close("stop"), *frame.ask("6")]


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "another model": ({"model": "gpt-5"}, 404, "there is no model 'gpt-5'"),
    "no messages": ({"messages": []}, 400, "messages"),
    "tools": ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "'tools' is not supported"),
    "json": ({"response_format": {"type": "json_object"}}, 400, "'response_format'"),
    "log-probabilities": ({"logprobs": True}, 400, "'logprobs'"),
    "a heat": ({"temperature": 9}, 400, "temperature"),
    "no tokens": ({"max_tokens": 0}, 400, "max_tokens"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        400,
        "see images",
    ),
    "the assistant last": ({"messages": [*ASK, {"role": "assistant", "content": "x"}]}, 400, "the last is a user's"),
    "a system text amid": ({"messages": [*ASK, {"role": "system", "content": "x"}, *ASK]}, 400, "must alternate"),
    "a tool": ({"messages": [*ASK, {"role": "tool", "tool_call_id": "1"}, *ASK]}, 400, "must alternate"),
    "a call": (
        {"messages": [*ASK, {"role": "assistant", "tool_calls": [CALL]}, *ASK]},
        400,
        "after an optional system message, user and assistant messages must alternate",
    ),
    "another role": ({"messages": [{"role": "judge", "content": "x"}]}, 400, "messages[0].role: unknown role 'judge'"),
    "too long": ({"messages": [{"role": "user", "content": "x" * 900}]}, 400, "tokens, and the model's context is 256"),
    "far too long": ({"messages": [{"role": "user", "content": "x" * 10**6}]}, 400, "1000000 characters, and"),
    "a sampler's rule": ({"extra_body": {"min_p": 0.1}}, 400, "'min_p' is not supported"),
    "many messages": ({"messages": ASK * 257}, 400, "the messages are 257 in number"),
    "a number beyond all": ({"extra_body": {"top_k": 10**40}}, 400, "top_k"),
    "tokens beyond all": ({"max_tokens": 10**40}, 400, "max_tokens"),
    "a long stop": ({"stop": "x" * 240_000}, 400, "stop"),
    "many stops": ({"stop": ["x"] * 17}, 400, "stop"),
}  # fmt: skip


def test_neutral_parameters_are_accepted(service: RunningService) -> None:
    """Some clients send all parameters with their defaults."""
    nulls = ["temperature", "top_p", "n", "seed", "stop", "stream", "stream_options", "max_tokens", "logit_bias"]
    neutral = {"tools": [], "tool_choice": "auto", "frequency_penalty": 0.0, "repetition_penalty": 1.0, "user": "me"}
    messages = [{**ASK[0], "name": "me"}, {"role": "assistant", "content": "x", "refusal": None, "audio": None}, *ASK]
    body = {"model": "shared", "messages": messages, "max_completion_tokens": 1, **dict.fromkeys(nulls), **neutral}
    answer = httpx2.post(f"{service.url}/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("bad", BAD)
def test_unsupported_request_is_refused_in_the_apis_form(bad: str, client: openai.OpenAI) -> None:
    changes, status, message = BAD[bad]
    with pytest.raises(openai.APIStatusError) as error:
        client.chat.completions.create(**{"model": "shared", "messages": ASK} | changes)
    assert error.value.status_code == status and message in error.value.message
    body: Any = error.value.body
    assert body["type"] == "invalid_request_error" and set(body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model": 3}', b"\xff\xfe", b'{"a":' * 5000])
def test_any_body_is_answered(body: bytes, service: RunningService) -> None:
    answer = httpx2.post(f"{service.url}/chat/completions", content=body, headers=JSON)
    assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


def test_bodies_routes_and_hosts(service: RunningService) -> None:
    assert httpx2.post(f"{service.url}/chat/completions", content=b"x" * (5 << 20), headers=JSON).status_code == 413
    assert httpx2.get(f"{service.url}/nothing").json()["error"]["message"].startswith("no such route")
    assert httpx2.get(f"{service.url}/models", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({}, 415),
        ({**JSON, "origin": "https://evil.example"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, "origin": "http://{host}"}, 200),
        ({"content-type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_requests_from_foreign_pages_are_refused(service: RunningService, headers: dict[str, str], status: int) -> None:
    host = service.url.removeprefix("http://").removesuffix("/v1")
    headers = {name: value.format(host=host) for name, value in headers.items()}
    body = json.dumps({"model": "shared", "messages": ASK, "max_tokens": 2})
    answer = httpx2.post(f"{service.url}/chat/completions", content=body, headers=headers)
    assert answer.status_code == status, answer.text


def test_others_are_answered_while_a_long_text_is_parsed(
    service: RunningService, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave, read = threading.Event(), threading.Event(), parse_messages

    def parse_slowly(messages: Any, images: Any) -> Any:
        entered.set()
        assert leave.wait(20)
        return read(messages, images)

    monkeypatch.setattr(serving, "parse_messages", parse_slowly)
    thread = threading.Thread(target=lambda: client.chat.completions.create(model="shared", messages=ASK, max_tokens=2))
    thread.start()
    assert entered.wait(20)
    assert len(client.models.list().data) == 3
    leave.set()
    thread.join()


def test_unfinished_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.3)
    service = RunningService()
    try:
        place = service.address
        with socket.create_connection(place) as silent, socket.create_connection(place) as half:
            half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n")
            for connection in (silent, half):
                connection.settimeout(20)
                assert connection.recv(100) == b"", "not closed"
        with socket.create_connection(place) as bodiless:
            head = "POST /v1/chat/completions HTTP/1.1", "host: 127.0.0.1", "content-length: 9", *format_headers(JSON)
            bodiless.sendall("\r\n".join([*head, "", ""]).encode())
            bodiless.settimeout(20)
            assert b" 408 " in bodiless.recv(1000).partition(b"\r\n")[0]
        client = openai.OpenAI(base_url=service.url, api_key="none")
        assert len(client.models.list().data) == 3, "others are not served"
    finally:
        service.stop()


HALF = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
UNREAD = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 1000
HALVES = {
    "nothing": b"", "half a head": HALF,
    "half a body": HALF + b"content-type: application/json\r\ncontent-length: 9\r\n\r\n{",
    "a body that nobody asked for": b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 999\r\n\r\n{",
    "no next request": b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", "half a next one": UNREAD[:70],
}  # fmt: skip
"""Incomplete requests, each of which occupies a connection slot."""


@pytest.mark.parametrize("half", HALVES)
def test_incomplete_requests_block_nobody(half: str) -> None:
    """However many there are, those that have waited longest are closed."""
    service, opened = RunningService(connections=8), []
    try:
        for _ in range(3):
            for _ in range(20):
                opened.append(socket.create_connection(service.address))
                opened[-1].sendall(HALVES[half])
            answer = httpx2.get(f"{service.url}/models", timeout=10)
            assert answer.status_code == 200, answer.text
    finally:
        for connection in opened:
            connection.close()
        service.stop()


def test_client_that_reads_no_answers_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.2)
    service = RunningService()
    try:
        with socket.socket() as client_socket:
            client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client_socket.connect(service.address)
            client_socket.settimeout(10)
            with pytest.raises(ConnectionError):
                client_socket.sendall(UNREAD)
                while client_socket.send(UNREAD):
                    pass
    finally:
        service.stop()


def format_headers(headers: dict[str, str]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers.items()]


def test_requests_need_the_key() -> None:
    service = RunningService(key="secret")
    try:
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=service.url, api_key="wrong", max_retries=0).models.list()
        assert len(openai.OpenAI(base_url=service.url, api_key="secret").models.list().data) == 3
    finally:
        service.stop()


@pytest.mark.parametrize("extreme", [{"temperature": 1e-300}, {"temperature": 1e-9, "n": 4}, {"top_p": 1e-300}])
def test_extreme_parameters_fail_no_other_request(extreme: dict[str, Any], service: RunningService) -> None:
    """A temperature next to 0 gives the most likely reply."""

    async def ask_all() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=service.url, api_key="none", max_retries=0) as client:
            ask = client.chat.completions.create
            all_parameters: list[dict[str, Any]] = [{"seed": seed} for seed in range(6)] + [extreme, {"temperature": 0}]
            each = (ask(model="shared", messages=ASK, max_tokens=4, **parameters) for parameters in all_parameters)
            return await asyncio.gather(*each)

    *_, sampled, greedy = asyncio.run(ask_all())
    if "temperature" in extreme:
        assert {choice.message.content for choice in sampled.choices} == {greedy.choices[0].message.content}


@pytest.mark.parametrize("stream", [False, True])
def test_engine_failure_is_reported_in_the_apis_form(
    stream: bool, service: RunningService, client: openai.OpenAI
) -> None:
    generate = service.engine.generate

    async def fail(requests: Any) -> Any:
        raise RuntimeError("no more")

    service.engine.generate = fail  # type: ignore[method-assign]
    try:
        with pytest.raises(openai.APIError, match="RuntimeError: no more") as error:
            list(client.chat.completions.create(model="shared", messages=ASK, stream=stream))
        body: Any = error.value.body
        assert body["type"] == "server_error"
    finally:
        service.engine.generate = generate  # type: ignore[method-assign]


def test_generation_stops_for_a_disconnected_client(service: RunningService, client: openai.OpenAI) -> None:
    batches: list[int] = []
    generate = service.engine.generate

    async def count_and_generate(requests: Any) -> Any:
        batches.append(len(requests))
        await asyncio.sleep(0.05)
        return await generate(requests)

    service.engine.generate = count_and_generate  # type: ignore[method-assign]
    try:
        talk = client.chat.completions.create(model="shared", messages=ASK, stream=True, n=4, max_tokens=200)
        next(iter(talk))
        talk.close()
        client.chat.completions.create(model="shared", messages=ASK, max_tokens=40)
        assert batches.count(4) < 6, "13 pieces would be all of it"
    finally:
        service.engine.generate = generate  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("texts", "stops", "expected"),
    [
        (["he", "hello"], [], ["he", "hello"]),
        (["caf\ufffd", "café"], [], ["caf", "café"]),
        (["a E", "a EN", "a END b"], ["END"], ["a ", "a ", "a "]),
        (["a E", "a Eb"], ["END"], ["a ", "a Eb"]),
    ],
)
def test_streamed_text_is_never_retracted(texts: list[str], stops: list[str], expected: list[str]) -> None:
    reply, seen = _Reply(), []
    for text in texts:
        _update_text(reply, text, stops)
        seen.append(reply.text)
    assert seen == expected


@pytest.mark.slow
def test_serve_command_until_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "arena", "serve", "nano", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serving:
        try:
            assert serving.stdout is not None
            output = ""
            while "serving" not in (line := serving.stdout.readline()):
                output += line
                assert serving.poll() is None, output
            found = re.search(r"http://\S+/v1", line)
            assert found is not None
            result = arena(
                "eval", "endpoint:nano", "--against", "random", "--game", "tic_tac_toe", "--matches", "2", "--role",
                "nano_player", "--endpoint", f"url={found[0]}", "--json",
            )  # fmt: skip
            assert result.code == 0, result.err
        finally:
            serving.send_signal(signal.SIGINT)
        output, _ = serving.communicate()
    assert (serving.returncode, output) == (130, "arena: interrupted\n")


def test_unsafe_or_impossible_serving_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARENA_SERVE_KEY", raising=False)
    assert "ARENA_SERVE_KEY" in get_refusal("serve", "nano", "--host", "0.0.0.0")
    assert "no weights to serve" in get_refusal("serve", "random", "--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--port" in get_refusal("serve", "nano", "--port", taken.getsockname()[1])
    assert "--engine" in get_refusal("serve", "nano", "--engine", "vlm")
