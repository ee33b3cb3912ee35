"""The patient as a seat: rendered answers must match the act; free answers are penalised if false."""

import asyncio
import random

import pytest

from agents.players.model import ScriptedPlayer
from agents.players.scripted import make_scripted
from agents.role import load_role
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import Seating
from games.contracts import MatchId, Message, View
from games.families.book import fold
from simulators.clinic import Clinic
from simulators.clinic.signs import SYMPTOMS
from simulators.clinic.synthetic import invent_table
from simulators.conformance import play, view_of

WORDS = invent_table(0, 20, len(SYMPTOMS)).words


def start_after_question(person, seed=0, **options):
    """Start a match, ask a first question, and return the game and the symptom's number."""
    game = Clinic(person=person, budget=20, **options)
    game.reset(seed=seed)
    act = next(act for act in game.legal("doctor") or () if act.startswith("ASK"))
    game.step(act)
    assert game.agent_selection == "patient"
    return game, game.patient.due


def make_contrary_answer(game):
    it = SYMPTOMS[game.patient.due].phrase
    return f"No, I don't have {it}." if game.patient.act.kind == "inform" else f"Yes, I have {it}."


def find_other_sign(game, asked_symptom, secret=False):
    return next(
        n for n, s in enumerate(SYMPTOMS) if n != asked_symptom and s.secret == secret and not game.chart.knows(n)
    )


# Rendered.


def test_a_renderer_sees_the_act_and_the_template_and_not_the_record():
    game, symptom = start_after_question("render")
    facts = game.private("patient")
    assert facts["say"].endswith(SYMPTOMS[symptom].name) and SYMPTOMS[symptom].phrase in facts["template"]
    assert set(facts) == {"say", "template", "answer"} and game.public() == {"left": 19}
    assert view_of(game).messages[-1] == Message.of("doctor", f"ASK {SYMPTOMS[symptom].name}")


def test_correct_rendering_reaches_the_doctor():
    game, symptom = start_after_question("render")
    word = {"inform": "yeah", "deny": "nope", "unknown": "not sure"}[game.patient.act.kind]
    game.step(f"  {word},\n doctor\x00 ")
    assert view_of(game).messages == (Message.of("patient", f"{word}, doctor"),)
    assert game.chart.answers == {symptom: game.patient.record.answers[symptom]} and game.agent_selection == "doctor"
    assert int(game.patient.figures()["render_replaced"]) == 0 and game.infos["patient"]["rewards"] == {}


@pytest.mark.parametrize("kind", ["wrong", "extra", "withheld", "disease"])
def test_wrong_rendering_never_reaches_the_doctor(kind):
    for seed in range(20):
        game, symptom = start_after_question("render", seed, persona="mixed")
        template, secret = game.patient.template, SYMPTOMS[find_other_sign(game, symptom, secret=True)].phrase
        text = {
            "wrong": make_contrary_answer(game),
            "extra": f"{template} And I have {secret}.",
            "withheld": "Good day to you.",
            "disease": f"{template} I have {game.table.names[3]}.",
        }[kind]
        game.step(text)
        assert game.agent_selection == "patient" and game.infos["patient"]["rewards"] == {"reading": -0.1}
        assert view_of(game).messages[-1].text == f"Say this and nothing else: {template}"
        game.step(text)
        assert game.agent_selection == "doctor" and view_of(game).messages[0].text == template
        assert game.chart.answers == {symptom: game.patient.record.answers[symptom]}
        figures = game.patient.figures()
        name = "extra" if kind == "disease" else kind
        assert (figures[f"render_{name}"], figures["render_texts"], figures["render_replaced"]) == (2, 2, 1)


def test_second_rendering_counts():
    game, symptom = start_after_question("render")
    game.step("Good day.")
    game.step(game.private("patient")["template"])
    assert int(game.patient.figures()["render_replaced"]) == 0 and symptom in game.chart.answers


def test_random_renderings_never_mislead_the_doctor():
    """With a patient that speaks at random, the doctor's chart always matches the record."""
    pieces = [s.phrase for s in SYMPTOMS] + [
        "yes", "no", "I have", "not sure", "but", "?", ".", ",", "Bravane", "|", "", "\ud800",
    ]  # fmt: skip
    rng, checked_messages = random.Random(0), 0
    for seed in range(30):
        game = Clinic(person="render", persona="mixed")
        game.reset(seed=seed)
        while not game.ended:
            if game.agent_selection == "doctor":
                for message in view_of(game).messages[:1] if game.chart.answers else ():
                    symptom_asked, stance = list(game.chart.answers.items())[-1]
                    parsed = WORDS.read(message.text, SYMPTOMS[symptom_asked].name)
                    assert parsed == {SYMPTOMS[symptom_asked].name: stance}
                    checked_messages += 1
                game.step(
                    rng.choice([act for act in game.legal("doctor") or () if act[0] == "A" or not game.remaining_acts])
                )
            else:
                game.step(" ".join(rng.choices(pieces, k=rng.randrange(6))))
        for symptom, stance in game.chart.answers.items():
            assert game.patient.record.answers[symptom] == stance
    assert checked_messages > 100


