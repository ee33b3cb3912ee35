"""Requests of any shape are answered or refused in one line, never with status 500."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from agents.engines.base import Completion, Request
from agents.policy import Policy
from agents.weights import resolve
from arena.config.layers import compose
from arena.config.sources import recipe_layer, set_layer
from arena.serve.chat_request import NEUTRAL, ChatRequest
from arena.serve.service import ServedModel, Service, find_roles

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(
        [0, -1, 2**31, 2**63, 2**64, 10**400, 1e-300, 1e308, "", "\0", "\ud800", "\u2028", "user", "x" * 5000, "nan"]
    )
)  # fmt: skip
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": st.text() | JSON},
    optional={"name": JSON, "tool_calls": JSON, "refusal": JSON},
)
PART = st.fixed_dictionaries({"type": st.just("text") | JSON, "text": st.text() | JSON})
CONVERSATION = st.lists(
    MESSAGE | st.fixed_dictionaries({"role": st.just("user"), "content": st.lists(PART, max_size=3)})
)
FIELDS = [*ChatRequest.model_fields, *NEUTRAL]


class EchoEngine:
    """Engine that replies with the context's last token."""

    async def generate(self, requests: Sequence[Request]) -> list[Completion]:
        for request in requests:
            request.check(10**6, 10**6)
        return [Completion((request.ids[-1],), (0.0,), "stop", 0) for request in requests]

    def forget(self, key: str) -> None: ...


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    recipe = compose([recipe_layer("negotiation-nano"), set_layer("policies.shared.imitate=null")])
    folder = resolve("nano")
    policy = Policy.load("served", folder, folder, train=False)
    model = ServedModel(policy, 256, policy.frame.longest_token_length, find_roles(recipe, "shared"))
    service = Service(EchoEngine(), {"shared": model})  # type: ignore[arg-type]
    with TestClient(service.app(["testserver"]), raise_server_exceptions=False) as client:
        yield client


def assert_answered(client: TestClient, body: Any) -> None:
    """Assert that a body is answered, or refused in one line of the API's form."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})
    if answer.status_code == 200:
        assert '"error"' not in answer.text
        return
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text[:300])
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 500 and error["message"].isprintable(), error["message"]


FUZZ_SETTINGS = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ_SETTINGS
@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3), role=st.booleans())
def test_any_value_of_any_field(client: TestClient, changes: dict[str, Any], role: bool) -> None:
    ask = {"model": "shared:nano_opener" if role else "shared", "messages": [{"role": "user", "content": "hi"}]}
    assert_answered(client, ask | changes)


@FUZZ_SETTINGS
@given(messages=CONVERSATION, role=st.booleans())
def test_any_conversation(client: TestClient, messages: list[Any], role: bool) -> None:
    assert_answered(client, {"model": "shared:nano_opener" if role else "shared", "messages": messages})


@FUZZ_SETTINGS
@given(body=JSON | st.dictionaries(st.sampled_from(FIELDS) | st.text(), JSON) | st.binary())
def test_any_body(client: TestClient, body: Any) -> None:
    assert_answered(client, body)
