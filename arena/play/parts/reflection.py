"""Reflection: a policy writes a role's new instruction from the best ones so far and from failed matches (INSPO)."""

from collections.abc import Sequence

from agents.engines.base import Engine, Request
from agents.policy import Policy
from agents.reply import to_one_line
from arena.parts.chance import number
from arena.records import MatchRecord

PROMPT = "You improve the instruction of a player. Write one better instruction in one sentence, and nothing else."
TOKENS, EXAMPLES = 60, 4
"""Maximum tokens of an instruction, and number of instructions that the writer reads."""


async def write_instruction(
    policy: Policy,
    engine: Engine,
    seed: tuple[int, int],
    role: str,
    ranked: Sequence[tuple[float, str]],
    failed: Sequence[str],
) -> str:
    """Sample a new instruction for `role` from `policy` and return it in one line; "" if its context has no room.

    `seed` is the run's seed and the iteration, `ranked` the instructions so far with their scores, best first, and
    `failed` the last turns of failed matches.
    """
    key, frame = f"instruct-{seed[1]}-{role}", policy.frame
    prompt = (*frame.open(PROMPT, []), *frame.ask(make_prompt(ranked, failed)))
    if len(prompt) + TOKENS > min(policy.positions, engine.max_context):
        return ""
    request = Request(
        policy=policy.name,
        ids=prompt,
        key=key,
        max_tokens=TOKENS,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        stop_ids=frame.stop_ids,
        seed=(*seed, number("reflect"), number(role)),
    )
    (completion,) = await engine.generate([request])
    engine.forget(key)
    return to_one_line(frame.decode(completion.ids), 10**4)


def make_prompt(ranked: Sequence[tuple[float, str]], failed: Sequence[str]) -> str:
    """Return the prompt for a new instruction: the best instructions with their scores, and the failed matches."""
    scores = [f"{weight:+.2f}: {text}" for weight, text in ranked[:EXAMPLES]]
    return "\n".join(["Instructions so far, with how good they were:", *scores, *(f"A bad match. {t}" for t in failed)])


def describe_last_turn(record: MatchRecord, seat: str) -> str:
    """Return messages and reply of the seat's last turn, shortened to one line; "" if it took none."""
    turns = [turn for turn in record.turns if turn.seat == seat]
    read = " ".join(message.text for message in turns[-1].messages) if turns else ""
    return f"It read: {to_one_line(read, 300)} It wrote: {to_one_line(turns[-1].raw, 300)}" if turns else ""
