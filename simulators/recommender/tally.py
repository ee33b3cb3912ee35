"""Counts of a match, and its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simulators.recommender.audience import Reaction
from simulators.recommender.catalogue import Item
from simulators.recommender.service import Service
from simulators.recommender.yardstick import SUCCESS, Yardstick


@dataclass
class Tally:
    """Counts of all pages."""

    pages: int = 0
    clicks: int = 0
    shown: int = 0
    genres: int = 0
    """Number of first genres on each page, summed."""
    asked: int = 0
    judged: int = 0
    """Pages that could keep to an instruction, and those that did."""
    kept: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    """The first user's mindset before and after each of its pages."""

    def note(self, reaction: Reaction, items: Sequence[Item]) -> float:
        """A page was taken; the share of its items whose first genre is new on it."""
        genres = len({item.genres[0] for item in items})
        self.pages, self.shown = self.pages + 1, self.shown + len(items)
        self.clicks, self.genres = self.clicks + len(reaction.clicked), self.genres + genres
        return genres / len(items)

    def judge(self, kept: bool) -> None:
        """A page could keep to an instruction."""
        self.judged, self.kept = self.judged + 1, self.kept + kept

    def figures(self, service: Service, stick: Yardstick) -> dict[str, float | bool | str]:
        """Return users' joy, beside chance and a player who knows them on the same deal, and how they were served."""
        score, minds = stick.score(service.worth), [visitor.mindset for visitor in service.audience]
        return {
            "score": score,
            "success": score >= SUCCESS,
            "joy": service.worth,
            "joy_random": stick.random,
            "joy_oracle": stick.oracle,
            "satisfaction": sum(mind.satisfaction for mind in minds) / len(minds),
            "trust": sum(mind.trust for mind in minds) / len(minds),
            "clicks": self.clicks,
            "pages": self.pages,
            "visits": service.visits,
            "returned": service.returns / max(1, service.visits),
            "instructions": self.judged,
            "kept": self.kept / max(1, self.judged),
            "diversity": self.genres / max(1, self.shown),
            "asked": self.asked,
            "user": service.audience[0].record.persona,
            "mindset": json.dumps(self.log, separators=(",", ":")),
        }
