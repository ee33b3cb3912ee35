"""Player whose acts come from an agent program. Each request of the program to the policy is a turn of the match."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agents.harness.session import Answer, Session
from agents.stream import Stream
from games.contracts import Act, View


class AgentProgram(Protocol):
    """Protocol of an agent program, which runs as a process or behind a URL."""

    async def act(self, observation: Mapping[str, Any]) -> str:
        """Send the program an observation and return its act. Raises HarnessError if the program fails."""

    def close(self) -> asyncio.Task[None] | None:
        """Stop the program. Returns the task that waits for its end, or None if there is nothing to wait for."""


class HarnessPlayer:
    """Player of one seat in one match whose acts an agent program chooses.

    Each request of the program to the policy is a turn of source `request`, whose reply does not go to the game, except
    for the last request before an act of the program: its turn has this act.
    """

    def __init__(self, session: Session, program: AgentProgram, seed: int) -> None:
        """Create the player. `seed` is sent to the program for its random choices."""
        self.session, self.program, self.seed = session, program, seed
        self.version = 0
        self._acting: asyncio.Task[str] | None = None
        self._returned_turns = 0
        """Number of requests of the current act that `act` has returned as turns."""

    @property
    def streams(self) -> Sequence[Stream]:
        """The token streams of the program's conversations."""
        return self.session.streams

    @property
    def stream_keys(self) -> Sequence[str]:
        """Names of the streams in the engine."""
        return [conversation.key for conversation in self.session.conversations.all]

    async def act(self, view: View) -> Act:
        """Return the next turn: a reply to a request of the program, or its act with the reply to its last request.

        Raises HarnessError if the program fails. Errors of the engine are raised, too.
        """
        session = self.session
        if self._acting is None:
            self._returned_turns = 0
            session.begin(view)
            self._acting = asyncio.create_task(self.program.act(self._build_observation(view)))
            self._acting.add_done_callback(lambda task: session.news.set())
        while True:
            session.news.clear()
            waiting = session.pending[self._returned_turns :]
            if waiting and waiting[0].has_failed:
                await waiting[0].answer
            if self._acting.done():
                session.end()
                if len(waiting) <= 1:
                    return self._finish_act(await waiting[0].answer if waiting else None)
            if len(waiting) > 1 or (waiting and self._acting.done()):
                answer = await waiting[0].answer
                self._returned_turns += 1
                session.release_slot()
                return self._make_turn(answer, "", "request")
            await session.news.wait()

    def close(self) -> asyncio.Task[None] | None:
        """Refuse further requests and stop the program. Returns the task that waits for its end, or None."""
        self.session.close()
        if self._acting:
            self._acting.cancel()
        return self.program.close()

    def _finish_act(self, answer: Answer | None) -> Act:
        """Return the program's act as the turn of `answer`, the policy's last reply before the act, if there is one."""
        assert self._acting
        text, self._acting = self._acting.result(), None
        if answer is None:
            return Act(text, text, "", "", "script")
        self.session.release_slot()
        return self._make_turn(answer, text, "policy")

    def _make_turn(self, answer: Answer, action: str, source: Any) -> Act:
        self.version = answer.version
        excused = bool(action) and self.session.role.excuses(answer.finish)
        return Act(action, answer.raw, "", "", answer.finish, answer.completion_tokens, source, excused)

    def _build_observation(self, view: View) -> dict[str, Any]:
        """Return the observation for the program: the variables of a role's templates, and a seed."""
        return {
            "seat": view.seat,
            "seed": self.seed,
            "rules": view.rules,
            "messages": [message.to_plain() for message in view.messages],
            "public": dict(view.public),
            "private": dict(view.private),
            "legal": None if view.legal is None else list(view.legal),
            "tools": [dict(tool) for tool in view.tools],
        }
