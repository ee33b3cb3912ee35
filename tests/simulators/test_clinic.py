"""The clinic: rewards by hand, the exact posterior against sums over all hidden states, calibration, yardsticks."""

import asyncio
import hashlib
import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.orchestrator import play_all
from arena.records import Seating
from games.contracts import MatchId
from simulators.base import SimulatorFault
from simulators.clinic import Clinic
from simulators.clinic.chart import Chart
from simulators.clinic.patient import Patient
from simulators.clinic.posterior import entropy, load_inference
from simulators.clinic.record import draw_record
from simulators.clinic.signs import FINDINGS, SYMPTOMS, TESTS, invent_disease_names
from simulators.clinic.sources import Key
from simulators.clinic.synthetic import BACKGROUND, FREQUENT, OCCASIONAL, PREVALENCE, VERY_FREQUENT, invent_table
from simulators.conformance import play, view_of
from simulators.person import PERSONAS
from tests.simulators.clinic_by_hand import compute_posterior_by_hand


def started(seed=0, **options):
    game = Clinic(**options)
    game.reset(seed=seed)
    return game


def parts(game, *acts, seat="doctor"):
    """The named rewards of these acts, in sum."""
    total: dict[Any, Any] = {}
    for act in acts:
        game.step(act)
        for part, value in game.infos[seat]["rewards"].items():
            total[part] = total.get(part, 0.0) + value
    return {part: round(value, 9) for part, value in total.items()}


def right(game):
    return f"DIAGNOSE {game.table.names[game.patient.record.disease]}"


def wrong(game):
    return f"DIAGNOSE {game.table.names[game.patient.record.disease - 1]}"


def unknown(game):
    return [act for act in game.legal("doctor") if act.startswith("ASK")]


# The table and the record.


def test_the_table_has_the_stated_classes_and_comes_from_its_seed_alone():
    one = invent_table(0, 20, 44)
    assert one.symptoms.shape == (20, 44) and one.findings.shape == (20, len(FINDINGS))
    for row in one.symptoms:
        counts = [int((row == chance).sum()) for chance in (VERY_FREQUENT, FREQUENT, OCCASIONAL, BACKGROUND)]
        assert counts == [2, 3, 3, 36]
    assert math.isclose(one.prior.sum(), 1) and len({*one.prior.round(9)}) == len(PREVALENCE)
    assert (invent_table(0, 20, 44).symptoms == one.symptoms).all()
    assert (invent_table(1, 20, 44).symptoms != one.symptoms).any()
    assert len({*invent_disease_names(100)}) == 100


def test_records_follow_the_table_and_the_persona():
    known, rng = replace(invent_table(0, 20, 44), prior=np.eye(20)[3]), np.random.default_rng(0)
    records = [draw_record(rng, known, "mistaken", 0.05) for _ in range(4000)]
    has = np.array([record.symptoms for record in records])
    assert np.abs(has.mean(axis=0) - known.symptoms[3]).max() < 0.03
    says = np.array([[answer == "inform" for answer in record.answers] for record in records])
    forgotten = np.array([[answer == "unknown" for answer in record.answers] for record in records])
    assert forgotten.mean() == pytest.approx(PERSONAS["mistaken"].forgets, abs=0.005)
    told = np.zeros_like(has)
    for row, record in enumerate(records):
        told[row, list(record.complaint)] = True
    assert (says != has)[~forgotten & ~told].mean() == pytest.approx(0.15, abs=0.005)
    assert (told <= has).all() and not told[:, [n for n, sign in enumerate(SYMPTOMS) if sign.secret]].any()
    openly = [n for n, sign in enumerate(SYMPTOMS) if not sign.secret]
    assert told[:, openly][(has & ~forgotten)[:, openly]].mean() == pytest.approx(0.3, abs=0.02)


