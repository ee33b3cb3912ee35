"""Hanabi: all players see every hand but their own, and hints are scarce (Bard et al. 2020). Rules by OpenSpiel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from games.base import choice, whole_number
from games.families.openspiel import OpenSpielGame

COLOURS = {"R": "RED", "Y": "YELLOW", "G": "GREEN", "W": "WHITE", "B": "BLUE"}
SIZES = {"mini": (2, 2, 3), "simple": (3, 2, 8), "full": (5, 5, 8)}  # colours, ranks, hint tokens; "mini" is MARS's
HAND_SIZES = {"mini": 3, "simple": 5, "full": 5}  # full: 4 cards from four players on
LIVES = 3
OBSERVATION = re.compile(
    r"Life tokens: (\d+)\nInfo tokens: (\d+)\nFireworks: (.*?) *\nHands:\n(.*)Deck size: (\d+)\nDiscards: ?(.*)", re.S
)


class Table(NamedTuple):
    """Observation of one player: all hands (its own hidden), and for each card the knowledge from hints (`known`)."""

    lives: int
    hints: int
    fireworks: str
    cards: list[list[str]]
    known: list[list[str]]
    deck: int
    discards: list[str]


class Hanabi(OpenSpielGame):
    """Card game Hanabi. Acts: PLAY slot, DISCARD slot, HINT [seat] COLOUR or rank; slot 1 has the oldest card.

    Options: size, "mini" (2 colours x 2 ranks, hand 3, 3 hints), "simple" (3 x 2, hand 5, 8 hints) or "full" (5 x 5,
    hand 5 or 4, 8 hints), each with 3 lives; players, 2, or with "full" 2 to 5; talk, off by default, because Hanabi's
    rules allow no words except hints. reset(options={"chance": [...]}) fixes the deck; a card's number is
    colour * ranks + rank - 1, and whole hands are dealt one after the other. Reward part "outcome": the act's change of
    the score, to all seats. Losing the last life sets the score to 0.
    """

    name = "hanabi"
    metadata: ClassVar[dict[str, Any]] = {"name": "hanabi_v0", "render_modes": ["ansi"]}
    # Every used card is replaced from the deck, and each player has one more turn when the deck is empty. "simple" has
    # two cards in the deck, so only 4 of the 6 cards can be played.
    theory: ClassVar[Mapping[str, float]] = {"best_mini": 4.0, "best_simple": 4.0, "best_full": 25.0}

    def __init__(self, *, size: str = "mini", players: int = 2, talk: bool = False, **options: Any) -> None:
        choice("size", size, *SIZES)
        whole_number(f"players (in {size} Hanabi)", players, least=2, most=5 if size == "full" else 2)
        self.colours, self.ranks, tokens = SIZES[size]
        self.hand = HAND_SIZES[size] - (players > 3)
        deck = 2 * self.colours * self.ranks - players * self.hand
        self.best = min(self.colours * self.ranks, deck + players)
        super().__init__(
            f"hanabi(players={players},colors={self.colours},ranks={self.ranks},hand_size={self.hand},"
            f"max_information_tokens={tokens},max_life_tokens={LIVES})",
            talk=talk,
            **options,
        )

    def rules(self) -> str:
        """Return the rules as one paragraph: the deck, the acts, the notation and the end."""
        names = ", ".join(list(COLOURS.values())[: self.colours])
        copies = "three 1s, " + ("two of each middle rank and " if self.ranks > 2 else "") + f"one {self.ranks}"
        receiver = "" if len(self.seats) == 2 else "player_N "
        return (
            f"Hanabi, a team game: you see the others' cards, not your own. Build each colour ({names}) from 1 up to "
            f"{self.ranks}; per colour there are {copies}. PLAY n (your card n) scores 1 if it comes next in its "
            "colour, else a life is lost. DISCARD n regains a hint, so does finishing a colour. "
            f"HINT {receiver}RED or HINT {receiver}1 spends a hint and shows all such cards in that hand. "
            "'known' is what hints told: R12 may be R1 or R2, ? anything. A used card leaves the hand, the rest move "
            "up, a new one comes last. When the deck is empty each has one more turn. No lives left: score 0."
        )

    def parse_observation(self, player: int) -> Table:
        """Parse OpenSpiel's observation of this player. Hands are in the order of seats; own cards are hidden."""
        match = OBSERVATION.fullmatch(self.state.observation_string(player))
        if match is None:
            raise RuntimeError("OpenSpiel writes Hanabi's observations in a form that this version does not know")
        lives, hints, fireworks, hands, deck, discards = match.groups()
        rows = [[line.split(" || ") for line in hand.split("\n") if "||" in line] for hand in hands.split("-----\n")]
        rows = rows[len(rows) - player :] + rows[: len(rows) - player]  # OpenSpiel's begin with the observer's
        cards = [[card for card, _ in hand] for hand in rows]
        known = [[self._shorten(knowledge.split("|")[1]) for _, knowledge in hand] for hand in rows]
        return Table(int(lives), int(hints), fireworks, cards, known, int(deck), discards.split())

    def public(self) -> dict[str, Any]:
        """Return fireworks, hints, lives, deck size, discards and the knowledge of each hand from hints (`known`)."""
        table = self.parse_observation(0)
        known = dict(zip(self.seats, table.known, strict=True))
        counts = {"hints": table.hints, "lives": table.lives, "deck": table.deck}
        return {"fireworks": table.fireworks, **counts, "discards": table.discards, "known": known}

    def private(self, seat: str) -> dict[str, Any]:
        """Return `hands`: the cards of the other seats, by seat."""
        cards = self.parse_observation(self.seats.index(seat)).cards
        return {"hands": {other: hand for other, hand in zip(self.seats, cards, strict=True) if other != seat}}

    def word(self, action: int) -> str:
        """Return PLAY 1, DISCARD 2, HINT RED or HINT 2 for an action; with three or more players HINT player_1 RED."""
        mover = self.state.current_player()
        match self.state.action_to_string(mover, action).strip("()").split():
            case ["Reveal", "player", offset, _, hint]:
                receiver = "" if len(self.seats) == 2 else self.seats[(mover + int(offset)) % len(self.seats)] + " "
                return f"HINT {receiver}{COLOURS.get(hint, hint)}"
            case [verb, slot]:
                return f"{verb.upper()} {int(slot) + 1}"
        raise RuntimeError(f"OpenSpiel's Hanabi has an act that this version does not know: {action}")

    def text_for_others(self, action: int, word: str) -> str:
        """Return the act's text. Also tell all seats which card was used, or which slots a hint points to."""
        mover = self.state.current_player()
        table = self.parse_observation((mover + 1) % len(self.seats))
        verb, *receiver, argument = word.split()
        if verb == "HINT":
            player = self.seats.index(receiver[0]) if receiver else 1 - mover
            sign = argument if argument.isdigit() else argument[0]
            slots = [
                str(slot) for slot, card in enumerate(self.parse_observation(mover).cards[player], 1) if sign in card
            ]
            self.tell(f"{argument} in the hand of {self.seats[player]}: {' '.join(slots)}.")
            return word
        card = table.cards[mover][int(argument) - 1]
        if verb == "PLAY":
            fits = f"{card[0]}{int(card[1]) - 1}" in table.fireworks.split()
            self.tell(f"It was {card}: " + ("it fits." if fits else "it does not fit, a life is lost."))
        else:
            self.tell(f"It was {card}.")
        return word

    def verdict(self) -> tuple[str, str]:
        """Return the reason of the end ("lives" lost, "complete" fireworks, or "deck" used up) and its announcement."""
        score = f"score {self.state.returns()[0]:g} of {self.best}."
        if not self.parse_observation(0).lives:
            return "lives", f"The last life is lost: {score}"
        if self.state.returns()[0] == self.colours * self.ranks:
            return "complete", f"All fireworks are complete: {score}"
        return "deck", f"The deck is used up: {score}"

    def figures(self) -> dict[str, float | bool | str]:
        """Return the `score`, its `share` of the best possible score at this size, and the `lives` left."""
        score = self.state.returns()[0]
        return {"score": score, "share": score / self.best, "lives": float(self.parse_observation(0).lives)}

    def _shorten(self, plausible: str) -> str:
        return "?" if len(plausible) == self.colours + self.ranks else plausible
