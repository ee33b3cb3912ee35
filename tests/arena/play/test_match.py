"""One match: rewards find the turn that earned them, and nothing that goes wrong leaves the match."""

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


def earned(record: MatchRecord) -> list[tuple[str, Mapping[str, float]]]:
    return [(turn.seat, turn.rewards) for turn in record.turns]


def test_rewards_of_ones_own_act_and_of_the_others_go_to_the_latest_turn() -> None:
    pays: Pays = {0: [("a", "own", 1.0)], 1: [("a", "late", 2.0), ("b", "own", 3.0)], 3: [("a", "late", 0.5)]}
    assert earned(play_game(ScriptedPayGame(pays))) == [
        ("a", {"own": 1.0, "late": 2.0}), ("b", {"own": 3.0}), ("a", {"late": 0.5}), ("b", {}),
    ]  # fmt: skip


def test_rewards_before_a_seat_has_moved_go_to_its_first_turn() -> None:
    pays: Pays = {0: [("b", "early", 1.0)], 1: [("b", "own", 2.0), ("b", "early", 0.25)], 2: [("b", "late", 4.0)]}
    assert earned(play_game(ScriptedPayGame(pays)))[1] == ("b", {"early": 1.25, "own": 2.0, "late": 4.0})
    assert earned(play_game(ScriptedPayGame(pays)))[3] == ("b", {})


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
            told = sum(sum(turn.rewards.values()) for turn in record.turns if turn.seat == seat)
            assert told == pytest.approx(sum(v for p in pays.values() for s, _, v in p if s == seat))
            assert record.payoffs[seat] == pytest.approx(told)


def test_every_turn_is_told_as_it_is_taken() -> None:
    told: list[tuple[str, int, dict[str, float]]] = []
    pays: Pays = {0: [("a", "own", 1.0)], 1: [("a", "late", 2.0)]}
    seats = {seat: Seating("r", "p", 0, False, "brain") for seat in "ab"}
    for keep in (True, False):
        told.clear()
        heard: list[Turn] = []

        def on_turn(plan: MatchPlan, turn: Turn, heard: list[Turn] = heard) -> None:
            heard.append(turn)
            told.append((plan.id, turn.index, dict(turn.rewards)))

        plan = MatchPlan(identity=MatchId(1, 0), game="beats", options={}, seed=1, seats=seats)
        players: dict[str, SeatedPlayer] = {"a": LinePlayer(), "b": LinePlayer()}
        record = asyncio.run(play_match(plan, ScriptedPayGame(pays, 2), players, Limits(), keep, on_turn))
        assert told == [("0001-0000", 0, {"own": 1.0}), ("0001-0000", 1, {})], "before later rewards are known"
        assert heard[0].rewards == {"own": 1.0}, "a turn never changes"
        if not keep:
            assert record.turns == ()
            continue
        assert record.turns == (heard[0]._replace(rewards={"own": 1.0, "late": 2.0}), heard[1])


def test_a_step_that_blocks_lets_others_go_on_with_the_same_transcript() -> None:
    together = Barrier(2, timeout=60)

    class Blocking(ScriptedPayGame):
        """Every step waits until the other match is at a step, too."""

        blocks = True

        def play(self, seat: str, act: str) -> str:
            together.wait()
            return super().play(seat, act)

    seats = {seat: Seating("r", "p", 0, False, "brain") for seat in "ab"}
    plans = [MatchPlan(identity=MatchId(1, i), game="beats", options={}, seed=i, seats=seats) for i in range(2)]
    pays: Pays = {0: [("a", "own", 1.0)], 2: [("b", "late", 2.0)]}

    async def both(kind: type[ScriptedPayGame]) -> list[MatchRecord]:
        lines: list[dict[str, SeatedPlayer]] = [{"a": LinePlayer("x", "y"), "b": LinePlayer("z")} for _ in plans]
        return await asyncio.gather(
            *(play_match(plan, kind(pays), who, Limits()) for plan, who in zip(plans, lines, strict=True))
        )

    def timeless(records: list[MatchRecord]) -> list[Any]:
        return [[turn._replace(seconds=0.0) for turn in record.turns] for record in records]

    waited = asyncio.run(both(Blocking))
    assert [record.reason for record in waited] == ["", ""]
    assert timeless(waited) == timeless(asyncio.run(both(ScriptedPayGame)))


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


def test_a_record_tells_the_whole_match() -> None:
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


def test_a_player_sees_only_what_the_game_tells_its_seat() -> None:
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
def test_a_match_over_its_limits_is_called_off_with_the_reason(limits: Limits, reason: str, turns: int) -> None:
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


class Unpayable(ScriptedPayGame):
    """Gives what no log can hold, by one of its methods."""

    def __init__(self, where: str, value: Any) -> None:
        super().__init__({0: [("a", "gold", 1.0)]})
        self.where, self.value = where, value

    def play(self, seat: str, act: str) -> str:
        if self.where == "pay":
            self.pay(seat, "gold", self.value)
        return super().play(seat, act)

    def step(self, action: str | None) -> None:
        super().step(action)
        if self.where == "infos":
            self.infos["b"]["rewards"]["gold"] = self.value

    def payoffs(self) -> dict[str, float]:
        return super().payoffs() | ({"b": self.value} if self.where == "payoffs" else {})

    def figures(self) -> dict[str, float | bool | str]:
        return {"ratio": self.value} if self.where == "figures" else {}