def test_matches_of_one_seed_are_the_same_as_ever():
    """Rules, words, acts and outcomes of 30 matches, hashed: another hash means another clinic."""
    digest = hashlib.blake2b(digest_size=8)
    variants: list[dict[str, Any]] = [
        {}, {"persona": "mixed", "terse": True}, {"person": "render", "diseases": 50, "open_book": True},
    ]  # fmt: skip
    for options in variants:
        game = Clinic(**options)
        for seed in range(10):
            played = play(game, seed, "random")
            digest.update(f"{game.rules()}\n{game.render()}\n{played['success']} {played['budget']}\n".encode())
    assert digest.hexdigest() == "d758ce2202c1f361"


# Rewards.


def test_what_everything_pays():
    game = started(budget=20)
    first, second, *_ = unknown(game)
    assert parts(game, first, second) == {"cost": -0.02}
    assert parts(game, first) == {"cost": -0.01, "repeat": -0.1}
    assert parts(game, "TEST urine") == {"cost": -0.03}
    assert parts(game, "TEST urine") == {"cost": -0.03, "repeat": -0.1}
    assert parts(game, "PRAY") == {"illegal": -0.1}
    assert parts(game, right(game)) == {"diagnosis": 1.0}
    report = game.report()
    assert report["score"] == pytest.approx(1 - 0.03 - 0.06 - 0.3) and report["success"]
    counts = {"questions": 3, "tests": 2, "repeated": 2, "invalid": 1, "budget": 20}
    assert {name: report[name] for name in counts} == counts


def test_questions_alone_never_pay():
    game = started(budget=20)
    earned = parts(game, *unknown(game)[:19], wrong(game))
    assert earned == {"cost": -0.19, "diagnosis": 0.0}
    assert (game.report()["score"], game.report()["success"]) == (0.0, False)


def test_what_was_told_unasked_is_a_repetition():
    game = next(game for seed in range(99) if (game := started(seed, budget=5)).chart.complaint)
    told = SYMPTOMS[game.chart.complaint[0]].name
    assert f"ASK {told}" not in game.legal("doctor")
    assert parts(game, f"ASK {told}")["repeat"] == -0.1


def test_the_budget_is_shown_kept_and_random():
    budgets = {started(seed).budget for seed in range(300)}
    assert budgets == set(range(2, 21))
    game = started(budget=1)
    assert game.public() == {"left": 1}
    game.step(unknown(game)[0])
    assert game.public() == {"left": 0} and all(act.startswith("DIAGNOSE") for act in game.legal("doctor"))
    before = game.chart
    assert parts(game, "ASK fever") == {"illegal": -0.1} and game.chart == before and not game.ended
    assert parts(game, right(game)) == {"diagnosis": 1.0}


def test_doctoragents_numbers():
    game = started(reward="doctoragent", budget=44)
    answers = game.patient.record.answers
    known = next(n for n, said in enumerate(answers) if said != "unknown" and not game.chart.knows(n))
    unsure = next(n for n, said in enumerate(answers) if said == "unknown")
    assert parts(game, f"ASK {SYMPTOMS[known].name}") == {"question": 1.0}
    assert parts(game, f"ASK {SYMPTOMS[unsure].name}") == {"unsure": -1.0}
    assert parts(game, f"ASK {SYMPTOMS[known].name}") == {"repeat": -2.0}
    assert parts(game, "Do you smoke? Do you drink?") == {"illegal": -2.0}
    assert parts(game, right(game)) == {"diagnosis": 5.0}
    over = started(reward="doctoragent", budget=0)
    assert parts(over, "ASK fever") == {"overrun": -5.0} and over.report()["ended"] == "turns"


@pytest.mark.parametrize("last", [right, wrong, lambda game: "x"])
def test_shaping_telescopes_to_a_constant_of_the_deal(last):
    """The shaped return differs from the plain one by minus the first potential, whatever is done."""
    for seed in range(5):
        game = started(seed, information=1.0, budget=10, illegal="end", persona="mixed")
        bits = entropy(game.solver.posterior(game.chart, 10)) / math.log2(20)
        asked = parts(game, *unknown(game)[seed : 2 * seed], "TEST blood")
        ended = parts(game, last(game))
        assert asked["information"] + ended["information"] == pytest.approx(-(1 - bits))


