"""Best-first search with a policy's log-probabilities, as a player: search ahead on clones, then play what was found.

A node is a state of the game with the replies that lead to it. Expanding it samples `width` replies from the policy;
each is played on a clone. A reply's score is the mean log-probability of its tokens, a path's the sum of its replies'
scores, and the queue's key is score / depth**alpha. States are told apart by the game's `situation`, and a state that
was met before is dropped. The search ends at the first successful match or after `nodes` replies. If it finds nothing,
the match is sampled as usual. Source: BFS-Prover-V2 (Xin et al. 2025), whose key is the same, with 16 tactics a state,
temperature 0.7 and alpha 0.

The log-probabilities of the replies played are not those of the selection, so no policy may learn from them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agents.engines.base import Completion, Request
from agents.errors import ContextFull
from agents.players.model import ChatPlayer, Writer, recalled
from agents.role import Search
from arena.play.steps import current
from arena.play.texts import clean_act, view_of
from games.abilities import Blocks, Situated
from games.contracts import Act, Game, View


def unfit_for_search(game: Game) -> str:
    """Return the reason why a player cannot search a game ahead; "" if it can."""
    if len(game.possible_agents) != 1:
        return f"{game.name} has {len(game.possible_agents)} seats, and a search plays one"
    if not isinstance(game, Situated):
        return f"{game.name} names no situations, by which a search tells states apart"
    if not game.hides_nothing():
        return f"a search looks ahead on clones: {game.name} hides something, or nobody can tell: it would cheat"
    return ""


def priority(score: float, depth: int, alpha: float) -> float:
    """Return the queue's key of a path, larger for paths to expand first: score / depth**alpha; 0 at the root."""
    return score / float(depth) ** alpha if depth else 0.0


@dataclass(frozen=True)
class Node:
    """State of a game: a clone, the player that has seen all before it, and the replies since the search's start."""

    game: Game
    player: ChatPlayer
    said: tuple[Completion, ...] = ()
    score: float = 0.0
    """Sum over the replies of the mean log-probability of their tokens."""


class BestFirst:
    """Search from one state of a match. `sampled` counts the replies so far."""

    def __init__(self, rule: Search, root: Node, view: View) -> None:
        self.rule, self.root, self.seat, self.turn = rule, root, view.seat, view.turn
        self.sampled = 0

    async def run(self) -> tuple[Completion, ...]:
        """Return the replies of the first successful match found, or () if there is none within the budget."""
        return await (self._by_priority() if self.rule.order == "best_first" else self._by_sampling())

    async def _by_priority(self) -> tuple[Completion, ...]:
        queue, met = [(0.0, 0, self.root)], {self._situation(self.root.game)}
        while queue and self.sampled < self.rule.nodes:
            node = heapq.heappop(queue)[2]
            for child in await self._expand(node, min(self.rule.width, self.rule.nodes - self.sampled)):
                if child.game.ended:
                    if self._succeeded(child.game):
                        return child.said
                elif (situation := self._situation(child.game)) not in met:
                    met.add(situation)
                    key = -priority(child.score, len(child.said), self.rule.alpha)
                    heapq.heappush(queue, (key, len(met), child))
        return ()

    async def _by_sampling(self) -> tuple[Completion, ...]:
        """Play whole matches, `width` at once."""
        nodes = list[Node]()
        while self.sampled < self.rule.nodes:
            nodes += [self.root] * (self.rule.width - len(nodes))
            nodes = nodes[: self.rule.nodes - self.sampled]
            played = await asyncio.gather(*[self._child(node, self.sampled + i) for i, node in enumerate(nodes)])
            self.sampled += len(nodes)
            nodes = []
            for child in played:
                if child and child.game.ended and self._succeeded(child.game):
                    return child.said
                nodes += [child] if child and not child.game.ended else []
        return ()

    async def _expand(self, node: Node, width: int) -> list[Node]:
        """Return the states after `width` sampled replies, without illegal ones."""
        first, self.sampled = self.sampled, self.sampled + width
        children = await asyncio.gather(*[self._child(node, first + i) for i in range(width)])
        return [child for child in children if child]

    async def _child(self, node: Node, number: int) -> Node | None:
        """Sample the reply with this number and play it on a clone. None if it is illegal or the context is full."""
        said = list[Completion]()
        player = node.player.fork(number)
        player.write = _keeping(player.write, said)
        game = node.game.clone()
        view = view_of(game, self.seat, self.turn + len(node.said))
        try:
            act = clean_act(await ChatPlayer.act(player, view))
        except ContextFull:
            return None
        step = partial(game.step, act.action)
        if isinstance(game, Blocks) and game.blocks:
            await current().take(step, f"the step of {self.seat}", None)
        else:
            step()
        if not game.infos[self.seat].get("valid"):
            return None
        (reply,) = said
        score = node.score + sum(reply.logprobs) / max(1, len(reply.ids))
        return Node(game, player, (*node.said, reply), score)

    def _situation(self, game: Game) -> str:
        assert isinstance(game, Situated), "unfit_for_search was not asked"
        return game.situation(self.seat)

    def _succeeded(self, game: Game) -> bool:
        """Return the report's `success`, or if it has none, whether the seat's payoff is positive."""
        return bool(game.report().get("success", game.payoffs()[self.seat] > 0))


def _keeping(write: Writer, said: list[Completion]) -> Writer:
    """Return a writer that also appends its replies to `said`."""

    async def writing(view: View, request: Request, summary: bool = False) -> Completion:
        said.append(await write(view, request, summary))
        return said[-1]

    return writing


class SearchingPlayer(ChatPlayer):
    """Chat player that searches the game before its first own reply, and plays the successful match if one is found.

    `told` are the turns whose replies `write` repeats from another match, in a branch.
    """

    def __init__(self, game: Game, rule: Search, told: Mapping[int, Any], *, write: Writer, **chat: Any) -> None:
        self.game, self.rule, self.told = game, rule, told
        self.found: dict[int, Completion] = {}
        """Replies of the successful match by turn."""
        self.searched = 0
        """Number of replies that the search sampled."""
        self._sample = write
        super().__init__(write=recalled(self.found, write), **chat)

    async def act(self, view: View) -> Act:
        """Return the act of one turn, after a search at the first turn that is not repeated."""
        if view.turn not in self.told and not self.searched:
            player = self.fork(0)
            player.write = self._sample
            search = BestFirst(self.rule, Node(self.game.clone(), player), view)
            self.found.update(enumerate(await search.run(), view.turn))
            self.searched = search.sampled
        return await super().act(view)
