"""Matches without a model: a game with scripted payoffs, players of given lines, and scripted policies."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from agents.stream import Stream
from arena.cli.loop import wait
from arena.play.contenders import Contender, ScriptedContender, play_one
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.records import MatchRecord, Seating
from games.base import IllegalAct, TextGame
from games.contracts import Act, Game, MatchId, View


def play_scripted(game: str, seed: int, scripted: Mapping[str, str], **options: Any) -> MatchRecord:
    """Play a match between scripted policies, as a run would log it."""
    plan = MatchPlan(identity=MatchId(1, seed), game=game, options=options, seed=seed, seats={})
    contenders: dict[str, Contender] = {seat: ScriptedContender(name) for seat, name in scripted.items()}
    seats = {seat: who.seating(game, seat) for seat, who in contenders.items()}
    return wait(play_one(replace(plan, seats=seats), contenders, 7, Limits()))


Pays = dict[int, list[tuple[str, str, float]]]


class ScriptedPayGame(TextGame):
    """Game in which two seats take turns; `pays` lists the payments of each step."""

    name = "beats"
    seats = ("a", "b")
    metadata: ClassVar[dict[str, Any]] = {"name": "beats_v0"}

    def __init__(self, pays: Pays | None = None, length: int = 4, fault: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.pays, self.length, self.fault = pays or {}, length, fault

    def set_up(self, rng: np.random.Generator, options: Any) -> None:
        self.deal = int(rng.integers(10**9))
        if self.fault == "deal":
            raise RuntimeError("no cards")

    def rules(self) -> str:
        return "say anything"

    def public(self) -> dict[str, Any]:
        return {"deal": self.deal}

    def private(self, seat: str) -> dict[str, Any]:
        return {"name": seat}

    def play(self, seat: str, act: str) -> str:
        if act == "bad":
            raise IllegalAct("it is bad")
        if self.fault == "step":
            raise RuntimeError("the table broke")
        for who, part, value in self.pays.get(self.turns, []):
            self.pay(who, part, value)
        if self.turns + 1 == self.length:
            self.end("over", "That was it.")
        return act

    def payoffs(self) -> dict[str, float]:
        if self.fault == "payoffs":
            raise ZeroDivisionError("nobody to pay")
        return super().payoffs()

    def report(self) -> dict[str, float | bool | str]:
        if self.fault == "report":
            raise ValueError("nothing to say")
        return super().report()


class LinePlayer:
    """Player that says its lines in order, then "fine"; may be slow or fail."""

    def __init__(self, *lines: str, tokens: int = 0, slow: float = 0.0, fails: bool = False) -> None:
        self.lines, self.tokens, self.slow, self.fails = list(lines), tokens, slow, fails
        self.streams: list[Stream] = []
        self.stream_keys: list[str] = []
        self.version = 5
        self.views: list[View] = []

    async def act(self, view: View) -> Act:
        self.views.append(view)
        await asyncio.sleep(self.slow)
        if self.fails:
            raise LookupError("lost the thread")
        line = self.lines.pop(0) if self.lines else "fine"
        return Act(line, line, "", "", "script", self.tokens)


def play_game(
    game: Game, players: Mapping[str, SeatedPlayer] | None = None, limits: Limits | None = None, seed: int = 1
) -> MatchRecord:
    """Play a game between players, who say "fine" unless others are given."""
    players = players or {"a": LinePlayer(), "b": LinePlayer()}
    plan = MatchPlan(
        identity=MatchId(2, 3),
        game="beats",
        options={},
        seed=seed,
        seats={s: Seating("r" + s, "p", 0, False, "brain") for s in players},
    )
    return asyncio.run(play_match(plan, game, players, limits or Limits()))
