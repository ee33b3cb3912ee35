"""The clinic: find out what a patient has by questions and tests, within a budget, and name the disease.

All diseases, patients and numbers are invented (`simulators.clinic.table`): this is a simulation, never advice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.text import IllegalAct, flag, number, one_line, whole_number
from simulators.base import MIXED, Answer, Simulator
from simulators.clinic import acts, players
from simulators.clinic.chart import Chart
from simulators.clinic.patient import FINE, SHORT, Patient
from simulators.clinic.posterior import Inference, endurance, entropy, inference
from simulators.clinic.record import draw_record, record_from, twin_of
from simulators.clinic.signs import MOST_DISEASES, SYMPTOMS, TESTS, number_of, words
from simulators.clinic.table import Table, table
from simulators.extractor import Stance
from simulators.person import PERSONAS, SPEECHES, Speech, may_leave

DOCTOR, PATIENT, LAB = "doctor", "patient", "lab"
REPEAT = 0.1
"""What a question or test costs whose answer is known already."""
DOCTORAGENT: Mapping[str, float] = {"question": 1.0, "unsure": -1.0, "repeat": -2.0, "invalid": -2.0, "overrun": -5.0}
"""Per turn, of DoctorAgent-RL as released; its diagnosis is worth 0 to 5, its recommendation is left out here."""
DOCTORAGENT_DIAGNOSIS = 5.0


class Clinic(Simulator):
    """Acts: ASK symptom (the patient says yes, no or unsure), TEST name (shows its findings exactly), DIAGNOSE disease.

    Questions and tests share a budget that is told at the start; a diagnosis ends the match. Symptoms, tests and
    diseases may be named or numbered from 1. Where the patient sits at a seat of its own, it answers each question.

    Options besides Simulator's:
    diseases, symptoms, table: how many there are, and the seed of who has what (another table is another medicine).
    budget: questions and tests, a number or [low, high], drawn for each match.
    slip: the share of answers that are wrong, for a cooperative patient.
    person: "script" (one seat; templates speak), "render" (the patient's seat words each answer; text that says
    anything else is asked for once more, then replaced) or "free" (the patient's seat knows the record, says what it
    likes, and shares the reward: `simulators.clinic.patient`).
    reward "outcome": `diagnosis` 1 for the right one, `cost` -question_cost or -test_cost, `repeat` -0.1; a question
    alone never pays. "doctoragent": `question` +1, `unsure` -1, `repeat` -2, illegal acts -2, `overrun` -5 for asking
    without budget, which ends the match, `diagnosis` 5; for replication, since there nine filler questions pay more
    than a diagnosis.
    information: the weight of potential-based shaping (part `information`), off by default.
    terse: acts and facts in as few tokens as possible, for tiny models. open_book: the rules hold the table in words.
    """

    name = "clinic"
    metadata: ClassVar[dict[str, Any]] = {"name": "clinic_v0", "render_modes": ["ansi"]}
    personas = tuple(PERSONAS)
    players: ClassVar[Mapping[str, Callable[[Any, int], Answer]]] = players.PLAYERS
    seats: tuple[str, ...] = (DOCTOR,)

    def __init__(
        self,
        *,
        diseases: int = 20,
        symptoms: int = 44,
        table: int = 0,
        budget: int | list[int] | tuple[int, int] = (2, 20),
        slip: float = 0.05,
        person: Speech = "script",
        reward: Literal["outcome", "doctoragent"] = "outcome",
        question_cost: float = 0.01,
        test_cost: float = 0.03,
        information: float = 0.0,
        terse: bool = False,
        open_book: bool = False,
        penalty: float | None = None,
        **options: Any,
    ) -> None:
        if person not in SPEECHES:
            raise ValueError(f"person must be one of {', '.join(SPEECHES)}, not {person!r}")
        if reward not in ("outcome", "doctoragent"):
            raise ValueError(f'reward must be "outcome" or "doctoragent", not {reward!r}')
        self.diseases = whole_number("diseases", diseases, 2, MOST_DISEASES)
        self.symptoms = whole_number("symptoms", symptoms, 8, len(SYMPTOMS))
        self.table_seed = whole_number("table", table, 0)
        self.budgets = _budgets(budget)
        self.slip = number("slip", slip)
        if self.slip > 1:
            raise ValueError(f"slip must be a share from 0 to 1, not {slip!r}")
        self.person, self.reward = person, reward
        self.question_cost, self.test_cost = number("question_cost", question_cost), number("test_cost", test_cost)
        self.information = number("information", information)
        self.terse, self.open_book = flag("terse", terse), flag("open_book", open_book)
        if person != "script":
            self.seats = (DOCTOR, PATIENT)
        if penalty is None:
            penalty = -DOCTORAGENT["invalid"] if reward == "doctoragent" else REPEAT
        super().__init__(penalty=penalty, talk=False, **options)

    @property
    def table(self) -> Table:
        """Who has what; shared by all matches, so a property: a clone copies no table."""
        return table(self.table_seed, self.diseases, self.symptoms)

    @property
    def solver(self) -> Inference:
        """Who knows the exact posterior; shared too."""
        personas = self.personas if self.persona == MIXED else (str(self.persona),)
        return inference(self.table_seed, self.diseases, self.symptoms, personas, self.slip)

    @property
    def floor(self) -> float:
        """Whoever picks any listed act names a disease at random."""
        return 1 / self.diseases

    # What a game tells.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draws the budget and the patient; options: `disease` (a name), or a whole `record`, as `twin_deals` gives."""
        low, high = self.budgets
        self.budget = int(rng.integers(low, high + 1))
        voice, draws = rng.spawn(2)
        disease = None
        if "disease" in options:
            disease = number_of(str(options["disease"]), self.table.names)
            if disease is None:
                raise ValueError(f"disease must be the name of one of this clinic's, not {options['disease']!r}")
        if "record" in options:
            record = record_from(options["record"])
        else:
            persona = self.draw_persona(draws)
            record = self.draw_entity(
                lambda: draw_record(draws, self.table, persona, self.slip, disease), lambda drawn: str(drawn.entity)
            )
        self.patient = Patient(record, voice, self.person)
        self.chart = Chart(complaint=record.complaint)
        self.tested: list[int] = []
        self.questions = self.tests = self.repeated = 0
        self.named: int | None = None
        self.informed = self._information()
        self.tell(self.patient.opening(), DOCTOR, sender=PATIENT)

    def rules(self) -> str:
        """The acts, what they cost, and all names; in terse mode their numbers alone."""
        pay = (
            f"A right diagnosis pays 1; a question costs {self.question_cost:g}, a test {self.test_cost:g}, asking or "
            f"testing again {REPEAT:g} more."
        )
        if self.reward == "doctoragent":
            pay = "A question pays 1, or -1 if the patient cannot tell, -2 if it was asked; a right diagnosis pays 5."
        return acts.rules(self.table, self.terse, pay, self.open_book)

    def public(self) -> dict[str, Any]:
        """How many questions and tests are left."""
        return {"left": self.left}

    def private(self, seat: str) -> dict[str, Any]:
        """The doctor's chart; what the patient is to say or, freely played, knows."""
        if seat == PATIENT:
            return self.patient.facts()
        return {"chart": self.chart.marks(self.symptoms)} if self.terse else self.chart.facts()

    def legal(self, seat: str) -> list[str] | None:
        """What is not known yet may be asked and tested, within the budget; every disease may be named."""
        if seat == PATIENT:
            return None if self.person == "render" else list(SHORT.values())
        open_acts = [("d", disease) for disease in range(self.diseases)]
        if self.left:
            open_acts += [("a", symptom) for symptom in range(self.symptoms) if not self.chart.knows(symptom)]
            open_acts += [("t", test) for test in range(len(TESTS)) if test not in self.tested]
        return [acts.written(kind, which, self.table, self.terse) for kind, which in sorted(open_acts)]

    def next_seat(self, seat: str) -> str:
        """The patient answers every question, where it has a seat."""
        return DOCTOR if self.patient.due is None or self.person == "script" else PATIENT

    def play(self, seat: str, act: str) -> str:
        """One act of the doctor, or the patient's words."""
        if seat == PATIENT:
            return self._listen(act)
        kind, which = acts.read_act(act, self.table)
        if kind == "d":
            self._diagnose(which)
        elif not self.left:
            self._overrun()
        elif kind == "a":
            self._ask(which)
        else:
            self._test(which)
        return acts.written(kind, which, self.table, self.terse)

    def figures(self) -> dict[str, float | bool | str]:
        """What was found at what cost, and what could be known by then (posteriors are exact)."""
        record, chances = self.patient.record, self.solver.posterior(self.chart, self.budget)
        success = self.named == record.disease
        cost = self.question_cost * self.questions + self.test_cost * self.tests
        score = max(0.0, success - cost - REPEAT * (self.repeated + self.invalid))
        return {
            "score": min(1.0, score),
            "success": success,
            "answer": self.table.names[record.disease],
            "diagnosis": "" if self.named is None else self.table.names[self.named],
            "budget": self.budget,
            "questions": self.questions,
            "tests": self.tests,
            "repeated": self.repeated,
            "posterior": float(chances[record.disease]),
            "posterior_named": 0.0 if self.named is None else float(chances[self.named]),
            "posterior_best": float(chances.max()),
            "entropy": entropy(chances),
            "patient": record.persona,
            "patient_left": self.chart.gone,
            **self.patient.figures(),
        }

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Two patients who say and show the same, and have different diseases."""
        if seat != DOCTOR:
            return None
        record = self.patient.record
        other = int(rng.choice([disease for disease in range(self.diseases) if disease != record.disease]))
        return record.as_options(), twin_of(record, other).as_options()

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """The disease, and every symptom that was neither asked about nor told."""
        phrases = words(self.symptoms, self.diseases)
        untold = [SYMPTOMS[sign].name for sign in range(self.symptoms) if not self.chart.knows(sign)]
        disease = self.table.names[self.patient.record.disease]
        return {"disease": (disease,), **{name: phrases.words(name) for name in untold}}

    # How a turn goes.

    @property
    def left(self) -> int:
        """Questions and tests that may still be made."""
        return 0 if self.chart.gone else self.budget - self.questions - self.tests

    def end(self, reason: str, announcement: str) -> None:
        """The match ends; what shaping paid so far is taken back, so that it changes no policy's worth."""
        if self.information:
            self.pay(DOCTOR, "information", -self.informed)
        super().end(reason, announcement)

    def _diagnose(self, disease: int) -> None:
        self.named, record = disease, self.patient.record
        right = disease == record.disease
        worth = DOCTORAGENT_DIAGNOSIS if self.reward == "doctoragent" else 1.0
        self.pay(DOCTOR, "diagnosis", worth * right)
        if self.person == "free":
            self.pay(PATIENT, "diagnosis", float(right))
        self.end("diagnosis", f"{'Right' if right else 'Wrong'}: it is {self.table.names[record.disease]}.")

    def _overrun(self) -> None:
        if self.reward == "outcome":
            raise IllegalAct("no questions or tests are left: DIAGNOSE")
        self.pay(DOCTOR, "overrun", DOCTORAGENT["overrun"])
        self.end("turns", f"No turns are left; it is {self.table.names[self.patient.record.disease]}.")

    def _ask(self, symptom: int) -> None:
        self.questions += 1
        again = self.chart.knows(symptom)
        self.chart.strain += 2 if again else 1
        self.patient.ask(symptom)
        if self.reward == "outcome":
            self.pay(DOCTOR, "cost", -self.question_cost)
        if again:
            self._repeat()
        if self.person == "script":
            self.tell(self.patient.template, DOCTOR, sender=PATIENT)
            self._answered({symptom: self.patient.record.answers[symptom]})

    def _test(self, test: int) -> None:
        self.tests += 1
        if self.reward == "outcome":
            self.pay(DOCTOR, "cost", -self.test_cost)
        if test in self.tested:
            self._repeat()
        self.tested.append(test)
        self.tell(self.chart.note_test(test, self.patient.record.findings), DOCTOR, sender=LAB)
        self._shape()

    def _repeat(self) -> None:
        self.repeated += 1
        self.pay(DOCTOR, "repeat", DOCTORAGENT["repeat"] if self.reward == "doctoragent" else -REPEAT)

    def _listen(self, text: str) -> str:
        """The patient's own words, made harmless; nothing reaches the doctor while they are asked for again."""
        heard = self.patient.hear(one_line(text), words(self.symptoms, self.diseases))
        if heard is None:
            self.pay(PATIENT, "reading", -FINE)
            self.tell(f"Say this and nothing else: {self.patient.template}", PATIENT)
            return ""
        said, facts, fines = heard
        for part, fine in fines.items():
            self.pay(PATIENT, part, fine)
        self._answered(facts)
        return said

    def _answered(self, facts: Mapping[int, Stance]) -> None:
        """The patient has answered: the chart, its patience, and what the answer is worth."""
        asked = self.patient.due
        assert asked is not None
        if self.reward == "doctoragent" and not self.chart.knows(asked):
            part = "unsure" if facts[asked] == "unknown" else "question"
            self.pay(DOCTOR, part, DOCTORAGENT[part])
        self.patient.due = None
        self.chart.answers |= {symptom: said for symptom, said in facts.items() if not self.chart.knows(symptom)}
        patience = endurance(self.patient.record.persona, self.budget) - self.chart.strain
        if may_leave(goal=False, patience=patience, pending=False):
            self.chart.gone = True
            self.tell("I have no more time for this.", DOCTOR, sender=PATIENT)
        self._shape()

    def _shape(self) -> None:
        """Pays the difference that the latest act made to what is known."""
        if self.information:
            before, self.informed = self.informed, self._information()
            self.pay(DOCTOR, "information", self.informed - before)

    def _information(self) -> float:
        """The potential: the share of what there is to know of the disease, in bits, that is known; times weight."""
        if not self.information:
            return 0.0
        unknown = entropy(self.solver.posterior(self.chart, self.budget)) / math.log2(self.diseases)
        return self.information * (1 - unknown)


def _budgets(option: object) -> tuple[int, int]:
    """The least and the most that a match's budget may be."""
    ends = option if isinstance(option, list | tuple) else (option, option)
    if len(ends) != 2:
        raise ValueError(f"budget must be a whole number or [low, high], not {option!r}")
    low = whole_number("budget", ends[0], 0)
    return low, whole_number("budget", ends[1], low)
