"""Forks: they replay the log up to the fork point, and then have the exact counterfactual values."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import games
from agents.players.servers import Endpoints
from agents.players.solved import ALPHA, kuhn_strategy
from arena.cli.loop import wait
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.errors import ConfigError, PlayError, StoreError
from arena.evaluate.fork import fork
from arena.evaluate.specs import ContenderLoader
from arena.play.contenders import ScriptedContender, play_one
from arena.play.joining import ForkPoint, JoiningContender
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord
from arena.statistics import ANY, mean_ci
from arena.store.reader import RunReader
from arena.store.run import RunFolder
from games.contracts import Act, Game, MatchId, Message, View
from games.kuhn_poker import KuhnPoker
from tests.factories.commands import arena, get_refusal
from tests.factories.kept_run import SHARED
from tests.factories.matches import play_scripted
from tests.factories.server import Server, make_completion, reply_with

N = 200


def write_run(folder: Path, *records: MatchRecord) -> Path:
    """Write a run with these matches in its log."""
    run = RunFolder.create(folder, to_yaml(compose([text_layer("test", SHARED)])), {})
    run.log.extend(records)
    run.log.seal(1)
    return folder


# -- against exact play ------------------------------------------------------------------------------------

Chances = Callable[[Any], list[tuple[int, float]]]


def uniform_policy(state: Any) -> list[tuple[int, float]]:
    legal = state.legal_actions()
    return [(action, 1 / len(legal)) for action in legal]


def nash_policy(state: Any) -> list[tuple[int, float]]:
    return list(kuhn_strategy(ALPHA)[state.information_state_string()])


def compute_value(state: Any, players: list[Chances]) -> float:
    """Return the first seat's expected payoff from this state."""
    if state.is_terminal():
        return float(state.returns()[0])
    return sum(p * compute_value(state.child(action), players) for action, p in players[state.current_player()](state))


@pytest.mark.slow
def test_kuhn_poker_forks_have_the_exact_counterfactual_values(tmp_path: Path) -> None:
    """With another player at either seat or another act, 95 % intervals contain 95 % of the exact values."""
    records = [play_scripted("kuhn_poker", seed, {"first": "random", "second": "random"}) for seed in range(8)]
    run, missed, checks = write_run(tmp_path / "run", *records), 0, 0
    assert {len(record.turns) for record in records} == {2, 3}
    for record in records:
        game = KuhnPoker()
        game.reset(seed=record.seed)
        for turn in record.turns:
            state, other_act = game.state.clone(), "BET" if turn.action == "PASS" else "PASS"
            is_unchanged_checked = False
            cases: list[tuple[dict[str, str], str, float]] = [
                ({"first": "nash"}, "", compute_value(state, [nash_policy, uniform_policy])),
                ({"second": "nash"}, "", compute_value(state, [uniform_policy, nash_policy])),
                (
                    {},
                    other_act,
                    compute_value(state.child(game.word(0) != other_act), [uniform_policy, uniform_policy]),
                ),
                (
                    {"first": "nash", "second": "nash"},
                    other_act,
                    compute_value(state.child(game.word(0) != other_act), [nash_policy, nash_policy]),
                ),
            ]
            for others, act, exact in cases:
                forked = wait(fork(run, record.id, turn.index, others, act, n=N))
                unchanged = compute_value(state, [uniform_policy, uniform_policy])
                comparisons = [(forked.forked, exact)] + [(forked.unchanged, unchanged)] * (not is_unchanged_checked)
                is_unchanged_checked = True  # the replays without a change are the same each time
                for arm, known in comparisons:
                    values = arm["payoff first"]
                    assert len(values) == N
                    wide, narrow = mean_ci(values, ANY, 0.9999), forked.mean(arm, "payoff first")
                    assert wide.low - 1e-9 <= known <= wide.high + 1e-9, (record.id, turn.index, others, act)
                    missed += not narrow.low - 1e-9 <= known <= narrow.high + 1e-9
                    checks += 1
                difference = forked.difference("payoff first")
                assert abs(difference.estimate - (exact - unchanged)) < 0.6
            game.step(turn.action)
    assert checks > 80 and missed <= 0.09 * checks


