"""Play ahead: the matches of the next iterations run while one is learned.

Iteration j's first match begins when iteration j - N is handed out to be learned, under the version of that moment.
So a reply is never more than N versions older than the weights that learn from it, however long
matches and updates take.
"""

import asyncio
from dataclasses import dataclass, field

from arena.play.source import Played, Source
from arena.play.watchers import Watcher


@dataclass(frozen=True)
class Ahead:
    """A source whose matches are played in the background, for up to `ahead` iterations after the one handed out."""

    source: Source
    ahead: int
    iterations: int
    """The run's: none is played beyond."""
    watcher: Watcher
    _begun: dict[int, asyncio.Task[Played]] = field(default_factory=dict)

    async def matches(self, k: int) -> Played:
        """The matches of iteration `k`; those of the next ones have begun when it returns."""
        self.watcher.phase(k, "play")
        self._begin(k)
        played = await self._begun.pop(k)
        for later in range(k + 1, min(k + self.ahead, self.iterations) + 1):
            self._begin(later)
        return played

    async def close(self) -> None:
        """End what is played ahead; a resumed run plays it again."""
        tasks = list(self._begun.values())
        self._begun.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.source.close()

    def _begin(self, k: int) -> None:
        if k not in self._begun:
            self._begun[k] = asyncio.create_task(self.source.matches(k))
