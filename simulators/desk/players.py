"""Scripted players of the desk: noop, random, and players that know the goals and the policy.

The oracle plays only listed acts, which contain only information that the agent has seen. Its success therefore proves
that every task is solvable. At the customer's seat, players that know the goals say the due statement.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from games.contracts import View
from simulators.base import Script
from simulators.desk.customer import Customer
from simulators.desk.goals import Goal
from simulators.desk.policy import Rule
from simulators.desk.world import World


class Match(Protocol):
    """Attributes of a desk match (`Desk`) that the scripted players use."""

    seats: tuple[str, ...]
    terse: bool
    policy: tuple[Rule, ...]
    world: World
    customer: Customer

    def list_acts(self) -> dict[str, str]:
        """Return the agent's listed acts by code. They use only values that the agent was shown."""
        ...


def noop(game: Match, seed: int) -> Script:
    """Return a player that ends the conversation at once with DONE. At the customer's seat it says nothing."""
    return lambda view: "" if view.seat != game.seats[0] else "DONE"


def at_random(game: Match, seed: int) -> Script:
    """Return a player of random listed acts, seeded by `seed`. If none are listed, it says the template."""
    rng = random.Random(seed)
    return lambda view: rng.choice(view.legal) if view.legal else str(view.private.get("template", ""))


def oracle(game: Match, seed: int) -> Script:
    """Return a player that verifies the customer, looks up records, and grants or denies requests by the policy."""
    return _make_agent(game, lambda goal: bool(goal.reasons))


def obedient(game: Match, seed: int) -> Script:
    """Return a player that verifies the customer and grants every request, with consent but against the policy."""
    return _make_agent(game, lambda goal: False)


def refuser(game: Match, seed: int) -> Script:
    """Return a player that verifies the customer and denies every request, for a true reason if there is one."""
    return _make_agent(game, lambda goal: True)


def account(game: Match, seed: int) -> Script:
    """Return an oracle that repairs only the account, and gives no instructions about a customer's phone."""
    return _make_agent(game, lambda goal: bool(goal.reasons), instructs=False)


def _make_agent(game: Match, denies: Callable[[Goal], bool], instructs: bool = True) -> Script:
    """Return a scripted agent that knows the goals. It denies goals for which `denies` is true and grants the others.

    To repair a customer's phone it gives instructions; without `instructs` it ends the match instead.
    """
    done_lookups: set[str] = set()

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            if view.private.get("uses"):
                return str(view.private["uses"][0])
            return str((game.terse and view.private.get("answer")) or view.private["template"])
        codes = {act: code for code, act in game.list_acts().items()}
        useful = _useful_acts(game, done_lookups, denies(game.customer.goal))
        if not instructs and game.world.handset:
            useful = ["DONE" if act == "ELSE" else act for act in useful if act not in game.world.instructions]
        act = next(act for act in useful if act in codes)
        if "(" in act and not act.startswith(("CONFIRM", "find")):
            done_lookups.add(f"{game.customer.goal_index} {act}")
        return codes[act] if game.terse else act

    return answer


def _useful_acts(game: Match, done_lookups: set[str], denies: bool) -> list[str]:
    """Return the acts that would help now, as text, best first. Some may not be listed for the agent."""
    customer, world = game.customer, game.world
    if not world.session.verified_customer:
        wrong = "postcode" in customer.identity and customer.identity["postcode"] != customer.record.person.postcode
        finds = [act for act in game.list_acts().values() if act.startswith("find") and not wrong]
        return [*finds, "ASK identity"]
    goal, outcome = customer.goal, customer.outcomes[customer.goal_index]
    reads = [
        act
        for act in world.list_lookups([goal.subject], goal.mentions)
        if f"{customer.goal_index} {act}" not in done_lookups
    ]
    if denies:
        with_arguments = [act for act in reads if '"' in act]
        return [*with_arguments, f"DENY {min(goal.reasons or {game.policy[0].name})}", *reads, "ASK number"]
    tells = [f"TELL {name} {value}" for name, value in goal.facts.items() if name not in outcome.told_facts]
    write = next((write for write in goal.writes if not world.find_broken_rules(write)), next(iter(goal.writes), None))
    if world.handset:
        remaining = [write for write in goal.needs if (write.tool, write.subject) not in world.session.done]
        writes = [str(write) if customer.is_write_pending else f"CONFIRM {write}" for write in remaining[:1]]
        asks = [*reads, "ASK number"] if writes or tells else []
        return [*writes, *tells, *world.handset.list_instructions(), *asks, "ELSE"]
    if write is not None and not outcome.is_written:
        return [str(write) if customer.is_write_pending else f"CONFIRM {write}", *reads, "ASK number"]
    return [*tells, *reads, "ASK number"] if tells else ["ELSE"]


PLAYERS: Mapping[str, Callable[[Match, int], Script]] = {
    "noop": noop,
    "random": at_random,
    "oracle": oracle,
    "obedient": obedient,
    "refuser": refuser,
    "account": account,
}
