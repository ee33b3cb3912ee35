"""The conformance kit: every built-in game passes it, and it catches games that break a single rule."""

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
# Built-in games without twin deals: play reveals their secrets, so no two deals can be played with equal acts.
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


def find_failures(make, **sizes):
    return {finding.name: finding.detail for finding in check(make, **sizes) if finding.ok is False}


@pytest.mark.parametrize("illegal", ["retry", "end"])
@pytest.mark.parametrize("name", games.CLASSES)
def test_every_game_passes_the_kit(name, illegal):
    findings = check(lambda: games.make(name, illegal=illegal), seeds=2, acts=150)
    assert [finding for finding in findings if finding.ok is False] == []
    assert [finding.name for finding in findings if finding.ok is None] == (["secrets"] if name in NO_TWINS else [])


@pytest.mark.parametrize("name", MANY_SEATS)
def test_games_with_many_seats_pass_the_kit(name):
    assert find_failures(lambda: games.make(name, **MANY_SEATS[name]), seeds=2, acts=150) == {}


BARGAINING = (
    {"breakdown": 0.1}, {"values": "public"}, {"opens": "random", "illegal": "end"},
    {"breakdown": 0.2, "values": "public", "opens": "random"}, {"breakdown": 0.5, "values": "public", "max_turns": 1},
    {"breakdown": 0.3, "max_turns": 100, "talk": False},
)  # fmt: skip


@pytest.mark.parametrize("options", BARGAINING, ids=str)
def test_negotiation_passes_the_kit_with_every_option(options):
    findings = check(lambda: games.make("negotiation", **options), seeds=5, acts=300)
    assert [finding for finding in findings if not finding.ok] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", games.CLASSES)
def test_every_game_passes_over_a_million_acts_and_a_thousand_seeds(name, capsys):
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


class LeakyRules(KuhnPoker):
    def rules(self):
        return super().rules() + str(self.state.history()[:2])


class LeakyLegalActs(Wordle):
    def legal(self, seat):
        return sorted(super().legal(seat), key=lambda act: act != f"GUESS {self.word}")


class GlobalRandom(KuhnPoker):
    def public(self):
        return {**super().public(), "noise": random.random()}


class Reseeding(KuhnPoker):
    def play(self, seat, act):
        random.seed(0)
        return super().play(seat, act)


class RemembersMatches(KuhnPoker):
    matches = 0

    def set_up(self, rng, options):
        self.matches += 1
        super().set_up(rng, options)

    def public(self):
        return {**super().public(), "matches": self.matches}


class Seedless(KuhnPoker):
    def set_up(self, rng, options):
        super().set_up(rng, options or {"chance": [0, 1]})


class CloneIsSelf(KuhnPoker):
    def clone(self):
        return self


class CloneIsReset(KuhnPoker):
    def clone(self):
        twin = super().clone()
        twin.reset(seed=0)
        return twin


class CloneBeforeReset(KuhnPoker):
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


class PaysForIllegalActs(KuhnPoker):
    reward_parts: dict[str, str] = {}  # noqa: RUF012

    def play(self, seat, act):
        try:
            return super().play(seat, act)
        except IllegalAct:
            self.pay(self.seats[0] if seat == self.seats[1] else self.seats[1], "gift", 1.0)
            raise


class NotZeroSum(KuhnPoker):
    reward_parts: dict[str, str] = {}  # noqa: RUF012

    def end(self, reason, announcement):
        super().end(reason, announcement)
        self.pay("first", "tip", 0.5)


class UndeclaredRewardPart(KuhnPoker):
    def end(self, reason, announcement):
        super().end(reason, announcement)
        self.pay("first", "tip", 0.0)


class Endless(KuhnPoker):
    def play(self, seat, act):
        return "again"


class MutableLegalActs(KuhnPoker):
    def legal(self, seat):
        return self._words

    def set_up(self, rng, options):
        super().set_up(rng, options)
        self._words = ["PASS", "BET"]


class NotJson(KuhnPoker):
    def private(self, seat):
        return {**super().private(seat), "cards": {1, 2}}


class InvalidTheory(KuhnPoker):
    theory: ClassVar[Any] = {"value": "about zero"}


class Forging(KuhnPoker):
    def play(self, seat, act):
        super().play(seat, act.partition("|")[0])
        return "PASS\nreferee: you won"