# The patient.


def test_the_patient_answers_from_its_record_and_says_the_same_twice():
    game = started(3, budget=44)
    for number, sign in enumerate(SYMPTOMS):
        if game.chart.knows(number):
            continue
        game.step(f"ask {sign.name.upper()}")
        said = {"inform": "yes", "deny": "no", "unknown": "unsure"}[game.patient.record.answers[number]]
        assert game.private("doctor")["answers"][sign.name] == said
        assert view_of(game).messages[-1].sender == "patient"


def test_tests_are_exact():
    for seed in range(20):
        game = started(seed, budget=4)
        for test in TESTS:
            game.step(f"TEST {test}")
        found = game.private("doctor")["findings"]
        assert found == {
            f: "yes" if has else "no" for f, has in zip(FINDINGS, game.patient.record.findings, strict=True)
        }


def test_an_impatient_patient_leaves_after_half_the_questions_and_sooner_when_asked_twice():
    game = started(1, persona="impatient", budget=10)
    acts = unknown(game)
    for act in acts[:4]:
        game.step(act)
    assert game.left == 6
    game.step(acts[4])
    assert game.left == 0 and "time" in view_of(game).messages[-1].text
    game = started(1, persona="impatient", budget=10)
    for act in [acts[0], acts[1], acts[1], acts[1]]:
        game.step(act)
    assert game.left == 0 and game.chart.gone


def test_wordings_are_drawn_apart_from_the_record():
    one, two = started(5, persona="terse"), started(5, persona="terse", budget=7)
    assert one.patient.record == two.patient.record and one.render() == two.render()


def test_acts_by_name_by_number_and_terse():
    game = started(2, budget=20)
    for act in ("ask 1", "ASK  Headache", "TEST x-ray", "test 3", "Diagnose 99", "DIAGNOSE", "ASK ", "TESTblood", "AB"):
        fresh = game.clone()
        fresh.step(act)
        assert fresh.infos["doctor"]["valid"] is (act in ("ask 1", "ASK  Headache", "test 3")), act
    terse = started(2, budget=20, terse=True)
    assert terse.rules() == "Aa-AR T1-T4 Da-Dt"
    for act in ("Ac", " T3", "D t"):
        fresh = terse.clone()
        fresh.step(act)
        assert fresh.infos["doctor"]["valid"], act
    for act in ("AS", "T5", "Du", "aa", "A", "ASK fever", ""):
        fresh = terse.clone()
        fresh.step(act)
        assert not fresh.infos["doctor"]["valid"], act
    again = started(2, budget=20, terse=True)
    terse.step("Da")
    again.step(f"D{terse.report()['letter']}")
    assert again.report()["success"], "the report says what would have been right"
    with pytest.raises(ValueError, match="diseases must be at most 52 in a terse clinic"):
        Clinic(terse=True, diseases=53)


def test_the_open_book_tells_the_table():
    game = started(open_book=True)
    assert "Book (usual; often; at times):" in game.rules() and "Book" not in started().rules()
    line = next(line for line in game.rules().split("\n") if line.startswith("Bravane:"))
    usual = [SYMPTOMS[n].name for n in np.flatnonzero(game.table.symptoms[0] == VERY_FREQUENT)]
    assert line.startswith(f"Bravane: {', '.join(usual)};")


# The posterior.


@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_the_posterior_is_exact(persona):
    game = started(4, persona=persona, budget=6, diseases=5, symptoms=14)
    for act in [*unknown(game)[::4][:3], "TEST scan"]:
        if act in game.legal("doctor"):
            game.step(act)
    weights = compute_posterior_by_hand(game, game.chart, persona)
    assert game.solver.posterior(game.chart, 6) == pytest.approx(weights / weights.sum())