def test_forks_are_deterministic_and_extend_with_n(tmp_path: Path) -> None:
    record = play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"})
    run = write_run(tmp_path / "run", record)
    first, second, longer = (
        wait(fork(run, record.id, 0, {"second": "nash"}, n=n)).forked["payoff first"] for n in (20, 20, 30)
    )
    assert first == second == longer[:20] and len(set(first)) > 1


# -- what is replayed --------------------------------------------------------------------------------------


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("game", "scripted", "others"),
    [
        ("desk", {"agent": "oracle"}, {"agent": "noop"}),
        ("clinic", {"doctor": "asker"}, {"doctor": "random_asker"}),
        ("tic_tac_toe", {"first": "mcts:20", "second": "minimax"}, {"first": "random"}),
        ("negotiation", {"opener": "rubinstein", "responder": "exploiter:random"}, {"responder": "rubinstein"}),
    ],
)
def test_games_and_simulators_can_be_forked_at_every_turn(
    tmp_path: Path, game: str, scripted: dict[str, str], others: dict[str, str]
) -> None:
    seats = games.make(game).possible_agents
    scripted = scripted if set(scripted) == set(seats) else dict(zip(seats, scripted.values(), strict=False))
    others = {seat if seat in seats else seats[0]: who for seat, who in others.items()}
    record = play_scripted(game, 5, scripted)
    assert record.status == "finished" and len(record.turns) > 2, record.reason
    run = write_run(tmp_path / "run", record)
    for turn in record.turns:
        forked = wait(fork(run, record.id, turn.index, others, n=3))
        assert not forked.failed and len(forked.forked[f"payoff {seats[0]}"]) == 3
    last = wait(fork(run, record.id, len(record.turns) - 1, act=record.turns[-1].action, n=2))
    figures = {name: values[0] for name, values in last.forked.items()}
    assert {name: last.logged[name] for name in figures} == figures, "the last act again: the same end"


def test_unreplayable_log_is_refused(tmp_path: Path) -> None:
    record = play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"})
    other_message = record.turns[1]._replace(messages=(Message.of("first", "RAISE"),))
    other_seat = record.turns[1]._replace(seat="first")
    later_turn = record.turns[0]._replace(index=len(record.turns))
    run = write_run(
        tmp_path / "run",
        replace(record, identity=MatchId(1, 1), turns=(record.turns[0], other_message, *record.turns[2:])),
        replace(record, identity=MatchId(1, 2), turns=(record.turns[0], other_seat, *record.turns[2:]), rules=9),
        replace(record, identity=MatchId(1, 3), turns=(*record.turns, later_turn)),
    )
    for match, turn, line in (
        ("0001-0001", 1, "0001-0001 cannot be forked: at turn 2 second now sees something else than it did"),
        ("0001-0002", 1, "0001-0002 cannot be forked: turn 2 is now second's, not first's (rules 9 then, 1 now)"),
        ("0001-0003", len(record.turns), "0001-0003 cannot be forked: the game now ends before turn"),
    ):
        with pytest.raises(ConfigError) as error:
            wait(fork(run, match, turn, act="PASS"))
        assert str(error.value).startswith(line)


def test_joining_model_has_the_logged_ids(uninterrupted_run: Path) -> None:
    """Its stream equals the logged one up to its first new reply; no log-probabilities are recomputed."""
    reader = RunReader(uninterrupted_run)
    record = next(
        record
        for record in map(MatchRecord.from_json, reader.matches())
        if record.status == "finished" and len(record.turns) >= 3 and record.seats["opener"].trained
    )
    last = [turn.index for turn in record.turns if turn.seat == record.turns[0].seat][-1]
    (contender,) = wait(ContenderLoader().load(f"{uninterrupted_run}:shared"))
    fork_point = ForkPoint(record, last)
    plan = MatchPlan(
        identity=record.identity,
        game=record.game,
        options=record.options,
        seed=record.seed,
        seats=record.seats,
        draws=(1,),
    )
    replayed = asyncio.run(
        play_one(plan, dict.fromkeys(record.seats, JoiningContender(contender, fork_point)), 0, Limits())
    )
    assert replayed.status == "finished" and replayed.turns[:last] == tuple(
        turn._replace(seconds=new_stream.seconds, rewards=new_stream.rewards)
        for turn, new_stream in zip(record.turns[:last], replayed.turns, strict=False)
    )
    (logged_stream,), (new_stream,) = record.streams[record.turns[last].seat], replayed.streams[record.turns[last].seat]
    fork_index = logged_stream.turns.index(last)
    for field in ("ids", "mask", "logprobs", "turns"):
        assert getattr(new_stream, field)[:fork_index] == getattr(logged_stream, field)[:fork_index], field


