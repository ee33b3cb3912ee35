"""A role's image limit: old images become placeholders in a new context, and sampled ids keep their context."""

import asyncio
import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.chat import ChatFrame
from agents.chat_images import ImageToken, as_text, find_images, keep_newest
from agents.conversation import Conversation
from agents.engines.base import Completion, Request
from agents.errors import ContextFull, RoleError
from agents.memory import ImageMemory
from agents.nano import build_nano_tokenizer
from agents.players.model import ChatPlayer
from agents.reply import ReplySpec
from agents.role import Role
from agents.tool_formats import ToolCall, make_call_id
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import Seating
from games.contracts import Image, MatchId, Message, View
from tests.factories.image_files import encode_noise
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer
from tests.games.gallery import Gallery

TOKENS = 4
BYTES = {hashlib.sha256(data).hexdigest(): data for data in (encode_noise(k, size=(4, 4)) for k in range(1000))}
IMAGES = [Image(hash, "image/png", 4, 4) for hash in BYTES]


def make_frame() -> ChatFrame:
    tokenizer = build_nano_tokenizer()
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    return ChatFrame(tokenizer, ImageToken(tokenizer.convert_tokens_to_ids("<image>"), TOKENS))


FRAME = make_frame()
CONTENTS = st.lists(
    st.one_of(
        st.text(max_size=5),
        st.lists(st.one_of(st.text(min_size=1, max_size=5), st.sampled_from(IMAGES[:3]))).map(tuple),
    )
)


@given(CONTENTS, st.integers(0, 5))
def test_old_images_become_placeholders(contents: list[Any], keep: int) -> None:
    remaining, before = keep_newest(contents, keep), [image for content in contents for image in find_images(content)]
    assert [image for content in remaining for image in find_images(content)] == before[max(0, len(before) - keep) :]
    for old, new in zip(contents, remaining, strict=True):
        assert "".join(as_text(new).split()) == "".join(as_text(old).split())
        assert new is old or len(find_images(new)) < len(find_images(old))


class RandomWriter:
    """Writer of random thoughts and acts, which records its requests."""

    def __init__(self, role: Role, seed: int) -> None:
        self.role, self.rng = role, np.random.default_rng(seed)
        self.requests: list[tuple[int, Request, Completion]] = []

    async def __call__(self, view: View, request: Request, summary: bool = False) -> Completion:
        thought = "hm " * int(self.rng.integers(0, 3))
        text = "so far" if summary else self.role.reply.write(f"GO {view.turn}", private=thought)
        ids = (*FRAME.encode(text), FRAME.stop_id)
        completion = Completion(ids, tuple(self.rng.normal(-1, 0.1, len(ids)).tolist()), "stop", 1)
        self.requests.append((view.turn, request, completion))
        return completion


def make_role(**more: Any) -> Role:
    settings = {
        "sampling": {"max_tokens": 24},
        "reply": ReplySpec(format="tagged", action="act", private="think"),
        **more,
    }
    return Role.model_validate({"role": "r", "system": "Look.", **settings})


