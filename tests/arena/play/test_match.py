"""One match: rewards are assigned to the turns that earned them, and no fault leaves the match."""

import asyncio
from collections.abc import Mapping
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from agents.players.model import ScriptedPlayer
from agents.players.scripted import SCRIPTED
from arena.play.joining import ForkPoint, find_difference
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.records import MatchRecord, Seating, Turn
from games.contracts import MatchId, Message
from games.negotiation import Negotiation
from tests.factories.matches import LinePlayer, Pays, ScriptedPayGame, play_game


def list_rewards(record: MatchRecord) -> list[tuple[str, Mapping[str, float]]]:
    return [(turn.seat, turn.rewards) for turn in record.turns]


def test_rewards_go_to_the_seats_latest_turn() -> None:
    pays: Pays = {0: [("a", "own", 1.0)], 1: [("a", "late", 2.0), ("b", "own", 3.0)], 3: [("a", "late", 0.5)]}
    assert list_rewards(play_game(ScriptedPayGame(pays))) == [
        ("a", {"own": 1.0, "late": 2.0}), ("b", {"own": 3.0}), ("a", {"late": 0.5}), ("b", {}),
    ]  # fmt: skip


def test_rewards_before_a_seat_has_moved_go_to_its_first_turn() -> None:
    pays: Pays = {0: [("b", "early", 1.0)], 1: [("b", "own", 2.0), ("b", "early", 0.25)], 2: [("b", "late", 4.0)]}
    assert list_rewards(play_game(ScriptedPayGame(pays)))[1] == ("b", {"early": 1.25, "own": 2.0, "late": 4.0})
    assert list_rewards(play_game(ScriptedPayGame(pays)))[3] == ("b", {})


def test_no_reward_is_lost_or_counted_twice() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        length = int(rng.integers(2, 8))
        pays: Pays = {
            k: [(str(rng.choice(["a", "b"])), str(rng.choice(["x", "y"])), float(rng.normal())) for _ in range(3)]
            for k in range(length)
        }
        record = play_game(ScriptedPayGame(pays, length))
        for seat in "ab":
            total = sum(sum(turn.rewards.values()) for turn in record.turns if turn.seat == seat)
            assert total == pytest.approx(sum(v for p in pays.values() for s, _, v in p if s == seat))
            assert record.payoffs[seat] == pytest.approx(total)


def test_turns_are_reported_as_they_are_taken() -> None:
    events: list[tuple[str, int, dict[str, float]]] = []
    pays: Pays = {0: [("a", "own", 1.0)], 1: [("a", "late", 2.0)]}
    seats = {seat: Seating("r", "p", 0, False, "brain") for seat in "ab"}
    for keep in (True, False):
        events.clear()
        reported: list[Turn] = []

        def on_turn(plan: MatchPlan, turn: Turn, reported: list[Turn] = reported) -> None:
            reported.append(turn)
            events.append((plan.id, turn.index, dict(turn.rewards)))

        plan = MatchPlan(identity=MatchId(1, 0), game="beats", options={}, seed=1, seats=seats)
        players: dict[str, SeatedPlayer] = {"a": LinePlayer(), "b": LinePlayer()}
        record = asyncio.run(play_match(plan, ScriptedPayGame(pays, 2), players, Limits(), keep, on_turn))
        assert events == [("0001-0000", 0, {"own": 1.0}), ("0001-0000", 1, {})], "before later rewards are known"
        assert reported[0].rewards == {"own": 1.0}, "a turn never changes"
        if not keep:
            assert record.turns == ()
            continue
        assert record.turns == (reported[0]._replace(rewards={"own": 1.0, "late": 2.0}), reported[1])


def test_blocking_steps_let_other_matches_continue() -> None:
    barrier = Barrier(2, timeout=60)

    class Blocking(ScriptedPayGame):
        """Every step waits until the other match is at a step, too."""

        blocks = True

        def play(self, seat: str, act: str) -> str:
            barrier.wait()
            return super().play(seat, act)

    seats = {seat: Seating("r", "p", 0, False, "brain") for seat in "ab"}
    plans = [MatchPlan(identity=MatchId(1, i), game="beats", options={}, seed=i, seats=seats) for i in range(2)]
    pays: Pays = {0: [("a", "own", 1.0)], 2: [("b", "late", 2.0)]}

    async def play_both(kind: type[ScriptedPayGame]) -> list[MatchRecord]:
        lines: list[dict[str, SeatedPlayer]] = [{"a": LinePlayer("x", "y"), "b": LinePlayer("z")} for _ in plans]
        return await asyncio.gather(
            *(play_match(plan, kind(pays), who, Limits()) for plan, who in zip(plans, lines, strict=True))
        )

    def without_times(records: list[MatchRecord]) -> list[Any]:
        return [[turn._replace(seconds=0.0) for turn in record.turns] for record in records]

    records = asyncio.run(play_both(Blocking))
    assert [record.reason for record in records] == ["", ""]
    assert without_times(records) == without_times(asyncio.run(play_both(ScriptedPayGame)))