def test_fork_marks_the_replaced_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, records = play_long_match(), list[MatchRecord]()

    async def record_match(*arguments: Any) -> MatchRecord:
        records.append(await play_one(*arguments))
        return records[-1]

    monkeypatch.setattr("arena.evaluate.fork.play_one", record_match)
    other_act = "BET" if record.turns[1].action == "PASS" else "PASS"
    wait(fork(write_run(tmp_path / "run", record), record.id, 1, act=other_act, n=2))
    assert [r.source for r in records] == ["branched", "branched", "patched", "patched"]
    for forked in records:
        sources = [turn.source for turn in forked.turns]
        assert sources == [
            "policy",
            "patch" if forked.source == "patched" else "policy",
            *["policy"] * (len(sources) - 2),
        ]
        assert forked.source == "branched" or forked.turns[1].action == other_act
    for seat in ("first", "second"):
        wait(fork(tmp_path / "run", record.id, 1, {seat: "nash"}, n=1))
    assert {r.source for r in records[4:]} == {"branched"}, "another player at a seat is no patch"


def play_long_match() -> MatchRecord:
    """Return a match in which the first seat moves twice."""
    records = (play_scripted("kuhn_poker", seed, {"first": "random", "second": "random"}) for seed in range(20))
    return next(record for record in records if len(record.turns) == 3)


