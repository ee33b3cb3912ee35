"""List the agent's acts, and summarise the state of the match in a few words, for random players and tiny models.

An act is listed only if the customer or a tool has shown its arguments to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from games.families.book import fold
from simulators.desk.customer import Customer
from simulators.desk.goals import ACCOUNT, format_call
from simulators.desk.policy import Fact, Rule
from simulators.desk.speech import NUMBER, VALUES, canonical_fact
from simulators.desk.world import World

MAX_VALUES = 8
"""Maximum number of listed values of a fact, and of numbers to look up."""
LETTERS = "abcdefghij"
"""Letters of the facts in the codes of TELL acts."""
AMOUNT = re.compile(r"(?<![\w.-])\d+\.\d{1,2}(?![\w.-])")


def list_acts(world: World, customer: Customer, policy: Sequence[Rule], visible_text: str) -> dict[str, str]:
    """Return the agent's listed acts by code. They use only numbers and values that occur in `visible_text`.

    `visible_text` is all text shown to the agent. Lookups, consent questions, writes and facts are listed only after
    verification. Except for the repairs of a phone line, only those that serve the current goal are listed.
    """
    acts = {"i": "ASK identity", "n": "ASK number"}
    if identity := customer.identity:
        tool = "find_customer" if "email" in identity else "find_customer_by_name"
        acts["f"] = format_call(tool, identity)
    if world.session.verified_customer:
        numbers = _find_numbers(customer, visible_text)
        reads = world.list_lookups(numbers, [name for name in customer.stated_goal.mentions if name in visible_text])
        acts |= _number_acts("l", reads)
        writes = [
            write
            for write in customer.stated_goal.writes
            if all(text in visible_text for text in write.arguments.values())
        ]
        writes += world.list_possible_writes(numbers)
        acts |= _number_acts("c", [f"CONFIRM {write}" for write in writes])
        acts |= _number_acts("w", [str(write) for write in writes])
        for letter, name in zip(LETTERS, world.facts, strict=False):
            if name not in customer.stated_goal.facts:
                continue
            acts |= _number_acts(
                f"t{letter}", [f"TELL {name} {value}" for value in _find_values(world.facts[name], visible_text)]
            )
    acts |= _number_acts("k", [act for act in world.instructions if act.startswith("LOOK")])
    acts |= _number_acts("s", [act for act in world.instructions if act.startswith("SET")])
    return acts | _number_acts("d", [f"DENY {rule.name}" for rule in policy]) | {"e": "ELSE", "q": "DONE"}


def abbreviate(words: Iterable[str]) -> str:
    """Join the words, each abbreviated to its initials: `cancel_order ?refund told` becomes `Cor?ReTo`."""
    return "".join("?" * word.startswith("?") + _initials(word.strip("?")) for word in words)


def describe_state(world: World, customer: Customer, visible_text: str) -> list[str]:
    """Return the match's state as short words: request, missing facts (`?name`), identity, consent and write.

    Once the agent has looked up the goal's subject and heard all arguments of its first write, words for the facts on
    which the rules about that write depend follow (`World.list_marks`).
    """
    goal, outcome = customer.stated_goal, customer.outcomes[customer.goal_index]
    words = [
        "unclear" if customer.unclear else goal.tool or ("pry" if goal.reasons else "ask"),
        *("?" + name for name in goal.facts if name not in outcome.told_facts),
    ]
    words += ["told"] * bool(customer.identity) + ["known"] * bool(world.session.verified_customer)
    words += ["agreed"] * customer.is_write_pending + ["done"] * outcome.is_written
    if (
        goal.writes
        and goal.subject in world.session.looked_up
        and all(text in visible_text for text in goal.writes[0].arguments.values())
    ):
        words += world.list_marks(goal.writes[0])
    return words + world.list_further_marks(goal)


def _initials(word: str) -> str:
    """Return the initials of a word's parts, and two letters of the last: `change_account_address` becomes `Caad`."""
    *parts, last = word.split("_")
    return ("".join(part[0] for part in parts) + last[:2]).capitalize()


def _number_acts(code: str, acts: Sequence[str]) -> dict[str, str]:
    return {f"{code}{number}": act for number, act in enumerate(acts, 1)}


def _find_numbers(customer: Customer, visible_text: str) -> list[str]:
    """Return the numbers to look up: the customer's stated number, if heard, else the latest numbers heard.

    Returns [] if the customer's goal is about its account.
    """
    if customer.stated_goal.subject == ACCOUNT:
        return []
    number = customer.number
    return [number] if number and number in visible_text else _keep_latest(NUMBER.findall(visible_text))


def _find_values(fact: Fact, visible_text: str) -> list[str]:
    """Return the texts in `visible_text` that may be the fact's value, in normal form.

    For kind "word", these are the fact's possible values that occur, in their order. For other kinds, they are the
    latest `MAX_VALUES` values of the kind, sorted.
    """
    if fact.kind == "word":
        return [value for value in fact.values if f" {value} " in f" {fold(visible_text)} "]
    pattern = AMOUNT if fact.kind == "amount" else VALUES[fact.kind]
    return _keep_latest(value for text in pattern.findall(visible_text) if (value := canonical_fact(fact.kind, text)))


def _keep_latest(texts: Iterable[str]) -> list[str]:
    latest = list(dict.fromkeys(reversed(list(texts))))[:MAX_VALUES]
    return sorted(latest)