def test_renderings_never_reveal_secrets():
    """With a patient that names random signs and diseases, the doctor reads nothing about what was not asked."""
    blurts = [word for phrase in WORDS.phrases for word in (phrase, f"yes and I have {phrase}", f"no {phrase}")]
    rng, replaced_count = random.Random(1), 0
    for seed in range(30):
        game, doctor_text = Clinic(person="render", persona="mixed"), ""
        game.reset(seed=seed)
        while not game.ended:
            if game.agent_selection == "patient":
                game.step(". ".join(rng.sample(blurts, 2)))
                continue
            doctor_text += "".join(f" {fold(message.text)} ." for message in view_of(game).messages)
            for secret, texts in game.hidden().items():
                assert not any(f" {text} " in doctor_text for text in map(fold, texts)), secret
            game.step(
                rng.choice([act for act in game.legal("doctor") or () if act[0] == "A" or not game.remaining_acts])
            )
        replaced_count += int(game.patient.figures()["render_replaced"])
    assert replaced_count > 200


# Free.


def test_free_patient_sees_the_record_and_is_understood():
    game, symptom = start_after_question("free")
    facts, record = game.private("patient"), game.patient.record
    assert facts["say"].endswith(SYMPTOMS[symptom].name)
    assert facts["have"] == [s.name for s, answer in zip(SYMPTOMS, record.answers, strict=True) if answer == "inform"]
    game.step(facts["answer"])
    assert game.chart.answers == {symptom: record.answers[symptom]} and game.infos["patient"]["rewards"] == {}


def test_free_patient_pays_for_false_statements():
    game, symptom = start_after_question("free")
    denied_sign = next(n for n in range(len(SYMPTOMS)) if n != symptom and game.patient.record.answers[n] == "deny")
    secret = find_other_sign(game, symptom, secret=True)
    stance = "deny" if game.patient.record.answers[secret] == "deny" else "inform"
    statement = f"no {SYMPTOMS[secret].name}" if stance == "deny" else f"I have {SYMPTOMS[secret].name}"
    game.step(f"{make_contrary_answer(game)} I have {SYMPTOMS[denied_sign].phrase}. {statement}.")
    assert game.infos["patient"]["rewards"] == {"wrong": pytest.approx(-0.2), "secret": pytest.approx(-0.1)}
    assert game.chart.answers[symptom] != game.patient.record.answers[symptom]
    assert game.chart.answers[denied_sign] == "inform" and game.chart.answers[secret] == stance
    assert game.patient.figures() == {"told_wrong": 2, "told_secret": 1, "told_unread": 0}


def test_unreadable_answer_counts_as_unsure_and_is_penalised():
    game, symptom = start_after_question("free")
    game.step("Nice weather.")
    assert game.chart.answers == {symptom: "unknown"} and "unread" in game.infos["patient"]["rewards"]


def test_free_patient_shares_the_diagnosis_reward():
    game, _ = start_after_question("free")
    game.step("yes")
    game.step(f"DIAGNOSE {game.table.names[game.patient.record.disease]}")
    assert game.infos["patient"]["rewards"] == game.infos["doctor"]["rewards"] == {"diagnosis": 1.0}


@pytest.mark.slow
def test_lying_patient_lowers_the_doctors_success():
    game = Clinic(person="free", budget=12)
    honest = sum(bool(play(game, seed, "asker", "oracle")["success"]) for seed in range(80))
    lying = sum(bool(play(game, seed, "asker", "random")["success"]) for seed in range(80))
    scripted = sum(bool(play(Clinic(budget=12), seed, "asker")["success"]) for seed in range(80))
    assert lying < honest - 15 and abs(honest - scripted) <= 4


# Roles.


@pytest.mark.parametrize(
    ("doctor", "patient", "options"),
    [
        ("doctor", "patient", {"person": "render"}),
        ("doctor", "patient", {"person": "free", "persona": "mixed"}),
        ("nano_doctor", "nano_patient", {"person": "free", "terse": True}),
        ("player", "player", {"person": "render"}),
    ],
)
def test_roles_show_what_their_seats_need(doctor, patient, options):
    roles = {"doctor": load_role(doctor), "patient": load_role(patient)}
    prompts = []

    class RecordingPlayer(ScriptedPlayer):
        def answer(self, view: View):
            act = super().answer(view)
            role = roles[view.seat]
            prompts.append(role.render_system(view) + "\n" + role.render_turn(view, first=True))
            assert role.parse(role.write(act.action)).game_text.strip() == act.action
            return act

        async def act(self, view):
            return self.answer(view)

    game = Clinic(**options)
    scripted = {"doctor": "asker", "patient": "oracle"}
    seats = {seat: Seating(roles[seat].role, scripted[seat], 0, False, "brain") for seat in game.seats}
    players = {seat: RecordingPlayer(make_scripted(scripted[seat], 0, game)) for seat in game.seats}
    plan = MatchPlan(identity=MatchId(0, 0), game="clinic", options=options, seed=3, seats=seats)
    record = asyncio.run(play_match(plan, game, players, Limits(turns=99)))
    assert record.status == "finished", record.reason
    assert len(prompts) > 4 and not any("\n\n" in text.partition("Answer with")[2] for text in prompts)
