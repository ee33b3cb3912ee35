"""Players: training tokens are exactly the sampled ones, and never another's text."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from agents.chat import ChatFrame
from agents.engines.base import Completion, Request
from agents.engines.in_process import InProcessEngine
from agents.memory import Memory
from agents.model_folder import load_model, load_tokenizer
from agents.players.model import ChatPlayer, ScriptedPlayer
from agents.players.scripted import SCRIPTED
from agents.players.writers import make_demonstration_writer, make_model_writer
from agents.published import ModuleWeights
from agents.role import Role, load_role
from agents.weights import resolve
from arena.cli.loop import wait
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import MatchRecord, Seating
from games.contracts import MatchId, Message, View
from games.negotiation import Negotiation

SEATS = ("opener", "responder")
FRAME = ChatFrame(load_tokenizer(resolve("nano")))


@pytest.fixture(scope="module")
def nano() -> Any:
    return load_model(resolve("nano"))


class RecordingEngine:
    """Engine that records its completions and may force legal acts in its first turns."""

    def __init__(self, model: Any, legal_turns: int = 0) -> None:
        self.engine, self.legal_turns = InProcessEngine(), legal_turns
        wait(self.engine.publish("p", 1, ModuleWeights(model)))
        self.completions: dict[str, list[tuple[Request, Completion]]] = {seat: [] for seat in SEATS}

    def writer(self, seat: str) -> Any:
        rng = np.random.default_rng(len(seat))

        async def write(view: View, request: Request, summary: bool = False) -> Completion:
            if view.turn < self.legal_turns:
                offers = [act for act in view.legal or () if act.startswith("OFFER")]
                text = f"{offers[rng.integers(len(offers))]} | {seat} says please"
                ids = (*FRAME.encode(text), FRAME.stop_id)
                completion = Completion(ids, tuple(-0.5 - i for i in range(len(ids))), "stop", 1)
            else:
                (completion,) = await self.engine.generate([request])
            self.completions[seat].append((request, completion))
            return completion

        return write


def make_roles(**changes: Any) -> dict[str, Role]:
    return {seat: load_role(f"nano_{seat}").model_copy(update=changes) for seat in SEATS}


def play_negotiation(
    spy: RecordingEngine, seed: int, cast: dict[str, Role], illegal: str = "retry"
) -> tuple[MatchRecord, dict[str, ChatPlayer]]:
    seats = {seat: Seating(cast[seat].role, "p", 1, True, "model") for seat in SEATS}
    players = {
        seat: ChatPlayer(
            role=cast[seat], frame=FRAME, policy="p", key=f"{seed}/{seat}", seed=(seed, i), write=spy.writer(seat)
        )
        for i, seat in enumerate(SEATS)
    }
    plan = MatchPlan(identity=MatchId(1, 0), game="negotiation", options={}, seed=seed, seats=seats)
    game = Negotiation(illegal=illegal, max_turns=10)
    record = asyncio.run(play_match(plan, game, players, Limits()))
    assert record.status == "finished", record.reason
    return record, players


def list_sampled(player: ChatPlayer) -> list[tuple[int, float, int]]:
    """List (id, log-probability, turn) of all sampled tokens of a player's streams."""
    return [
        (token, logprob, turn)
        for s in player.streams
        for token, own, logprob, turn in zip(s.ids, s.mask, s.logprobs, s.turns, strict=True)
        if own
    ]


@pytest.mark.parametrize("legal_turns", [0, 1, 4, 7])
@pytest.mark.parametrize("memory", [Memory(), Memory(kind="window", turns=1)], ids=["all", "window"])
def test_masked_ids_are_exactly_those_the_engine_returned(nano: Any, legal_turns: int, memory: Memory) -> None:
    spy = RecordingEngine(nano, legal_turns)
    for seed in range(2):
        spy.completions = {seat: [] for seat in SEATS}
        record, players = play_negotiation(spy, seed, make_roles(memory=memory))
        assert len(record.turns) > legal_turns
        for seat, player in players.items():
            own = [turn.index for turn in record.turns if turn.seat == seat]
            expected = [
                (token, logprob, index)
                for index, (_, c) in zip(own, spy.completions[seat], strict=True)
                for token, logprob in zip(c.ids, c.logprobs, strict=True)
            ]
            assert list_sampled(player) == expected


def test_sampling_context_is_the_preceding_stream(nano: Any) -> None:
    spy = RecordingEngine(nano, 5)
    _, players = play_negotiation(spy, 3, make_roles())
    for seat, player in players.items():
        (stream,) = player.streams
        for request, completion in spy.completions[seat]:
            end = len(request.ids)
            assert tuple(stream.ids[:end]) == request.ids
            assert tuple(stream.ids[end : end + len(completion.ids)]) == completion.ids


