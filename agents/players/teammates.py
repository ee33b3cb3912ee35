"""Scripted Hanabi players: they know all hints and differ in how they interpret them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from agents.player import ScriptedPolicy
from agents.players.simple import FunctionPlayer
from games.contracts import View


class CardKnowledge(NamedTuple):
    """Colours and ranks that a Hanabi card may have by its hints, as letters and digits; "" means any."""

    colours: str
    ranks: str

    @classmethod
    def read(cls, known: str) -> CardKnowledge:
        """Parse what the view shows of a card's hints, such as RY1, R12, or ? for anything."""
        return cls("".join(filter(str.isalpha, known)), "".join(filter(str.isdigit, known)))

    def apply_hint(self, hint: str) -> CardKnowledge:
        """Return the knowledge of this card after a matching hint; `hint` is a colour or rank, such as RED or 1."""
        return self._replace(ranks=hint) if hint.isdigit() else self._replace(colours=hint[0])

    def fits(self, playable: set[str]) -> bool:
        """Return True if the card is certainly one of the playable cards, such as R1."""
        colours = self.colours or {card[0] for card in playable}
        return bool(self.ranks) and all(colour + rank in playable for colour in colours for rank in self.ranks)

    def may_fit(self, playable: set[str]) -> bool:
        """Return True if the card may be one of the playable cards."""
        return any(card[0] in (self.colours or card) and card[1] in (self.ranks or card) for card in playable)


def sure_teammate(view: View) -> str:
    """Play a card that hints prove playable, else prove a playable card to a teammate by a hint, else discard."""
    playable = _find_playable_cards(view)
    for slot, knowledge in enumerate(_read_own_cards(view), 1):
        if knowledge.fits(playable):
            return f"PLAY {slot}"
    return _choose_hint(view, playable) or _choose_discard(view)


def trusting_teammate(view: View) -> str:
    """Play the newest hinted card that may be playable; otherwise, act like sure_teammate."""
    own, playable = _read_own_cards(view), _find_playable_cards(view)
    for slot in range(len(own), 0, -1):
        if own[slot - 1] != CardKnowledge("", "") and own[slot - 1].may_fit(playable):
            return f"PLAY {slot}"
    return sure_teammate(view)


def bold_teammate(view: View) -> str:
    """Play the oldest card that may be playable, hinted or not, until the last life; then act like sure_teammate."""
    playable = _find_playable_cards(view)
    for slot, knowledge in enumerate(_read_own_cards(view), 1):
        if view.public["lives"] > 1 and knowledge.may_fit(playable):
            return f"PLAY {slot}"
    return sure_teammate(view)


def _read_own_cards(view: View) -> list[CardKnowledge]:
    return [CardKnowledge.read(known) for known in view.public["known"][view.seat]]


def _find_playable_cards(view: View) -> set[str]:
    """Return the cards that can be played next, such as R1."""
    return {f"{pile[0]}{int(pile[1:]) + 1}" for pile in view.public["fireworks"].split()}


def _choose_hint(view: View, playable: set[str]) -> str:
    """Return the hint that proves the most cards playable to teammates; "" if no hint proves any."""
    gains = {act: _count_proofs(view, playable, act) for act in view.legal or () if act.startswith("HINT")}
    best = max(gains, key=gains.__getitem__, default="")
    return best if best and gains[best] else ""


def _count_proofs(view: View, playable: set[str], act: str) -> int:
    _, *targets, hint = act.split()
    others = {other: hand for other, hand in view.private["hands"].items() if other in (targets or [other])}
    count = 0
    for other, hand in others.items():
        for known, card in zip(view.public["known"][other], hand, strict=True):
            knowledge = CardKnowledge.read(known)
            count += hint[0] in card and not knowledge.fits(playable) and knowledge.apply_hint(hint).fits(playable)
    return count


def _choose_discard(view: View) -> str:
    """Return a discard of the oldest card without hints, else of the oldest; if illegal, a hint or PLAY 1."""
    legal = view.legal or ()
    discards = [act for act in legal if act.startswith("DISCARD")]
    cards = zip(discards, _read_own_cards(view), strict=False)
    without_hints = [act for act, knowledge in cards if knowledge == CardKnowledge("", "")]
    hints = [act for act in legal if act.startswith("HINT")]
    return [*without_hints, *discards, *hints, "PLAY 1"][0]


RULES = sure_teammate, trusting_teammate, bold_teammate
SCRIPTED: dict[str, Callable[[int], ScriptedPolicy]] = {rule.__name__: partial(FunctionPlayer, rule) for rule in RULES}
GAMES = {rule.__name__: ("hanabi",) for rule in RULES}