@pytest.mark.parametrize("value", [float("nan"), np.float32("inf"), 10**400], ids=["nan", "inf", "huge"])
@pytest.mark.parametrize("where", ["pay", "infos", "payoffs", "figures"])
def test_a_number_that_no_log_can_hold_fails_its_match_and_names_the_games_line(where: str, value: Any) -> None:
    record = play_game(Unpayable(where, value))
    assert record.status == "failed" and not record.payoffs
    assert MatchRecord.from_json(record.to_json()) == record
    assert record.failure and record.failure.kind == "game"
    if where != "pay" or not isinstance(value, int):
        assert any(word in record.reason for word in ("gold", "payoff of b", "ratio")), record.reason
    path, _, line = record.failure.where.partition(", line ")
    assert path.endswith("test_match.py") and line.isdigit(), record.failure.where


def test_rewards_that_add_up_to_infinity_fail_the_match() -> None:
    pays: Pays = {0: [("b", "gold", 1e308)], 1: [("b", "gold", 1e308)], 2: [("b", "gold", 1e308)]}
    record = play_game(ScriptedPayGame(pays))
    assert record.status == "failed" and "gold" in record.reason
    assert MatchRecord.from_json(record.to_json()) == record


def test_what_is_played_is_what_is_logged() -> None:
    """Lone surrogates, which no file holds, are replaced before the game and the other seats read them."""
    heard: list[str] = []

    class Listening(ScriptedPayGame):
        """Keeps the acts that it was given, and tells half of a character."""

        whole_acts = True

        def play(self, seat: str, act: str) -> str:
            heard.append(act)
            self.tell("half \udc80")
            return super().play(seat, act)

    b = LinePlayer("plain")
    record = play_game(Listening(length=2), {"a": LinePlayer("x\ud800y | \udfff"), "b": b})
    assert MatchRecord.from_json(record.to_json()) == record
    assert record.turns[0].action == "x\ufffdy | \ufffd" and heard[0] == record.turns[0].action
    assert b.views[0].messages == record.turns[1].messages
    assert record.turns[1].messages[1].text == "half \ufffd"
    assert find_difference(ForkPoint(record, 1, "another"), Listening(length=2)) == "", (
        "the log's acts give the same match"
    )


def test_a_player_that_raises_fails_its_match_only() -> None:
    record = play_game(ScriptedPayGame(), {"a": LinePlayer(), "b": LinePlayer(fails=True)})
    assert (record.status, record.reason) == ("failed", "LookupError: lost the thread")
    assert [turn.seat for turn in record.turns] == ["a"]


def test_a_cancelled_match_is_cancelled() -> None:
    async def cancelled() -> None:
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

    asyncio.run(cancelled())


def test_the_same_seed_and_replies_give_the_same_match() -> None:
    def once() -> dict[str, Any]:
        players = {seat: ScriptedPlayer(SCRIPTED["random"](i)) for i, seat in enumerate(Negotiation.seats)}
        row = play_game(Negotiation(), players, seed=77).to_json()
        row.update(started="", seconds=0.0, turns=[{**t, "seconds": 0.0} for t in row["turns"]])
        return row

    assert once() == once()


class Leaving(ScriptedPayGame):
    """Seat a leaves after its first act; b goes on alone. The dead are counted as they step."""

    dead_steps = 0

    def step(self, action: str | None) -> None:
        self.dead_steps += action is None
        super().step(action)
        if not self.ended and self.turns == 1 and "a" in self.agents:
            self.terminations["a"] = True
            self._deads_step_first()

    def next_seat(self, seat: str) -> str:
        return "b"


def test_who_leaves_early_is_stepped_out_and_the_others_go_on() -> None:
    game = Leaving(length=3)
    record = play_game(game)
    assert [turn.seat for turn in record.turns] == ["a", "b", "b"] and record.status == "finished"
    assert game.dead_steps == 1, "once the match is over for all, nobody is stepped any more"


def test_a_record_of_the_outcome_alone_has_the_same_outcome() -> None:
    pays: Pays = {0: [("a", "own", 1.0)], 3: [("b", "late", 0.5)]}
    plan = MatchPlan(
        identity=MatchId(0, 0),
        game="beats",
        options={},
        seed=1,
        seats={s: Seating(s, "p", 0, False, "brain") for s in "ab"},
    )
    whole, bare = (
        asyncio.run(
            play_match(plan, ScriptedPayGame(pays), {"a": LinePlayer(), "b": LinePlayer()}, Limits(), keep_turns=keep)
        )
        for keep in (True, False)
    )
    assert (bare.payoffs, bare.report, bare.seats) == (whole.payoffs, whole.report, whole.seats)
    assert len(whole.turns) == 4 and (bare.turns, bare.streams) == ((), {})
    assert bare.seats["a"].version == 5 and plan.seats["a"].version == 0
