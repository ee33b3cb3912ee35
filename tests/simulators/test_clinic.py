"""The clinic: rewards by hand, the posterior against brute force, calibration, and reference players."""

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


def start_game(seed=0, **options):
    game = Clinic(**options)
    game.reset(seed=seed)
    return game


def sum_rewards(game, *acts, seat="doctor"):
    """Play the acts and return the summed rewards by part."""
    total: dict[Any, Any] = {}
    for act in acts:
        game.step(act)
        for part, value in game.infos[seat]["rewards"].items():
            total[part] = total.get(part, 0.0) + value
    return {part: round(value, 9) for part, value in total.items()}


def name_right_diagnosis(game):
    return f"DIAGNOSE {game.table.names[game.patient.record.disease]}"


def name_wrong_diagnosis(game):
    return f"DIAGNOSE {game.table.names[game.patient.record.disease - 1]}"


def list_open_questions(game):
    return [act for act in game.legal("doctor") if act.startswith("ASK")]


# The table and the record.


def test_table_has_the_stated_frequencies_and_depends_only_on_its_seed():
    table = invent_table(0, 20, 44)
    assert table.symptoms.shape == (20, 44) and table.findings.shape == (20, len(FINDINGS))
    for row in table.symptoms:
        counts = [int((row == chance).sum()) for chance in (VERY_FREQUENT, FREQUENT, OCCASIONAL, BACKGROUND)]
        assert counts == [2, 3, 3, 36]
    assert math.isclose(table.prior.sum(), 1) and len({*table.prior.round(9)}) == len(PREVALENCE)
    assert (invent_table(0, 20, 44).symptoms == table.symptoms).all()
    assert (invent_table(1, 20, 44).symptoms != table.symptoms).any()
    assert len({*invent_disease_names(100)}) == 100


def test_records_follow_the_table_and_the_persona():
    table, rng = replace(invent_table(0, 20, 44), prior=np.eye(20)[3]), np.random.default_rng(0)
    records = [draw_record(rng, table, "mistaken", 0.05) for _ in range(4000)]
    has = np.array([record.symptoms for record in records])
    assert np.abs(has.mean(axis=0) - table.symptoms[3]).max() < 0.03
    confirmed = np.array([[answer == "inform" for answer in record.answers] for record in records])
    forgotten = np.array([[answer == "unknown" for answer in record.answers] for record in records])
    assert forgotten.mean() == pytest.approx(PERSONAS["mistaken"].forgets, abs=0.005)
    volunteered = np.zeros_like(has)
    for row, record in enumerate(records):
        volunteered[row, list(record.complaint)] = True
    assert (confirmed != has)[~forgotten & ~volunteered].mean() == pytest.approx(0.15, abs=0.005)
    assert (volunteered <= has).all() and not volunteered[
        :, [n for n, sign in enumerate(SYMPTOMS) if sign.secret]
    ].any()
    public_signs = [n for n, sign in enumerate(SYMPTOMS) if not sign.secret]
    assert volunteered[:, public_signs][(has & ~forgotten)[:, public_signs]].mean() == pytest.approx(0.3, abs=0.02)


def test_matches_of_a_seed_are_unchanged():
    """Compare a hash of rules, words, acts and outcomes of 30 matches; a change means that the game has changed."""
    digest = hashlib.blake2b(digest_size=8)
    variants: list[dict[str, Any]] = [
        {}, {"persona": "mixed", "terse": True}, {"person": "render", "diseases": 50, "open_book": True},
    ]  # fmt: skip
    for options in variants:
        game = Clinic(**options)
        for seed in range(10):
            report = play(game, seed, "random")
            digest.update(f"{game.rules()}\n{game.render()}\n{report['success']} {report['budget']}\n".encode())
    assert digest.hexdigest() == "d758ce2202c1f361"


# Rewards.