def test_other_sides_text_is_observed_and_never_masked(nano: Any) -> None:
    _, players = play_negotiation(RecordingEngine(nano, 6), 1, make_roles())
    for seat, other in (SEATS, SEATS[::-1]):
        (stream,) = players[seat].streams
        observed = FRAME.decode(t for t, own in zip(stream.ids, stream.mask, strict=True) if not own)
        wrote = FRAME.decode(t for t, own in zip(stream.ids, stream.mask, strict=True) if own)
        assert f"{other} says please" in observed and f"{other} says please" not in wrote
        assert f"{seat} says please" in wrote and f"{seat} says please" not in observed


def test_reply_is_closed_however_it_ended(nano: Any) -> None:
    """A truncated reply gets the missing end token, unmasked."""
    _, players = play_negotiation(RecordingEngine(nano, 0), 0, make_roles())
    (stream,) = players["opener"].streams  # random weights: an illegal act, cut off, and a second try
    ends = [(own, i) for i, (t, own) in enumerate(zip(stream.ids, stream.mask, strict=True)) if t == FRAME.stop_id]
    assert len(ends) == 1 and ends[0][0] is False
    assert stream.mask[ends[0][1] - 1] is True


def test_a_window_starts_anew_with_the_facts_and_the_last_exchange(nano: Any) -> None:
    spy = RecordingEngine(nano, 8)
    record, players = play_negotiation(spy, 2, make_roles(memory=Memory(kind="window", turns=1)))
    player = players["opener"]
    taken = [turn for turn in record.turns if turn.seat == "opener"]
    assert len(player.streams) == len(taken) - 1 >= 3  # the first two turns fit one stream, then one each
    assert player.stream_keys == [f"2/opener/{i}" for i in range(len(player.streams))]
    pool = "pool " + " ".join(map(str, read_pool(2)))
    for before, stream in enumerate(player.streams[1:], start=1):
        (turn,) = {turn for turn in stream.turns if turn >= 0}
        assert turn == taken[before + 1].index
        last_reply = spy.completions["opener"][before][1].ids
        observed = [t for t, own in zip(stream.ids, stream.mask, strict=True) if not own]
        assert contains_sequence(observed, last_reply), "the exchange that is kept is context, not the policy's own"
        older = spy.completions["opener"][before - 1][1].ids
        assert older == last_reply or not contains_sequence(observed, older), "what left the window is gone"
        assert pool in FRAME.decode(observed), "facts are told again"


def read_pool(seed: int) -> Sequence[int]:
    game = Negotiation()
    game.reset(seed=seed)
    return game.pool


def contains_sequence(ids: Sequence[int], part: Sequence[int]) -> bool:
    return any(tuple(ids[i : i + len(part)]) == tuple(part) for i in range(len(ids)))


def test_full_memory_shows_facts_once(nano: Any) -> None:
    _, players = play_negotiation(RecordingEngine(nano, 6), 2, make_roles())
    assert [FRAME.decode(s.ids).count("pool") for s in players["opener"].streams] == [1]


VIEW = View(
    "opener", 0, (Message.of("responder", "OFFER 1 1 1 | hello"),), "rules",
    {"pool": [2, 2, 2], "items": ["books", "hats", "balls"], "turn": 0, "turns_left": 10, "offer": None},
    {"values": [1, 2, 2]}, ("OFFER 0 0 0", "WALK"),
)  # fmt: skip


def make_writer(ids: Sequence[int], finish: Any = "stop") -> ChatPlayer:
    async def write(view: View, request: Request, summary: bool = False) -> Completion:
        return Completion(tuple(ids), (-1.0,) * len(ids), finish, 7)

    return ChatPlayer(role=load_role("nano_opener"), frame=FRAME, policy="p", key="m/opener", seed=(1, 2), write=write)


def test_a_reply_is_decoded_and_parsed_by_the_role() -> None:
    player = make_writer([*FRAME.encode("OFFER 1 0 2 | thanks"), FRAME.stop_id])
    act = asyncio.run(player.act(VIEW))
    assert (act.action, act.public, act.private) == ("OFFER 1 0 2 | thanks", "thanks", "")
    assert act.raw == "OFFER 1 0 2 | thanks", "the stop id is no text"
    assert (act.finish, act.tokens, player.version) == ("stop", len(FRAME.encode("OFFER 1 0 2 | thanks")) + 1, 7)


