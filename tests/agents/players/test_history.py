"""Histories with and without thoughts: each turn is trained on its sampling context, for six tokenizer families."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.memory import Memory
from agents.players.model import ChatPlayer
from agents.published import ModuleWeights
from agents.reply import ReplySpec
from agents.role import Role
from agents.stream import Stream
from arena.cli.loop import wait
from games.contracts import Message, View
from tests.factories.families import FAMILIES, STRIPPING
from tests.factories.models import make_tiny_llama
from tests.factories.requests import make_request, record_passes, score_completion

REPLIES = {
    "tagged": ReplySpec(format="tagged", action="act", private="think"),
    "whole": ReplySpec(format="whole", private="think"),
    "json": ReplySpec(format="json", action="act", private="think"),
}


def make_role(reply: str = "tagged", history: Any = "strip", **more: Any) -> Role:
    return Role(role="thinker", system="Be wise.", reply=REPLIES[reply], history=history, **more)


def make_view(turn: int) -> View:
    return View("a", turn, (Message.of("b", f"number {turn}, please"),), "", {}, {}, None)


class ThinkingWriter:
    """Writer that thinks in some turns, aloud in others, and sometimes does not stop."""

    def __init__(self, frame: ChatFrame, role: Role, seed: int) -> None:
        self.frame, self.role, self.rng = frame, role, np.random.default_rng(seed)
        self.requests: list[Request] = []
        self.completions: list[Completion] = []

    async def __call__(self, view: View, request: Request, summary: bool = False) -> Completion:
        thought = "".join(self.rng.choice(list("abc de"), self.rng.integers(1, 8))) if self.rng.random() < 0.6 else ""
        text = self.role.reply.write(f"OFFER {view.turn}", private=thought)
        ids, finish = [*self.frame.encode(text)], "length" if self.rng.random() < 0.2 else "stop"
        ids += [self.frame.stop_id] if finish == "stop" else []
        completion = Completion(tuple(ids), tuple(self.rng.normal(-1, 0.1, len(ids)).tolist()), finish, 1)  # type: ignore[arg-type]
        self.requests.append(request)
        self.completions.append(completion)
        return completion


def play_turns(frame: ChatFrame, role: Role, seed: int, turns: int = 6) -> tuple[ChatPlayer, ThinkingWriter]:
    thinker = ThinkingWriter(frame, role, seed)
    player = ChatPlayer(role=role, frame=frame, policy="p", key="m/a", seed=(seed,), write=thinker)

    async def play() -> None:
        for turn in range(turns):
            await player.act(make_view(turn))

    asyncio.run(play())
    return player, thinker


def list_contexts(streams: list[Stream]) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...], tuple[float, ...]]]:
    """List each sampled turn's number, preceding ids, own ids and log-probabilities."""
    for stream in streams:
        for turn in sorted({t for t, own in zip(stream.turns, stream.mask, strict=True) if own}):
            own = [k for k, t in enumerate(stream.turns) if t == turn]
            ids, logprobs = tuple(stream.ids[k] for k in own), tuple(stream.logprobs[k] for k in own)
            yield turn, tuple(stream.ids[: own[0]]), ids, logprobs


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("history", ["strip", "keep"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_turn_is_trained_on_its_sampling_context(family: str, history: str) -> None:
    """A thousand matches over families, formats and histories."""
    frame = ChatFrame(FAMILIES[family]())
    for seed in range(84):
        player, thinker = play_turns(frame, make_role(list(REPLIES)[seed % 3], history), seed)
        contexts = list(list_contexts(player.streams))
        assert [turn for turn, *_ in contexts] == list(range(6)), "each turn once"
        for (_, before, ids, logprobs), request, completion in zip(
            contexts, thinker.requests, thinker.completions, strict=True
        ):
            assert (before, ids, logprobs) == (request.ids, completion.ids, completion.logprobs)
        if history == "keep":
            assert len(player.streams) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_history_contains_no_thoughts(family: str) -> None:
    """A turn's context is the frame around all messages and replies without thoughts."""
    frame = ChatFrame(FAMILIES[family]())
    for seed in range(20):
        own = make_role()
        player, thinker = play_turns(frame, own, seed)
        exchanges: list[tuple[str, str, str]] = []
        for (turn, before, ids, _), completion in zip(list_contexts(player.streams), thinker.completions, strict=True):
            see = own.render_turn(make_view(turn), first=turn == 0)
            expected = [*frame.open("Be wise.")]
            for seen, remainder, finish in exchanges:
                expected += [*frame.ask(seen), *frame.encode(remainder)]
                expected += [frame.stop_id] if finish == "stop" else []
                expected += frame.close(finish)  # type: ignore[arg-type]
            assert list(before) == [*expected, *frame.ask(see)]
            exchanges.append((see, own.reply.without_private(frame.decode(ids)), completion.finish))


def test_the_template_of_a_thinking_model_renders_the_same() -> None:
    """A stripped stream's context is what the model's own template renders."""
    tokenizer = FAMILIES["qwen"]()
    tokenizer.chat_template = STRIPPING
    frame, own = ChatFrame(tokenizer), make_role("whole")
    for seed in range(20):
        player, _ = play_turns(frame, own, seed)
        messages = [{"role": "system", "content": "Be wise."}]
        for turn, before, ids, _ in list_contexts(player.streams):
            messages.append({"role": "user", "content": own.render_turn(make_view(turn), first=turn == 0)})
            rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            assert tokenizer.decode(before) == rendered
            messages.append({"role": "assistant", "content": frame.decode(ids)})


def test_streams_restart_only_where_history_was_removed() -> None:
    frame = ChatFrame(FAMILIES["qwen"]())
    for seed in range(20):
        player, thinker = play_turns(frame, make_role(), seed)
        thoughts = sum("<think>" in frame.decode(c.ids) for c in thinker.completions[:-1])
        assert len(player.streams) == 1 + thoughts
        assert set(player.stream_keys) == {"m/a/0"}, "so that an engine goes on from what they have in common"


def test_windowed_memory_repeats_facts_only_on_restart() -> None:
    frame = ChatFrame(FAMILIES["qwen"]())
    own = make_role(memory=Memory(kind="window", turns=3), turn="{% if first %}FACTS{% endif %} {{ turn_number }}")
    for seed in range(10):
        player, thinker = play_turns(frame, own, seed, turns=8)
        for (turn, before, *_), request in zip(list_contexts(player.streams), thinker.requests, strict=True):
            assert before == request.ids
            text = frame.decode(before)
            assert ("FACTS" in text.rpartition("user")[2]) is (turn == 0 or turn > 3)
            assert text.count("OFFER") == min(turn, 3)


def test_a_tag_that_is_a_token_is_read_as_the_tag() -> None:
    """<think> is one token of thinking models; sampled, it opens a thought."""
    tokenizer = FAMILIES["qwen"]()
    frame = ChatFrame(tokenizer)
    opening, closing = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    ids = [opening, *frame.encode("I bluff"), closing, *frame.encode("<act>BET</act>"), frame.stop_id]
    text = frame.decode(ids)
    assert text == "<think>I bluff</think><act>BET</act>"
    assert REPLIES["tagged"].parse(text).private == "I bluff"
    assert REPLIES["tagged"].without_private(text) == "<act>BET</act>"
    assert frame.control_ids.isdisjoint(frame.encode(text)), "and written by anybody else it is only text"


def test_engine_reuses_the_prefix_of_the_next_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next stream costs its new tokens only, and scores as in a fresh pass."""
    model = make_tiny_llama(vocabulary=64)
    engine = InProcessEngine()
    wait(engine.publish("p", 3, ModuleWeights(model)))
    rng = np.random.default_rng(0)
    opening = rng.integers(0, 64, 40).tolist()
    (reply,) = asyncio.run(engine.generate([make_request(opening, 0)]))
    shapes = record_passes(monkeypatch)
    request = make_request([*opening, *reply.ids[-1:], *rng.integers(0, 64, 5).tolist()], 1)
    (got,) = asyncio.run(engine.generate([request]))
    assert max(width for _, width in shapes) <= 7
    np.testing.assert_allclose(got.logprobs, score_completion(model, request, got.ids), atol=1e-4)


def test_a_role_without_thoughts_has_nothing_to_strip() -> None:
    with pytest.raises(ValueError, match="name it"):
        Role(role="plain", history="strip")