def test_rewards_by_hand():
    game = start_game(budget=20)
    first, second, *_ = list_open_questions(game)
    assert sum_rewards(game, first, second) == {"cost": -0.02}
    assert sum_rewards(game, first) == {"cost": -0.01, "repeat": -0.1}
    assert sum_rewards(game, "TEST urine") == {"cost": -0.03}
    assert sum_rewards(game, "TEST urine") == {"cost": -0.03, "repeat": -0.1}
    assert sum_rewards(game, "PRAY") == {"illegal": -0.1}
    assert sum_rewards(game, name_right_diagnosis(game)) == {"diagnosis": 1.0}
    report = game.report()
    assert report["score"] == pytest.approx(1 - 0.03 - 0.06 - 0.3) and report["success"]
    counts = {"questions": 3, "tests": 2, "repeated": 2, "invalid": 1, "budget": 20}
    assert {name: report[name] for name in counts} == counts


def test_questions_alone_earn_nothing():
    game = start_game(budget=20)
    rewards = sum_rewards(game, *list_open_questions(game)[:19], name_wrong_diagnosis(game))
    assert rewards == {"cost": -0.19, "diagnosis": 0.0}
    assert (game.report()["score"], game.report()["success"]) == (0.0, False)


def test_asking_a_volunteered_sign_is_a_repetition():
    game = next(game for seed in range(99) if (game := start_game(seed, budget=5)).chart.complaint)
    sign_name = SYMPTOMS[game.chart.complaint[0]].name
    assert f"ASK {sign_name}" not in game.legal("doctor")
    assert sum_rewards(game, f"ASK {sign_name}")["repeat"] == -0.1


def test_budget_is_random_shown_and_enforced():
    budgets = {start_game(seed).budget for seed in range(300)}
    assert budgets == set(range(2, 21))
    game = start_game(budget=1)
    assert game.public() == {"left": 1}
    game.step(list_open_questions(game)[0])
    assert game.public() == {"left": 0} and all(act.startswith("DIAGNOSE") for act in game.legal("doctor"))
    before = game.chart
    assert sum_rewards(game, "ASK fever") == {"illegal": -0.1} and game.chart == before and not game.ended
    assert sum_rewards(game, name_right_diagnosis(game)) == {"diagnosis": 1.0}


def test_doctoragent_rewards():
    game = start_game(reward="doctoragent", budget=44)
    answers = game.patient.record.answers
    answered = next(n for n, answer in enumerate(answers) if answer != "unknown" and not game.chart.knows(n))
    unknown_sign = next(n for n, answer in enumerate(answers) if answer == "unknown")
    assert sum_rewards(game, f"ASK {SYMPTOMS[answered].name}") == {"question": 1.0}
    assert sum_rewards(game, f"ASK {SYMPTOMS[unknown_sign].name}") == {"unsure": -1.0}
    assert sum_rewards(game, f"ASK {SYMPTOMS[answered].name}") == {"repeat": -2.0}
    assert sum_rewards(game, "Do you smoke? Do you drink?") == {"illegal": -2.0}
    assert sum_rewards(game, name_right_diagnosis(game)) == {"diagnosis": 5.0}
    overrun_game = start_game(reward="doctoragent", budget=0)
    assert sum_rewards(overrun_game, "ASK fever") == {"overrun": -5.0} and overrun_game.report()["ended"] == "turns"


@pytest.mark.parametrize("choose_last_act", [name_right_diagnosis, name_wrong_diagnosis, lambda game: "x"])
def test_shaping_telescopes_to_a_constant_of_the_deal(choose_last_act):
    """The shaped return differs from the plain one by minus the first potential for any acts."""
    for seed in range(5):
        game = start_game(seed, information=1.0, budget=10, illegal="end", persona="mixed")
        bits = entropy(game.solver.posterior(game.chart, 10)) / math.log2(20)
        question_rewards = sum_rewards(game, *list_open_questions(game)[seed : 2 * seed], "TEST blood")
        final_rewards = sum_rewards(game, choose_last_act(game))
        assert question_rewards["information"] + final_rewards["information"] == pytest.approx(-(1 - bits))


# The patient.