def test_control_ids_that_a_model_samples_never_become_text() -> None:
    control = [token for token in sorted(FRAME.control_ids) if token not in FRAME.stop_ids]
    player = make_writer([*control, *FRAME.encode("WALK"), *control], "length")
    act = asyncio.run(player.act(VIEW))
    assert act.raw == act.action == "WALK" and act.finish == "length"
    assert list_sampled(player)[0][0] == control[0], "but they stay in the stream, as sampled"


def test_a_request_carries_the_roles_sampling_and_a_seed_of_its_own_turn(nano: Any) -> None:
    spy = RecordingEngine(nano, 4)
    record, _ = play_negotiation(spy, 5, make_roles())
    requests = [request for request, _ in spy.completions["opener"]]
    assert [r.seed for r in requests] == [(5, 0, turn.index) for turn in record.turns if turn.seat == "opener"]
    assert {(r.temperature, r.top_p, r.top_k, r.max_tokens) for r in requests} == {(1.0, 1.0, 0, 8)}
    assert {r.stop_ids for r in requests} == {FRAME.stop_ids}


@pytest.mark.parametrize("script", ["random", "conceder", "exploiter:random"])
def test_demonstrations_write_the_scripts_acts_validly(script: str) -> None:
    cast = make_roles()
    for seed in range(5):
        acts: list[str] = []

        class Overheard:
            def __init__(self, inner: Any, acts: list[str]) -> None:
                self.inner, self.told = inner, acts

            def act(self, view: View) -> str:
                self.told.append(self.inner.act(view))
                return self.told[-1]

        players = {
            seat: ChatPlayer(
                role=cast[seat],
                frame=FRAME,
                policy="p",
                key=f"d/{seat}",
                seed=(0,),
                write=make_demonstration_writer(Overheard(SCRIPTED[script](seed), acts), cast[seat], FRAME),
            )
            for seat in SEATS
        }
        seats = {seat: Seating(cast[seat].role, "p", 0, True, "model") for seat in SEATS}
        plan = MatchPlan(identity=MatchId(0, 0), game="negotiation", options={}, seed=seed, seats=seats)
        record = asyncio.run(play_match(plan, Negotiation(illegal="end"), players, Limits()))
        assert record.status == "finished" and [turn.action for turn in record.turns] == acts
        assert all(turn.valid and turn.finish == "stop" for turn in record.turns)
        for player in players.values():
            ends = [token for token, _, _ in list_sampled(player) if token == FRAME.stop_id]
            assert len(ends) == sum(turn.seat == player.key.split("/")[1] for turn in record.turns)


def test_demonstrated_matches_equal_scripted_matches() -> None:
    cast = make_roles()
    seats = {seat: Seating(cast[seat].role, "p", 0, True, "model") for seat in SEATS}
    plan = MatchPlan(identity=MatchId(0, 0), game="negotiation", options={}, seed=11, seats=seats)
    scripted = {seat: SCRIPTED["random"](i) for i, seat in enumerate(SEATS)}
    demonstrated = {
        seat: ChatPlayer(
            role=cast[seat],
            frame=FRAME,
            policy="p",
            key=seat,
            seed=(0,),
            write=make_demonstration_writer(SCRIPTED["random"](i), cast[seat], FRAME),
        )
        for i, seat in enumerate(SEATS)
    }
    themselves = {seat: ScriptedPlayer(script) for seat, script in scripted.items()}
    first = asyncio.run(play_match(plan, Negotiation(), demonstrated, Limits()))
    record = asyncio.run(play_match(plan, Negotiation(), themselves, Limits()))
    assert [t.action for t in first.turns] == [t.action for t in record.turns]
    assert first.payoffs == record.payoffs and first.report == record.report
    assert not any(record.streams.values()), "a scripted policy has no tokens"


def test_scripted_talk_is_public() -> None:
    class Chatty:
        def act(self, view: View) -> str:
            return "WALK | bye now "

    act = asyncio.run(ScriptedPlayer(Chatty()).act(VIEW))
    assert (act.action, act.public, act.private, act.finish, act.tokens) == (
        "WALK | bye now ", "bye now", "", "script", 0,
    )  # fmt: skip


def test_model_writer_asks_the_engine(nano: Any) -> None:
    engine = InProcessEngine()
    wait(engine.publish("p", 2, ModuleWeights(nano)))
    player = ChatPlayer(
        role=load_role("nano_opener"),
        frame=FRAME,
        policy="p",
        key="m/opener",
        seed=(1,),
        write=make_model_writer(engine),
    )
    act = asyncio.run(player.act(VIEW))
    assert act.tokens == player.streams[0].sampled_count > 0 and player.version == 2
