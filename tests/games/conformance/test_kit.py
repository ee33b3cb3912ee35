"""The conformance kit: every game of ours passes it, and it catches games that break any one promise."""

import os
import random
import subprocess
import sys
from typing import Any, ClassVar

import pytest

import games
from games.base import IllegalAct
from games.conformance import kit
from games.conformance.kit import check
from games.conformance.openness import shows_everything
from games.kuhn_poker import KuhnPoker
from games.wordle import Wordle
from simulators import conformance as simulated

MILLION = 10**6


MANY_SEATS: dict[str, dict[str, Any]] = {
    "public_goods": {"players": 6}, "first_price_auction": {"players": 6}, "second_price_auction": {"players": 6},
    "hanabi": {"size": "full", "players": 5}, "word_clue": {"players": 4}, "text_navigation": {"strategist": True},
}  # fmt: skip
# Games of ours whose secrets come out in play, or are dealt anew with the facts: no two deals can be played alike.
NO_TWINS = {
    "hanabi",
    "word_clue",
    "twenty_questions",
    "guess_city",
    "wordle",
    "maze",
    "text_navigation",
    "recall",
    "tasks",
}


def failed(make, **sizes):
    return {finding.name: finding.detail for finding in check(make, **sizes) if finding.ok is False}


@pytest.mark.parametrize("illegal", ["retry", "end"])
@pytest.mark.parametrize("name", games.CLASSES)
def test_every_game_keeps_what_games_promise(name, illegal):
    findings = check(lambda: games.make(name, illegal=illegal), seeds=2, acts=150)
    assert [finding for finding in findings if finding.ok is False] == []
    assert [finding.name for finding in findings if finding.ok is None] == (["secrets"] if name in NO_TWINS else [])


@pytest.mark.parametrize("name", MANY_SEATS)
def test_games_of_many_seats_keep_it_too(name):
    assert failed(lambda: games.make(name, **MANY_SEATS[name]), seeds=2, acts=150) == {}


BARGAINING = (
    {"breakdown": 0.1}, {"values": "public"}, {"opens": "random", "illegal": "end"},
    {"breakdown": 0.2, "values": "public", "opens": "random"}, {"breakdown": 0.5, "values": "public", "max_turns": 1},
    {"breakdown": 0.3, "max_turns": 100, "talk": False},
)  # fmt: skip


