"""Endpoints as players, against a local server with valid, invalid, slow and oversized answers."""

import asyncio
import base64
import hashlib
import sys
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest

from agents.errors import EndpointError
from agents.players import endpoint as module
from agents.players.connection import BODY_BYTES
from agents.players.endpoint import REPLY_LENGTH, Endpoint, make_key_hider
from agents.players.servers import Endpoints, parse_endpoint
from agents.players.spend import EndpointSpec
from agents.role import Role, Sampling
from arena.cli.loop import wait
from games.contracts import MatchId, Message, View
from tests.factories import server
from tests.factories.seeing import Colours
from tests.factories.server import make_completion, reply_with, reply_with_models

KEY = "sk-very-secret"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
CHAT = [{"role": "user", "content": "Your act?"}]


class Server(server.Server):
    """Server with an endpoint that calls it."""

    def endpoint(self, **settings):
        return Endpoint(EndpointSpec(**{"seconds": 2.0, "url": self.url, **settings}))

    def ask(self, **settings):
        endpoint = self.endpoint(**settings)
        return endpoint, asyncio.run(endpoint.ask("m", CHAT, Sampling(max_tokens=16), 1))

    def fails(self, **settings):
        endpoint = self.endpoint(**settings)
        with pytest.raises(EndpointError) as error:
            asyncio.run(endpoint.ask("m", CHAT, Sampling(max_tokens=16), 1))
        line = str(error.value)
        assert "\n" not in line and line.isprintable() and KEY not in line and len(line) < 400
        return endpoint, line


def stall(handler):
    time.sleep(1.5)


def drip(handler):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def flood(handler, status=200):
    handler.send_response(status)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b"x" * 100_000)


def hang_up(handler):
    handler.connection.close()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(module, "BACKOFF", 0.01)
    for variable in ("OPENAI_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR", *PROXIES, *map(str.upper, PROXIES)):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


# A server that answers


def test_reply_and_request_fields():
    with Server(reply_with(make_completion("BET | hm", "stop", (31, 5)))) as server:
        endpoint, answer = server.ask()
    assert (answer.text, answer.finish, answer.tokens) == ("BET | hm", "stop", 5)
    assert (endpoint.spend.input_tokens, endpoint.spend.output_tokens) == (31, 5)
    path, headers, body = server.requests[0]
    assert path == "/v1/chat/completions" and headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "m" and body["messages"] == CHAT and body["max_tokens"] == 16
    assert "stop" not in body and KEY not in repr(endpoint.spec)


def test_truncated_reply_is_marked_and_text_parts_are_joined():
    with Server(reply_with(make_completion("BE", "length"))) as server:
        assert server.ask()[1].finish == "length"
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": "BET | "}, {"type": "text", "text": "go"}]
    with Server(reply_with(make_completion(parts))) as server:
        assert server.ask()[1].text == "BET | go"


def make_empty(finish="stop", **fields):
    return {**make_completion(), "choices": [{"message": {"role": "assistant", **fields}, "finish_reason": finish}]}


