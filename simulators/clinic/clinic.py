"""Clinic game: find a patient's disease by questions and tests within a budget, and name it.

Diseases, patients and numbers are invented unless the option `source` says otherwise. Simulation only, never advice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import IllegalAct, choice, flag, number, number_range, to_one_line, whole_number
from simulators.base import MIXED, Script
from simulators.clinic import acts, players
from simulators.clinic.advice import MAX_RECOMMENDATIONS, Advice
from simulators.clinic.chart import Chart
from simulators.clinic.fees import FEES, OUTCOME, Reward
from simulators.clinic.patient import SHORT, Patient
from simulators.clinic.posterior import Inference, entropy, load_inference, strain_limit
from simulators.clinic.record import draw_record, make_twin, restore_record
from simulators.clinic.signs import LETTERS
from simulators.clinic.sources import SYNTHETIC, load_table, make_key
from simulators.extractor import Stance
from simulators.person import PERSONAS, may_leave
from simulators.played import FINE, LEAVING, Faults, PersonGame

DOCTOR, PATIENT, LAB = "doctor", "patient", "lab"


class Clinic(PersonGame):
    """Medical diagnosis game: a doctor finds a simulated patient's disease by questions and tests.

    Acts: ASK symptom (the patient says yes, no or unsure), TEST name (shows its findings without error), DIAGNOSE
    disease. Questions and tests share a budget that is known from the start; a diagnosis ends the match. Symptoms,
    tests and diseases are given by name, or by number from 1. `simulators.clinic.patient` describes a patient's seat.

    Options in addition to PersonGame's:
    diseases, symptoms: number of diseases and symptoms, 20 and 44 by default. table: seed of the sign frequencies.
    source: origin of the table, which is a simulation and never advice:
    "synthetic" (all invented); "pgmpy:child", "pgmpy:hepar2" or "pgmpy:asia" (a published Bayesian network of fixed
    size, `simulators.clinic.networks`); "orphanet" (rare diseases and the frequencies of their signs,
    `simulators.clinic.orphanet`; uses the Human Phenotype Ontology and Orphanet's data, CC-BY 4.0). The latter two
    need the extra `clinic`; their modules state the licences.
    budget: number of questions and tests per match, or [low, high] to draw it for each match.
    slip: share of wrong answers of a cooperative patient.
    reward: "outcome" pays `diagnosis` (1 if right), `cost` (a question -0.01, a test -0.03), `repeat` (-0.1) and -0.1
    for illegal acts; a question alone never pays. "doctoragent" replicates DoctorAgent-RL (`simulators.clinic.fees`).
    recommendations: number of recommendations, one of which ends a diagnosis (DIAGNOSE disease RECOMMEND 1, terse
    `Db1`); 0 for none. The right one pays `recommendation` in "doctoragent".
    information: weight of the shaping reward (part `information`), 0 by default. Each act pays its change of the
    potential 1 - H/log2(diseases), where H is the entropy of the exact posterior in bits. The end of the match takes
    the potential back, so shaping shifts all returns of a deal by the same constant and no policy's rank changes (Ng et
    al. 1999).
    terse: abbreviate acts and facts to few tokens, for tiny models. open_book: show the table in the rules.
    """

    name = "clinic"
    metadata: ClassVar[dict[str, Any]] = {"name": "clinic_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "diagnosis": "the right disease", "cost": "the price of a question or test",
        "repeat": "a repeated question or test", "information": "shaping by the information gained",
        "question": "an answered question (doctoragent)", "unsure": "an unanswered question (doctoragent)",
        "overrun": "an act beyond the budget (doctoragent)",
        "recommendation": "the right recommendation (doctoragent)",
        "reading": "the patient's text was rejected", "wrong": "the patient said something false",
        "secret": "the patient revealed a secret unasked", "unread": "the patient's text did not answer",
    }  # fmt: skip
    personas = tuple(PERSONAS)
    players: Mapping[str, Callable[[Clinic, int], Script]] = players.PLAYERS
    seats: tuple[str, ...] = (DOCTOR,)
    person_seat = PATIENT

    def __init__(
        self,
        *,
        diseases: int | None = None,
        symptoms: int | None = None,
        table: int = 0,
        source: str = SYNTHETIC,
        budget: int | list[int] | tuple[int, int] = (2, 20),
        slip: float = 0.05,
        reward: Reward = "outcome",
        recommendations: int = 0,
        information: float = 0.0,
        terse: bool = False,
        open_book: bool = False,
        penalty: float | None = None,
        **options: Any,
    ) -> None:
        self.key = make_key(source, table, diseases, symptoms)
        self.table = load_table(self.key)
        self.diseases, self.symptoms = len(self.table.names), len(self.table.signs)
        self.budgets = number_range("budget", budget, 0)
        self.slip = number("slip", slip)
        if self.slip > 1:
            raise ValueError(f"slip must be a share from 0 to 1, not {slip!r}")
        self.fees = FEES[choice("reward", reward, *FEES)]
        self.information = number("information", information)
        self.terse, self.open_book = flag("terse", terse), flag("open_book", open_book)
        recommended = whole_number("recommendations", recommendations, 0, min(MAX_RECOMMENDATIONS, self.diseases))
        self.advice = Advice(recommended, self.table.names, table, self.terse)
        for option, count in (("diseases", self.diseases), ("symptoms", self.symptoms)):
            if self.terse and count > len(LETTERS):
                raise ValueError(f"{option} must be at most {len(LETTERS)} in a terse clinic, not {count}")
        super().__init__(penalty=-self.fees.invalid if penalty is None else penalty, talk=False, **options)

    @property
    def solver(self) -> Inference:
        """Solver of the exact posterior for these options. Cached for all matches, so clones do not copy it."""
        personas = self.personas if self.persona == MIXED else (str(self.persona),)
        return load_inference(self.key, personas, self.slip)

    @property
    def floor(self) -> float:
        """Success rate of the random player, who names a random disease."""
        return 1 / self.diseases

    @property
    def remaining_acts(self) -> int:
        """Remaining questions and tests together; 0 once the patient has lost patience."""
        return 0 if self.chart.has_left else self.budget - self.questions - self.tests

    # Methods of TextGame and Simulator.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the budget and the patient, and send its first words. The reset option `record` sets the patient."""
        low, high = self.budgets
        self.budget = int(rng.integers(low, high + 1))
        wording_rng, record_rng = rng.spawn(2)
        if "record" in options:
            record = restore_record(options["record"])
        else:
            persona = self.draw_persona(record_rng)
            record = self.draw_entity(
                lambda: draw_record(record_rng, self.table, persona, self.slip), lambda record: str(record.entity)
            )
        self.patient = Patient(record, wording_rng, self.person, self.table)
        self.chart = Chart(complaint=() if self.is_played else record.complaint)
        self.tests_made: list[int] = []
        self.questions = self.tests = self.repeated = 0
        self.named: int | None = None
        self.recommendation: int | None = None
        self.potential = self._compute_potential()
        if self.is_played:
            self.patient.template, self.agent_selection = self.patient.draw_opening(), PATIENT
        else:
            self.tell(self.patient.draw_opening(), DOCTOR, sender=PATIENT)

    def rules(self) -> str:
        """Return the acts, their costs and all names; in terse mode only their codes."""
        return acts.rules(self.table, self.terse, self.fees.describe(), self.open_book) + self.advice.rules(
            self.fees.recommendation
        )

    def public(self) -> dict[str, Any]:
        """Return the facts for all seats: {"left": remaining questions and tests together}."""
        return {"left": self.remaining_acts}

    def private(self, seat: str) -> dict[str, Any]:
        """Return a seat's private facts: the doctor's chart, in words or marks; for the patient `Patient.as_facts`."""
        if seat == PATIENT:
            return self.patient.as_facts()
        return {"chart": self.chart.as_marks(self.table)} if self.terse else self.chart.as_facts(self.table)

    def legal(self, seat: str) -> list[str] | None:
        """Return the doctor's new questions and tests within the budget, and all diagnoses. Repeats are legal too.

        For the patient's seat, returns yes, no and unsure, or None with person "render".
        """
        if seat == PATIENT:
            return None if self.person == "render" else list(SHORT.values())
        open_acts = [("d", disease) for disease in range(self.diseases)]
        if self.remaining_acts:
            open_acts += [("a", symptom) for symptom in range(self.symptoms) if not self.chart.knows(symptom)]
            open_acts += [("t", test) for test in range(len(self.table.tests)) if test not in self.tests_made]
        ends = [self.advice.format_suffix(index) for index in range(self.advice.count)] or [""]
        return [
            acts.format_act(kind, index, self.table, self.terse) + end
            for kind, index in sorted(open_acts)
            for end in (ends if kind == "d" else [""])
        ]

    def next_seat(self, seat: str) -> str:
        """Return the patient's seat if it owes an answer, else the doctor's."""
        return DOCTOR if not self.patient.template or self.person == "script" else PATIENT

    def play(self, seat: str, act: str) -> str:
        """Play an act of the doctor, or the patient's answer. Returns the text for the other seat.

        Raises IllegalAct for an act that cannot be parsed, and for a question or test beyond the budget, which with
        `reward` "doctoragent" ends the match instead.
        """
        if seat == PATIENT:
            return self._listen(act)
        plain, recommendation = self.advice.split(act)
        kind, index = acts.read_act(plain, self.table, self.terse)
        self.advice.check_act(kind, recommendation)
        if kind == "d":
            self._diagnose(index, recommendation)
        elif not self.remaining_acts:
            self._overrun()
        elif kind == "a":
            self._ask(index)
        else:
            self._test(index)
        return acts.format_act(kind, index, self.table, self.terse) + self.advice.format_suffix(recommendation)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the match's figures: its outcome and costs, and exact posteriors given the doctor's chart.

        `score` is 1 for the right disease minus the costs of questions, tests, repeats and illegal acts, at least 0. It
        does not depend on the option `reward`. `posterior` is the probability of the true disease, `posterior_named`
        that of the named one, `posterior_best` the highest, and `regret` is `posterior_best` - `posterior_named`.
        `entropy` is in bits. `letter` is the code of the true disease in terse mode. `advised` tells whether the
        recommendation was right.
        """
        record, names, fees = self.patient.record, self.table.names, OUTCOME
        chances = self.solver.posterior(self.chart, self.budget)
        success = self.named == record.disease
        posterior_named = 0.0 if self.named is None else float(chances[self.named])
        costs = fees.question * self.questions + fees.test * self.tests + fees.repeat * (self.repeated + self.invalid)
        return {
            "score": max(0.0, success + costs),
            "success": success,
            "answer": names[record.disease],
            **({"letter": acts.list_codes("d")[record.disease]} if self.terse else {}),
            "diagnosis": "" if self.named is None else names[self.named],
            **({"advised": self.recommendation == self.advice.right[record.disease]} if self.advice.count else {}),
            "budget": self.budget,
            "questions": self.questions,
            "tests": self.tests,
            "repeated": self.repeated,
            "posterior": float(chances[record.disease]),
            "posterior_named": posterior_named,
            "posterior_best": float(chances.max()),
            "regret": float(chances.max()) - posterior_named,
            "entropy": entropy(chances),
            "patient": record.persona,
            "patient_left": self.chart.has_left,
            **self.patient.figures(),
        }

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options of two patients with equal answers and findings but different diseases."""
        record = self.patient.record
        other = (record.disease + int(rng.integers(1, self.diseases))) % self.diseases
        return record.as_options(), make_twin(record, other).as_options()

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return, by secret, the texts that reveal it: the disease, and symptoms neither asked about nor mentioned."""
        unknown_symptoms = [name for sign, name in enumerate(self.table.symptom_names) if not self.chart.knows(sign)]
        disease = self.table.names[self.patient.record.disease]
        return {"disease": (disease,), **{name: self.table.words.list_phrases(name) for name in unknown_symptoms}}

    def check_person(self, text: str) -> Faults:
        """Return the faults of a played patient's text (`Patient.check`)."""
        return self.patient.check(text, self.chart)

    # Effects of a turn.

    def end(self, reason: str, announcement: str) -> None:
        """End the match and deduct the shaping potential, so that shaping does not change which policy is best."""
        if self.information:
            self.pay(DOCTOR, "information", -self.potential)
        super().end(reason, announcement)

    def _diagnose(self, disease: int, recommendation: int | None) -> None:
        self.named, self.recommendation, record = disease, recommendation, self.patient.record
        right = disease == record.disease
        self.pay(DOCTOR, "diagnosis", self.fees.diagnosis * right)
        if self.advice.count and self.fees.recommendation:
            is_advice_right = recommendation == self.advice.right[record.disease]
            self.pay(DOCTOR, "recommendation", self.fees.recommendation * is_advice_right)
        if self.person == "free":
            self.pay(PATIENT, "diagnosis", float(right))
        self.end("diagnosis", f"{'Right' if right else 'Wrong'}: it is {self.table.names[record.disease]}.")

    def _overrun(self) -> None:
        if not self.fees.overrun:
            raise IllegalAct("no questions or tests are left: DIAGNOSE")
        self._charge("overrun", self.fees.overrun)
        self.end("turns", f"No turns are left; it is {self.table.names[self.patient.record.disease]}.")

    def _ask(self, symptom: int) -> None:
        self.questions += 1
        is_repeat = self.chart.knows(symptom)
        self.chart.strain += 2 if is_repeat else 1
        self.patient.ask(symptom)
        self._charge("cost", self.fees.question)
        if is_repeat:
            self._charge_repeat()
        if self.person == "script":
            self.tell(self.patient.template, DOCTOR, sender=PATIENT)
            self._take_answers({symptom: self.patient.record.answers[symptom]})

    def _test(self, test: int) -> None:
        self.tests += 1
        self._charge("cost", self.fees.test)
        if test in self.tests_made:
            self._charge_repeat()
        self.tests_made.append(test)
        self.tell(self.chart.add_findings(test, self.patient.record.findings, self.table), DOCTOR, sender=LAB)
        self._pay_information()

    def _charge_repeat(self) -> None:
        self.repeated += 1
        self._charge("repeat", self.fees.repeat)

    def _charge(self, part: str, fee: float) -> None:
        if fee:
            self.pay(DOCTOR, part, fee)

    def _listen(self, text: str) -> str:
        """Check and fine the patient's text. Returns the text for the doctor, or "" if the seat must answer again."""
        text = to_one_line(text)
        if self.is_played and not self.admit_text(text):
            return ""
        reading = self.patient.hear(text)
        if reading is None:
            self.pay(PATIENT, "reading", -FINE)
            self.tell(f"Say this and nothing else: {self.patient.template}", PATIENT)
            return ""
        words, facts, fines = reading
        for part, fine in fines.items():
            self.pay(PATIENT, part, fine)
        self.chart.has_left |= self.is_played and bool(LEAVING.search(words))
        self.patient.template = ""
        if self.patient.due is None:
            self.chart.add_complaint(facts)
            self.potential = self._compute_potential()
        else:
            self._take_answers(facts)
        return words

    def _take_answers(self, facts: Mapping[int, Stance]) -> None:
        """Add answers to the chart and pay for the question. If patience has run out, the patient leaves."""
        due = self.patient.due
        assert due is not None
        if not self.chart.knows(due) and facts[due] == "unknown":
            self._charge("unsure", self.fees.unsure)
        elif not self.chart.knows(due):
            self._charge("question", self.fees.answered)
        self.patient.due = None
        self.chart.answers |= {symptom: stance for symptom, stance in facts.items() if not self.chart.knows(symptom)}
        patience = strain_limit(self.patient.record.persona, self.budget) - self.chart.strain
        if may_leave(goal=False, patience=patience, pending=False):
            self.chart.has_left = True
            self.tell("I have no more time for this.", DOCTOR, sender=PATIENT)
        self._pay_information()

    def _pay_information(self) -> None:
        """Pay the doctor the shaping reward: the change of the potential since the last payment."""
        if self.information:
            before, self.potential = self.potential, self._compute_potential()
            self.pay(DOCTOR, "information", self.potential - before)

    def _compute_potential(self) -> float:
        """Return the shaping potential, `information` times (1 - entropy of the posterior / log2(diseases))."""
        if not self.information:
            return 0.0
        unknown = entropy(self.solver.posterior(self.chart, self.budget)) / math.log2(self.diseases)
        return self.information * (1 - unknown)
