"""Self-consistency: sample several replies and keep one with the most frequent final act.

A reply's final act is its act without talk or, for replies that reason before they answer, the last match of a pattern
in it. Replies without a final act do not vote. A tie goes to the act sampled first, and the first reply with the act is
kept. The kept reply is not a sample of the policy, so no policy may learn from it; the log marks such turns as `voted`.
Source: self-consistency (Wang et al. 2022), majority over 40 sampled chains of thought.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.patterns import Pattern
from agents.players.writers import Writer
from agents.role import Role
from games.contracts import View

ActReader = Callable[[Completion], str]
"""Function from a reply to its final act; "" if it has none."""


def make_voting_writer(write: Writer, samples: int, final: ActReader) -> Writer:
    """Return a writer that samples `samples` replies per turn and keeps the first with the most frequent final act.

    `final` reads a reply's final act. Summaries are sampled once, as usual.
    """

    async def write_elected(view: View, request: Request, summary: bool = False) -> Completion:
        if summary:
            return await write(view, request, summary)
        requests = [replace(request, seed=(*request.seed, number)) for number in range(samples)]
        replies = await asyncio.gather(*[write(view, request) for request in requests])
        return replies[elect([final(reply) for reply in replies])]

    return write_elected


def elect(acts: Sequence[str]) -> int:
    """Return the index of the first of the most frequent acts, not counting ""; 0 if all are ""."""
    votes = Counter(act for act in acts if act)
    return acts.index(max(votes, key=lambda act: votes[act])) if votes else 0


def make_act_reader(role: Role, frame: ChatFrame) -> ActReader:
    """Return a function that reads a reply's final act in a role's format, without case, extra blanks and talk."""
    rule = role.sampling.votes
    pattern = Pattern(rule.pattern) if rule and rule.pattern else None

    def final(completion: Completion) -> str:
        text = role.parse(frame.decode(completion.ids)).action
        if pattern:
            text = pattern.last(text) or ""
        return " ".join(text.split()).casefold()

    return final