def test_the_posterior_over_mixed_personas_is_the_mixture_of_each_ones():
    game = started(6, persona="mixed", budget=9, diseases=5, symptoms=14)
    for act in unknown(game)[:4]:
        game.step(act)
    assert game.chart.strain == 4 and not game.chart.gone  # so nobody can be ruled out yet: it takes 5 of 9
    weights = sum(compute_posterior_by_hand(game, game.chart, persona) for persona in PERSONAS)
    assert game.solver.posterior(game.chart, 9) == pytest.approx(weights / weights.sum())


@pytest.mark.slow
def test_the_posterior_is_how_often_whoever_looks_so_has_what():
    """Of many patients drawn, those with the same chart have each disease as often as it says (4 standard errors)."""
    game = started(diseases=3, symptoms=8, persona="mixed", slip=0.1)
    rng = np.random.default_rng(0)
    found: dict[Any, Any] = {}
    for number in range(30_000):
        record = draw_record(rng, game.table, list(PERSONAS)[number % len(PERSONAS)], 0.1)
        asked = {n: record.answers[n] for n in (1, 4, 6) if n not in record.complaint}
        chart = Chart(record.complaint, asked, strain=3)
        chart.note_test(0, record.findings, game.table)
        found.setdefault(repr(chart), (chart, np.zeros(3)))[1][record.disease] += 1
    often = [(chart, counts) for chart, counts in found.values() if counts.sum() >= 200]
    assert len(often) > 20
    for chart, counts in often:
        expected = game.solver.posterior(chart, 20)
        far = 4 * np.sqrt(expected * (1 - expected) / counts.sum()) + 1 / counts.sum()
        assert (np.abs(counts / counts.sum() - expected) < far).all(), chart


def test_who_stays_is_not_impatient_and_who_leaves_is():
    solver = load_inference(Key("synthetic"), tuple(PERSONAS), 0.05)
    row = list(PERSONAS).index("impatient")
    assert solver.weights(Chart(strain=5), 10)[row].sum() == 0
    assert solver.weights(Chart(strain=5, gone=True), 10)[row].sum() == pytest.approx(1)
    assert 0 < solver.weights(Chart(strain=4), 10)[row].sum() < 1


def test_gains_are_what_answers_add_on_average():
    game = started(8, budget=20)
    weights = game.solver.weights(game.chart, 20)
    gains = game.solver.compute_question_gains(weights)
    for n in (n for n in range(44) if not game.chart.knows(n)):
        chances = np.einsum("spd,pd->s", np.exp(game.solver.log_answers[..., n]), weights)
        left = 0.0
        stances: tuple[Any, ...] = ("inform", "deny", "unknown")
        for stance, chance in zip(stances, chances, strict=True):
            left += chance * entropy(game.solver.posterior(Chart(game.chart.complaint, {n: stance}), 20))
        assert gains[n] == pytest.approx(entropy(weights.sum(axis=0)) - left, abs=1e-9)
    for name, gain in game.solver.compute_test_gains(weights).items():
        first = list(TESTS).index(name) * 3
        left = 0.0
        for seen in itertools.product((False, True), repeat=3):
            chart = Chart(game.chart.complaint, findings={first + k: there for k, there in enumerate(seen)})
            chance = 0.0
            for disease, weight in enumerate(weights.sum(axis=0)):
                rates = game.table.findings[disease, first : first + 3]
                chance += weight * np.prod(
                    [rate if there else 1 - rate for rate, there in zip(rates, seen, strict=True)]
                )
            left += chance * entropy(game.solver.posterior(chart, 20))
        assert gain == pytest.approx(entropy(weights.sum(axis=0)) - left, abs=1e-9)


# The yardsticks.


@pytest.mark.slow
def test_a_random_askers_belief_is_calibrated():
    game = Clinic(persona="mixed")
    reports = [play(game, seed, "random_asker") for seed in range(600)]
    believed = np.array([report["posterior_best"] for report in reports])
    accuracy = np.array([report["success"] for report in reports])
    assert accuracy.mean() == pytest.approx(believed.mean(), abs=0.06)
    assert accuracy[believed > 0.9].mean() > 0.85 > 0.6 > accuracy[believed < 0.5].mean()


