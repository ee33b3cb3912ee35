"""Reflection: a policy writes a role's new instruction from the best ones so far and from failed matches (INSPO)."""

from collections.abc import Sequence

from agents.reply import to_one_line
from agents.role import Sampling
from arena.credit.asking import Asker, Budget, Question
from arena.parts.chance import number
from arena.records import MatchRecord

PROMPT = "You improve the instruction of a player. Write one better instruction in one sentence, and nothing else."
SAMPLING = Sampling(max_tokens=60)
EXAMPLES = 4
"""Number of instructions that the writer reads."""


async def write_instruction(
    asker: Asker,
    writer: str,
    seed: tuple[int, int],
    role: str,
    ranked: Sequence[tuple[float, str]],
    failed: Sequence[str],
) -> str:
    """Sample a new instruction for `role` from a policy and return it in one line; "" if its context has no room.

    `seed` is the run's seed and the iteration, `ranked` the instructions so far with their scores, best first, and
    `failed` the last turns of failed matches.
    """
    question, seeds = Question(PROMPT, make_prompt(ranked, failed)), [(*seed, number("reflect"), number(role))]
    (reply,) = await asker.ask(writer, [question], SAMPLING, seeds, Budget(None, None, {}))
    return to_one_line(reply.text or "", 10**4)


def make_prompt(ranked: Sequence[tuple[float, str]], failed: Sequence[str]) -> str:
    """Return the prompt for a new instruction: the best instructions with their scores, and the failed matches."""
    scores = [f"{weight:+.2f}: {text}" for weight, text in ranked[:EXAMPLES]]
    return "\n".join(["Instructions so far, with how good they were:", *scores, *(f"A bad match. {t}" for t in failed)])


def describe_last_turn(record: MatchRecord, seat: str) -> str:
    """Return messages and reply of the seat's last turn, shortened to one line; "" if it took none."""
    turns = [turn for turn in record.turns if turn.seat == seat]
    observation = " ".join(message.text for message in turns[-1].messages) if turns else ""
    return f"It read: {to_one_line(observation, 300)} It wrote: {to_one_line(turns[-1].raw, 300)}" if turns else ""