def play_turns(
    own: Role, counts: list[int], positions: int = 10**6, seed: int = 0
) -> tuple[ChatPlayer, RandomWriter, list[list[Image]]]:
    """Play a turn per count of images; return the player, its writer and the images of each turn."""
    writer, left = RandomWriter(own, seed), iter(IMAGES)
    player = ChatPlayer(
        role=own, frame=FRAME, policy="p", key="k", seed=(0,), write=writer, positions=positions,
        picture=BYTES.__getitem__,
    )  # fmt: skip
    turns = [[next(left) for _ in range(count)] for count in counts]

    async def run() -> None:
        for turn, images in enumerate(turns):
            view = View("a", turn, (Message.of("b", f"number {turn}", images),), "", {}, {}, None)
            while (await player.act(view)).source == "summary":
                pass

    asyncio.run(run())
    return player, writer, turns


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"history": "strip"},
        {"memory": {"kind": "window", "turns": 2}},
        {"memory": {"kind": "summary", "context": 420, "tokens": 24, "summaries": 40}},
    ],
)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 3))
def test_contexts_have_the_newest_images_and_sampled_ids_are_trained_ids(
    more: dict[str, Any], counts: list[int], keep: int, seed: int
) -> None:
    player, writer, turns = play_turns(make_role(images={"keep": keep}, **more), counts, seed=seed)
    image = FRAME.image.id if FRAME.image else -1
    for turn, request, _ in writer.requests:
        visible = [image.hash for images in turns[: turn + 1] for image in images]
        hashes = [span.hash for span in request.media]
        if "memory" not in more:
            assert hashes == visible[max(0, len(visible) - keep) :]
        assert len(hashes) <= keep and {*hashes} <= {*visible}
        assert request.ids.count(image) == TOKENS * len(hashes)
        for span in request.media:
            assert request.ids[span.start : span.start + TOKENS] == (image,) * TOKENS
            assert BYTES[span.hash] == span.data
    learned = [
        (tuple(stream.ids[k] for k in own), stream.before(own[0]))
        for stream in player.streams
        for number in sorted(set(stream.turns) - {-1})
        if (own := [k for k, turn in enumerate(stream.turns) if turn == number])
    ]
    if more.get("memory", {}).get("kind") != "summary":  # whose summaries have their turn's number
        for (ids, context), (_, request, completion) in zip(learned, writer.requests, strict=True):
            assert ids == completion.ids and tuple(context.ids) == request.ids and tuple(context.media) == request.media
    sampled = [token for stream in player.streams for token, own in zip(stream.ids, stream.mask, strict=True) if own]
    assert sampled == [token for _, _, completion in writer.requests for token in completion.ids]


def test_context_continues_while_no_image_is_dropped() -> None:
    player, _, _ = play_turns(make_role(images={"keep": 2}), [1, 0, 1, 0, 1, 1])
    first, *later = player.streams
    assert len(player.streams) == 3 and len(set(player.stream_keys)) == 1
    assert [len(stream.media) for stream in player.streams] == [2, 2, 2] and first.turns.count(-1) < len(first)
    placeholder = FRAME.encode(IMAGES[0].text)
    for stream in later:
        text = ",".join(map(str, stream.ids))
        assert ",".join(map(str, placeholder[1:])) in text
    assert play_turns(make_role(), [1] * 6)[0].streams[0].media[0].hash == IMAGES[0].hash


def test_a_thousand_images_cost_their_limit() -> None:
    player, writer, _ = play_turns(make_role(images={"keep": 3}, memory={"kind": "window", "turns": 4}), [10] * 100)
    assert all(len(request.media) == 3 for _, request, _ in writer.requests) and len(player.streams) == 100


def test_images_that_do_not_fit_end_the_context_with_its_reason() -> None:
    with pytest.raises(ContextFull, match="tokens"):
        play_turns(make_role(), [1, 200], positions=400)
    player, _, _ = play_turns(make_role(images={"keep": 1}), [1, 200, 1], positions=8000)
    assert len(player.streams[-1].media) == 1


def test_the_limit_is_a_number_of_images_or_of_their_tokens() -> None:
    for limits, expected in (
        ({"keep": 2}, 2),
        ({"tokens": 12}, 2),
        ({"tokens": 13}, 3),
        ({"keep": 1, "tokens": 13}, 1),
    ):
        assert ImageMemory(**limits).count_kept([5, 1, 7, 5]) == expected
    assert ImageMemory(tokens=4).count_kept([1, 5]) == 0 and ImageMemory(tokens=99).count_kept([1, 5]) == 2
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        make_role(images={"keep": 0})
    with pytest.raises(ValueError, match="images needs a limit"):
        make_role(images={})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(TOKENS, 5 * TOKENS))