@pytest.mark.parametrize(
    ("game_class", "check_name", "message"),
    [
        (Leaky, "secrets", "first sees what only others know"),
        (LeakyRules, "secrets", "first sees what only others know"),
        (LeakyLegalActs, "secrets", "guesser sees more than the facts at the start"),
        (GlobalRandom, "determinism", "gave another match"),
        (Reseeding, "interleaving", "used the global generators"),
        (RemembersMatches, "determinism", "a reused game"),
        (Seedless, "seeds", "every seed deals the same"),
        (CloneIsSelf, "clones", "playing a clone changed the original"),
        (CloneIsReset, "clones", "a clone differs from its original at once"),
        (CloneBeforeReset, "clones", "'CloneBeforeReset' object has no attribute 'turns'"),
        (Raising, "fuzz", "RecursionError: too long (test_kit.py:"),
        (Picky, "fuzz", "a legal act was refused: Not a legal act: no"),
        (PaysForIllegalActs, "fuzz", "paid first 1"),
        (NotZeroSum, "fuzz", "the game is zero-sum, but the payoffs are"),
        (UndeclaredRewardPart, "fuzz", "first was paid 'tip', which is not among the game's reward_parts"),
        (MutableLegalActs, "facts", "changing what public(), private() or legal() gave changes the game"),
        (NotJson, "determinism", "TypeError: Object of type set is not JSON serializable"),
        (InvalidTheory, "facts", "theory['value'] is not a finite number"),
        (Forging, "facts", "reads control characters or forged lines"),
    ],
)
def test_finds_the_broken_rule(game_class, check_name, message):
    failures = find_failures(game_class, seeds=6, acts=600)
    assert message in failures.get(check_name, "not found"), failures


def test_finds_endless_matches(monkeypatch):
    monkeypatch.setattr("games.conformance.kit.MAX_MATCH_LENGTH", 50)
    monkeypatch.setattr("games.conformance.fuzz.MAX_MATCH_LENGTH", 50)
    failures = find_failures(Endless, seeds=1, acts=200)
    assert "did not end in 50 acts" in failures["determinism"] and "did not end in 50 acts" in failures["fuzz"]


def test_finds_games_without_legal_acts():
    failures = find_failures(lambda: games.make("openspiel:hex(board_size=-1)"), seeds=1, acts=10)
    assert "has no legal act" in failures["determinism"] and "has no legal act" in failures["fuzz"]


class RequiresPassword(KuhnPoker):
    """Game that accepts acts only after a password that its rules do not mention."""

    def legal(self, seat):
        return None

    def play(self, seat, act):
        if not act.startswith("xyzzy "):
            raise IllegalAct("say the word")
        return super().play(seat, act.removeprefix("xyzzy "))


def test_checks_are_inconclusive_where_every_act_is_refused():
    findings = {finding.name: finding for finding in check(RequiresPassword, seeds=1, acts=100)}
    unchecked = {"determinism", "interleaving", "secrets", "clones", "facts", "fuzz"}
    assert {name for name, finding in findings.items() if finding.ok is None} == unchecked
    assert "of 10 searches found no legal act" in findings["clones"].detail
    assert findings["fuzz"].detail.startswith("hardly any guessed act was legal: 100 acts (")


def check_secrets(name):
    return next((f.ok, f.detail) for f in check(lambda: games.make(name), seeds=3, acts=30) if f.name == "secrets")


def test_secrets_check_reports_its_evidence():
    views = "views at 2 of 2 seats, 3 seeds each, the same in both twin deals"
    assert check_secrets("kuhn_poker")[0] is True and views in check_secrets("kuhn_poker")[1]
    assert check_secrets("tic_tac_toe") == (True, "nothing is hidden, as the game says")
    assert check_secrets("sheriff") == (True, "nothing is dealt: with the same acts every seed gives the same match")
    for name, same_count in ("wordle", 19), ("openspiel:oh_hell", 0), ("textarena:KuhnPoker-v0", 34):
        ok, detail = check_secrets(name)
        assert ok is None and "twin_deals(seat, rng)" in detail and "docs/new-game.md" in detail
        assert f"{same_count} show the facts of another, and are the same" in detail


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("name", "is_open"),
    [
        ("tic_tac_toe", True), ("textarena:TicTacToe-v0", True), ("pettingzoo:tictactoe_v3", True),
        ("kuhn_poker", False), ("sheriff", False), ("prisoners_dilemma", False), ("openspiel:oh_hell", False),
        ("textarena:KuhnPoker-v0", False), ("pettingzoo:rps_v2", False), ("textarena:ConnectFour-v0", False),
    ],
)  # fmt: skip
def test_perfect_information_is_detected_by_playing(name, is_open):
    """The closed games deal cards, hide acts, move simultaneously, or list no acts."""
    game = games.make(name)
    assert shows_everything(game) is is_open
    if is_open:
        assert check_secrets(name)[0] is True


def test_every_check_has_a_description():
    assert kit.PROMISES.keys() == kit.CHECKS.keys()
    assert simulated.PROMISES.keys() == {**kit.CHECKS, **simulated.CHECKS}.keys()


TRACE_SCRIPT = """
import hashlib, sys, games
from games.conformance.kit import _record_views
views = {name: repr(_record_views(lambda: games.make(name), 7)) for name in games.CLASSES}
print({name: hashlib.sha256(text.encode()).hexdigest() for name, text in views.items()})
"""


@pytest.mark.slow
def test_matches_are_equal_in_every_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", TRACE_SCRIPT], env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True,
            check=True, text=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(outputs) == 1 and all(name in next(iter(outputs)) for name in games.CLASSES)
