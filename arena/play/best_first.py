"""Best-first search by a policy's log-probabilities: a player that searches on clones and then plays the result.

A node is a state of the game with the replies that lead to it. Expanding it samples `width` replies from the policy and
plays each on a clone. A reply's score is the mean log-probability of its tokens, a path's score the sum over its
replies, and the priority in the queue is score / depth**alpha. Two states are the same if the game's `situation` is
equal; a state that was reached before is dropped. The search ends at the first successful match or after `nodes`
replies. If it finds none, the match is sampled as usual. Source: BFS-Prover-V2 (Xin et al. 2025), which has the same
priority, 16 tactics per state, temperature 0.7 and alpha 0.

The replies are selected among many, so their log-probabilities are not those of the behaviour policy, and no policy
may be trained on them.
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
from agents.players.model import ChatPlayer
from agents.players.writers import Writer, make_replay_writer
from agents.role import Search
from arena.play.steps import get_run_step
from arena.play.texts import clean_act, view_of
from games.abilities import Situations
from games.contracts import Act, Game, View


def find_search_obstacle(game: Game) -> str:
    """Return the reason why a player cannot search this game; "" if it can."""
    if len(game.possible_agents) != 1:
        return f"{game.name} has {len(game.possible_agents)} seats, and a search can play one only"
    if not isinstance(game, Situations):
        return f"{game.name} names no situations, so a search could not recognise equal states"
    if not game.hides_nothing():
        return f"{game.name} hides something from its seat, or may do so: a search on clones would reveal it"
    return ""


def priority(score: float, depth: int, alpha: float) -> float:
    """Return a path's priority, score / depth**alpha, and 0 at the root. The largest is expanded first."""
    return score / float(depth) ** alpha if depth else 0.0


@dataclass(frozen=True)
class Node:
    """State in the search: a clone of the game, the player with its history, and the replies since the root."""

    game: Game
    player: ChatPlayer
    replies: tuple[Completion, ...] = ()
    score: float = 0.0
    """Sum of the replies' mean log-probabilities per token."""


class BestFirstSearch:
    """Search for a successful match from one state. `sampled` counts the replies so far."""

    def __init__(self, settings: Search, root: Node, view: View) -> None:
        self.settings, self.root, self.seat, self.turn = settings, root, view.seat, view.turn
        self.sampled = 0

    async def run(self) -> tuple[Completion, ...]:
        """Return the replies of the first successful match found, or () if there is none within the budget."""
        return await (self._search_by_priority() if self.settings.order == "best_first" else self._search_by_sampling())

    async def _search_by_priority(self) -> tuple[Completion, ...]:
        queue, seen = [(0.0, 0, self.root)], {self._get_situation(self.root.game)}
        while queue and self.sampled < self.settings.nodes:
            node = heapq.heappop(queue)[2]
            for child in await self._expand(node, min(self.settings.width, self.settings.nodes - self.sampled)):
                if child.game.ended:
                    if self._is_success(child.game):
                        return child.replies
                elif (situation := self._get_situation(child.game)) not in seen:
                    seen.add(situation)
                    key = -priority(child.score, len(child.replies), self.settings.alpha)
                    heapq.heappush(queue, (key, len(seen), child))
        return ()

    async def _search_by_sampling(self) -> tuple[Completion, ...]:
        """Sample whole matches, `width` at a time."""
        nodes = list[Node]()
        while self.sampled < self.settings.nodes:
            nodes += [self.root] * (self.settings.width - len(nodes))
            nodes = nodes[: self.settings.nodes - self.sampled]
            children = await asyncio.gather(
                *[self._sample_child(node, self.sampled + i) for i, node in enumerate(nodes)]
            )
            self.sampled += len(nodes)
            nodes = []
            for child in children:
                if child and child.game.ended and self._is_success(child.game):
                    return child.replies
                nodes += [child] if child and not child.game.ended else []
        return ()

    async def _expand(self, node: Node, width: int) -> list[Node]:
        """Sample `width` replies, and return a child node for each legal one."""
        first, self.sampled = self.sampled, self.sampled + width
        children = await asyncio.gather(*[self._sample_child(node, first + i) for i in range(width)])
        return [child for child in children if child]

    async def _sample_child(self, node: Node, number: int) -> Node | None:
        """Sample reply `number` and play it on a clone. Returns None if it is illegal or the context is full."""
        replies = list[Completion]()
        player = node.player.fork(number)
        player.write = _record_replies(player.write, replies)
        game = node.game.clone()
        view = view_of(game, self.seat, self.turn + len(node.replies))
        try:
            act = clean_act(await ChatPlayer.act(player, view))
        except ContextFull:
            return None
        step = partial(game.step, act.action)
        if run_step := get_run_step(game):
            await run_step(step, f"the step of {self.seat}", None)
        else:
            step()
        if not game.infos[self.seat].get("valid"):
            return None
        (reply,) = replies
        score = node.score + sum(reply.logprobs) / max(1, len(reply.ids))
        return Node(game, player, (*node.replies, reply), score)

    def _get_situation(self, game: Game) -> str:
        assert isinstance(game, Situations), "call find_search_obstacle first"
        return game.situation(self.seat)

    def _is_success(self, game: Game) -> bool:
        """Return True if the report's `success` is true or, without one, if the seat's payoff is positive."""
        return bool(game.report().get("success", game.payoffs()[self.seat] > 0))


def _record_replies(write: Writer, replies: list[Completion]) -> Writer:
    """Return a writer that also appends its replies to the list."""

    async def record(view: View, request: Request, summary: bool = False) -> Completion:
        replies.append(await write(view, request, summary))
        return replies[-1]

    return record


class SearchingPlayer(ChatPlayer):
    """Chat player that searches the game before its first reply, and plays the successful match if it finds one.

    In a branch, `write` first repeats the replies of the parent match. `repeated` has these replies by turn, and the
    search starts after them.
    """

    def __init__(
        self, game: Game, settings: Search, repeated: Mapping[int, Any], *, write: Writer, **chat: Any
    ) -> None:
        self.game, self.settings, self.repeated = game, settings, repeated
        self.found: dict[int, Completion] = {}
        """Replies of the successful match by turn."""
        self.searched = 0
        """Number of replies that the search sampled."""
        self._sample = write
        super().__init__(write=make_replay_writer(self.found, write), **chat)

    async def act(self, view: View) -> Act:
        """Return the act of one turn. The first turn that is not repeated starts the search."""
        if view.turn not in self.repeated and not self.searched:
            player = self.fork(0)
            player.write = self._sample
            search = BestFirstSearch(self.settings, Node(self.game.clone(), player), view)
            self.found.update(enumerate(await search.run(), view.turn))
            self.searched = search.sampled
        return await super().act(view)
