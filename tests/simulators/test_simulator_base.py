"""The simulator contract: splits, players by name, faults, and a conformance kit that catches violations."""

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
def test_clinic_passes_the_conformance_kit(options):
    assert find_failed_checks(lambda: Clinic(**options), seeds=4, acts=150) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_clinic_passes_the_conformance_kit_over_many_seeds(options, capsys):
    assert passes_over_many_seeds(lambda: Clinic(**options), options, capsys)


class ConstantScore(Clinic):
    def figures(self):
        return {**super().figures(), "score": 0.5}


class ScoreAboveOne(Clinic):
    def figures(self):
        return {**super().figures(), "score": 2}


class HighFloor(Clinic):
    @property
    def floor(self):
        return 0.5


class RandomOracle(Clinic):
    players: Mapping[str, Any] = {**Clinic.players, "oracle": doctors.at_random}


class NoPlayers(Clinic):
    players: Mapping[str, Any] = {}


class RemembersMatches(Clinic):
    matches = 0

    def set_up(self, rng, options):
        super().set_up(rng, options)
        self.matches += 1
        self.tell(f"Match {self.matches}.")


class TellsDisease(Clinic):
    def _take_answers(self, facts):
        super()._take_answers(facts)
        disease = self.table.names[self.patient.record.disease]
        self.tell(f"They say it might be {disease.upper()}!", "doctor", sender="patient")


class ParaphrasesSecret(Clinic):
    def public(self):
        secrets = [sign for sign in ("heavy drinking",) if sign in self.hidden()]
        return super().public() | {"note": "smells of too much alcohol" if secrets else ""}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("game_class", "failed_checks"),
    [
        (ConstantScore, {"noop", "oracle"}),
        (ScoreAboveOne, {"noop", "random", "oracle"}),
        (HighFloor, {"random"}),
        (RandomOracle, {"oracle"}),
        (NoPlayers, set(CHECKS)),
        (RemembersMatches, {"transcripts"}),
        (TellsDisease, {"leaks"}),
        (ParaphrasesSecret, {"leaks"}),
    ],
)
def test_kit_finds_the_broken_rule(game_class, failed_checks):
    assert {finding.name for finding in check_outcomes(game_class, 100) if not finding.ok} == failed_checks


# Splits.


def test_a_fixed_fifth_of_entities_is_held_out():
    held_out = [n for n in range(5000) if is_held_out(f"clinic:{n}")]
    assert 900 < len(held_out) < 1100
    assert held_out[:4] == [n for n in range(held_out[3] + 1) if is_held_out(f"clinic:{n}")]
    assert [is_held_out(text) for text in ("a", "b", "c", "d", "e", "\ud800")] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_no_patient_is_in_both_splits():
    def collect_patients(split):
        game = Clinic(split=split)
        entities = set()
        for seed in range(300):
            game.reset(seed=seed)
            entities.add(game.patient.record.entity)
        return entities

    train, test = collect_patients("train"), collect_patients("test")
    assert not train & test
    assert {is_held_out(f"clinic:{entity}") for entity in train} == {False}
    assert {is_held_out(f"clinic:{entity}") for entity in test} == {True}


def test_split_without_entities_is_a_fault():
    game = Clinic(split="test")
    with pytest.raises(SimulatorFault, match="none of 10000 entities is in the split test"):
        game.draw_entity(lambda: "a", str)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "half"}, 'split must be "train" or "test" or "all", not \'half\''),
        ({"persona": "rude"}, 'persona must be "cooperative" or "terse" or .* or "mixed", not \'rude\''),
        ({"person": "llm"}, 'person must be "script" or "render" or "free" or "played", not \'llm\''),
        ({"budget": [5, 2]}, "budget must be a whole number of at least 5"),
        ({"budget": [1, 2, 3]}, r"budget must be a whole number or \[low, high\]"),
        ({"budget": "many"}, "budget must be a whole number"),
        ({"diseases": 1}, "diseases must be a whole number from 2 to 100"),
        ({"symptoms": 999}, "symptoms must be a whole number from 8 to 44"),
        ({"slip": 1.5}, "slip must be a share from 0 to 1"),
        ({"reward": "kindness"}, 'reward must be "outcome" or "doctoragent"'),
    ],
)
def test_refuses_invalid_options(options, message):
    with pytest.raises(ValueError, match=message):
        Clinic(**options)


def test_clinic_is_found_by_name():
    assert type(games.make("clinic", diseases=5)) is Clinic


# Players that come with a simulator.


def test_players_are_policies_by_name():
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


def play_match_record(game, script="asker", **plan):
    seating = {seat: Seating("brain", script, 0, False, "brain") for seat in game.seats}
    players = {seat: ScriptedPlayer(make_scripted(script, 3, game)) for seat in game.seats}
    match = MatchPlan(identity=MatchId(0, 0), game="clinic", options={}, seed=7, seats=seating, **plan)
    return asyncio.run(play_match(match, game, players, Limits(turns=500)))


def test_arena_match_with_scripted_players():
    record = play_match_record(Clinic())
    assert record.status == "finished" and record.report["questions"] > 0
    assert record.turns[0].messages[0].sender == "patient"
    assert record.report == play(Clinic(), 7, "asker")


class FaultyClinic(Clinic):
    def _test(self, test):
        raise SimulatorFault("the laboratory is on fire")


def test_fault_fails_the_match_with_its_reason_and_no_score():
    record = play_match_record(FaultyClinic(budget=20))
    assert (record.status, record.payoffs, record.report) == ("failed", {}, {})
    assert record.reason == "SimulatorFault: the laboratory is on fire"