def test_joining_endpoint_receives_the_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = play_long_match()
    last = [turn for turn in record.turns if turn.seat == "first"][-1]
    run = write_run(tmp_path / "run", record)
    (tmp_path / "recalls.yaml").write_text('role: recalls\nsystem: ""\nturn: your act?\nreply: {format: free}\n')
    with Server(reply_with(make_completion("BET"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        loader = ContenderLoader(role=str(tmp_path / "recalls.yaml"), endpoints=Endpoints({}))
        forked = wait(fork(run, record.id, last.index, {"first": "endpoint:tester"}, n=2, loader=loader))
        assert len(forked.forked["payoff first"]) == 2 and len(server.requests) == 2, "the past is not asked again"
        chat = server.requests[-1][2]["messages"]
    assert last.index == 2 and [m["content"] for m in chat if m["role"] == "assistant"][-1] == record.turns[0].action


def test_joining_contender_uses_the_runs_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"}))
    with Server(reply_with(make_completion("BET"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        wait(fork(run, "0001-0003", 0, {"first": "endpoint:tester"}, n=1))
        chat = server.requests[-1][2]["messages"]
    assert not any("PLAY 4" in message["content"] for message in chat), "those are the examples of the role player"


def test_failure_reason_is_reported_if_no_fork_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"}))
    with Server(reply_with({"error": {"message": "out of order"}}, 400)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with pytest.raises(PlayError, match=r"no fork of 0001-0003 was finished: .*out of order"):
            wait(fork(run, "0001-0003", 0, {"first": "endpoint:tester"}, n=2))


def test_forks_failed_in_one_arm_are_dropped_from_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork 0 fails unchanged and fork 2 fails changed; in forks 1 and 3 the changed arm gets 1 more."""
    failed, payoffs = (
        {"0000-0000", "0001-0002"},
        {f"{arm:04d}-{i:04d}": 10.0 * i + arm for arm in (0, 1) for i in range(4)},
    )

    async def make_outcome(plan: MatchPlan, *_: Any) -> MatchRecord:
        result = replace(record, identity=plan.identity, payoffs={"first": payoffs[plan.id[:9]], "second": 0.0})
        return replace(result, status="failed", reason="out of order") if plan.id[:9] in failed else result

    record = play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"})
    run = write_run(tmp_path / "run", record)
    monkeypatch.setattr("arena.evaluate.fork.play_one", make_outcome)
    forked = wait(fork(run, record.id, 0, {"first": "random"}, n=4))
    assert forked.unchanged["payoff first"] == [10.0, 30.0] and forked.forked["payoff first"] == [11.0, 31.0]
    assert forked.difference("payoff first") == (1.0, 1.0, 1.0)


def test_human_plays_forks_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Patient(ScriptedContender):
        def check(self, name: str, game: Game, seat: str) -> None:
            pass

    limits: list[int] = []

    async def play_none(plans: Any, one: Any, ended: Any, limit: int) -> Counter[str]:
        limits.append(limit)
        return Counter()

    monkeypatch.setattr("arena.evaluate.fork.play_counting_failures", play_none)
    record = play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"})
    run = write_run(tmp_path / "run", record)
    for who in ("human", "random"):
        with pytest.raises(PlayError, match="no fork"):
            wait(fork(run, record.id, 0, {"first": who}, n=2, person=Patient("human")))
    assert limits == [1, 64]


def test_joining_human_reads_the_past_at_once(tmp_path: Path) -> None:
    class Reader(ScriptedContender):
        def check(self, name: str, game: Game, seat: str) -> None:
            pass

        def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> Any:
            from agents.players.human import Human

            class Reads(Human):
                async def act(self, view: View) -> Act:
                    read.append((view.turn, [message.text for message in view.messages]))
                    return Act("PASS", "PASS", "", "", "script")

            return Reads(None)  # type: ignore[arg-type]

    read: list[tuple[int, list[str]]] = []
    record = play_long_match()
    wait(fork(write_run(tmp_path / "run", record), record.id, 2, {"first": "human"}, n=1, person=Reader("human")))
    assert read == [(2, ["BET"])]


# -- command -----------------------------------------------------------------------------------------------


def test_command_reports_both_arms_and_their_difference(tmp_path: Path) -> None:
    record = play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"})
    run, out = write_run(tmp_path / "run", record), tmp_path / "fork.json"
    arguments = ["fork", run, record.id, "--turn", "1", "--seat", "first=nash", "-n", "50"]
    result = arena(*arguments, "--json", "--out", out)
    data = json.loads(result.out)
    assert result.code == 0 and json.loads(out.read_text()) == data
    assert data["sat"] == {"first": "random", "second": "random"} and data["others"] == {"first": "nash"}
    figure = data["figures"]["payoff first"]
    assert figure["logged"] == record.payoffs["first"] and len(figure["forked"]) == 3
    assert figure["difference"][0] == pytest.approx(figure["forked"][0] - figure["unchanged"][0])
    shown = arena(*arguments).out
    assert shown.startswith(f"{record.id} of kuhn_poker from turn 1 on (first: was {record.turns[0].action})")
    assert "50 forks: first = nash, second = random" in shown and "payoff second" in shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["0001-0003", "--turn", "9", "--act", "BET"], "0001-0003 has turns 1 to"),
        (["0001-0003", "--turn", "1"], "a fork needs a change: another player at a seat, or another act"),
        (["0001-0003", "--turn", "1", "--seat", "frist=nash"], "0001-0003 has no seat 'frist' — did you mean 'first'?"),
        (["0001-0003", "--turn", "1", "--seat", "first=nahs"], "unknown contender 'nahs' — did you mean 'nash'?"),
        (["0001-0003", "--turn", "1", "--seat", "first"], "--seat first: write SEAT=WHO"),
        (["0001-0003", "--turn", "1", "--seat", "first=rubinstein"], "rubinstein plays negotiation, not kuhn_poker"),
        (["0001-0004", "--turn", "1", "--act", "BET"], "{run} has no match '0001-0004' — did you mean '0001-0003'?"),
    ],
)
def test_invalid_fork_gives_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    run = write_run(tmp_path / "run", play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"}))
    assert get_refusal("fork", run, *arguments).startswith(line.format(run=run))


def test_fork_without_a_terminal_refuses_humans(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", play_scripted("kuhn_poker", 3, {"first": "random", "second": "random"}))
    with pytest.raises(ConfigError, match="no person is here to play first"):
        wait(fork(run, "0001-0003", 0, {"first": "human"}))
    with pytest.raises(StoreError, match="has no match"):
        wait(fork(run, "9", 0, act="BET"))