def test_the_version_of_the_rules_is_kept() -> None:
    class Revised(ScriptedPayGame):
        """Its rules were changed once."""

        rules_version = 2

    assert (play_game(ScriptedPayGame()).rules, play_game(Revised()).rules) == (1, 2)


def test_an_illegal_act_is_a_turn_with_its_penalty() -> None:
    record = play_game(ScriptedPayGame(illegal="retry", length=2), {"a": LinePlayer("bad", "good"), "b": LinePlayer()})
    assert [(t.index, t.seat, t.action, t.valid, t.rewards) for t in record.turns] == [
        (0, "a", "bad", False, {"illegal": -1.0}),
        (1, "a", "good", True, {}),
        (2, "b", "fine", True, {}),
    ]


def test_record_holds_the_whole_match() -> None:
    players = {"a": LinePlayer("one", tokens=3), "b": LinePlayer("two", tokens=4)}
    record = play_game(ScriptedPayGame(length=2), players, seed=2**64 - 1)
    assert (record.id, record.iteration, record.status, record.reason) == ("0002-0003", 2, "finished", "")
    assert record.seed == 2**64 - 1 and record.report == {"ended": "over", "turns": 2}
    assert record.seats["a"] == Seating("ra", "p", 5, False, "brain"), "the version is the one that played"
    assert [(t.role, t.policy, t.version, t.raw, t.tokens, t.finish) for t in record.turns] == [
        ("ra", "p", 5, "one", 3, "script"),
        ("rb", "p", 5, "two", 4, "script"),
    ]
    assert record.turns[1].messages == (Message.of("a", "one"),)
    assert MatchRecord.from_json(record.to_json()) == record


def test_player_sees_only_its_seats_view() -> None:
    a, b = LinePlayer("hello"), LinePlayer()
    play_game(ScriptedPayGame(length=3), {"a": a, "b": b})
    assert [v.turn for v in a.views] == [0, 2] and [v.turn for v in b.views] == [1]
    assert b.views[0].messages == (Message.of("a", "hello"),)
    assert (b.views[0].private, b.views[0].rules, b.views[0].legal) == ({"name": "b"}, "say anything", None)


@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        (Limits(turns=3), "turn limit: 3 turns taken", 3),
        (Limits(tokens=10), "token limit: 12 tokens written of 10", 3),
        (Limits(seconds=0.05), "time limit: ", 1),
    ],
)
def test_match_over_its_limits_fails_with_the_reason(limits: Limits, reason: str, turns: int) -> None:
    slow = 0.06 if limits.seconds else 0.0
    players = {seat: LinePlayer(tokens=4, slow=slow) for seat in "ab"}
    record = play_game(ScriptedPayGame(length=10**6), players, limits)
    assert record.status == "failed" and record.reason.startswith(reason)
    assert len(record.turns) == turns, "what was played is kept"
    assert record.payoffs == {} and record.report == {}, "never scored"


def test_limits_that_are_not_reached_change_nothing() -> None:
    record = play_game(
        ScriptedPayGame(length=3),
        {s: LinePlayer(tokens=4) for s in "ab"},
        Limits(turns=3, tokens=12, seconds=60, turn_seconds=5),
    )
    assert record.status == "finished"


def test_a_player_that_does_not_answer_in_time_fails_the_match() -> None:
    record = play_game(ScriptedPayGame(), {"a": LinePlayer(), "b": LinePlayer(slow=5)}, Limits(turn_seconds=0.05))
    assert record.status == "failed" and len(record.turns) == 1
    assert "b" in record.reason and "0.05 s" in record.reason, record.reason
    assert record.seconds < 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("deal", "RuntimeError: no cards"),
        ("step", "RuntimeError: the table broke"),
        ("payoffs", "ZeroDivisionError: nobody to pay"),
        ("report", "ValueError: nothing to say"),
    ],
)
def test_a_fault_of_the_game_fails_its_match_only(fault: str, reason: str) -> None:
    record = play_game(ScriptedPayGame(fault=fault))
    assert (record.status, record.reason) == ("failed", reason)
    assert record.payoffs == {} and record.report == {}
    assert MatchRecord.from_json(record.to_json()) == record


class UnloggableGame(ScriptedPayGame):
    """Game whose method `method` yields `value`, which no log can hold."""

    def __init__(self, method: str, value: Any) -> None:
        super().__init__({0: [("a", "gold", 1.0)]})
        self.method, self.value = method, value

    def play(self, seat: str, act: str) -> str:
        if self.method == "pay":
            self.pay(seat, "gold", self.value)
        return super().play(seat, act)

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.method == "infos":
            self.infos["b"]["rewards"]["gold"] = self.value

    def payoffs(self) -> dict[str, float]:
        return super().payoffs() | ({"b": self.value} if self.method == "payoffs" else {})

    def figures(self) -> dict[str, float | bool | str]:
        return {"ratio": self.value} if self.method == "figures" else {}


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), 10**400], ids=["nan", "inf", "huge"])
@pytest.mark.parametrize("method", ["pay", "infos", "payoffs", "figures"])
def test_unloggable_number_fails_its_match_and_names_the_line(method: str, value: Any) -> None:
    record = play_game(UnloggableGame(method, value))
    assert record.status == "failed" and not record.payoffs
    assert MatchRecord.from_json(record.to_json()) == record
    assert record.failure and record.failure.kind == "game"
    if method != "pay" or not isinstance(value, int):
        assert any(word in record.reason for word in ("gold", "payoff of b", "ratio")), record.reason
    path, _, line = record.failure.where.partition(", line ")
    assert path.endswith("test_match.py") and line.isdigit(), record.failure.where


