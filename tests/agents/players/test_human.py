"""A person at the terminal: sees its seat's view as plain text, and is asked until an act can be parsed."""

import asyncio
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

import games
from agents.players.human import MAX_SHOWN, Human, HumanLeft, read_act
from games.abilities import PlainWords
from games.contracts import Message, View
from games.nim import Nim
from tests.factories.seeing import Colours

LEGAL = ("PASS", "BET 2", "BET 3")


def make_view(turn=0, messages=(), legal=LEGAL, public=None, private=None):
    heard = tuple(Message.of(sender, text) for sender, text in messages)
    return View("first", turn, heard, "The rules.", public or {}, private or {}, legal)


def play_at_terminal(monkeypatch, typed, *views, teller=None, game=None):
    """Return the acts of a person who types this text, and the screen."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed) if isinstance(typed, str) else typed)
    screen = io.StringIO()
    human = Human(Console(file=screen, width=100, force_terminal=False, highlight=False), teller, game)

    async def play():
        return [await human.act(seen) for seen in views]

    try:
        return asyncio.run(play()), screen.getvalue()
    except HumanLeft as left:
        return left, screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "action", "public"),
    [
        ("PASS\n", "PASS", ""),
        ("  bet   2 \n", "BET 2", ""),
        ("3\n", "BET 3", ""),
        ("2 | good luck\n", "BET 2 | good luck", "good luck"),
        ("pass|a|b\x1b[2J\n", "PASS | a b[2J", "a b[2J"),
        ("4\n0\n-1\n٣\nBET\n\nBET 2\n", "BET 2", ""),
        ("?\nhelp\n1\n", "PASS", ""),
        ("9" * 10_000 + "\n1\n", "PASS", ""),
    ],
)
def test_typed_text_becomes_an_act(monkeypatch, typed, action, public):
    (act,), _ = play_at_terminal(monkeypatch, typed, make_view())
    assert (act.action, act.public, act.private, act.tokens) == (action, public, "", 0)


def test_screen_shows_the_seats_view(monkeypatch):
    _, screen = play_at_terminal(
        monkeypatch, "beet 2\n1\n1\n", make_view(public={"pot": 2, "acts": ["BET", "PASS"]}, private={"card": "K"}),
        make_view(2, [("second", "BET 3 | ha"), ("referee", "Well.")], public={"board": "X.\n.O"}),
    )  # fmt: skip
    assert screen.count("The rules.") == 1 and "You are first." in screen
    for line in ("public.pot = 2", 'public.acts = ["BET", "PASS"]', 'private.card = "K"', "second: BET 3 | ha",
                 "referee: Well.", "public.board:\nX.\n.O"):  # fmt: skip
        assert line in screen
    assert "1. PASS" in screen and "3. BET 3" in screen
    assert "'beet 2' is not a legal act — did you mean 'BET 2'? (? for help)" in screen


def test_text_cannot_control_the_terminal(monkeypatch):
    evil = "\x1b[31m[bold]x[/bold]\x1b]8;;http://x\x07\u202egnol\r\nreferee: you win"
    _, screen = play_at_terminal(
        monkeypatch,
        f"{evil}\n1\n",
        make_view(messages=[(evil, evil)], legal=("PASS", evil), public={"a": evil, "b": [evil]},
                  private={"c": {1: evil}}),
    )  # fmt: skip
    assert not set(screen) & set("\x1b\x07\r\u202e")
    assert "[bold]x[/bold]" in screen
    assert "\nreferee: you win" not in screen.split("a:")[0]  # a message stays one line


@pytest.mark.parametrize("typed", ["", "nonsense\n"])
def test_the_end_of_input_leaves(monkeypatch, typed):
    left, _ = play_at_terminal(monkeypatch, typed, make_view())
    assert isinstance(left, HumanLeft) and str(left) == "first left the match"


def test_an_interrupt_leaves(monkeypatch):
    class Interrupted(io.StringIO):
        def readline(self, size=-1):
            raise KeyboardInterrupt

    left, _ = play_at_terminal(monkeypatch, Interrupted(), make_view())
    assert isinstance(left, HumanLeft)


def test_bytes_that_are_no_text_are_asked_again(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"1\xff\n1\n"), encoding="utf-8", errors="surrogateescape")
    (act,), screen = play_at_terminal(monkeypatch, stdin, make_view())
    assert act.action == "PASS" and "is not a legal act" in screen


def test_many_acts_are_listed_when_asked(monkeypatch):
    legal = tuple(f"OFFER {n} {n}" for n in range(100))
    _, screen = play_at_terminal(monkeypatch, "100\n", make_view(legal=legal))
    assert f"and {100 - MAX_SHOWN} more (? lists them)" in screen and "OFFER 99 99" not in screen
    _, screen = play_at_terminal(monkeypatch, "?\n100\n", make_view(legal=legal))
    assert "100. OFFER 99 99" in screen


def test_any_text_is_an_act_without_listed_acts(monkeypatch):
    acts, screen = play_at_terminal(monkeypatch, "\nIs it red?\n", make_view(legal=None))
    assert acts[0].action == "Is it red?" and "any act that the rules allow" in screen


def test_numbers_that_are_acts_are_no_numbers_of_acts():
    assert read_act("2", ("5", "2")) == "2"
    assert read_act("1", ("5", "2")) is None
    assert read_act("2", ("5 coins", "2 coins")) == "2 coins"


def test_acts_keep_the_numbers_they_have(monkeypatch):
    (act,), screen = play_at_terminal(monkeypatch, "1\n7\n", make_view(legal=("PLAY 3", "PLAY 7")))
    assert act.action == "PLAY 7" and "'1' is not a legal act" in screen and "1. " not in screen
    assert read_act("2", ("PASS", "BET 2", "BET 3")) == "BET 2" and read_act("1", ("PASS", "BET 2")) == "PASS"
    assert read_act("2", ("LOW 1", "HIGH 2")) == "HIGH 2"


EVIL = "\x1b[2J[red]x[/red]\u202egnol\r\nreferee: you win"


class WordGame:
    """Game described in words, some of them hostile."""

    def introduction(self, seat):
        return f"Welcome, {seat}. {EVIL}"

    def in_words(self, seat):
        return f"Before you lies much. {EVIL}"

    def act_in_words(self, act):
        return f"They bet {act.split()[1]}." if act.startswith("BET") else ""

    def epilogue(self, people):
        return [], ""


def test_game_description_replaces_its_facts(monkeypatch):
    assert isinstance(WordGame(), PlainWords) and not isinstance(object(), PlainWords)
    _, screen = play_at_terminal(
        monkeypatch, "1\npass\n?\nbet 2\n", make_view(public={"pot": 2}),
        make_view(2, [("second", "BET 3 | ha"), ("second", "FOLD | ho"), ("referee", "BET 9 | fine")]),
        teller=WordGame(),
    )  # fmt: skip
    assert "Welcome, first." in screen and screen.count("Before you lies much.") == 3
    assert "The rules." not in screen and "pot" not in screen
    assert "'1' is not a legal act" in screen  # no numbers stand beside the acts
    assert 'They: "ha" They bet 3.' in screen
    assert "second: FOLD | ho" in screen and "referee: BET 9 | fine" in screen
    assert "PASS   BET 2   BET 3" in screen and "1. PASS" not in screen
    assert not set(screen) & set("\x1b\r\u202e") and "[red]x[/red]" in screen


def test_text_cannot_leave_its_quotation_marks(monkeypatch):
    talk = 'no" They accept. "|“x” ＂\x1b]0;y\x07\u202e\nreferee: won'
    _, screen = play_at_terminal(
        monkeypatch, "1\npass\n", make_view(messages=[("second", f"BET 3 | {talk}")]), teller=WordGame()
    )
    (line,) = [line for line in screen.splitlines() if line.startswith("They")]
    assert line.count('"') == 2 and line.endswith('" They bet 3.') and not set(line) & set("“”＂\x1b\x07\u202e")
    assert "referee: won" in line
    _, screen = play_at_terminal(
        monkeypatch, "pass\n", make_view(messages=[("second", "BET 3 | " + "x" * 10**6)]), teller=WordGame()
    )
    assert max(map(len, screen.splitlines())) < 500


@pytest.mark.parametrize("typed", ["", "1\n\n?\n| talk\n", "9" * 10_000 + "\n"])
def test_the_end_of_input_leaves_a_game_with_words_too(monkeypatch, typed):
    left, _ = play_at_terminal(monkeypatch, typed, make_view(), teller=WordGame())
    assert isinstance(left, HumanLeft)


def test_unlisted_act_is_accepted_if_the_game_accepts_it(monkeypatch):
    """Wordle lists the possible answers only, but accepts any five letters."""
    game = games.make("wordle")
    game.reset(seed=0)
    seen = View.of(game, game.agent_selection)
    assert seen.legal and "GUESS aaaaa" not in seen.legal
    acts, screen = play_at_terminal(monkeypatch, "GUESS aaaa\nGUESS aaaaa\n", seen, game=game)
    assert [act.action for act in acts] == ["GUESS aaaaa"] and "'GUESS aaaa' is not a legal act" in screen
    assert game.turns == 0, "the match is where it was"


def test_a_game_that_cannot_be_tried_asks_again(monkeypatch):
    class Stiff(Nim):
        def clone(self):
            raise RuntimeError("no")

    game = Stiff()
    game.reset(seed=0)
    acts, screen = play_at_terminal(monkeypatch, "take it all\n1\n", View.of(game, game.agent_selection), game=game)
    assert acts[0].action == game.legal(game.agent_selection)[0] and "is not a legal act" in screen


def test_pictures_are_written_to_files_whose_paths_are_printed(monkeypatch):
    game = Colours(rounds=1)
    game.reset(seed=0)
    seen = View.of(game, "viewer")
    _, screen = play_at_terminal(monkeypatch, "red\n", seen, game=game)
    (image,) = seen.messages[0].images
    path = Path(screen.replace("\n", "").partition(f"{image.text}: ")[2].partition(".png")[0] + ".png")
    assert path.read_bytes() == game.picture(image.hash) and path.parent.stat().st_mode & 0o077 == 0
    broken = Colours(rounds=1, fault="none")
    broken.reset(seed=0)
    _, screen = play_at_terminal(monkeypatch, "red\n", View.of(broken, "viewer"), game=broken)
    assert "arena-images" not in screen
