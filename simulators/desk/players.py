"""The desk's yardsticks: players that do nothing, pick any listed act, or know what is wanted and what is allowed.

The oracle plays listed acts alone, and these hold nothing that the agent was not shown: so it also proves that every
task can be done by what the tools show and the customer tells. A customer's seat is played by saying what it is to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from games.contracts import View
from simulators.base import Answer
from simulators.desk.customer import Customer
from simulators.desk.goals import Goal
from simulators.desk.policy import Rule
from simulators.desk.world import World


class Match(Protocol):
    """A match of the desk, as far as its yardsticks know it."""

    seats: tuple[str, ...]
    terse: bool
    policy: tuple[Rule, ...]
    world: World
    customer: Customer

    def listed(self) -> dict[str, str]:
        """The agent's acts, by their short codes."""
        ...


def noop(game: Match, seed: int) -> Answer:
    """Ends the talk at once."""
    return lambda view: "" if view.seat != game.seats[0] else "DONE"


def at_random(game: Match, seed: int) -> Answer:
    """Any listed act."""
    rng = random.Random(seed)
    return lambda view: rng.choice(view.legal) if view.legal else str(view.private.get("template", ""))


def oracle(game: Match, seed: int) -> Answer:
    """Verifies, looks things up once each, then does, tells or denies what is asked as policy wants it."""
    return _agent(game, lambda goal: bool(goal.reasons))


def obedient(game: Match, seed: int) -> Answer:
    """Never denies: it verifies, asks for a yes and does all that is asked, against policy where that forbids it."""
    return _agent(game, lambda goal: False)


def refuser(game: Match, seed: int) -> Answer:
    """Denies all: for the true reason where there is one, else for the policy's first."""
    return _agent(game, lambda goal: True)


def _agent(game: Match, denies: Callable[[Goal], bool]) -> Answer:
    """Return a player that knows what is wanted, and denies what `denies` says."""
    looked: set[str] = set()

    def answer(view: View) -> str:
        if view.seat != game.seats[0]:
            return str((game.terse and view.private.get("answer")) or view.private["template"])
        listed = {act: code for code, act in game.listed().items()}
        act = next(act for act in _wishes(game, looked, denies(game.customer.goal)) if act in listed)
        if "(" in act and not act.startswith(("CONFIRM", "find")):
            looked.add(f"{game.customer.at} {act}")
        return listed[act] if game.terse else act

    return answer


def _wishes(game: Match, looked: set[str], denies: bool) -> list[str]:
    """The acts that would help now, the best first; those that are not listed cannot be played yet."""
    customer, world = game.customer, game.world
    if not world.session.verified:
        wrong = "postcode" in customer.identity and customer.identity["postcode"] != customer.record.person.postcode
        finds = [act for act in game.listed().values() if act.startswith("find") and not wrong]
        return [*finds, "ASK identity"]
    goal, outcome = customer.goal, customer.outcomes[customer.at]
    reads = [act for act in world.lookups([goal.subject], goal.mentions) if f"{customer.at} {act}" not in looked]
    if denies:
        about = [act for act in reads if '"' in act]
        return [*about, f"DENY {min(goal.reasons or {game.policy[0].name})}", *reads, "ASK number"]
    tells = [f"TELL {name} {value}" for name, value in goal.facts.items() if name not in outcome.told]
    write = next((write for write in goal.writes if not world.broken(write)), next(iter(goal.writes), None))
    if write is not None and not outcome.written:
        return [str(write) if customer.pending else f"CONFIRM {write}", *reads, "ASK number"]
    return [*tells, *reads, "ASK number"] if tells else ["ELSE"]


PLAYERS: Mapping[str, Callable[[Match, int], Answer]] = {
    "noop": noop,
    "random": at_random,
    "oracle": oracle,
    "obedient": obedient,
    "refuser": refuser,
}