def test_rewards_that_add_up_to_infinity_fail_the_match() -> None:
    pays: Pays = {0: [("b", "gold", 1e308)], 1: [("b", "gold", 1e308)], 2: [("b", "gold", 1e308)]}
    record = play_game(ScriptedPayGame(pays))
    assert record.status == "failed" and "gold" in record.reason
    assert MatchRecord.from_json(record.to_json()) == record


def test_lone_surrogates_are_replaced_before_anyone_reads_them() -> None:
    """No file can hold lone surrogates; replacing them early keeps play and log equal."""
    acts: list[str] = []

    class RecordingGame(ScriptedPayGame):
        """Game that records its acts and sends a lone surrogate."""

        whole_acts = True

        def play(self, seat: str, act: str) -> str:
            acts.append(act)
            self.tell("half \udc80")
            return super().play(seat, act)

    b = LinePlayer("plain")
    record = play_game(RecordingGame(length=2), {"a": LinePlayer("x\ud800y | \udfff"), "b": b})
    assert MatchRecord.from_json(record.to_json()) == record
    assert record.turns[0].action == "x\ufffdy | \ufffd" and acts[0] == record.turns[0].action
    assert b.views[0].messages == record.turns[1].messages
    assert record.turns[1].messages[1].text == "half \ufffd"
    assert find_difference(ForkPoint(record, 1, "another"), RecordingGame(length=2)) == "", (
        "the log's acts give the same match"
    )


def test_a_player_that_raises_fails_its_match_only() -> None:
    record = play_game(ScriptedPayGame(), {"a": LinePlayer(), "b": LinePlayer(fails=True)})
    assert (record.status, record.reason) == ("failed", "LookupError: lost the thread")
    assert [turn.seat for turn in record.turns] == ["a"]


def test_cancellation_ends_a_match() -> None:
    async def cancel_match() -> None:
        players: dict[str, SeatedPlayer] = {"a": LinePlayer(slow=60), "b": LinePlayer()}
        plan = MatchPlan(
            identity=MatchId(0, 0),
            game="beats",
            options={},
            seed=1,
            seats={s: Seating("r", "p", 0, False, "brain") for s in "ab"},
        )
        task = asyncio.create_task(play_match(plan, ScriptedPayGame(), players, Limits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_match())


def test_the_same_seed_and_replies_give_the_same_match() -> None:
    def play() -> dict[str, Any]:
        players = {seat: ScriptedPlayer(SCRIPTED["random"](i)) for i, seat in enumerate(Negotiation.seats)}
        row = play_game(Negotiation(), players, seed=77).to_json()
        row.update(started="", seconds=0.0, turns=[{**t, "seconds": 0.0} for t in row["turns"]])
        return row

    assert play() == play()


class LeavingGame(ScriptedPayGame):
    """Game that seat a leaves after its first act; counts the steps of dead agents."""

    dead_steps = 0

    def step(self, action: str | None) -> None:
        self.dead_steps += action is None
        super().step(action)
        if not self.ended and self.turns == 1 and "a" in self.agents:
            self.terminations["a"] = True
            self._deads_step_first()

    def next_seat(self, seat: str) -> str:
        return "b"


def test_seat_that_leaves_early_is_stepped_out() -> None:
    game = LeavingGame(length=3)
    record = play_game(game)
    assert [turn.seat for turn in record.turns] == ["a", "b", "b"] and record.status == "finished"
    assert game.dead_steps == 1, "nobody is stepped after the match"


def test_record_without_turns_has_the_same_outcome() -> None:
    pays: Pays = {0: [("a", "own", 1.0)], 3: [("b", "late", 0.5)]}
    plan = MatchPlan(
        identity=MatchId(0, 0),
        game="beats",
        options={},
        seed=1,
        seats={s: Seating(s, "p", 0, False, "brain") for s in "ab"},
    )
    full, bare = (
        asyncio.run(
            play_match(plan, ScriptedPayGame(pays), {"a": LinePlayer(), "b": LinePlayer()}, Limits(), keep_turns=keep)
        )
        for keep in (True, False)
    )
    assert (bare.payoffs, bare.report, bare.seats) == (full.payoffs, full.report, full.seats)
    assert len(full.turns) == 4 and (bare.turns, bare.streams) == ((), {})
    assert bare.seats["a"].version == 5 and plan.seats["a"].version == 0