def test_patient_answers_from_its_record():
    game = start_game(3, budget=44)
    for number, sign in enumerate(SYMPTOMS):
        if game.chart.knows(number):
            continue
        game.step(f"ask {sign.name.upper()}")
        answer = {"inform": "yes", "deny": "no", "unknown": "unsure"}[game.patient.record.answers[number]]
        assert game.private("doctor")["answers"][sign.name] == answer
        assert view_of(game).messages[-1].sender == "patient"


def test_laboratory_tests_are_exact():
    for seed in range(20):
        game = start_game(seed, budget=4)
        for test in TESTS:
            game.step(f"TEST {test}")
        findings = game.private("doctor")["findings"]
        assert findings == {
            f: "yes" if has else "no" for f, has in zip(FINDINGS, game.patient.record.findings, strict=True)
        }


def test_impatient_patient_leaves_after_half_the_questions():
    game = start_game(1, persona="impatient", budget=10)
    acts = list_open_questions(game)
    for act in acts[:4]:
        game.step(act)
    assert game.remaining_acts == 6
    game.step(acts[4])
    assert game.remaining_acts == 0 and "time" in view_of(game).messages[-1].text
    game = start_game(1, persona="impatient", budget=10)
    for act in [acts[0], acts[1], acts[1], acts[1]]:
        game.step(act)
    assert game.remaining_acts == 0 and game.chart.has_left


def test_wordings_do_not_depend_on_the_budget():
    first, second = start_game(5, persona="terse"), start_game(5, persona="terse", budget=7)
    assert first.patient.record == second.patient.record and first.render() == second.render()


def test_acts_by_name_number_and_letters():
    game = start_game(2, budget=20)
    for act in ("ask 1", "ASK  Headache", "TEST x-ray", "test 3", "Diagnose 99", "DIAGNOSE", "ASK ", "TESTblood", "AB"):
        copy = game.clone()
        copy.step(act)
        assert copy.infos["doctor"]["valid"] is (act in ("ask 1", "ASK  Headache", "test 3")), act
    terse_game = start_game(2, budget=20, terse=True)
    assert terse_game.rules() == "Aa-AR T1-T4 Da-Dt"
    for act in ("Ac", " T3", "D t"):
        copy = terse_game.clone()
        copy.step(act)
        assert copy.infos["doctor"]["valid"], act
    for act in ("AS", "T5", "Du", "aa", "A", "ASK fever", ""):
        copy = terse_game.clone()
        copy.step(act)
        assert not copy.infos["doctor"]["valid"], act
    replayed = start_game(2, budget=20, terse=True)
    terse_game.step("Da")
    replayed.step(f"D{terse_game.report()['letter']}")
    assert replayed.report()["success"], "the report has the letter of the right diagnosis"
    with pytest.raises(ValueError, match="diseases must be at most 52 in a terse clinic"):
        Clinic(terse=True, diseases=53)


def test_open_book_shows_the_table():
    game = start_game(open_book=True)
    assert "Book (usual; often; at times):" in game.rules() and "Book" not in start_game().rules()
    line = next(line for line in game.rules().split("\n") if line.startswith("Bravane:"))
    usual = [SYMPTOMS[n].name for n in np.flatnonzero(game.table.symptoms[0] == VERY_FREQUENT)]
    assert line.startswith(f"Bravane: {', '.join(usual)};")


# The posterior.


@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_the_posterior_is_exact(persona):
    game = start_game(4, persona=persona, budget=6, diseases=5, symptoms=14)
    for act in [*list_open_questions(game)[::4][:3], "TEST scan"]:
        if act in game.legal("doctor"):
            game.step(act)
    weights = compute_posterior_by_hand(game, game.chart, persona)
    assert game.solver.posterior(game.chart, 6) == pytest.approx(weights / weights.sum())


def test_posterior_over_mixed_personas_is_the_mixture():
    game = start_game(6, persona="mixed", budget=9, diseases=5, symptoms=14)
    for act in list_open_questions(game)[:4]:
        game.step(act)
    assert game.chart.strain == 4 and not game.chart.has_left  # below 5 of 9 no persona is ruled out
    weights = sum(compute_posterior_by_hand(game, game.chart, persona) for persona in PERSONAS)
    assert game.solver.posterior(game.chart, 9) == pytest.approx(weights / weights.sum())