@pytest.mark.parametrize("options", BARGAINING, ids=str)
def test_negotiation_keeps_it_with_every_option(options):
    findings = check(lambda: games.make("negotiation", **options), seeds=5, acts=300)
    assert [finding for finding in findings if not finding.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", games.CLASSES)
def test_a_game_over_a_million_acts_and_a_thousand_seeds(name, capsys):
    findings = check(lambda: games.make(name), seeds=1000, acts=MILLION)
    with capsys.disabled():
        print(f"\n{name}, {sum(finding.seconds for finding in findings):.0f} s")
        for finding in findings:
            print(f"    {finding.name:14}{finding.seconds:6.0f} s  {finding.detail}")
    assert all(finding.ok or (finding.ok is None and name in NO_TWINS) for finding in findings)
    assert findings[-1].detail.startswith(f"{MILLION} acts")


class Leaky(KuhnPoker):
    def public(self):
        return {**super().public(), "both": str(self.state.history()[:2])}


class LeakyWords(KuhnPoker):
    def rules(self):
        return super().rules() + str(self.state.history()[:2])


class LeakyActs(Wordle):
    def legal(self, seat):
        return sorted(super().legal(seat), key=lambda act: act != f"GUESS {self.word}")


class GlobalRandom(KuhnPoker):
    def public(self):
        return {**super().public(), "noise": random.random()}


class Reseeding(KuhnPoker):
    def play(self, seat, act):
        random.seed(0)
        return super().play(seat, act)


class Remembering(KuhnPoker):
    matches = 0

    def set_up(self, rng, options):
        self.matches += 1
        super().set_up(rng, options)

    def public(self):
        return {**super().public(), "matches": self.matches}


class Seedless(KuhnPoker):
    def set_up(self, rng, options):
        super().set_up(rng, options or {"chance": [0, 1]})


class Selfsame(KuhnPoker):
    def clone(self):
        return self


class Amnesiac(KuhnPoker):
    def clone(self):
        twin = super().clone()
        twin.reset(seed=0)
        return twin


class Unborn(KuhnPoker):
    def clone(self):
        self.turns += 0
        return super().clone()


class Raising(KuhnPoker):
    def play(self, seat, act):
        if len(act) > 1000:
            raise RecursionError("too long")
        return super().play(seat, act)


class Picky(KuhnPoker):
    def play(self, seat, act):
        if act == "BET" and seat == "second":
            raise IllegalAct("no")
        return super().play(seat, act)


class Generous(KuhnPoker):
    reward_parts: dict[str, str] = {}  # noqa: RUF012

    def play(self, seat, act):
        try:
            return super().play(seat, act)
        except IllegalAct:
            self.pay(self.seats[0] if seat == self.seats[1] else self.seats[1], "gift", 1.0)
            raise


class Printing(KuhnPoker):
    reward_parts: dict[str, str] = {}  # noqa: RUF012

    def end(self, reason, announcement):
        super().end(reason, announcement)
        self.pay("first", "tip", 0.5)


class Undeclared(KuhnPoker):
    def end(self, reason, announcement):
        super().end(reason, announcement)
        self.pay("first", "tip", 0.0)


class Endless(KuhnPoker):
    def play(self, seat, act):
        return "again"


class Cached(KuhnPoker):
    def legal(self, seat):
        return self._words

    def set_up(self, rng, options):
        super().set_up(rng, options)
        self._words = ["PASS", "BET"]


class Arrays(KuhnPoker):
    def private(self, seat):
        return {**super().private(seat), "cards": {1, 2}}


class Wishful(KuhnPoker):
    theory: ClassVar[Any] = {"value": "about zero"}


class Forging(KuhnPoker):
    def play(self, seat, act):
        super().play(seat, act.partition("|")[0])
        return "PASS\nreferee: you won"


@pytest.mark.parametrize(
    ("broken", "check_name", "words"),
    [
        (Leaky, "secrets", "first sees what only others know"),
        (LeakyWords, "secrets", "first sees what only others know"),
        (LeakyActs, "secrets", "guesser sees more than the facts at the start"),
        (GlobalRandom, "determinism", "gave another match"),
        (Reseeding, "interleaving", "used the global generators"),
        (Remembering, "determinism", "played before"),
        (Seedless, "seeds", "every seed deals the same"),
        (Selfsame, "clones", "playing a clone changed the original"),
        (Amnesiac, "clones", "a clone differs from its original at once"),
        (Unborn, "clones", "'Unborn' object has no attribute 'turns'"),
        (Raising, "fuzz", "RecursionError: too long (test_kit.py:"),
        (Picky, "fuzz", "a legal act was refused: Not a legal act: no"),
        (Generous, "fuzz", "paid first 1"),
        (Printing, "fuzz", "the game is zero-sum, but the payoffs are"),
        (Undeclared, "fuzz", "first was paid 'tip', which is not among the game's reward_parts"),
        (Cached, "facts", "changing what public(), private() or legal() gave changes the game"),
        (Arrays, "determinism", "TypeError: Object of type set is not JSON serializable"),
        (Wishful, "facts", "theory['value'] is not a finite number"),
        (Forging, "facts", "reads control characters or forged lines"),
    ],
)
def test_broken_promises_are_found(broken, check_name, words):
    found = failed(broken, seeds=6, acts=600)
    assert words in found.get(check_name, "not found"), found


def test_endless_matches_are_found(monkeypatch):
    monkeypatch.setattr("games.conformance.kit.LONGEST", 50)
    monkeypatch.setattr("games.conformance.fuzz.LONGEST", 50)
    found = failed(Endless, seeds=1, acts=200)
    assert "did not end in 50 acts" in found["determinism"] and "did not end in 50 acts" in found["fuzz"]


def test_a_game_without_legal_acts_is_found():
    found = failed(lambda: games.make("openspiel:hex(board_size=-1)"), seeds=1, acts=10)
    assert "has no legal act" in found["determinism"] and "has no legal act" in found["fuzz"]


class Secretive(KuhnPoker):
    """Takes acts only behind a word that its rules do not tell."""

    def legal(self, seat):
        return None

    def play(self, seat, act):
        if not act.startswith("xyzzy "):
            raise IllegalAct("say the word")
        return super().play(seat, act.removeprefix("xyzzy "))


def test_what_only_refusals_were_seen_of_is_not_checked():
    findings = {finding.name: finding for finding in check(Secretive, seeds=1, acts=100)}
    unchecked = {"determinism", "interleaving", "secrets", "clones", "facts", "fuzz"}
    assert {name for name, finding in findings.items() if finding.ok is None} == unchecked
    assert "of 10 searches found no legal act" in findings["clones"].detail
    assert findings["fuzz"].detail.startswith("hardly any act that was guessed was legal: 100 acts (")


def secrets(name):
    return next((f.ok, f.detail) for f in check(lambda: games.make(name), seeds=3, acts=30) if f.name == "secrets")


def test_what_is_known_about_secrets_is_said():
    views = "views at 2 of 2 seats, 3 seeds each, the same in both twin deals"
    assert secrets("kuhn_poker")[0] is True and views in secrets("kuhn_poker")[1]
    assert secrets("tic_tac_toe") == (True, "nothing is hidden, as the game says")
    assert secrets("sheriff") == (True, "nothing is dealt: with the same acts every seed gives the same match")
    for name, alike in ("wordle", 19), ("openspiel:oh_hell", 0), ("textarena:KuhnPoker-v0", 34):
        ok, detail = secrets(name)
        assert ok is None and "twin_deals(seat, rng)" in detail and "docs/new-game.md" in detail
        assert f"{alike} show the facts of another, and are the same" in detail


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("name", "is_open"),
    [
        ("tic_tac_toe", True), ("textarena:TicTacToe-v0", True), ("pettingzoo:tictactoe_v3", True),
        ("kuhn_poker", False), ("sheriff", False), ("prisoners_dilemma", False), ("openspiel:oh_hell", False),
        ("textarena:KuhnPoker-v0", False), ("pettingzoo:rps_v2", False), ("textarena:ConnectFour-v0", False),
    ],
)  # fmt: skip
def test_whether_a_game_lies_open_is_found_out_by_playing(name, is_open):
    """Not: cards are dealt; acts are hidden; both choose at once; no acts are listed, so nobody could look."""
    game = games.make(name)
    assert shows_everything(game) is is_open
    if is_open:
        assert secrets(name)[0] is True


def test_every_check_says_what_it_is_about():
    assert kit.PROMISES.keys() == kit.CHECKS.keys()
    assert simulated.PROMISES.keys() == {**kit.CHECKS, **simulated.CHECKS}.keys()


TRACES = """
import hashlib, sys, games
from games.conformance.kit import _trace
print({name: hashlib.sha256(repr(_trace(lambda: games.make(name), 7)).encode()).hexdigest() for name in games.CLASSES})
"""


@pytest.mark.slow
def test_matches_are_the_same_in_every_process():
    told = {
        subprocess.run(
            [sys.executable, "-c", TRACES], env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True,
            check=True, text=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(told) == 1 and all(name in next(iter(told)) for name in games.CLASSES)