@pytest.mark.slow
def test_asking_well_pays_more_than_asking_much_and_more_than_not_asking():
    def accuracy(player, budget):
        game = Clinic(budget=budget)
        return np.mean([play(game, seed, player)["success"] for seed in range(150)])

    nothing, well, anyhow = accuracy("asker", 0), accuracy("asker", 20), accuracy("random_asker", 20)
    assert 0.3 < nothing < 0.6 < anyhow < 0.8 < 0.85 < well


def test_a_patient_is_copied_with_its_match():
    game = started(9)
    twin = game.clone()
    twin.step(unknown(twin)[0])
    assert game.turns == 0 and twin.turns == 1 and isinstance(twin.patient, Patient)
    assert game.table is twin.table


# In the arena.


class Faulty(Clinic):
    """Its laboratory burns in every fourth match."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        if seed % 4 == 0:
            raise SimulatorFault("the laboratory is on fire")


def test_faults_have_their_own_reason_and_rate_and_are_no_defeats():
    seats = {"doctor": Seating("brain", "noop", 0, False, "brain")}
    plans = [
        MatchPlan(identity=MatchId(0, seed), game="clinic", options={}, seed=seed, seats=seats) for seed in range(12)
    ]
    heard: list[Any] = []

    async def of(plan):
        game = Faulty()
        return await play_match(plan, game, {"doctor": ScriptedPlayer(make_scripted("noop", 0, game))}, Limits())

    finished = asyncio.run(play_all(plans, of, heard.append, in_flight=4, attempts=1))
    failed = [record for record in heard if record.status == "failed"]
    assert [record.seed % 4 == 0 for record in finished] == [False] * 9
    assert Counter(record.reason for record in failed) == {"SimulatorFault: the laboratory is on fire": 3}
    assert len(failed) / len(heard) == 0.25
    assert all(record.payoffs == record.report == {} for record in failed)
    assert all(record.report["score"] == 0 for record in finished)


def test_a_diagnosis_comes_with_a_recommendation_that_diseases_share() -> None:
    """DoctorAgent-RL: five points each for the right disease and the right recommendation."""
    game = Clinic(terse=True, diseases=6, symptoms=12, budget=2, reward="doctoragent", recommendations=3)
    game.reset(seed=1)
    assert sorted(game.advice.right) == [0, 0, 1, 1, 2, 2]
    disease = game.patient.record.disease
    twin = next(i for i, right in enumerate(game.advice.right) if right == game.advice.right[disease] and i != disease)
    paid = {}
    for named, recommended in (disease, 0), (disease, 1), (disease, 2), (twin, game.advice.right[disease]):
        game.reset(seed=1)
        game.step(f"D{'abcdef'[named]}{recommended + 1}")
        assert game.figures()["advised"] == (recommended == game.advice.right[disease])
        paid[named, recommended] = game.payoffs()["doctor"]
    right = game.advice.right[disease]
    assert paid.pop((disease, right)) == 10.0 and {*paid.values()} == {5.0}


@pytest.mark.parametrize("act", ["Da", "Da4", "Da0", "Aa1", "T11", "Da²", "Da11"])
def test_an_act_without_its_recommendation_is_illegal(act: str) -> None:
    game = Clinic(terse=True, diseases=6, symptoms=12, reward="doctoragent", recommendations=3)
    game.reset(seed=1)
    game.step(act)
    assert game.invalid == 1 and game.named is None


def test_listed_diagnoses_are_legal_in_words_and_the_rules_name_the_right_ones() -> None:
    game = Clinic(diseases=6, symptoms=12, reward="doctoragent", recommendations=3)
    game.reset(seed=1)
    listed = [act for act in game.legal("doctor") or [] if act.startswith("DIAGNOSE")]
    assert len(listed) == 18 and len({*listed}) == 18 and "the right one pays 5" in game.rules()
    game.step(listed[0])
    assert game.named is not None and not game.invalid
