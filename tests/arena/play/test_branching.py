"""Branched play: token-equal to the match until the branch point, and freely sampled from there on."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agents.engines.base import Completion
from agents.players.completions import Answer
from agents.players.endpoint import Endpoint
from agents.players.spend import EndpointSpec
from agents.role import load_role
from agents.stream import Stream
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.credit.branches import find_pairs
from arena.errors import ConfigError
from arena.play.branches import Branch
from arena.play.lineup import Lineup
from arena.play.match import MatchPlan
from arena.records import MatchRecord, trajectories
from games.contracts import MatchId, Message, View
from tests.factories.babble import NoPastVersions, RandomTextEngine, drop_times, make_lineup, make_plan
from tests.factories.rollout_parts import expand_with, make_part, plan_with
from tests.factories.server import Server, make_completion, reply_with

BOTH = {"opener": "p", "responder": "p"}
NEGOTIATION: dict[str, Any] = {"illegal": "retry", "max_turns": 6}
WINDOW = """\
role: forgetful
system: "{{ seat }}"
turn: "{% for m in messages %}{{ m.text }} {% endfor %}"
memory: {kind: window, turns: 1}
sampling: {max_tokens: 8}
"""


def play_plan(table: Lineup, planned: MatchPlan) -> MatchRecord:
    return asyncio.run(table.play(planned, NoPastVersions()))  # type: ignore[arg-type]


def play_long_match(table: Lineup, holders: dict[str, str], least: int = 4) -> tuple[MatchPlan, MatchRecord]:
    """Return the first match of at least `least` turns, and its plan."""
    for number in range(100):
        planned = make_plan(table, holders, number)
        record = play_plan(table, planned)
        if record.status == "finished" and len(record.turns) >= least:
            return planned, record
    raise AssertionError("all matches are short")


def list_tokens(record: MatchRecord, seat: str) -> list[tuple[int, bool, float, int]]:
    return [token for s in record.streams[seat] for token in zip(s.ids, s.mask, s.logprobs, s.turns, strict=True)]


def list_tokens_before(record: MatchRecord, seat: str, turn: int) -> list[tuple[int, bool, float, int]]:
    """Return the seat's tokens before `turn`.

    These end with its last earlier token, or before the reply if the seat takes the turn.
    """
    found = list_tokens(record, seat)
    own = [i for i, (_, sampled, _, when) in enumerate(found) if sampled and when < turn]
    here = [i for i, (_, _, _, when) in enumerate(found) if when == turn]
    return found[: here[0] if here else own[-1] + 1 if own else 0]


@pytest.fixture(scope="module")
def window_role(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("roles") / "forgetful.yaml"
    file.write_text(WINDOW)
    return str(file)


@pytest.mark.parametrize("responder", ["p", "q", "random", "exploiter:conceder"])
@pytest.mark.parametrize("memory", ["all", "window"])
def test_branch_equals_its_match_until_they_part(responder: str, memory: str, window_role: str) -> None:
    holders = {"opener": "p", "responder": responder}
    table = make_lineup(
        "negotiation", holders, dict.fromkeys(holders, window_role) if memory == "window" else None, **NEGOTIATION
    )
    planned, record = play_long_match(table, holders)
    new = 0
    for turn in range(len(record.turns)):
        branch = Branch(record, turn)
        engine: Any = RandomTextEngine()
        table = replace(table, engine=engine)
        again = play_plan(table, replace(planned, identity=branch.identity, branch=branch))
        assert again.status == "finished", again.reason
        assert (again.id, again.seed) == (f"{record.id}-b{turn}", record.seed)
        for old, now in zip(record.turns[:turn], again.turns, strict=False):
            assert old._replace(seconds=0.0, rewards={}) == now._replace(seconds=0.0, rewards={})
        assert again.turns[turn].messages == record.turns[turn].messages
        for seat in record.streams:
            assert list_tokens_before(again, seat, turn) == list_tokens_before(record, seat, turn)
        assert all(request.seed[-1] >= turn for request in engine.requests), "known replies are not sampled again"
        new += again.turns[turn].raw != record.turns[turn].raw
    assert new > 1 or responder != "p", "replies are drawn anew from the branch point on"


class RepeatingBranch(Branch):
    """Branch whose first new reply is that of the match."""

    def replies(self, seat: str) -> dict[int, Completion]:
        return Branch(self.match, self.turn + 1).replies(seat)


@pytest.mark.parametrize("script", ["random", "exploiter:conceder"])
def test_scripted_player_continues_as_in_the_match(script: str) -> None:
    """It is asked again from the start, so a branch after its last turn has all its acts."""
    holders = {"opener": "p", "responder": script}
    table = make_lineup("negotiation", holders, **NEGOTIATION)
    planned, record = play_long_match(table, holders)
    turn = max(t.index for t in record.turns if t.seat == "opener")
    again = play_plan(table, replace(planned, branch=RepeatingBranch(record, turn)))
    assert drop_times(again) == drop_times(record)


def test_games_of_chance_are_dealt_again(window_role: str) -> None:
    holders = {"first": "p", "second": "p"}
    table = make_lineup("kuhn_poker", holders, dict.fromkeys(holders, window_role), illegal="retry")
    planned, record = play_long_match(table, holders, 3)
    again = play_plan(table, replace(planned, identity=record.identity.branch(2), branch=Branch(record, 2)))
    assert again.status == "finished", again.reason
    assert again.turns[2].messages == record.turns[2].messages


def test_replayed_branch_draws_the_same() -> None:
    table = make_lineup("negotiation", BOTH, **NEGOTIATION)
    planned, record = play_long_match(table, BOTH)
    branch = Branch(record, 0)
    tries = [
        drop_times(
            play_plan(table, replace(planned, identity=replace(branch.identity, attempt=attempt), branch=branch))
        )
        for attempt in range(3)
    ]
    assert len({str(row["turns"]) for row in tries}) == 1


def test_branch_that_deviates_from_its_match_fails() -> None:
    table = make_lineup("negotiation", BOTH, **NEGOTIATION)
    planned, record = play_long_match(table, BOTH)
    other = list(record.turns)
    other[1] = other[1]._replace(messages=(Message.of("opener", "something else"),))
    again = play_plan(table, replace(planned, branch=Branch(replace(record, turns=tuple(other)), 2)))
    assert (again.status, again.payoffs, again.report) == ("failed", {}, {})
    assert again.reason.startswith(f"turn 1 differs from that of {record.id}")
    assert (
        Branch(record, 2).find_difference(replace(record, turns=record.turns[:2])).startswith("it ended before turn 2")
    )
    assert Branch(record, 2).find_difference(record) == ""
    seat = record.turns[2].seat
    (stream,) = record.streams[seat]
    shown = Stream([*stream.ids], stream.mask, stream.logprobs, stream.turns)
    shown.ids[1] += 1
    changed = replace(record, streams={**record.streams, seat: (shown,)})
    assert "differs from that of" in Branch(record, 2).find_difference(changed), (
        "also what no message tells is compared"
    )


def test_endpoint_repeats_known_replies_without_a_request() -> None:
    facts = {"pool": [1, 2, 3]}
    views = [View("opener", turn, (), "", facts, {"values": [1, 2, 3]}, None) for turn in (0, 2)]
    with Server(reply_with(make_completion("ACCEPT", usage=(10, 2)))) as server:
        endpoint = Endpoint(EndpointSpec(url=server.url))
        player = endpoint.player("m", load_role("nano_opener"), 1, {0: Answer("OFFER 1 0 0", "stop", 4)})
        first, second = (asyncio.run(player.act(view)) for view in views)
    assert (first.raw, first.tokens, second.raw) == ("OFFER 1 0 0", 4, "ACCEPT")
    ((_, _, body),) = server.requests
    assert [m["content"] for m in body["messages"] if m["role"] == "assistant"] == ["OFFER 1 0 0"]


# -- which branches are played -----------------------------------------------------------------------------


def make_experiment(**play: Any) -> Experiment:
    lines = [f"{name}: {value}" for name, value in play.items()]
    return compose([text_layer("test", CONFIG + f"play: {{{', '.join(lines)}}}\n")])


CONFIG = """\
name: few
iterations: 1
game: {name: negotiation}
policies: {p: {model: nano}, old: {model: nano, train: false}}
seats: {opener: {role: nano_opener, policy: p}, responder: {role: nano_responder, policy: old}}
"""


def play_matches() -> tuple[list[MatchPlan], list[MatchRecord]]:
    holders = {"opener": "p", "responder": "q"}
    table = make_lineup("negotiation", holders, **NEGOTIATION)
    plans = [make_plan(table, holders, number) for number in range(40)]
    return plans, [play_plan(table, each) for each in plans]


def plan_branches(plans: list[MatchPlan], records: list[MatchRecord], **settings: Any) -> list[MatchPlan]:
    part = make_part("branches", **settings)
    assert plan_with(part, plans) == plans
    return expand_with(part, records)


def train_opener_only(record: MatchRecord) -> MatchRecord:
    return replace(record, seats={s: replace(seating, trained=s == "opener") for s, seating in record.seats.items()})


def test_branches_part_at_different_turns_of_learners_drawn_uniformly() -> None:
    plans, records = play_matches()
    records = [train_opener_only(record) for record in records]
    found = plan_branches(plans, records, count=2)
    places: list[int] = []
    for record in records:
        branches = [p.branch for p in found if p.branch and p.branch.match is record]
        own = [turn.index for turn in record.turns if turn.seat == "opener"]
        assert len(branches) == min(2, len(own)) and {b.turn for b in branches} <= set(own)
        assert len({b.turn for b in branches}) == len(branches)
        places += [own.index(b.turn) for b in branches if len(own) == 3]
    assert {p.id for p in found} == {f"{p.branch.match.id}-b{p.branch.turn}" for p in found if p.branch}
    assert set(places) == {0, 1, 2}, "every turn can be drawn"
    assert plan_branches(plans, records, count=2) == found, "a restart plans the same"


def test_retried_match_is_branched_by_its_own_plan() -> None:
    plans, records = play_matches()
    retried = replace(records[0], identity=replace(plans[0].identity, attempt=2))
    (first, *_) = plan_branches(plans, [retried])
    assert first.branch and first.id == f"{plans[0].id}-r2-b{first.branch.turn}"
    assert (first.seed, first.identity.attempt, first.seats) == (plans[0].seed, 0, plans[0].seats)


def test_matches_of_one_deal_have_independent_draws() -> None:
    """Branches have other draws, too: (member, turn) and (member,) are different seeds."""
    table = make_lineup("negotiation", BOTH, **NEGOTIATION)
    first, second = (make_plan(table, BOTH, draws=(i,)) for i in (0, 1))
    engine: Any = table.engine
    record = play_plan(table, first)
    play_plan(table, second)
    play_plan(table, replace(first, identity=record.identity.branch(0), branch=Branch(record, 0)))
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)


# -- pairs -------------------------------------------------------------------------------------------------


def test_pairs_are_the_replies_where_matches_part() -> None:
    table = make_lineup("negotiation", BOTH, **NEGOTIATION)
    planned, record = play_long_match(table, BOTH)
    branches = [Branch(record, turn) for turn in (1, 2)]
    others = [play_plan(table, replace(planned, identity=branch.identity, branch=branch)) for branch in branches]
    found = [t for r in (others[1], record, others[0]) for t in trajectories(r)]
    named = {(t.match, t.seat): i for i, t in enumerate(found)}
    for pair in find_pairs(found):
        (first, two), place = (found[pair.first], found[pair.second]), pair.place
        match, turn = two.parent, two.parent_turn
        assert (first.match, first.seat) == (match, two.seat) == (record.id, record.turns[turn].seat)
        assert first.turns[place].index == two.turns[place].index == turn
        assert first.turns[place].raw != two.turns[place].raw
    expected = {
        (named[record.id, record.turns[turn].seat], named[second.id, record.turns[turn].seat])
        for turn, second in zip((1, 2), others, strict=True)
        if second.turns[turn].raw != record.turns[turn].raw
    }
    assert {pair[:2] for pair in find_pairs(found)} == expected and expected


def test_identical_replies_and_branches_without_parent_are_no_pairs() -> None:
    table = make_lineup("negotiation", BOTH, **NEGOTIATION)
    _, record = play_long_match(table, BOTH)
    twin = replace(record, identity=record.identity.branch(1))
    alone = replace(record, identity=MatchId(1, 777).branch(1))
    assert list(find_pairs([*trajectories(record), *trajectories(twin)])) == []
    assert list(find_pairs(trajectories(alone))) == []
    seat = record.turns[1].seat
    (stream,) = record.streams[seat]
    other = Stream([i + (t == 1) for i, t in zip(stream.ids, stream.turns, strict=True)], stream.mask, stream.logprobs,
                   stream.turns)  # fmt: skip
    changed = replace(twin, streams={**twin.streams, seat: (other,)})
    assert [pair.place for pair in find_pairs([*trajectories(record), *trajectories(changed)])] == [0]


def test_branches_can_start_at_the_last_turn() -> None:
    plans, records = play_matches()
    records = [train_opener_only(record) for record in records]
    found = plan_branches(plans, records, at="last")
    ends = [max(turn.index for turn in record.turns if turn.seat == "opener") for record in records]
    assert [plan.branch.turn for plan in found if plan.branch] == ends
    with pytest.raises(ConfigError, match="at: last` is one branch of each match"):
        make_experiment(parts=[{"branches": {"count": 2, "at": "last"}}])
