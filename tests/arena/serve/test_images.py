"""Images for served policies: placed in the context as a player's, and refused in one line if invalid."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agents.engines.in_process import InProcessEngine
from agents.policy import Policy
from agents.published import FolderWeights
from agents.weights import resolve
from arena.cli.loop import wait
from arena.serve.service import ServedModel, Service
from tests.factories.image_files import REFUSED, encode_noise, make_image_part
from tests.factories.seeing import TOKENS, save_vision_model


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a function that sends messages to a policy that sees, or to one that does not."""
    engine, served = InProcessEngine(), {}
    for name, folder in (("seeing", save_vision_model(tmp_path_factory.mktemp("model"))), ("blind", resolve("nano"))):
        wait(engine.publish(name, 0, FolderWeights(Path(folder))))
        policy = Policy.load(name, folder, folder, train=False)
        served[name] = ServedModel(policy, 256, policy.frame.longest_token_length, {})
    with TestClient(Service(engine, served).app(["testserver"]), raise_server_exceptions=False) as client:

        def ask(*contents: Any, model: str = "seeing") -> Any:
            roles = ("user", "assistant")
            messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
            body = json.dumps({"model": model, "messages": messages, "max_tokens": 8, "temperature": 0})
            return client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})

        yield ask


TEXT = {"type": "text", "text": "What is it?"}


def test_replies_depend_on_pictures_and_prompts_count_them(ask: Any) -> None:
    plain, one_image, two_images = (
        ask([TEXT, *map(make_image_part, map(encode_noise, seeds))]).json() for seeds in ((), (1,), (1, 2))
    )
    tokens = [answer["usage"]["prompt_tokens"] for answer in (plain, one_image, two_images)]
    assert tokens[1] - tokens[0] >= TOKENS and tokens[2] - tokens[1] >= TOKENS
    answers = {
        ask([TEXT, make_image_part(encode_noise(k))]).json()["choices"][0]["message"]["content"] for k in range(12)
    }
    assert len(answers) > 1
    later = ask([make_image_part(encode_noise(1)), TEXT], "red", [TEXT, make_image_part(encode_noise(2))])
    assert later.status_code == 200 and later.json()["usage"]["prompt_tokens"] > tokens[2]


def test_blind_policy_refuses_images(ask: Any) -> None:
    answer = ask([TEXT, make_image_part(encode_noise())], model="blind")
    assert answer.status_code == 400 and "the policy cannot see images" in answer.json()["error"]["message"]
    assert ask([TEXT], model="blind").status_code == 200


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_images_are_refused_in_one_line(name: str, ask: Any) -> None:
    part, message = REFUSED[name]
    answer = ask([TEXT, part])
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error"
    assert message in error["message"] and "\n" not in error["message"]


def test_more_pictures_than_the_context_holds_are_refused(ask: Any) -> None:
    answer = ask([TEXT, *[make_image_part(encode_noise(size=(8, 8)))] * 40])
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
    assert ask([TEXT], [make_image_part(encode_noise())], [TEXT]).status_code == 400