def test_no_context_has_more_image_tokens_than_its_budget(counts: list[int], budget: int) -> None:
    player, writer, turns = play_turns(make_role(images={"tokens": budget}), counts)
    for turn, request, _ in writer.requests:
        visible = [image.hash for images in turns[: turn + 1] for image in images]
        assert [span.hash for span in request.media] == visible[max(0, len(visible) - budget // TOKENS) :]
    assert all(sum(span.length for span in stream.media) <= budget for stream in player.streams)


def test_a_budget_without_room_for_one_image_is_refused() -> None:
    with pytest.raises(RoleError, match=r"images\.tokens: 3 tokens have no room for an image of 4"):
        play_turns(make_role(images={"tokens": 3}), [0, 1])
    with pytest.raises(RoleError, match=r"images\.tokens: an endpoint"):
        Conversation(make_role(images={"tokens": 3}), picture=BYTES.__getitem__)


@pytest.mark.parametrize("family", TOOL_FAMILIES)
def test_images_of_native_tools_stand_in_the_users_turn_and_are_dropped_like_others(family: str) -> None:
    tokenizer = build_tool_tokenizer(family)
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    own = ChatFrame(tokenizer, ImageToken(tokenizer.convert_tokens_to_ids("<image>"), TOKENS))
    assert own.image and own.tools
    requests: list[Request] = []

    async def write(view: View, request: Request, summary: bool = False) -> Completion:
        ids = (*own.write_calls("", [ToolCall(make_call_id(view.turn), "crop", {"cell": view.turn})]), own.stop_id)
        requests.append(request)
        return Completion(ids, (-1.0,) * len(ids), "stop", 0)

    function = {"name": "crop", "description": "Crop.", "parameters": {"type": "object", "properties": {}}}
    crop = {"type": "function", "function": function}
    limited = make_role(reply=ReplySpec(format="native"), images={"keep": 2}, sampling={"max_tokens": 64}, system="")
    player = ChatPlayer(
        role=limited, frame=own, policy="p", key="k", seed=(0,), write=write, picture=BYTES.__getitem__
    )  # fmt: skip
    views = [(("referee", "Look.", IMAGES[:1]),), *((("tool", "crop", IMAGES[k : k + 2]),) for k in (1, 3))]

    async def run() -> None:
        for turn, view in enumerate(views):
            messages = tuple(Message.of(*message) for message in view)
            await player.act(View("a", turn, messages, "", {}, {}, None, (crop,)))

    asyncio.run(run())
    shows = own.tools.user_bridge is not None
    seen = [[span.hash for span in request.media] for request in requests]
    hashes = [image.hash for image in IMAGES]
    assert seen == ([hashes[:1], hashes[1:3], hashes[3:5]] if shows else [hashes[:1]] * 3)
    for request in requests:
        assert request.ids.count(own.image.id) == TOKENS * len(request.media)
    texts = own.decode(requests[-1].ids)
    assert all(IMAGES[k].text in texts for k in (1, 2, 3, 4)) and (IMAGES[0].text in texts) == shows


def test_an_image_larger_than_the_context_ends_the_match_with_its_reason() -> None:
    game = Gallery()
    large = ChatFrame(FRAME._tokenizer, ImageToken(FRAME.image.id, 500))  # type: ignore[union-attr]
    player = ChatPlayer(
        role=make_role(), frame=large, policy="p", key="k", seed=(0,), write=RandomWriter(make_role(), 0),
        positions=256,
        picture=game.picture,
    )  # fmt: skip
    seats = {"visitor": Seating("r", "p", 0, True, "model")}
    plan = MatchPlan(identity=MatchId(1, 0), game="gallery", options={}, seed=0, seats=seats)
    record = asyncio.run(play_match(plan, game, {"visitor": player}, Limits()))
    assert "context" in record.reason and "of 256" in record.reason and "\n" not in record.reason