@pytest.mark.slow
def test_posterior_matches_frequencies():
    """Among drawn patients with equal charts, disease frequencies match the posterior within 4 standard errors."""
    game = start_game(diseases=3, symptoms=8, persona="mixed", slip=0.1)
    rng = np.random.default_rng(0)
    counts_by_chart: dict[Any, Any] = {}
    for number in range(30_000):
        record = draw_record(rng, game.table, list(PERSONAS)[number % len(PERSONAS)], 0.1)
        answers = {n: record.answers[n] for n in (1, 4, 6) if n not in record.complaint}
        chart = Chart(record.complaint, answers, strain=3)
        chart.add_findings(0, record.findings, game.table)
        counts_by_chart.setdefault(repr(chart), (chart, np.zeros(3)))[1][record.disease] += 1
    frequent = [(chart, counts) for chart, counts in counts_by_chart.values() if counts.sum() >= 200]
    assert len(frequent) > 20
    for chart, counts in frequent:
        expected = game.solver.posterior(chart, 20)
        tolerance = 4 * np.sqrt(expected * (1 - expected) / counts.sum()) + 1 / counts.sum()
        assert (np.abs(counts / counts.sum() - expected) < tolerance).all(), chart


def test_staying_and_leaving_reveal_impatience():
    solver = load_inference(Key("synthetic"), tuple(PERSONAS), 0.05)
    row = list(PERSONAS).index("impatient")
    assert solver.weights(Chart(strain=5), 10)[row].sum() == 0
    assert solver.weights(Chart(strain=5, has_left=True), 10)[row].sum() == pytest.approx(1)
    assert 0 < solver.weights(Chart(strain=4), 10)[row].sum() < 1


def test_gains_are_expected_entropy_reductions():
    game = start_game(8, budget=20)
    weights = game.solver.weights(game.chart, 20)
    gains = game.solver.compute_question_gains(weights)
    for n in (n for n in range(44) if not game.chart.knows(n)):
        chances = np.einsum("spd,pd->s", np.exp(game.solver.log_answers[..., n]), weights)
        remaining_entropy = 0.0
        stances: tuple[Any, ...] = ("inform", "deny", "unknown")
        for stance, chance in zip(stances, chances, strict=True):
            remaining_entropy += chance * entropy(game.solver.posterior(Chart(game.chart.complaint, {n: stance}), 20))
        assert gains[n] == pytest.approx(entropy(weights.sum(axis=0)) - remaining_entropy, abs=1e-9)
    for name, gain in game.solver.compute_test_gains(weights).items():
        first = list(TESTS).index(name) * 3
        remaining_entropy = 0.0
        for results in itertools.product((False, True), repeat=3):
            chart = Chart(
                game.chart.complaint, findings={first + k: is_present for k, is_present in enumerate(results)}
            )
            chance = 0.0
            for disease, weight in enumerate(weights.sum(axis=0)):
                rates = game.table.findings[disease, first : first + 3]
                chance += weight * np.prod(
                    [rate if is_present else 1 - rate for rate, is_present in zip(rates, results, strict=True)]
                )
            remaining_entropy += chance * entropy(game.solver.posterior(chart, 20))
        assert gain == pytest.approx(entropy(weights.sum(axis=0)) - remaining_entropy, abs=1e-9)


# Reference players.


@pytest.mark.slow
def test_a_random_askers_belief_is_calibrated():
    game = Clinic(persona="mixed")
    reports = [play(game, seed, "random_asker") for seed in range(600)]
    confidence = np.array([report["posterior_best"] for report in reports])
    accuracy = np.array([report["success"] for report in reports])
    assert accuracy.mean() == pytest.approx(confidence.mean(), abs=0.06)
    assert accuracy[confidence > 0.9].mean() > 0.85 > 0.6 > accuracy[confidence < 0.5].mean()


