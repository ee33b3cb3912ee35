"""Endpoints as players, against a real server on this machine that answers well, badly, late and too much."""

import asyncio
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agents.errors import EndpointError
from agents.player import Message, View
from agents.players import endpoint as module
from agents.players.endpoint import BODY_BYTES, REPLY_LENGTH, Endpoint, model_of
from agents.players.spend import EndpointSpec
from agents.role import Role, Sampling

KEY = "sk-very-secret"
CHAT = [{"role": "user", "content": "Your act?"}]


def completion(content="BET", finish="stop", usage=(10, 2)):
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}]}
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return body


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 200


class Server:
    """Answers requests in turn with what it is given; the last answer stays. Keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked, self.times = list(answers), [], []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                server.times.append(time.monotonic())
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    answer(self)

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

    def endpoint(self, **settings):
        settings = {"seconds": 2.0, "requests_per_minute": 1000, "url": self.url, **settings}
        return Endpoint(EndpointSpec(**settings), KEY)

    def ask(self, **settings):
        made = self.endpoint(**settings)
        return made, asyncio.run(made.ask("m", CHAT, Sampling(max_tokens=16), 1))

    def fails(self, **settings):
        made = self.endpoint(**settings)
        with pytest.raises(EndpointError) as caught:
            asyncio.run(made.ask("m", CHAT, Sampling(max_tokens=16), 1))
        line = str(caught.value)
        assert "\n" not in line and line.isprintable() and KEY not in line and len(line) < 400
        return made, line


def says(body, status=200, **headers):
    """An answer of this status and body: JSON, or bytes as they are."""

    def answer(handler):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def stalls(handler):
    time.sleep(1.5)


def drips(handler):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def floods(handler):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b"x" * 100_000)


def floods_with_500(handler):
    handler.send_response(500)
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b"x" * 100_000)


def hangs_up(handler):
    handler.connection.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "BACKOFF", 0.01)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


# A server that answers


def test_a_reply_and_what_was_asked():
    with Server(says(completion("BET | hm", "stop", (31, 5)))) as server:
        made, answer = server.ask()
    assert (answer.text, answer.finish, answer.tokens) == ("BET | hm", "stop", 5)
    assert (made.spend.read, made.spend.wrote) == (31, 5)
    path, headers, body = server.asked[0]
    assert path == "/v1/chat/completions" and headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "m" and body["messages"] == CHAT and body["max_tokens"] == 16
    assert "stop" not in body and KEY not in repr(made.spec)


def test_a_cut_reply_says_so():
    with Server(says(completion("BE", "length"))) as server:
        assert server.ask()[1].finish == "length"


@pytest.mark.parametrize("content", [None, ""])
def test_no_words_are_an_empty_reply(content):
    with Server(says(completion(content))) as server:
        assert server.ask()[1].text == ""


def test_a_long_reply_is_cut_and_broken_characters_replaced():
    with Server(says(completion("\ud800" + "a" * 100_000))) as server:
        text = server.ask()[1].text
    assert len(text) == REPLY_LENGTH and text.startswith("?a")


def test_models_that_want_the_newer_name_get_it():
    refusal = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    with Server(says(refusal, 400), says(completion())) as server:
        assert server.ask()[1].text == "BET"
    assert "max_completion_tokens" not in server.asked[0][2]
    assert server.asked[1][2]["max_completion_tokens"] == 16 and "max_tokens" not in server.asked[1][2]


# A server that does not


RUBBISH = [
    b"", b"not json", b"[]", b"null", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": "BET"}',
    b'{"choices": [{"message": {"content": 5}}]}', b'{"choices": [{"message": {"content": ["BET"]}}]}',
    b"[" * 200_000, b'{"choices": ' + b"9" * 10_000 + b"}", b"\xff\xfe\x00",
]  # fmt: skip


@pytest.mark.parametrize("body", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_is_refused_and_paid_for_as_estimated(body):
    with Server(says(body)) as server:
        made, line = server.fails(attempts=2)
    assert "the reply is not" in line and "(2 attempts)" in line and len(server.asked) == 2
    assert made.spend.wrote == 32


def test_rubbish_once_is_tried_again():
    with Server(says(b"rubbish"), says(completion())) as server:
        assert server.ask()[1].text == "BET"


@pytest.mark.parametrize(
    "usage",
    [None, "many", {"prompt_tokens": -5, "completion_tokens": 2}, {"prompt_tokens": 10**12, "completion_tokens": 1},
     {"prompt_tokens": True, "completion_tokens": 1}, {"prompt_tokens": 3.5, "completion_tokens": 1},
     {"prompt_tokens": float("nan"), "completion_tokens": 1}, {"completion_tokens": 1}],
)  # fmt: skip
def test_usage_without_sense_is_estimated(usage):
    with Server(says({**completion(usage=None), "usage": usage})) as server:
        made, answer = server.ask()
    assert answer.tokens == made.spend.wrote == 16 and 10 < made.spend.read < 50


@pytest.mark.parametrize("answer", [floods, floods_with_500])
def test_a_flood_is_cut_off(answer):
    with Server(answer) as server:
        begun = time.monotonic()
        _, line = server.fails(attempts=1)
    assert f"longer than {BODY_BYTES:,} bytes" in line and time.monotonic() - begun < 2


@pytest.mark.parametrize("answer", [stalls, drips])
def test_a_stalling_server_is_left(answer):
    with Server(answer) as server:
        begun = time.monotonic()
        _, line = server.fails(seconds=0.3, attempts=2)
    assert "no reply within 0.3 s (2 attempts)" in line and time.monotonic() - begun < 2


def test_a_lost_connection_is_tried_again():
    with Server(hangs_up, says(completion())) as server:
        assert server.ask()[1].text == "BET"


def test_nobody_there():
    with Server(says(completion())) as server:
        pass
    _, line = server.fails(attempts=2)
    assert "(2 attempts)" in line


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_what_may_pass_is_tried_again_for_nothing(status):
    with Server(says({"error": {"message": "busy"}}, status), says(completion())) as server:
        made, answer = server.ask()
    assert answer.text == "BET" and (made.spend.read, made.spend.wrote) == (10, 2)


def test_retry_after_is_heeded():
    with Server(says({}, 429, retry_after="0.4"), says(completion())) as server:
        server.ask()
    assert server.times[1] - server.times[0] >= 0.4


@pytest.mark.parametrize("wait", ["3600", "1e300"])
def test_a_long_wait_is_not_waited(wait):
    with Server(says({"error": {"message": "quota"}}, 429, retry_after=wait)) as server:
        _, line = server.fails()
    assert len(server.asked) == 1 and "status 429" in line


@pytest.mark.parametrize("wait", ["soon", "-5", "nan", "inf", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_retry_after_without_sense_is_ignored(wait):
    with Server(says({}, 429, retry_after=wait), says(completion())) as server:
        assert server.ask()[1].text == "BET"


def test_what_will_not_pass_is_not_tried_again():
    told = {"error": {"message": f"Incorrect API key provided: {KEY}\n\x1b[31m" + "x" * 5000}}
    with Server(says(told, 401)) as server:
        _, line = server.fails()
    assert len(server.asked) == 1 and "status 401" in line and "(key)" in line


def test_redirects_are_not_followed():
    with Server(says(completion())) as other, Server(says({}, 307, location=other.url)) as server:
        server.fails()
        assert not other.asked


# Limits that all matches share


def test_the_spend_limit_ends_calls():
    with Server(says(completion(usage=(10, 5)))) as server:
        made = server.endpoint(max_tokens=100)

        async def ask():
            return await made.ask("m", CHAT, Sampling(max_tokens=16), 1)

        async def all_asked():
            return await asyncio.gather(*(ask() for _ in range(30)), return_exceptions=True)

        answers = asyncio.run(all_asked())
        late = asyncio.run(all_asked())  # another event loop, as in a run's next iteration
    failed = [answer for answer in answers if isinstance(answer, EndpointError)]
    assert 0 < len(failed) < 30 and made.spend.read + made.spend.wrote <= 100
    assert "spend limit: 100 tokens for the whole run" in str(failed[0])
    assert sum(not isinstance(a, Exception) for a in answers + late) == len(server.asked) <= 6


def test_money_is_counted():
    with Server(says(completion(usage=(1000, 500)))) as server:
        made = server.endpoint(price_in=1.0, price_out=4.0, max_cost=0.004)
        asyncio.run(made.ask("m", CHAT, Sampling(), 1))
        assert made.spend.cost == pytest.approx(0.003)
        asyncio.run(made.ask("m", CHAT, Sampling(), 1))
        with pytest.raises(EndpointError, match=r"spend limit: 0\.004 for the whole run, 0\.006 used"):
            asyncio.run(made.ask("m", CHAT, Sampling(), 1))
    with pytest.raises(ValueError, match="max_cost needs prices"):
        EndpointSpec(max_cost=1.0)


def test_requests_per_minute():
    with Server(says(completion())) as server:
        made = server.endpoint(requests_per_minute=120)  # a burst, then two a second

        async def all_asked():
            await asyncio.gather(*(made.ask("m", CHAT, Sampling(), 1) for _ in range(122)))

        begun = time.monotonic()
        asyncio.run(all_asked())
        # a starved machine may time out and ask again, so at least as many
        assert len(server.asked) >= 122 and time.monotonic() - begun > 0.4


# Players


def role(**parts):
    fields = {
        "role": "player", "system": "Rules: {{ rules }}", "turn": "{% if first %}card {{ private.card }} {% endif %}go",
        "examples": [{"see": "card K", "say": "BET"}], "sampling": {"max_tokens": 9, "temperature": 0.5}, **parts,
    }  # fmt: skip
    return Role.model_validate(fields)


def view(turn):
    return View("first", turn, (Message(sender="second", text="BET"),), "be good", {}, {"card": "Q"}, ("BET", "PASS"))


def chats(which, turns=4):
    with Server(*(says(completion(f"PASS | {turn}")) for turn in range(turns))) as server:
        player = server.endpoint().player("m", which, 7)

        async def play():
            return [await player.act(view(turn)) for turn in range(turns)]

        acts = asyncio.run(play())
    assert (player.streams, player.stream_keys, player.version) == ([], [], 0)
    return acts, [[(m["role"], m["content"]) for m in body["messages"]] for _, _, body in server.asked], server


def test_a_player_speaks_as_its_role():
    acts, told, server = chats(role())
    assert (acts[1].action, acts[1].public, acts[1].finish, acts[1].tokens) == ("PASS | 1", "1", "stop", 2)
    opening = [("system", "Rules: be good"), ("user", "card K"), ("assistant", "BET")]
    assert told[0] == [*opening, ("user", "card Q go")]
    assert told[2] == [
        *opening, ("user", "card Q go"), ("assistant", "PASS | 0"), ("user", "go"), ("assistant", "PASS | 1"),
        ("user", "go"),
    ]  # fmt: skip
    assert server.asked[0][2]["temperature"] == 0.5
    assert len({body["seed"] for _, _, body in server.asked}) == 4


def test_memory_lets_go_as_the_role_says():
    _, told, _ = chats(role(memory={"kind": "window", "turns": 1}))
    assert [said for who, said in told[3][3:]] == ["card Q go", "PASS | 2", "card Q go"]
    _, told, _ = chats(role(memory={"kind": "window", "turns": 0}, examples=[], system=""))
    assert told[3] == [("user", "card Q go")]


def test_matches_fail_alone_and_say_why():
    from arena.play.match import Limits, MatchPlan, play_match
    from arena.records import Seating
    from games.kuhn_poker import KuhnPoker

    with Server(says(completion("PASS")), says({"error": {"message": "no such model"}}, 404)) as server:
        made = server.endpoint()

        async def match(seed):
            game = KuhnPoker()
            seats = {seat: Seating("player", "endpoint:m", 0, False, "brain") for seat in game.seats}
            players = {seat: made.player("m", role(), seed) for seat in game.seats}
            return await play_match(MatchPlan("1", 0, "kuhn_poker", {}, seed, seats), game, players, Limits())

        record = asyncio.run(match(1))
    assert record.status == "failed" and len(record.turns) == 1
    assert record.reason == "EndpointError: endpoint:m: status 404: no such model"
    assert record.to_json()["reason"] == record.reason


# What is missing


def test_a_key_or_a_server_is_needed(monkeypatch):
    with pytest.raises(EndpointError, match="set OPENAI_API_KEY, or OPENAI_BASE_URL"):
        Endpoint()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert Endpoint().url == "http://127.0.0.1:9/v1"


def test_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(EndpointError, match=r"pip install 'arena-selfplay\[endpoint\]'"):
        Endpoint(key=KEY)


@pytest.mark.parametrize("spec", ["endpoint:", "endpoint:a\nb", "endpoint: "])
def test_a_model_is_named(spec):
    assert model_of("endpoint:org/m-1:free") == "org/m-1:free"
    with pytest.raises(EndpointError, match="write endpoint:MODEL"):
        model_of(spec)


def test_a_run_goes_on_when_its_endpoint_fails_now_and_then(tmp_path, monkeypatch):
    from arena.config.layers import compose, recipe_layer, set_layer, to_yaml
    from arena.lab import Lab
    from arena.store.run import RunFolder

    class Nobody:
        def __getattr__(self, name):
            return lambda *news: None

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = [
        "iterations=1", "play.matches=6", "play.attempts=1", "play.in_flight=1", "learn.regularisers={kl: {weight: 0}}",
        "policies.shared.imitate={brains: [random], matches: 16, epochs: 1}",
        "seats.second.policy=endpoint:m", "endpoint.attempts=1", "endpoint.requests_per_minute=10000",
    ]  # fmt: skip
    answers = [says({"error": {"message": "gone"}}, 404), says(completion("PASS"))]
    with Server(*answers) as server:
        given = compose([recipe_layer("kuhn_poker-nano"), *map(set_layer, [*settings, f"endpoint.url={server.url}"])])
        run = RunFolder.create(tmp_path / "run", to_yaml(given), {})
        Lab(run, given, Nobody()).run()
    rows = list(run.log.rows())
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(rows) == 6 and [row["reason"] for row in failed] == ["EndpointError: endpoint:m: status 404: gone"]
    assert {row["seats"]["second"]["kind"] for row in rows} == {"endpoint"}
    (metrics,) = run.metrics.read()
    assert (metrics["matches"], metrics["failed"]) == (5, 1) and metrics["learn"]["shared"]
