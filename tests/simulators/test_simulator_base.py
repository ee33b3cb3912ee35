"""The simulator contract: splits, players by name, faults, and a conformance kit that catches what breaks it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import games
from agents.errors import ScriptedPolicyError
from agents.players.model import ScriptedPlayer
from agents.players.scripted import check_scripted, make_scripted
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import Seating
from games.contracts import MatchId
from simulators.base import SimulatorFault, is_held_out
from simulators.clinic import Clinic
from simulators.clinic import players as doctors
from simulators.conformance import CHECKS, check_outcomes, play, walk
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

VARIANTS = [
    {}, {"terse": True, "illegal": "end", "persona": "mixed"}, {"person": "render"}, {"person": "free"},
    {"reward": "doctoragent", "split": "test"}, {"information": 1.0, "split": "train", "persona": "impatient"},
]  # fmt: skip


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_clinic_keeps_what_simulators_promise(options):
    assert find_failed_checks(lambda: Clinic(**options), seeds=4, acts=150) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_clinic_over_a_thousand_seeds(options, capsys):
    assert passes_over_many_seeds(lambda: Clinic(**options), options, capsys)


class Charitable(Clinic):
    def figures(self):
        return {**super().figures(), "score": 0.5}


class Boastful(Clinic):
    def figures(self):
        return {**super().figures(), "score": 2}


class Guessable(Clinic):
    @property
    def floor(self):
        return 0.5


class Unwinnable(Clinic):
    players: Mapping[str, Any] = {**Clinic.players, "oracle": doctors.at_random}


class Unplayed(Clinic):
    players: Mapping[str, Any] = {}


class Forgetful(Clinic):
    matches = 0

    def set_up(self, rng, options):
        super().set_up(rng, options)
        self.matches += 1
        self.tell(f"Match {self.matches}.")


class Chatty(Clinic):
    def _take_answers(self, facts):
        super()._take_answers(facts)
        disease = self.table.names[self.patient.record.disease]
        self.tell(f"They say it might be {disease.upper()}!", "doctor", sender="patient")


class Paraphrasing(Clinic):
    def public(self):
        secrets = [sign for sign in ("heavy drinking",) if sign in self.hidden()]
        return super().public() | {"note": "smells of too much alcohol" if secrets else ""}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (Charitable, {"noop", "oracle"}),
        (Boastful, {"noop", "random", "oracle"}),
        (Guessable, {"random"}),
        (Unwinnable, {"oracle"}),
        (Unplayed, set(CHECKS)),
        (Forgetful, {"transcripts"}),
        (Chatty, {"leaks"}),
        (Paraphrasing, {"leaks"}),
    ],
)
def test_the_kit_catches_a_simulator_that_breaks_one_promise(broken, caught):
    assert {finding.name for finding in check_outcomes(broken, 100) if not finding.ok} == caught


# Splits.


def test_one_entity_in_five_is_held_out_and_always_the_same_one():
    held = [n for n in range(5000) if is_held_out(f"clinic:{n}")]
    assert 900 < len(held) < 1100
    assert held[:4] == [n for n in range(held[3] + 1) if is_held_out(f"clinic:{n}")]
    assert [is_held_out(text) for text in ("a", "b", "c", "d", "e", "\ud800")] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_no_patient_is_in_both_splits():
    def patients(split):
        game = Clinic(split=split)
        found = set()
        for seed in range(300):
            game.reset(seed=seed)
            found.add(game.patient.record.entity)
        return found

    train, test = patients("train"), patients("test")
    assert not train & test
    assert {is_held_out(f"clinic:{entity}") for entity in train} == {False}
    assert {is_held_out(f"clinic:{entity}") for entity in test} == {True}


def test_a_split_without_entities_is_a_fault_of_the_simulator():
    game = Clinic(split="test")
    with pytest.raises(SimulatorFault, match="none of 10000 entities is in the split test"):
        game.draw_entity(lambda: "a", str)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"split": "half"}, 'split must be "train", "test" or "all", not \'half\''),
        ({"persona": "rude"}, "persona must be one of cooperative, terse, .*, mixed, not 'rude'"),
        ({"person": "llm"}, "person must be one of script, render, free, played, not 'llm'"),
        ({"budget": [5, 2]}, "budget must be a whole number of at least 5"),
        ({"budget": [1, 2, 3]}, r"budget must be a whole number or \[low, high\]"),
        ({"budget": "many"}, "budget must be a whole number"),
        ({"diseases": 1}, "diseases must be a whole number from 2 to 100"),
        ({"symptoms": 999}, "symptoms must be a whole number from 8 to 44"),
        ({"slip": 1.5}, "slip must be a share from 0 to 1"),
        ({"reward": "kindness"}, 'reward must be "outcome" or "doctoragent"'),
    ],
)
def test_wrong_options_are_one_line(options, says):
    with pytest.raises(ValueError, match=says):
        Clinic(**options)


def test_it_is_found_by_its_name():
    assert type(games.make("clinic", diseases=5)) is Clinic


# Players that come with a simulator.


def test_its_players_are_policies_by_name():
    game = Clinic()
    for name in Clinic.players:
        check_scripted(name, game, "doctor")
    with pytest.raises(ScriptedPolicyError, match="oracle plays simulators and text_navigation, not kuhn_poker"):
        check_scripted("oracle", games.make("kuhn_poker"))
    with pytest.raises(ScriptedPolicyError, match="unknown scripted policy 'askr' — did you mean 'asker'"):
        check_scripted("askr", game)
    script = make_scripted("oracle", 0, game)
    game.reset(seed=1)
    view: Any = next(walk(Clinic(), 1, "noop"))
    game.step(script.act(view))
    assert game.report()["success"]


def record_of(game, script="asker", **plan):
    seating = {seat: Seating("brain", script, 0, False, "brain") for seat in game.seats}
    players = {seat: ScriptedPlayer(make_scripted(script, 3, game)) for seat in game.seats}
    match = MatchPlan(identity=MatchId(0, 0), game="clinic", options={}, seed=7, seats=seating, **plan)
    return asyncio.run(play_match(match, game, players, Limits(turns=500)))


def test_a_match_of_the_arena_with_them():
    record = record_of(Clinic())
    assert record.status == "finished" and record.report["questions"] > 0
    assert record.turns[0].messages[0].sender == "patient"
    assert record.report == play(Clinic(), 7, "asker")


class Faulty(Clinic):
    def _test(self, test):
        raise SimulatorFault("the laboratory is on fire")


def test_a_fault_fails_the_match_with_its_own_reason_and_no_score():
    record = record_of(Faulty(budget=20))
    assert (record.status, record.payoffs, record.report) == ("failed", {}, {})
    assert record.reason == "SimulatorFault: the laboratory is on fire"
