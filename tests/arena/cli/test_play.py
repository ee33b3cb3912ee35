"""`arena play`, as a person types it."""

import io
import json
import os
import pty
import select
import signal
import sys
import time

import pytest

from arena.records import MatchRecord
from tests.agents.server import Server, completion, says
from tests.arena.tiny import arena, refused

KUHN = ["--game", "kuhn_poker"]
PLAY = [*KUHN, "--seat", "0=cfr", "--seat", "1=cfr"]


def typing(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_brains_play_and_are_watched():
    told = arena("play", "--game", "kuhn_poker", "--seat", "0=nash", "--seat", "second=cfr:10", "--seed", "3")
    assert told.code == 0 and told.err == ""
    lines = told.out.splitlines()
    assert lines[0] == "kuhn_poker, seed 3: first = nash, second = cfr:10"
    assert lines[1].startswith("first: ") and lines[-1].startswith("payoffs: first ")
    again = arena("play", "--game", "kuhn_poker", "--seat", "0=nash", "--seat", "second=cfr:10", "--seed", "3")
    assert again == told


def test_a_person_plays(monkeypatch, tmp_path):
    file = tmp_path / "matches.jsonl"
    for _ in range(2):
        typing(monkeypatch, "what\n1 | hello\n1\n1\n")
        told = arena(
            "play", "--game", "kuhn_poker", "--seat", "1=random", "--seat", "0=human", "--seed", "5", "--out", file
        )
        assert told.code == 0, told
    assert "You are first." in told.out and "card: " in told.out and "'what' is not a legal act" in told.out
    assert "referee: The match is over" in told.out and "payoffs: " in told.out
    records = [MatchRecord.from_json(json.loads(line)) for line in file.read_text().splitlines()]
    assert len(records) == 2
    assert records[0].status == "finished" and records[0].turns[0].raw == "PASS | hello"
    assert {seat: seating.policy for seat, seating in records[0].seats.items()} == {
        "first": "human",
        "second": "random",
    }


def test_json_keeps_talk_apart(monkeypatch):
    typing(monkeypatch, "1\n1\n")
    told = arena("play", "--game", "kuhn_poker", "--seat", "0=human", "--seat", "1=random", "--json")
    assert MatchRecord.from_json(json.loads(told.out)).status == "finished"
    assert "You are first." in told.err


def test_leaving_is_polite(monkeypatch, tmp_path):
    typing(monkeypatch, "")
    out = tmp_path / "left.jsonl"
    told = arena("play", "--game", "kuhn_poker", "--seat", "0=human", "--seat", "1=random", "--out", out)
    assert told.code == 0 and "The match was not finished: first left the match" in told.out
    assert json.loads(out.read_text())["status"] == "failed"


def test_options_of_the_game():
    told = arena("play", "--game", "negotiation", "--option", "max_turns=2", "--seat", "0=hard_liner", "--seat",
                 "1=hard_liner", "--json")  # fmt: skip
    row = json.loads(told.out)
    assert row["options"] == {"max_turns": 2} and len(row["turns"]) <= 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--game", "kuhn_pokr", "--seat", "0=human"], "unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        (["--game", "kuhn_poker"], "nobody sits at first: add --seat first=random, or first=human"),
        (["--game", "kuhn_poker", "--seat", "0=human"], "nobody sits at second: add --seat second=random"),
        (["--game", "kuhn_poker", "--seat", "human"], "--seat human: write SEAT=WHO, such as --seat first=human"),
        (["--game", "kuhn_poker", "--seat", "0="], "write SEAT=WHO"),
        (["--game", "kuhn_poker", "--seat", "2=human"], "no seat '2' (the seats: 0 first, 1 second)"),
        (["--game", "kuhn_poker", "--seat", "frist=human"], "no seat 'frist' — did you mean 'first'?"),
        ([*KUHN, "--seat", "0=humna", "--seat", "1=cfr"], "did you mean 'human'?"),
        ([*KUHN, "--seat", "0=mcts:9", "--seat", "1=cfr"], "mcts looks at the whole state: kuhn_poker"),
        ([*KUHN, "--seat", "0=endpoint:", "--seat", "1=cfr"], "write endpoint:MODEL"),
        (["--game", "kuhn_poker", "--seat", "0=cfr", "--seat", "first=nash"], "two are to sit at first: cfr and nash"),
        ([*PLAY, "--option", "x"], "--option x: write A=B"),
        ([*PLAY, "--option", "illegal=maybe"], "illegal must be"),
        ([*PLAY, "--option", "foo=1"], "--option: "),
        ([*PLAY, "--out", "/no/such/file"], "--out /no/such"),
        ([*KUHN, "--seat", "0=endpoint:m", "--seat", "1=cfr", "--role", "plyer"], "unknown role 'plyer'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments, says, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert says in refused("play", *arguments)


def test_what_was_no_legal_act_is_shown_as_it_was_written(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Server(says(completion("<think>\x1b[31mhm\u202e</think> I raise!"))) as server:
        told = arena("play", *KUHN, "--seat", "0=endpoint:m", "--seat", "1=cfr", "--endpoint", f"url={server.url}",
                     "--role", "mars_player")  # fmt: skip
    assert "not a legal act, first wrote: <think>[31mhm</think> I raise!" in told.out and "\x1b" not in told.out


def test_an_endpoint_needs_a_key_or_a_server(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "set OPENAI_API_KEY" in refused("play", "--game", "kuhn_poker", "--seat", "0=endpoint:m", "--seat", "1=cfr")


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_at_a_real_terminal(key):
    """One act, then Ctrl-C or Ctrl-D, which the terminal turns into a signal or the end of input."""
    child, terminal = pty.fork()
    if child == 0:
        words = ["-m", "arena", "play", "--game", "tic_tac_toe", "--seat", "0=human", "--seat", "1=minimax"]
        os.execv(sys.executable, [sys.executable, *words])
    screen = b""
    try:
        for typed in (b"5\n", key.encode()):
            screen += read_until(terminal, b"> ")
            os.write(terminal, typed)
        screen += read_until(terminal, b"left the match", again=key.encode())
        assert b"Traceback" not in screen
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal, wanted, seconds=60, again=b""):
    """What a terminal shows until it shows this. `again` is pressed when nothing comes for a second: a signal that
    arrives just before Python begins to wait for a line is seen only after the wait."""
    shown, end = b"", time.monotonic() + seconds
    while wanted not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the other side is closed
                break
        elif again:
            os.write(terminal, again)
    assert wanted in shown, shown
    return shown
