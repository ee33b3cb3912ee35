"""Sheriff of Nottingham: a smuggler, hidden cargo and bribes (Farina et al. 2019). Rules by OpenSpiel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from games.base import MAX_LISTED, number, whole_number
from games.families.openspiel import OpenSpielGame

ANSWERS = ("PASS", "INSPECT")


class Sheriff(OpenSpielGame):
    """Smuggling with bribes. Acts: the smuggler's hidden LOAD n, then BRIBE n per round; the sheriff's INSPECT or PASS.

    Options, named as in OpenSpiel: max_items >= 1, max_bribe >= 0, num_rounds >= 1; item_value, item_penalty and
    sheriff_penalty >= 0, in coins. Reward part "outcome" depends only on the last round. After INSPECT, the smuggler
    pays the sheriff n * item_penalty for n items, or the sheriff pays the smuggler sheriff_penalty for none. After
    PASS, the smuggler gets n * item_value minus the last bribe, which the sheriff gets.
    """

    name = "sheriff"
    seats: tuple[str, ...] = ("smuggler", "sheriff")
    metadata: ClassVar[dict[str, Any]] = {"name": "sheriff_v0", "render_modes": ["ansi"]}
    # Payoff that a seat can secure, whatever the other does. Sheriff: 0, by PASS. Smuggler: s N v / (s + N v + N q),
    # with N items, value v, penalty q and sheriff's penalty s: it never bribes and loads nothing with probability
    # N (v + q) / (s + N v + N q), else N. INSPECT with probability N v / (s + N v + N q) holds it to this payoff.
    theory: ClassVar[Mapping[str, float]] = {"secure_smuggler": 0.75, "secure_sheriff": 0.0}

    def __init__(
        self,
        *,
        max_items: int = 3,
        max_bribe: int = 3,
        num_rounds: int = 4,
        item_value: float = 1.0,
        item_penalty: float = 2.0,
        sheriff_penalty: float = 3.0,
        **options: Any,
    ) -> None:
        self.max_items = whole_number("max_items", max_items, least=1, most=MAX_LISTED)
        self.max_bribe = whole_number("max_bribe", max_bribe, least=0)
        self.num_rounds = whole_number("num_rounds", num_rounds, least=1)
        self.item_value, self.item_penalty = number("item_value", item_value), number("item_penalty", item_penalty)
        self.sheriff_penalty = number("sheriff_penalty", sheriff_penalty)
        self.stakes = max(max_items * self.item_penalty, self.sheriff_penalty, float(max_bribe))
        coins = {name: getattr(self, name) for name in ("item_value", "item_penalty", "sheriff_penalty")}
        # OpenSpiel reads neither 2 nor 1e-07 as a real number.
        parameters = ",".join(f"{name}={np.format_float_positional(value, trim='0')}" for name, value in coins.items())
        super().__init__(
            f"sheriff(max_items={max_items},max_bribe={max_bribe},num_rounds={num_rounds},{parameters})", **options
        )

    def rules(self) -> str:
        """Return the rules as one paragraph: acts and payoffs."""
        return (
            f"The smuggler hides 0 to {self.max_items} illegal items by LOAD n; the sheriff does not see n. In each of "
            f"{self.num_rounds} rounds the smuggler offers BRIBE n (0 to {self.max_bribe}) and the sheriff answers "
            "INSPECT or PASS; only the last round counts. Last answer PASS: the sheriff gets the last bribe, the "
            f"smuggler {self.item_value:g} per item less that bribe. Last answer INSPECT: the smuggler pays the "
            f"sheriff {self.item_penalty:g} per item, but with no item the sheriff pays the smuggler "
            f"{self.sheriff_penalty:g}."
        )

    def word(self, action: int) -> str:
        """Return the act's text for this OpenSpiel action, such as LOAD 2, BRIBE 1, INSPECT or PASS."""
        if action < 2:
            return ANSWERS[action]
        loads = 2 + self.max_items
        return f"LOAD {action - 2}" if action <= loads else f"BRIBE {action - loads - 1}"

    def text_for_others(self, action: int, word: str) -> str:
        """Return the text of a bribe or an answer, or "" for the cargo, which stays hidden."""
        return "" if word.startswith("LOAD") else word

    def public(self) -> dict[str, Any]:
        """Return all `bribes` and `answers` so far, and `rounds_left`, this one included."""
        acts = [self.word(action) for action in self.state.history()[1:]]
        bribes, answers = [int(act.split()[1]) for act in acts[::2]], acts[1::2]
        return {"bribes": bribes, "answers": answers, "rounds_left": self.num_rounds - len(answers)}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the smuggler's cargo to the smuggler as `items`, once loaded; else {}."""
        loaded = seat == "smuggler" and self.state.history()
        return {"items": self.state.history()[0] - 2} if loaded else {}

    def verdict(self) -> tuple[str, str]:
        """Return the last answer, "pass" or "inspect", and its announcement; only an inspection reveals the cargo."""
        cargo, *_, answer = self.state.history()
        if ANSWERS[answer] == "PASS":
            return "pass", "The sheriff let the cargo pass."
        return "inspect", f"The sheriff inspected the cargo and found {cargo - 2} illegal items."

    def figures(self) -> dict[str, float | bool | str]:
        """Return `items` loaded and the last `bribe`, each -1 before that act, and whether the sheriff `inspected`."""
        bribes = self.public()["bribes"]
        items = self.private("smuggler").get("items", -1)
        return {"items": items, "bribe": bribes[-1] if bribes else -1, "inspected": self.ended == "inspect"}