CALL = {"id": "1", "type": "function", "function": {"name": "bet", "arguments": "{}"}}
TEXTLESS = {
    "null": (make_empty(content=None), "it is empty"),
    "nothing": (make_empty(), "it is empty"),
    "an empty string": (make_empty(content=""), "it is empty"),
    "blanks": (make_empty(content=" \n\u200b\t"), "it is empty"),
    "no parts": (make_empty(content=[]), "it is empty"),
    "a thought": (make_empty(content=None, reasoning_content="BET"), "there is a thought (reasoning_content) alone"),
    "vLLM's thought": (make_empty(content=None, reasoning="BET"), "there is a thought"),
    "a thought as a part": (make_empty(content=[{"type": "thinking", "thinking": "BET"}]), "it is empty"),
    "a refusal": (make_empty(content=None, refusal="I do not gamble."), "the model refuses (I do not gamble.)"),
    "a tool call": (make_empty("tool_calls", content=None, tool_calls=[CALL]), "it is a call of a tool"),
    "an old call": (make_empty("function_call", content="", function_call=CALL["function"]), "it is a call of a tool"),
    "a filter": (make_empty("content_filter", content=None), "the server cut it off (finish_reason content_filter)"),
    "a filter in the middle": (make_empty("content_filter", content="BE"), "the server cut it off"),
    "an aborted reply": (make_empty("abort", content="BE"), "the server cut it off (finish_reason abort)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTLESS)
def test_a_reply_without_text_is_asked_for_again_and_is_no_act(kind):
    body, reason = TEXTLESS[kind]
    with Server(reply_with(body)) as server:
        endpoint, line = server.fails(attempts=2)
    assert f"the reply has no text: {reason}" in line and "(2 attempts)" in line
    assert (endpoint.spend.input_tokens, endpoint.spend.output_tokens) == (20, 4), "which the server was paid for"
    with Server(reply_with(body), reply_with(make_completion())) as server:
        assert server.ask()[1].text == "BET"
    first, second = [body["seed"] for _, _, body in server.requests]
    assert first != second, "the same seed would draw it again"


def test_token_limit_spent_on_thought_is_reported_at_once():
    for thought in ({"reasoning_content": "Let me see"}, {}):
        with Server(reply_with(make_empty("length", content="", **thought))) as server:
            _, line = server.fails()
        assert "all 16 tokens: raise the role's sampling.max_tokens" in line and len(server.requests) == 1


def test_a_reply_without_text_fails_its_match():
    record, _ = play_matches(reply_with(make_empty(content=None, reasoning_content="BET")), attempts=1)
    assert (record.status, record.turns, record.payoffs) == ("failed", (), {})
    assert record.failure.kind == "endpoint" and "the reply has no text" in record.reason


def test_a_long_reply_is_cut_and_broken_characters_replaced():
    with Server(reply_with(make_completion("\ud800" + "a" * 100_000))) as server:
        text = server.ask()[1].text
    assert len(text) == REPLY_LENGTH and text.startswith("?a")


def test_uses_max_completion_tokens_where_required():
    refusal = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    with Server(reply_with(refusal, 400), reply_with(make_completion())) as server:
        assert server.ask()[1].text == "BET"
    assert "max_completion_tokens" not in server.requests[0][2]
    assert server.requests[1][2]["max_completion_tokens"] == 16 and "max_tokens" not in server.requests[1][2]


def test_concurrent_matches_all_use_max_completion_tokens():
    refusal = {"error": {"message": "use max_completion_tokens"}}

    def picky(handler):
        (reply_with(refusal, 400) if "max_tokens" in handler.body else reply_with(make_completion()))(handler)

    with Server(picky) as server:
        endpoint = server.endpoint(attempts=1)

        async def all_asked():
            return await asyncio.gather(*(endpoint.ask("m", CHAT, Sampling(), k) for k in range(8)))

        assert {answer.text for answer in asyncio.run(all_asked())} == {"BET"}


def test_unset_sampling_is_left_to_the_server():
    def sent(**sampling):
        with Server(reply_with(make_completion())) as server:
            asyncio.run(server.endpoint().ask("m", CHAT, Sampling.model_validate(sampling), 1))
        return {
            name: server.requests[0][2].get(name) for name in ("temperature", "top_p") if name in server.requests[0][2]
        }

    assert sent() == sent(temperature=None, top_p=None) == {}
    assert sent(temperature=0.5) == {"temperature": 0.5} and sent(top_p=0.5, temperature=None) == {"top_p": 0.5}
    assert sent(temperature=1.0, top_p=0.9) == {"temperature": 1.0, "top_p": 0.9}
    unset = Sampling.model_validate({"temperature": None, "top_p": None})
    assert (unset.temperature, unset.top_p) == (1.0, 1.0), "of our own engines"


@pytest.mark.parametrize(
    "message", ["Unsupported value: 'temperature' does not support 1.0", "one of temperature, top_p"]
)
def test_refused_neutral_parameter_is_dropped(message):
    with Server(reply_with({"error": {"message": message}}, 400), reply_with(make_completion())) as server:
        endpoint = server.endpoint(attempts=1)
        for _ in range(2):
            asyncio.run(endpoint.ask("m", CHAT, Sampling(temperature=1.0), 1))
    assert ["temperature" in body for _, _, body in server.requests] == [True, False, False]
    with (
        Server(reply_with({"error": {"message": message}}, 400)) as server,
        pytest.raises(EndpointError, match="temperature"),
    ):
        asyncio.run(server.endpoint().ask("m", CHAT, Sampling(temperature=0.5), 1))
    assert len(server.requests) == 1, "what says something is not dropped"


# A server that does not


RUBBISH = [
    b"", b"not json", b"[]", b"null", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": "BET"}',
    b'{"choices": [{"message": {"content": 5}}]}', b'{"choices": [{"message": {"content": ["BET"]}}]}',
    b"[" * 200_000, b'{"choices": ' + b"9" * 10_000 + b"}", b"\xff\xfe\x00",
]  # fmt: skip


@pytest.mark.parametrize("body", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_is_refused_and_paid_for_as_estimated(body):
    with Server(reply_with(body)) as server:
        endpoint, line = server.fails(attempts=2)
    assert "the reply is not" in line and "(2 attempts)" in line and len(server.requests) == 2
    assert endpoint.spend.output_tokens == 32


def test_error_with_status_200_is_reported():
    with Server(reply_with({"error": {"message": f"provider is down {KEY}", "code": 502}})) as server:
        _, line = server.fails(attempts=1)
    assert "the server reports an error: provider is down (key)" in line


@pytest.mark.parametrize(
    "usage",
    [None, "many", {"prompt_tokens": -5, "completion_tokens": 2}, {"prompt_tokens": 10**12, "completion_tokens": 1},
     {"prompt_tokens": True, "completion_tokens": 1}, {"prompt_tokens": 3.5, "completion_tokens": 1},
     {"prompt_tokens": float("nan"), "completion_tokens": 1}, {"completion_tokens": 1}],
)  # fmt: skip
def test_usage_without_sense_is_estimated(usage):
    with Server(reply_with({**make_completion(usage=None), "usage": usage})) as server:
        endpoint, answer = server.ask()
    assert answer.tokens == endpoint.spend.output_tokens == 16 and 10 < endpoint.spend.input_tokens < 50


@pytest.mark.parametrize("answer", [flood, partial(flood, status=500)])
def test_a_flood_is_cut_off(answer):
    with Server(answer) as server:
        start = time.monotonic()
        _, line = server.fails(attempts=1)
    assert f"longer than {BODY_BYTES:,} bytes" in line and time.monotonic() - start < 2


@pytest.mark.parametrize("answer", [stall, drip])
def test_a_stalling_server_is_left(answer):
    with Server(answer) as server:
        start = time.monotonic()
        _, line = server.fails(seconds=0.3, attempts=2)
    assert "no reply within 0.3 s (2 attempts)" in line and time.monotonic() - start < 2


@pytest.mark.parametrize("first", [hang_up, reply_with(b"rubbish")])
def test_rubbish_and_a_lost_connection_are_tried_again(first):
    with Server(first, reply_with(make_completion())) as server:
        assert server.ask()[1].text == "BET"


def test_unreachable_server_is_reported():
    with Server(reply_with(make_completion())) as server:
        pass
    _, line = server.fails(attempts=2)
    assert "(2 attempts)" in line and f"no connection to {server.url}" in line


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_transient_errors_are_retried_without_cost(status):
    with Server(reply_with({"error": {"message": "busy"}}, status), reply_with(make_completion())) as server:
        endpoint, answer = server.ask()
    assert answer.text == "BET" and (endpoint.spend.input_tokens, endpoint.spend.output_tokens) == (10, 2)


def test_retry_after_is_obeyed_in_seconds_and_as_a_date():
    with Server(reply_with({}, 429, retry_after="0.4"), reply_with(make_completion())) as server:
        server.ask()
    assert server.times[1] - server.times[0] >= 0.4

    def busy(handler):
        then = datetime.now(UTC) + timedelta(seconds=2)  # told in whole seconds
        reply_with({}, 429, retry_after=format_datetime(then, usegmt=True))(handler)

    with Server(busy, reply_with(make_completion())) as server:
        server.ask()
    assert 0.5 < server.times[1] - server.times[0] < 2.5


@pytest.mark.parametrize("wait", ["3600", "1e300", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_long_wait_is_not_waited(wait):
    with Server(reply_with({"error": {"message": "quota"}}, 429, retry_after=wait)) as server:
        _, line = server.fails()
    assert len(server.requests) == 1 and "status 429, to wait " in line and line.endswith(" s: quota")


@pytest.mark.parametrize(
    "wait", ["soon", "-5", "nan", "inf", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 99 Oct 99999 07:28:00 GMT", "1" * 5000]
)
def test_a_retry_after_without_sense_is_ignored(wait):
    with Server(reply_with({}, 429, retry_after=wait), reply_with(make_completion())) as server:
        assert server.ask()[1].text == "BET"


def test_permanent_errors_are_not_retried():
    body = {"error": {"message": f"Incorrect API key provided: {KEY}\n\x1b[31m" + "x" * 5000}}
    with Server(reply_with(body, 401)) as server:
        _, line = server.fails()
    assert len(server.requests) == 1 and "status 401" in line and "(key)" in line


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>", "502 Bad Gateway nginx"),
        (b'{"detail": "no such path"}', '{"detail": "no such path"}'),
        (b'{"error": "model m is not there"}', '{"error": "model m is not there"}'),
        (b"<" * 900_000, "<<<"),
        (b"", "Error code: 404"),
        (b"[" * 100_000, "[[["),
    ],
)
def test_refusals_in_any_form_are_reported_in_one_line(body, words):
    with Server(reply_with(body, 404)) as server:
        _, line = server.fails()
    assert f"status 404: {words}" in line


def test_redirects_are_not_followed():
    with Server(reply_with(make_completion())) as other:
        moved = reply_with({}, 307, location=other.url)
        with Server(moved, models=moved) as server:
            _, line = server.fails()
            (note,) = check_server(server.endpoint(), "m")
        assert f"status 307: it redirects to {other.url}" in line and f"it redirects to {other.url}" in note
        assert not other.requests and not other.model_requests


@pytest.mark.parametrize("charset", ["zlib_codec", "idna", "nonsense", "utf-7"])
def test_no_charset_breaks_the_reading_of_a_refusal(charset):
    sent = {"content_type": f"text/plain; charset={charset}"}
    with Server(reply_with(b"\xff no such model", 404, **sent)) as server:
        _, line = server.fails()
    assert "no such model" in line


def test_only_the_first_choice_is_read():
    first = make_completion()["choices"]
    with Server(reply_with({**make_completion(), "choices": [*first, *[{}] * 200_000]})) as server:
        assert server.ask()[1].text == "BET"


# Limits that all matches share


def test_the_spend_limit_ends_calls():
    with Server(reply_with(make_completion(usage=(10, 5)))) as server:
        endpoint = server.endpoint(max_tokens=100)

        async def ask():
            return await endpoint.ask("m", CHAT, Sampling(max_tokens=16), 1)

        async def all_asked():
            return await asyncio.gather(*(ask() for _ in range(30)), return_exceptions=True)

        answers = asyncio.run(all_asked())
        late = asyncio.run(all_asked())  # another event loop, as in a run's next iteration
    failed = [answer for answer in answers if isinstance(answer, EndpointError)]
    assert 0 < len(failed) < 30 and endpoint.spend.input_tokens + endpoint.spend.output_tokens <= 100
    assert "spend limit: 100 tokens for the whole run" in str(failed[0])
    assert sum(not isinstance(a, Exception) for a in answers + late) == len(server.requests) <= 6


def test_money_is_counted():
    with Server(reply_with(make_completion(usage=(1000, 500)))) as server:
        endpoint = server.endpoint(price_in=1.0, price_out=4.0, max_cost=0.004)
        asyncio.run(endpoint.ask("m", CHAT, Sampling(), 1))
        assert endpoint.spend.cost == pytest.approx(0.003)
        asyncio.run(endpoint.ask("m", CHAT, Sampling(), 1))
        with pytest.raises(EndpointError, match=r"spend limit: 0\.004 for the whole run, 0\.006 used"):
            asyncio.run(endpoint.ask("m", CHAT, Sampling(), 1))
    with pytest.raises(ValueError, match="max_cost needs prices"):
        EndpointSpec(max_cost=1.0)


def test_requests_per_minute():
    with Server(reply_with(make_completion())) as server:
        endpoint = server.endpoint(requests_per_minute=120)  # a burst, then two a second

        async def all_asked():
            await asyncio.gather(*(endpoint.ask("m", CHAT, Sampling(), 1) for _ in range(122)))

        start = time.monotonic()
        asyncio.run(all_asked())
        # a starved machine may time out and ask again, so at least as many
        assert len(server.requests) >= 122 and time.monotonic() - start > 0.4


def test_without_a_limit_nobody_waits():
    with Server(reply_with(make_completion())) as server:
        endpoint = server.endpoint(seconds=60.0)

        async def all_asked():
            await asyncio.gather(*(endpoint.ask("m", CHAT, Sampling(), 1) for _ in range(150)))

        start = time.monotonic()
        asyncio.run(all_asked())
    assert time.monotonic() - start < 60  # with 60 a minute, 90 s
    assert (endpoint.replies, endpoint.waiting) == (150, 0)


def test_a_seed_can_be_left_out():
    with Server(reply_with(make_completion())) as server:
        server.ask()
        server.ask(seed=False)
    assert [("seed" in body) for _, _, body in server.requests] == [True, False]


# Before anything starts


def check_server(endpoint, *models):
    return asyncio.run(endpoint.check(models))


def test_a_server_is_asked_for_its_models():
    with Server(reply_with(make_completion()), models=reply_with_models("qwen3", "m")) as server:
        assert check_server(server.endpoint(), "m", "qwen3") == []
        (note,) = check_server(server.endpoint(), "qwen")
        assert note == f"endpoint: {server.url} lists no model 'qwen' — did you mean 'qwen3'?"
        ((path, headers), _) = server.model_requests
    assert path == "/v1/models" and headers["authorization"] == f"Bearer {KEY}" and not server.requests


@pytest.mark.parametrize("status", [403, 404, 405, 500, 501])
def test_server_without_models_route_is_accepted(status):
    with Server(models=reply_with({"error": {"message": "what?"}}, status)) as server:
        assert check_server(server.endpoint(), "m") == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 5}', b'{"data": [{}]}', b"[" * 200_000])
def test_malformed_model_list_is_noted(body):
    with Server(models=reply_with(body)) as server:
        (note,) = check_server(server.endpoint(), "m")
    assert server.url in note and "is it the right server?" in note


def test_refused_key_is_reported():
    says_so = pytest.raises(EndpointError, match=r"refuses the key in OPENAI_API_KEY \(401: bad key \(key\)\)")
    with Server(models=reply_with({"error": {"message": f"bad key {KEY}"}}, 401)) as server, says_so:
        check_server(server.endpoint(), "m")


def test_unreachable_server_is_reported_at_once_with_its_url():
    with Server() as server:
        pass
    start = time.monotonic()
    with pytest.raises(EndpointError) as error:
        check_server(server.endpoint(seconds=60.0), "m")
    assert time.monotonic() - start < 2
    line = str(error.value)
    assert line.startswith(f"endpoint: no connection to {server.url} (") and "is a server running there?" in line


# Several servers


def test_each_server_has_its_own_key_account_and_rate(monkeypatch):
    monkeypatch.setenv("LOCAL_KEY", "another-secret")
    with (
        Server(reply_with(make_completion(usage=(10, 2)))) as first,
        Server(reply_with(make_completion(usage=(30, 5)))) as two,
    ):
        local = EndpointSpec(url=two.url, key_variable="LOCAL_KEY", max_tokens=1000)
        servers = Endpoints({"": EndpointSpec(url=first.url), "local": local})
        for spec in ("endpoint:m", "endpoint@local:m", "endpoint@local:n"):
            asyncio.run(servers.at(spec).ask(parse_endpoint(spec)[1], CHAT, Sampling(), 1))
    assert servers.at("endpoint@local:n") is servers.at("endpoint@local:m")
    assert servers.at("endpoint:m").spend.input_tokens == 10 and servers.at("endpoint@local:m").spend.input_tokens == 60
    assert first.requests[0][1]["authorization"] == f"Bearer {KEY}"
    assert [headers["authorization"] for _, headers, _ in two.requests] == ["Bearer another-secret"] * 2
    assert servers.status() == "3 replies, 0 requests under way"


def test_refuses_unknown_server_name():
    servers = Endpoints({"local": EndpointSpec(url="http://127.0.0.1:9/v1")})
    with pytest.raises(EndpointError, match=r"unknown server 'locl' in endpoint@locl:m — did you mean 'local'"):
        servers.at("endpoint@locl:m")


def test_a_key_that_was_asked_for_is_needed():
    spec = EndpointSpec(url="http://127.0.0.1:9/v1", key_variable="NOT_SET_ANYWHERE")
    with pytest.raises(EndpointError, match=r"endpoint@local: no key: set NOT_SET_ANYWHERE in the environment$"):
        Endpoint(spec, "endpoint@local")


BAD_URLS = ["localhost:8000", "ftp://a/v1", "http://user:secret@host/v1", "http://h/v1?key=k", "", "http://[::1/v1",
            "http://h:99999/v1", "http://h:x/v1"]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_without_sense_or_with_a_secret_is_refused(url):
    with pytest.raises(ValueError, match="a url is"):
        EndpointSpec(url=url)


# The key


SPLIT = [KEY, "\u200b".join(KEY), "\n".join(KEY), KEY[:5] + "\x1b\x00\u202e \u2060" + KEY[5:], "\u200d".join(KEY),
         KEY[:3] + "\ufe0f\u034f\u3164" + KEY[3:]]  # fmt: skip


@pytest.mark.parametrize("content", SPLIT, ids=range(len(SPLIT)))
def test_key_is_redacted_in_completions_and_refusals(content):
    from agents.reply import remove_invisible

    def clean(text):
        return "".join(c for c in remove_invisible(text) if "!" <= c <= "~")

    with Server(reply_with(make_completion(f"BET | it is {content}."))) as server:
        _, answer = server.ask()
        act = asyncio.run(server.endpoint().player("m", make_role(), 7).act(make_view(0)))
    for text in (answer.text, act.action, act.raw, act.public):
        assert KEY not in clean(text) and "(key)" in text
    with Server(reply_with({"error": {"message": f"{'x' * 190}{content}"}}, 401)) as server:
        _, line = server.fails()
    assert KEY[:6] not in clean(line), "nor its beginning, where the line is cut"


def test_key_joined_by_parsing_is_redacted():
    spec = make_role(reply={"format": "whole", "private": "think"}, examples=[])
    with Server(reply_with(make_completion(f"{KEY[:5]}<think>x</think>{KEY[5:]}"))) as server:
        act = asyncio.run(server.endpoint().player("m", spec, 7).act(make_view(0)))
    assert act.action == "(key)"


def test_short_keys_are_not_redacted(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "BET")
    with Server(reply_with(make_completion("BET"))) as server:
        assert server.ask()[1].text == "BET"
    assert make_key_hider("")("none of it") == "none of it"


# Players


def make_role(**parts):
    fields = {
        "role": "player", "system": "Rules: {{ rules }}", "turn": "{% if first %}card {{ private.card }} {% endif %}go",
        "examples": [{"see": "card K", "say": "BET"}], "sampling": {"max_tokens": 9, "temperature": 0.5}, **parts,
    }  # fmt: skip
    return Role.model_validate(fields)


def make_view(turn):
    return View("first", turn, (Message.of("second", "BET"),), "be good", {}, {"card": "Q"}, ("BET", "PASS"))


def play_chats(which, turns=4):
    with Server(*(reply_with(make_completion(f"PASS | {turn}")) for turn in range(turns))) as server:
        player = server.endpoint().player("m", which, 7)

        async def play():
            return [await player.act(make_view(turn)) for turn in range(turns)]

        acts = asyncio.run(play())
    assert (player.streams, player.stream_keys, player.version) == ([], [], 0)
    return acts, [[(m["role"], m["content"]) for m in body["messages"]] for _, _, body in server.requests], server


def test_a_player_speaks_as_its_role():
    acts, chats, server = play_chats(make_role())
    assert (acts[1].action, acts[1].public, acts[1].finish, acts[1].tokens) == ("PASS | 1", "1", "stop", 2)
    opening = [("system", "Rules: be good"), ("user", "card K"), ("assistant", "BET")]
    assert chats[0] == [*opening, ("user", "card Q go")]
    assert chats[2] == [
        *opening, ("user", "card Q go"), ("assistant", "PASS | 0"), ("user", "go"), ("assistant", "PASS | 1"),
        ("user", "go"),
    ]  # fmt: skip
    assert server.requests[0][2]["temperature"] == 0.5
    assert len({body["seed"] for _, _, body in server.requests}) == 4


def test_memory_is_limited_by_the_role():
    _, chats, _ = play_chats(make_role(memory={"kind": "window", "turns": 1}))
    assert [said for who, said in chats[3][3:]] == ["card Q go", "PASS | 2", "card Q go"]
    _, chats, _ = play_chats(make_role(memory={"kind": "window", "turns": 0}, examples=[], system=""))
    assert chats[3] == [("user", "card Q go")]


def play_matches(*answers, **settings):
    from arena.play.match import Limits, MatchPlan, play_match
    from arena.records import Seating
    from games.kuhn_poker import KuhnPoker

    with Server(*answers) as server:
        endpoint = server.endpoint(**settings)

        async def match(seed):
            game = KuhnPoker()
            seats = {seat: Seating("player", "endpoint:m", 0, False, "brain") for seat in game.seats}
            players = {seat: endpoint.player("m", make_role(), seed) for seat in game.seats}
            return await play_match(
                MatchPlan(identity=MatchId(0, 1), game="kuhn_poker", options={}, seed=seed, seats=seats),
                game,
                players,
                Limits(),
            )

        return asyncio.run(match(1)), server


def test_failed_match_leaves_others_and_states_its_reason():
    record, _ = play_matches(
        reply_with(make_completion("PASS")), reply_with({"error": {"message": "no such model"}}, 404)
    )
    assert record.status == "failed" and len(record.turns) == 1
    assert record.reason == "EndpointError: endpoint:m: status 404: no such model"
    assert record.to_json()["reason"] == record.reason


CONTEXT_FULL = {
    "OpenAI": {"message": "Please reduce the length.", "code": "context_length_exceeded"},
    "vLLM": {"message": "This model's maximum context length is 64 tokens. However, you requested 70 tokens"},
    "vLLM, of the reply": {"message": "'max_tokens' or 'max_completion_tokens' is too large: 9. This model's maximum "
                           "context length is 64 tokens and your request has 60 input tokens"},
    "SGLang": {"message": "The input (70 tokens) is longer than the model's context length (64 tokens)."},
    "llama.cpp": {"message": "the request is too long", "type": "exceed_context_size_error"},
    "Anthropic": {"message": "prompt is too long: 70 tokens > 64 maximum"},
}  # fmt: skip


def play_maze(*answers):
    from arena.play.match import Limits, MatchPlan, play_match
    from arena.records import Seating
    from games.maze import Maze

    with Server(*answers) as server:
        plan = MatchPlan(
            identity=MatchId(0, 1),
            game="maze",
            options={},
            seed=1,
            seats={"walker": Seating("player", "endpoint:m", 0, False, "brain")},
        )
        player = server.endpoint().player("m", make_role(turn="go"), 1)
        return asyncio.run(play_match(plan, Maze(size=5), {"walker": player}, Limits())), server


@pytest.mark.parametrize("server", CONTEXT_FULL)
def test_a_match_ends_where_the_server_says_that_the_context_is_full(server):
    full = reply_with({"error": CONTEXT_FULL[server]}, 400)
    record, local_server = play_maze(*[reply_with(make_completion("NORTH"))] * 3, full)
    assert (record.status, record.report["ended"], len(record.turns)) == ("finished", "context", 3), record.reason
    assert (
        record.reason == f"walker: context limit: {CONTEXT_FULL[server]['message']}" and len(local_server.requests) == 4
    )


def test_a_first_reply_without_room_fails_the_match():
    record, _ = play_maze(reply_with({"error": CONTEXT_FULL["vLLM"]}, 400))
    assert record.status == "failed" and record.failure.kind == "endpoint"
    assert "EndpointError: endpoint:m: no room for a reply (context limit: This model's" in record.reason


def test_other_refusal_fails_the_match():
    record, _ = play_maze(
        reply_with(make_completion("NORTH")), reply_with({"error": {"message": "max_tokens is too large: 9"}}, 400)
    )
    assert record.status == "failed" and "status 400: max_tokens is too large" in record.reason


# Proxies and certificates


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy", "HTTP_PROXY"])
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "gopher://x"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_no_proxy_is_asked_for_this_machine(monkeypatch, variable, proxy, host):
    monkeypatch.setenv(variable, proxy)
    with Server(reply_with(make_completion()), models=reply_with_models("m")) as server:
        endpoint = server.endpoint(url=server.url.replace("127.0.0.1", host))
        assert asyncio.run(endpoint.ask("m", CHAT, Sampling(), 1)).text == "BET" and check_server(endpoint, "m") == []


def test_a_proxy_that_is_not_reached_is_named_without_its_password(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://user:hunter2@127.0.0.1:9")
    with pytest.raises(EndpointError, match=r"10\.1\.2\.3/v1 through the proxy of http_proxy") as e:
        check_server(Endpoint(EndpointSpec(url="http://10.1.2.3/v1", attempts=1)), "m")
    assert "hunter2" not in str(e.value)


def test_what_a_proxy_answers_names_it(monkeypatch):
    with Server(reply_with(b"<html>no way</html>", 403)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        with pytest.raises(EndpointError, match="status 403 through the proxy of http_proxy: no way"):
            asyncio.run(Endpoint(EndpointSpec(url="http://10.1.2.3/v1")).ask("m", CHAT, Sampling(), 1))


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("all_proxy", "socks5://user:hunter2@127.0.0.1:9", "all_proxy is a SOCKS proxy: pip install socksio"),
        ("http_proxy", "gopher://user:hunter2@x", "http_proxy is not a valid proxy url"),
        ("SSL_CERT_FILE", "/nowhere/hunter2.pem", "the certificates of SSL_CERT_FILE cannot be read: No such file"),
        ("SSL_CERT_FILE", __file__, "the certificates of SSL_CERT_FILE cannot be read: "),
    ],
)
def test_invalid_environment_is_refused_in_one_line(monkeypatch, variable, value, reason):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(variable, value)
    endpoint = Endpoint(EndpointSpec(url="https://10.1.2.3/v1"))
    for call in (endpoint.check(["m"]), endpoint.ask("m", CHAT, Sampling(), 1)):
        with pytest.raises(EndpointError) as error:
            asyncio.run(call)
        line = str(error.value)
        assert reason in line and "hunter2" not in line and "\n" not in line


# What is missing


def test_a_key_or_a_server_is_needed(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(EndpointError, match=r"endpoint: no key: set OPENAI_API_KEY .*or a url \(OPENAI_BASE_URL\)"):
        Endpoint()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert Endpoint().url == "http://127.0.0.1:9/v1"


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(EndpointError, match=r"pip install 'arena-selfplay\[endpoint\]'"):
        Endpoint()


@pytest.mark.parametrize(
    "spec", ["endpoint:", "endpoint:a\nb", "endpoint: ", "endpoint@:m", "endpoint@local", "endpoint@A B:m"]
)
def test_a_model_is_named(spec):
    assert parse_endpoint("endpoint:org/m-1:free") == ("", "org/m-1:free")
    assert parse_endpoint("endpoint@local:org/m-1:free@2") == ("local", "org/m-1:free@2")
    with pytest.raises(EndpointError, match="write endpoint:MODEL"):
        parse_endpoint(spec)


@pytest.mark.slow
def test_run_survives_occasional_endpoint_failures(tmp_path, monkeypatch):
    from arena.config.layers import compose, to_yaml
    from arena.config.sources import recipe_layer, set_layer
    from arena.lab import Lab
    from arena.play.watchers import Watcher
    from arena.store.run import RunFolder

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = [
        "iterations=1", "play.matches=6", "play.attempts=1", "play.in_flight=1", "learn.regularisers={kl: {weight: 0}}",
        "policies.shared.imitate={scripted: [random], matches: 16, epochs: 1}",
        "seats.second.policy=endpoint:m", "endpoint.attempts=1",
    ]  # fmt: skip
    answers = [reply_with({"error": {"message": "gone"}}, 404), reply_with(make_completion("PASS"))]
    with Server(*answers) as server:
        experiment = compose(
            [recipe_layer("kuhn_poker-nano"), *map(set_layer, [*settings, f"endpoint.url={server.url}"])]
        )
        run = RunFolder.create(tmp_path / "run", to_yaml(experiment), {})
        wait(wait(Lab.open(run, experiment, Watcher())).run())
    rows = list(run.reader.matches())
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(rows) == 6 and [row["reason"] for row in failed] == ["EndpointError: endpoint:m: status 404: gone"]
    assert {row["seats"]["second"]["kind"] for row in rows} == {"endpoint"}
    (metrics,) = run.metrics.read()
    assert (metrics["matches"], metrics["failed"]) == (5, 1) and metrics["learn"]["shared"]


def test_pictures_are_sent_to_servers_with_vision():
    game = Colours(rounds=3)
    game.reset(seed=1)

    def played(keep=None, **settings):
        which = make_role(turn="{% for m in messages %}{{ m.text }}{% endfor %}", images=keep, examples=[])
        with Server(reply_with(make_completion("red"))) as server:
            trial = game.clone()
            player = server.endpoint(**settings).player("m", which, 7, picture=trial.picture)
            for turn in range(3):
                asyncio.run(player.act(View.of(trial, "viewer", turn)))
                trial.step("red")
        contents = [message["content"] for message in server.requests[-1][2]["messages"] if message["role"] == "user"]
        return trial, contents

    trial, contents = played(images=True)
    hashes = [*trial.pictures]
    for name, content in zip(hashes, contents, strict=True):
        text, part = content
        assert text == {"type": "text", "text": "What colour is this? "} and part["type"] == "image_url"
        data = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
        assert hashlib.sha256(data).hexdigest() == name
    _, contents = played(keep={"keep": 1}, images=True)
    assert [isinstance(content, str) for content in contents] == [True, True, False]
    assert contents[0] == f"What colour is this? [image png 48x48 {hashes[0][:8]}]"
    _, contents = played()
    assert all(isinstance(content, str) and "[image png 48x48 " in content for content in contents)