@pytest.mark.slow
def test_good_questions_beat_random_ones_and_none():
    def compute_accuracy(player, budget):
        game = Clinic(budget=budget)
        return np.mean([play(game, seed, player)["success"] for seed in range(150)])

    no_questions, good_questions, random_questions = (
        compute_accuracy("asker", 0),
        compute_accuracy("asker", 20),
        compute_accuracy("random_asker", 20),
    )
    assert 0.3 < no_questions < 0.6 < random_questions < 0.8 < 0.85 < good_questions


def test_clone_has_its_own_patient():
    game = start_game(9)
    twin = game.clone()
    twin.step(list_open_questions(twin)[0])
    assert game.turns == 0 and twin.turns == 1 and isinstance(twin.patient, Patient)
    assert game.table is twin.table


# In the arena.


class FaultyClinic(Clinic):
    """Clinic that raises a fault in every fourth match."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        if seed % 4 == 0:
            raise SimulatorFault("the laboratory is on fire")


def test_faults_are_failed_attempts_not_defeats():
    seats = {"doctor": Seating("brain", "noop", 0, False, "brain")}
    plans = [
        MatchPlan(identity=MatchId(0, seed), game="clinic", options={}, seed=seed, seats=seats) for seed in range(12)
    ]
    records: list[Any] = []

    async def play_plan(plan):
        game = FaultyClinic()
        return await play_match(plan, game, {"doctor": ScriptedPlayer(make_scripted("noop", 0, game))}, Limits())

    finished = asyncio.run(play_all(plans, play_plan, records.append, in_flight=4, attempts=1))
    failed = [record for record in records if record.status == "failed"]
    assert [record.seed % 4 == 0 for record in finished] == [False] * 9
    assert Counter(record.reason for record in failed) == {"SimulatorFault: the laboratory is on fire": 3}
    assert len(failed) / len(records) == 0.25
    assert all(record.payoffs == record.report == {} for record in failed)
    assert all(record.report["score"] == 0 for record in finished)


def test_recommendations_are_shared_by_diseases_and_paid() -> None:
    """As in DoctorAgent-RL, the right disease and the right recommendation pay five points each."""
    game = Clinic(terse=True, diseases=6, symptoms=12, budget=2, reward="doctoragent", recommendations=3)
    game.reset(seed=1)
    assert sorted(game.advice.right) == [0, 0, 1, 1, 2, 2]
    disease = game.patient.record.disease
    sharing_disease = next(
        i
        for i, right_recommendation in enumerate(game.advice.right)
        if right_recommendation == game.advice.right[disease] and i != disease
    )
    payoffs = {}
    for disease_named, recommended in (
        (disease, 0),
        (disease, 1),
        (disease, 2),
        (sharing_disease, game.advice.right[disease]),
    ):
        game.reset(seed=1)
        game.step(f"D{'abcdef'[disease_named]}{recommended + 1}")
        assert game.figures()["advised"] == (recommended == game.advice.right[disease])
        payoffs[disease_named, recommended] = game.payoffs()["doctor"]
    right_recommendation = game.advice.right[disease]
    assert payoffs.pop((disease, right_recommendation)) == 10.0 and {*payoffs.values()} == {5.0}


@pytest.mark.parametrize("act", ["Da", "Da4", "Da0", "Aa1", "T11", "Da²", "Da11"])
def test_diagnosis_without_valid_recommendation_is_illegal(act: str) -> None:
    game = Clinic(terse=True, diseases=6, symptoms=12, reward="doctoragent", recommendations=3)
    game.reset(seed=1)
    game.step(act)
    assert game.invalid == 1 and game.named is None


def test_listed_diagnoses_with_recommendations_are_legal() -> None:
    game = Clinic(diseases=6, symptoms=12, reward="doctoragent", recommendations=3)
    game.reset(seed=1)
    listed = [act for act in game.legal("doctor") or [] if act.startswith("DIAGNOSE")]
    assert len(listed) == 18 and len({*listed}) == 18 and "the right one pays 5" in game.rules()
    game.step(listed[0])
    assert game.named is not None and not game.invalid
