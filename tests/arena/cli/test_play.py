"""`arena play`, as a person types it."""

import io
import json
import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from arena.records import MatchRecord
from tests.factories.commands import arena, get_refusal
from tests.factories.server import Server, make_completion, reply_with

START = Path(__file__).parents[3] / "docs" / "start.md"
KUHN = ["--game", "kuhn_poker"]
PLAY = [*KUHN, "--seat", "0=cfr", "--seat", "1=cfr"]


def type_lines(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_scripted_players_play_and_are_shown():
    result = arena("play", "--game", "kuhn_poker", "--seat", "0=nash", "--seat", "second=cfr:10", "--seed", "3")
    assert result.code == 0 and result.err == ""
    lines = result.out.splitlines()
    assert lines[0] == "kuhn_poker, seed 3: first = nash, second = cfr:10"
    assert lines[1].strip() == "dealt to all: public.pot = 2"
    assert lines[4].startswith("first: ") and lines[-1].startswith("payoffs: first ")
    again = arena("play", "--game", "kuhn_poker", "--seat", "0=nash", "--seat", "second=cfr:10", "--seed", "3")
    assert again == result


def test_a_person_plays(monkeypatch, tmp_path):
    file = tmp_path / "matches.jsonl"
    for _ in range(2):
        type_lines(monkeypatch, "what\n1 | hello\n1\n1\n")
        result = arena(
            "play", "--game", "kuhn_poker", "--seat", "1=random", "--seat", "0=human", "--seed", "5", "--out", file
        )
        assert result.code == 0, result
    assert (
        "You are first." in result.out and "private.card = " in result.out and "'what' is not a legal act" in result.out
    )
    assert "referee: The match is over" in result.out and "payoffs: " in result.out
    records = [MatchRecord.from_json(json.loads(line)) for line in file.read_text().splitlines()]
    assert len(records) == 2
    assert records[0].status == "finished" and records[0].turns[0].raw == "PASS | hello"
    assert {seat: seating.policy for seat, seating in records[0].seats.items()} == {
        "first": "human",
        "second": "random",
    }


BARGAIN = ["--game", "negotiation", "--option", "values=public", "--seat", "0=human", "--seat", "1=nash_bargaining"]


def test_a_person_bargains(monkeypatch):
    """Seed 7: 4 books, 1 hat, 2 balls at (0, 6, 2) and (1, 0, 3); best is the hat against all else, (6, 10)."""
    type_lines(monkeypatch, "5\nOFFER 0 1 3\nOFFER 0 1 2 | please\naccept\n")
    result = arena("play", *BARGAIN, "--seed", "7")
    assert result.code == 0, result
    for line in (
        "You and another side divide 4 books, 1 hat and 2 balls.",
        "Worth to you, each: book 0, hat 6, ball 2; all together 10.",
        "Worth to them, each: book 1, hat 0, ball 3.",
        "'5' is not a legal act",
        "'OFFER 0 1 3' is not a legal act",
        "You got 6 of 10; Nash would have given you 6, the other side 10; "
        "subgame-perfect play would have given you 10, the other side 4.",
    ):
        assert line in result.out, line
    lines = [line.rstrip() for line in result.out.splitlines()]
    (heard,) = [line for line in lines if line.startswith("> They: ")]
    assert re.fullmatch('> They: "[^"]+" They want 4 books and 2 balls.', heard)
    rows = [re.split("  +", line) for line in lines]
    for row in (["got", "1 hat", "4 books, 2 balls"], ["value", "6", "10", "16"], ["best joint value", "16"],
                ["Nash bargaining", "6", "10", "16"], ["subgame-perfect", "10", "4", "14"]):  # fmt: skip
        assert row in rows
    assert "payoffs: opener +6, responder +10" in lines


class EchoingInput(io.StringIO):
    """Standard input whose lines are echoed, as by a terminal."""

    def readline(self, size=-1):
        line = super().readline(size)
        sys.stdout.write(line)
        return line


def test_docs_show_the_real_output(monkeypatch):
    """docs/start.md, at a terminal of 100 columns: what follows "> " is typed."""
    (example,) = re.findall(
        r"^\$ arena (play --game negotiation [^\n]*--seed 7)\n(.*?)^```$", START.read_text("utf-8"), re.M | re.S
    )
    command, output = example
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(
        sys, "stdin", EchoingInput("".join(f"{line}\n" for line in re.findall("^> (.*)$", output, re.M)))
    )
    printed = re.sub(r"\x1b\[[\d;]*m", "", arena(*command.split()).out)
    assert "".join(f"{line.rstrip()}\n" for line in printed.splitlines()) == output


def test_bargainers_talk_only_if_the_game_allows_it(monkeypatch):
    public = []
    for talk in ("true", "false"):
        type_lines(monkeypatch, "OFFER 0 1 2 | please\naccept\n")
        result = arena("play", *BARGAIN, "--seed", "7", "--option", f"talk={talk}", "--json")
        row = json.loads(result.out)
        assert row["seats"]["responder"]["policy"] == ("talkative:" if talk == "true" else "") + "nash_bargaining"
        public.append(row["turns"][1]["public"])
        assert row["turns"][1]["action"].startswith("OFFER 4 0 2") and "You got 6 of 10" in result.err
        assert ("Talk may follow" in result.err) == (talk == "true")
    assert public[0] and public[1] == ""


def test_no_deal_reports_the_last_offer(monkeypatch):
    type_lines(monkeypatch, "OFFER 0 1 2\nwalk\n")
    result = arena("play", *BARGAIN, "--seed", "7")
    assert "No deal: you walked away." in result.out
    assert "On the table lay: you would get 1 hat, worth 6 of 10; they would get 4 books and 2 balls" in result.out


def test_a_run_is_played_as_it_was_trained(monkeypatch, uninterrupted_run):
    """The run's options apply unless others are given."""
    for options_given in ([], ["--option", "max_turns=2"]):
        type_lines(monkeypatch, "walk\n")
        result = arena(
            "play",
            "--game",
            "negotiation",
            "--seat",
            "0=human",
            "--seat",
            f"1={uninterrupted_run}",
            *options_given,
            "--json",
        )
        assert result.code == 0, result
        options = {"illegal": "retry", "max_turns": 2 if options_given else 4, "talk": False}
        assert json.loads(result.out)["options"] == options
        shown = f"illegal=retry, max_turns={options['max_turns']}, talk=false"
        assert f"options (from the run unless given): {shown}" in result.err


def test_json_output_is_separate_from_the_dialogue(monkeypatch):
    type_lines(monkeypatch, "1\n1\n")
    result = arena("play", "--game", "kuhn_poker", "--seat", "0=human", "--seat", "1=random", "--json")
    assert MatchRecord.from_json(json.loads(result.out)).status == "finished"
    assert "You are first." in result.err


def test_end_of_input_leaves_the_match(monkeypatch, tmp_path):
    type_lines(monkeypatch, "")
    out = tmp_path / "left.jsonl"
    result = arena("play", "--game", "kuhn_poker", "--seat", "0=human", "--seat", "1=random", "--out", out)
    assert result.code == 0 and "The match was not finished: first left the match" in result.out
    assert json.loads(out.read_text())["status"] == "failed"


def test_options_of_the_game():
    result = arena("play", "--game", "negotiation", "--option", "max_turns=2", "--seat", "0=hard_liner", "--seat",
                 "1=hard_liner", "--json")  # fmt: skip
    row = json.loads(result.out)
    assert row["options"] == {"max_turns": 2} and len(row["turns"]) <= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--game", "kuhn_pokr", "--seat", "0=human"], "unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        (["--game", "kuhn_poker"], "first has no player: add --seat first=random, or first=human"),
        (["--game", "kuhn_poker", "--seat", "0=human"], "second has no player: add --seat second=random"),
        (["--game", "kuhn_poker", "--seat", "human"], "--seat human: write SEAT=WHO, such as --seat first=human"),
        (["--game", "kuhn_poker", "--seat", "0="], "write SEAT=WHO"),
        (["--game", "kuhn_poker", "--seat", "2=human"], "no seat '2' (the seats: 0 first, 1 second)"),
        (["--game", "kuhn_poker", "--seat", "frist=human"], "no seat 'frist' — did you mean 'first'?"),
        ([*KUHN, "--seat", "0=humna", "--seat", "1=cfr"], "did you mean 'human'?"),
        ([*KUHN, "--seat", "0=mcts:9", "--seat", "1=cfr"], "mcts would cheat: it looks at the whole state"),
        ([*KUHN, "--seat", "0=endpoint:", "--seat", "1=cfr"], "write endpoint:MODEL"),
        (["--game", "kuhn_poker", "--seat", "0=cfr", "--seat", "first=nash"], "first is given twice: cfr and nash"),
        ([*PLAY, "--option", "x"], "--option x: write A=B"),
        ([*PLAY, "--option", "illegal=maybe"], "illegal must be"),
        ([*PLAY, "--option", "foo=1"], "there is no option 'foo'"),
        ([*PLAY, "--out", "/no/such/file"], "--out /no/such"),
        ([*KUHN, "--seat", "0=endpoint:m", "--seat", "1=cfr", "--role", "plyer"], "unknown role 'plyer'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments, message, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert message in get_refusal("play", *arguments)


def test_illegal_reply_is_shown_verbatim(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Server(reply_with(make_completion("<think>\x1b[31mhm\u202e</think> I raise!"))) as server:
        result = arena("play", *KUHN, "--seat", "0=endpoint:m", "--seat", "1=cfr", "--endpoint", f"url={server.url}",
                     "--role", "mars_player")  # fmt: skip
    assert "not a legal act, first wrote: <think>[31mhm</think> I raise!" in result.out and "\x1b" not in result.out


def test_an_endpoint_needs_a_key_or_a_server(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "set OPENAI_API_KEY" in get_refusal(
        "play", "--game", "kuhn_poker", "--seat", "0=endpoint:m", "--seat", "1=cfr"
    )


@pytest.mark.slow_after(1)
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
        for line in (b"5\n", key.encode()):
            screen += read_until(terminal, b"> ")
            os.write(terminal, line)
        screen += read_until(terminal, b"left the match", again=key.encode())
        assert b"Traceback" not in screen
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(terminal)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
@pytest.mark.parametrize(("columns", "no_color"), [(40, ""), (12, "1")])
def test_a_deal_at_a_narrow_terminal(columns, no_color):
    """Words wrap at blanks, nothing is cut off, and invalid lines are asked again."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"COLUMNS": str(columns), "TERM": "xterm"} | ({"NO_COLOR": no_color} if no_color else {})
        os.execv(sys.executable, [sys.executable, "-m", "arena", "play", *BARGAIN, "--seed", "7"])
    screen = b""
    try:
        for line in (b"\x1b[A\xff\xfe\n", b"x" * 3000 + b"\n", b"OFFER 0 1 2 | \xe2\x80\xaeno\n", b"accept\n"):
            screen += read_until(terminal, b"> ")
            os.write(terminal, line)
        screen += read_until(terminal, b"payoffs: ")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(terminal)
    words = " ".join(re.sub(rb"\x1b\[[\d;]*m", b"", screen).decode("utf-8", "replace").split())
    assert "Traceback" not in words and "…" not in words.split("There is a deal")[1]
    for sentence in (
        "You and another side divide 4 books, 1 hat and 2 balls.",
        "You got 6 of 10; Nash would have given you",
    ):
        assert sentence in words
    for name in ("value per item", "best joint value", "Nash bargaining", "subgame-perfect"):
        assert name in words


def read_until(terminal, wanted, seconds=60, again=b""):
    """Return what a terminal shows until `wanted` appears.

    Presses `again` whenever nothing comes for a second: a signal just before Python waits for a line is seen only after
    the wait.
    """
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
