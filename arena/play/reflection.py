"""Reflection: a policy writes a new instruction, shown how the present ones did and a match that went badly."""

from __future__ import annotations

from agents.engines.base import Request
from agents.reply import one_line
from arena.parts.chance import number
from arena.play.instructions import Instructions
from arena.play.lineup import Lineup

ASKED = "You improve the instruction of a player. Write one better instruction in one sentence, and nothing else."
TOKENS, SHOWN = 60, 4


async def reflected(lineup: Lineup, instructions: Instructions, k: int, role: str) -> str:
    """Return an instruction by the role's `writer`; "" if it has none, no room for the question, or wrote nothing."""
    name = instructions.rules[role].writer
    if name is None:
        return ""
    policy, key = lineup.policies[name], f"instruct-{k}-{role}"
    frame = policy.frame
    asked = (*frame.open(ASKED, []), *frame.ask(question(instructions, role)))
    if len(asked) + TOKENS > min(policy.positions, lineup.engine.max_context):
        return ""
    request = Request(
        policy=policy.name,
        ids=asked,
        key=key,
        max_tokens=TOKENS,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        stop_ids=frame.stop_ids,
        seed=(lineup.seed, k, number("reflect"), number(role)),
    )
    (completion,) = await lineup.engine.generate([request])
    lineup.engine.forget(key)
    return one_line(frame.decode(completion.ids), 10**4)


def question(instructions: Instructions, role: str) -> str:
    """The prompt of a writer: the best instructions and their scores, the best first, and the match that went worst."""
    ranked = sorted(instructions.tried[role], key=lambda one: -one.weight)[:SHOWN]
    scores = [f"{one.weight:+.2f}: {one.text}" for one in ranked]
    failed = instructions.failed.get(role, "")
    bad = [f"A bad match. {failed}"] if failed else []
    return "\n".join(["Instructions so far, with how good they were:", *scores, *bad])
