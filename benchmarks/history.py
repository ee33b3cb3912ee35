"""Cost of a thought of an earlier turn that is kept, or stripped: tokens computed, exactly counted.

    python benchmarks/history.py            # 5, 20 and 100 turns; a minute

A seat of a match is shown 24 tokens a turn, thinks 64 and says 12, in SmolLM2's chat frame. Counted are, in play, the
tokens that an engine has to read before the first new one, with what it kept of the turn before and without anything
kept (every turn rendered again); in learning, those that go through the model for one update, of one match and of eight
that open alike. Writes results/history.json.
"""

import asyncio
import json
from pathlib import Path

import numpy as np

from agents.chat import ChatFrame
from agents.costs import costs
from agents.engines.base import Completion, Request
from agents.packing import Costs, passes
from agents.players.model import ChatPlayer, spoken
from agents.policy import load_module
from agents.reply import ReplySpec
from agents.role import Role
from agents.stream import Stream
from agents.weights import DEFAULT, load_tokenizer, resolve
from arena.doctor import environment
from games.contracts import Message, View

TURNS, MATCHES, BUDGET = (5, 20, 100), 8, 4096
SHOWN, THOUGHT, SAID = 24, 64, 12
WORDS = [" one", " two", " red", " blue", " sun", " sea", " old", " new"]
"""A token each."""
RESULTS = Path(__file__).parent / "results"


class Counting:
    """A writer of thoughts that counts what an engine has to read: in all, and beyond the turn before."""

    def __init__(self, frame: ChatFrame, role: Role, rng: np.random.Generator) -> None:
        self.frame, self.role, self.rng = frame, role, rng
        self.read = self.new = 0
        self._kept: tuple[int, ...] = ()

    async def __call__(self, view: View, request: Request, summary: bool = False) -> Completion:
        common = 0
        while common < min(len(self._kept), len(request.ids)) and self._kept[common] == request.ids[common]:
            common += 1
        self.read += len(request.ids)
        self.new += len(request.ids) - common
        said = spoken(self.frame, self.role.reply.write(text(self.rng, SAID), private=text(self.rng, THOUGHT)))
        self._kept = (*request.ids, *said.ids)
        return said


def text(rng: np.random.Generator, tokens: int) -> str:
    """So many words of a token each."""
    return "".join(WORDS[i] for i in rng.integers(len(WORDS), size=tokens)).strip()


def played(frame: ChatFrame, history: str, turns: int, seed: int) -> tuple[list[Stream], Counting]:
    """A seat's streams over so many turns, and what was counted."""
    reply = ReplySpec(format="tagged", action="act", private="think")
    role = Role(role="thinker", system="Be wise.", reply=reply, history=history)  # type: ignore[arg-type]
    writer = Counting(frame, role, np.random.default_rng((seed, 0)))
    player, rng = ChatPlayer(role, frame, "p", "m/a", (seed,), writer), np.random.default_rng((seed, 1))

    async def play() -> None:
        for turn in range(turns):
            shown = Message.of("b", text(rng, SHOWN))
            await player.act(View("a", turn, (shown,), "", {}, {}, None))

    asyncio.run(play())
    return player.streams, writer


def through_the_model(streams: list[Stream], own: Costs) -> int:
    """Tokens of passes over streams as the trainer packs them, without padding: what streams share counts once."""
    found = passes(streams, max(BUDGET, max(map(len, streams))), costs=own)
    return sum(one.prefix + sum(row.size for row in one.rows) for one in found)


def main() -> None:
    """Count, and write the results."""
    frame, own = ChatFrame(load_tokenizer(resolve(DEFAULT))), costs(load_module(resolve(DEFAULT)), bf16=True)
    rows = []
    for turns in TURNS:
        for history in ("keep", "strip"):
            matches = [played(frame, history, turns, seed) for seed in range(MATCHES)]
            streams, writer = matches[0]
            rows.append(
                {
                    "turns": turns,
                    "history": history,
                    "streams": len(streams),
                    "longest_context": max(map(len, streams)),
                    "sampled": sum(stream.sampled for stream in streams),
                    "play_rendered_anew": writer.read,
                    "play_beyond_the_turn_before": writer.new,
                    "learn_a_row_a_stream": sum(map(len, streams)),
                    "learn_packed": through_the_model(streams, own),
                    "learn_packed_eight_matches": through_the_model([s for found, _ in matches for s in found], own),
                }
            )
            print(json.dumps(rows[-1]))
    command = "python benchmarks/history.py"
    about = {"command": command, "shown": SHOWN, "thought": THOUGHT, "said": SAID, "matches": MATCHES}
    result = {**about, "machine": environment() | {"command": command}, "rows": rows}
    (RESULTS / "history.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
