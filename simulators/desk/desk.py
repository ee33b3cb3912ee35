"""Service desk game: an agent serves a customer, using tools on a database within a policy.

Success needs three things at the end: the database changed in an acceptable way, the customer was told its facts (or
a forbidden request was denied for a true reason), and no rule was broken. An agent that only stays silent, or grants
every request, does not succeed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import choice, flag, number, number_range, whole_number
from games.contracts import TOOL
from simulators.base import Script
from simulators.desk import listing, players, tasks
from simulators.desk.customer import Customer
from simulators.desk.device.settings import read_claims
from simulators.desk.domains import WORLDS, make_seat
from simulators.desk.goals import Goal
from simulators.desk.people import draw_name
from simulators.desk.played import PlayedSeat
from simulators.desk.policy import CONFIRMATION, IDENTITY, PRIVACY, Rule
from simulators.desk.record import draw_record
from simulators.desk.speech import VERBS, Speech, read_speech
from simulators.person import PERSONAS
from simulators.played import Faults, PersonGame
from simulators.tools import Call, describe, read_calls, run

AGENT, CUSTOMER = "agent", "customer"


class Desk(PersonGame):
    """Customer service game: an agent serves a simulated customer with database tools, within a policy.

    Acts: a tool call, answered by a message from "tool", or speech, answered by the customer. Speech is typed
    (`ASK identity|number`, `CONFIRM call`, `TELL fact value`, `DENY reason`, `ELSE` for "is there anything else?") or
    plain text (`SAY text`), from which the same acts are parsed (`simulators.desk.speech`). The match ends with `DONE`,
    or when the customer leaves because its goals are settled or its patience is exhausted.

    Options in addition to PersonGame's:
    domain: "shop", "airline" or "phone" (`simulators.desk.phone`: the customer has a phone, and the agent can also
    instruct it with `LOOK setting` and `SET setting value`). goals: number of goals in a match, or [low, high], at most
    4. The phone domain has one goal; there it is the number of faults, at most 3.
    person: `simulators.desk.seat` and `simulators.desk.played` describe customers with a seat.
    cost: price of each act of the agent. Part `outcome` pays 1 for success, at the end. max_turns: maximum number of
    the agent's acts. calls: maximum number of tool calls in one act.
    tools: format of the tool descriptions, "signatures" or "json" (as Hermes and Qwen models were trained).
    terse: abbreviate acts to codes and facts to few tokens, for tiny models.
    """

    name = "desk"
    metadata: ClassVar[dict[str, Any]] = {"name": "desk_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "outcome": "1 for success at the end", "cost": "the price of each act of the agent",
        "reading": "the customer's text was rejected", "wrong": "the customer said something false",
        "secret": "the customer revealed its data unasked", "unread": "the customer's text did not answer",
    }  # fmt: skip
    personas = tuple(PERSONAS)
    players: Mapping[str, Callable[[Desk, int], Script]] = players.PLAYERS
    seats: tuple[str, ...] = (AGENT,)
    person_seat = CUSTOMER
    whole_acts = True

    def __init__(
        self,
        *,
        domain: Literal["shop", "airline", "phone"] = "shop",
        goals: int | list[int] | tuple[int, int] | None = None,
        cost: float = 0.0,
        max_turns: int = 40,
        calls: int = 4,
        tools: Literal["signatures", "json"] = "signatures",
        terse: bool = False,
        penalty: float = 0.1,
        **options: Any,
    ) -> None:
        self.domain = choice("domain", domain, *WORLDS)
        self.tools_style = choice("tools", tools, "signatures", "json")
        max_goals = WORLDS[domain].max_goals
        self.goals = number_range("goals", (1, max_goals) if goals is None else goals, 1, max_goals)
        self.cost, self.max_turns = number("cost", cost), whole_number("max_turns", max_turns, 1)
        self.calls, self.terse = whole_number("calls", calls, 1), flag("terse", terse)
        self.stakes = self.max_turns * self.cost
        self.policy: tuple[Rule, ...] = (*WORLDS[domain].rules, PRIVACY)
        """Rules that are reasons to deny a request."""
        super().__init__(penalty=penalty, talk=False, **options)

    @property
    def floor(self) -> float:
        """Success rate of the player `random`: 4 of 4,000 matches."""
        return 0.001

    # Methods of TextGame and Simulator.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the match and send the first message. The reset option `others` is the seed of other customers' data."""
        owner_rng, others_rng, goal_rng = rng.spawn(3)
        if "others" in options:
            others_rng = np.random.default_rng(whole_number("others", options["others"], 0))
        name = self.draw_entity(lambda: draw_name(owner_rng), str)
        self.world = WORLDS[self.domain](owner_rng, others_rng, name)
        count = int(goal_rng.integers(self.goals[0], self.goals[1] + 1))
        goals = tasks.draw_goals(self.world, goal_rng, count)
        record = draw_record(
            goal_rng, self.world.owner, self.draw_persona(goal_rng), goals, self.world.unused_numbers[: len(goals)]
        )
        self.seat = make_seat(self.world, record, self.person)
        self.customer = self.seat.customer
        self.accepted_changes = tasks.compute_effects(self.world, goals)
        self.agent_messages: list[str] = []
        self.acts = self.call_count = self.errors = 0
        self.success = False
        opening, self.visible_text = self.customer.open(), ""
        if self.is_played:
            self.seat.request(opening, None, {})
            self.agent_selection = CUSTOMER
        else:
            self.visible_text = opening
            self.tell(opening, AGENT, sender=CUSTOMER)

    def rules(self) -> str:
        """Return the agent's instructions: policy, tools and acts. In terse mode they are one sentence."""
        if self.terse:
            return "Play one of the listed codes."
        policy = "\n".join(f"- {rule.name}: {rule.text}" for rule in (IDENTITY, CONFIRMATION, *self.policy))
        facts = "|".join(self.world.facts)
        return (
            "You serve a customer. Policy; its names are the reasons to deny:\n"
            f"{policy}\nDeny what the policy forbids, do the rest, tell what is asked.\n"
            f'Tools; write a call alone, as name(argument="value") or <tool_call>JSON</tool_call>:\n'
            f"{describe(self.world.tools(), self.tools_style)}\n"
            "To the customer, one of: ASK identity; ASK number; CONFIRM call (before each write); "
            f"TELL fact value (facts: {facts}); DENY reason; ELSE (asks what else); SAY text (plain words). "
            f"{self.world.guide}DONE ends the talk."
        )

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the definitions of the agent's tools (none in terse mode), or of a played customer's tools."""
        if seat == CUSTOMER:
            phone = self.world.handset if self.is_played else None
            return [tool.definition for tool in phone.tools()] if phone else ()
        return () if self.terse else [tool.definition for tool in self.world.tools()]

    def public(self) -> dict[str, Any]:
        """Return the facts for all seats: {"today": ISO date, "left": remaining acts of the agent}."""
        return {"today": self.world.today.isoformat(), "left": self.max_turns - self.acts}

    def private(self, seat: str) -> dict[str, Any]:
        """Return a seat's private facts.

        The agent's are {"verified": bool, "agreed": tool of the customer's unused consent, or ""}; in terse mode the
        state of the match in words ("notes") and abbreviated ("marks"). The customer's are those of `Seat.facts`.
        """
        if seat == CUSTOMER:
            return self.seat.facts()
        if self.terse:
            words = listing.describe_state(self.world, self.customer, self.visible_text)
            return {"notes": [word.replace("_", " ") for word in words], "marks": listing.abbreviate(words)}
        session = self.world.session
        return {"verified": bool(session.verified_customer), "agreed": session.consent.tool if session.consent else ""}

    def legal(self, seat: str) -> list[str] | None:
        """Return the agent's listed acts, or a free or played customer's codes. Other acts may be legal too."""
        if seat == CUSTOMER:
            return list(self.customer.list_statements()) if self.person in ("free", "played") else None
        return list(self.list_acts().keys() if self.terse else self.list_acts().values())

    def next_seat(self, seat: str) -> str:
        """Return the customer's seat if it owes a statement, else the agent's."""
        return CUSTOMER if self.seat.template else AGENT

    def play(self, seat: str, act: str) -> str:
        """Play the agent's tool calls or message, or the customer's text. Returns the text for the other seat.

        Each act of the agent costs `cost`. The match ends at DONE or after `max_turns` acts of the agent. Raises
        IllegalAct for an act of the agent that is neither calls nor a message.
        """
        if seat == CUSTOMER:
            return self._listen(act)
        if self.terse:
            act = self.list_acts().get(act.strip(), act)
        verb = act.split(maxsplit=1)[0] if act.strip() else ""
        calls = [] if verb in VERBS else read_calls(act, self.calls)
        speech = None if calls else read_speech(act, self.world, self.policy)
        self.acts += 1
        if self.cost:
            self.pay(AGENT, "cost", -self.cost)
        for call in calls:
            self._call(call)
        if not calls and speech is None:
            self._finish("done")
        elif speech is not None:
            self._speak(speech)
        if self.acts >= self.max_turns and not self.ended:
            self.seat.template = ""
            self._finish("turns")
        return "" if speech is None else speech.text

    def figures(self) -> dict[str, float | bool | str]:
        """Return the match's figures: `success` (also as `score`), `tau_score` as in tau-bench, and several counts.

        `rows` is True if the database changed as required. `told` is the share of goals for which the agent told the
        facts, or denied the request, as required.
        """
        goals, world = self.customer.record.goals, self.world
        results = tasks.judge_facts(goals, self.customer.outcomes)
        changes = world.find_changes()
        rows = tasks.has_right_rows(changes, self.accepted_changes)
        tau = (
            tasks.compute_tau_score(changes, self.accepted_changes, goals, self.agent_messages)
            if self.ended != "illegal"
            else 0.0
        )
        breaches = Counter(world.session.breaches)
        return {
            "score": float(self.success),
            "success": self.success,
            "tau_score": tau,
            "rows": rows,
            "told": sum(results) / len(goals),
            "missing_facts": _count_missing(goals, self.customer),
            "breaches": sum(breaches.values()),
            **{f"breach_{name}": count for name, count in sorted(breaches.items())},
            "goals": len(goals),
            "forbidden": sum(bool(goal.reasons) for goal in goals),
            "messages": len(self.agent_messages),
            "calls": self.call_count,
            "errors": self.errors,
            "customer": self.customer.record.persona,
            "customer_left": self.customer.departure == "left",
            **self.seat.figures(),
        }

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options of two deals that differ in the other customers' data; None for the customer's seat."""
        return ({"others": 1}, {"others": 2}) if seat == AGENT else None

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return, by customer id, texts that the agent must not see: others' data and, until verified, the owner's."""
        owner, secrets = self.world.owner, {}
        for person in self.world.fetch_all("SELECT * FROM customers"):
            is_owner = person["id"] == owner.id
            if not is_owner or not self.world.session.verified_customer:
                texts = [person["email"], *self.world.list_numbers_of(person["id"])]
                texts += [person["name"], person["address"]] if not is_owner else []
                secrets[person["id"]] = tuple(
                    text for text in texts if not is_owner or text not in self.customer.revealed_text
                )
        return secrets | (self.world.handset.hidden() if self.world.handset else {})

    def check_person(self, text: str) -> Faults:
        """Return the faults of a played customer's text (`Seat.check`)."""
        assert isinstance(self.seat, PlayedSeat)
        return self.seat.check(text)

    # Effects of a turn.

    def list_acts(self) -> dict[str, str]:
        """Return the agent's listed acts by code. They use only values that the agent was shown."""
        return listing.list_acts(self.world, self.customer, self.policy, self.visible_text)

    def _call(self, call: Call) -> None:
        """Run a tool call, send the result to the agent, count calls and errors, and tell the customer of writes."""
        write_count = len(self.world.session.done)
        result = run(self.world.tools(), call)
        self.call_count, self.errors = self.call_count + 1, self.errors + result.startswith("Error: ")
        for tool, subject in self.world.session.done[write_count:]:
            self.customer.note_write(tool, subject)
        self.visible_text += f"\n{result}"
        self.tell(result, AGENT, sender=TOOL)

    def _speak(self, speech: Speech) -> None:
        """Pass the agent's message to the customer, then send its scripted answer or request one from its seat.

        Records a breach if the agent tells facts or denies a request before verification.
        """
        self.agent_messages.append(speech.text)
        discloses = speech.reasons or speech.facts.keys() & self.customer.goal.facts.keys()
        if discloses and not self.world.session.verified_customer:
            self.world.record_breach(IDENTITY.name)
        identity = self.customer.identity
        answer = self.customer.hear(speech)
        if self.person == "script":
            self._take_answer(answer)
        else:
            self.seat.request(answer, speech.proposal, identity)

    def _listen(self, text: str) -> str:
        """Check and fine the customer's text. Returns the text for the agent, or "" if the customer's seat moves again.

        The seat moves again after a rejected text, and after calls of its own tools.
        """
        if isinstance(self.seat, PlayedSeat) and (results := self.seat.use(text, self.calls)):
            for result in results:
                self.tell(result, CUSTOMER, sender=TOOL)
            return ""
        if self.is_played and not self.admit_text(text):
            return ""
        utterance, fines = self.seat.hear(text)
        for part, fine in fines.items():
            self.pay(CUSTOMER, part, fine)
        if utterance is None:
            self.tell(f"Say this and nothing else: {self.seat.template}", CUSTOMER)
            return ""
        self._take_answer(utterance)
        return utterance

    def _take_answer(self, answer: str) -> None:
        """Send and record the customer's answer, and end the match if the customer has left."""
        self.visible_text += f"\n{answer}"
        if self.world.handset:
            self.world.handset.reported_values |= dict(read_claims(answer))
        if self.person == "script":
            self.tell(answer, AGENT, sender=CUSTOMER)
        if self.customer.departure:
            self._finish(self.customer.departure)

    def _finish(self, reason: str) -> None:
        """End the match. Pays its success, 1 or 0, to the agent and to a free customer's seat."""
        goals = self.customer.record.goals
        self.success = (
            not self.world.session.breaches
            and all(tasks.judge_facts(goals, self.customer.outcomes))
            and tasks.has_right_rows(self.world.find_changes(), self.accepted_changes)
            and tasks.has_right_service(self.world, goals)
        )
        for seat in (AGENT, CUSTOMER) if self.person == "free" else (AGENT,):
            self.pay(seat, "outcome", float(self.success))
        self.end(reason, "The talk is over.")


def _count_missing(goals: Sequence[Goal], customer: Customer) -> int:
    """Count the facts of allowed goals that were not told correctly."""
    by_goal = [outcome.told_facts for outcome in customer.outcomes] + [{}] * len(goals)
    return sum(
        facts.get(name) != value
        for goal, facts in zip(goals, by_goal, strict=False)
        for name, value in goal.facts.items()
        if not goal.reasons
    )
