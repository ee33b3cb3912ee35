"""Branched play: the same match until the parting, token for token, and a free one from there on."""

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


def play(on: Lineup, of: MatchPlan) -> MatchRecord:
    return asyncio.run(on.play(of, NoPastVersions()))  # type: ignore[arg-type]


def long_match(on: Lineup, holders: dict[str, str], least: int = 4) -> tuple[MatchPlan, MatchRecord]:
    """The first match of at least so many turns."""
    for number in range(100):
        planned = make_plan(on, holders, number)
        record = play(on, planned)
        if record.status == "finished" and len(record.turns) >= least:
            return planned, record
    raise AssertionError("all matches are short")


def tokens(record: MatchRecord, seat: str) -> list[tuple[int, bool, float, int]]:
    return [token for s in record.streams[seat] for token in zip(s.ids, s.mask, s.logprobs, s.turns, strict=True)]


def before(record: MatchRecord, seat: str, turn: int) -> list[tuple[int, bool, float, int]]:
    """The seat's tokens up to its last one of an earlier turn; up to the reply itself for the seat that takes it."""
    found = tokens(record, seat)
    own = [i for i, (_, sampled, _, when) in enumerate(found) if sampled and when < turn]
    here = [i for i, (_, _, _, when) in enumerate(found) if when == turn]
    return found[: here[0] if here else own[-1] + 1 if own else 0]


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("roles") / "forgetful.yaml"
    file.write_text(WINDOW)
    return str(file)


@pytest.mark.parametrize("responder", ["p", "q", "random", "exploiter:conceder"])
@pytest.mark.parametrize("memory", ["all", "window"])
def test_a_branch_is_its_match_until_they_part(responder: str, memory: str, forgetful: str) -> None:
    holders = {"opener": "p", "responder": responder}
    on = make_lineup(
        "negotiation", holders, dict.fromkeys(holders, forgetful) if memory == "window" else None, **NEGOTIATION
    )
    planned, record = long_match(on, holders)
    new = 0
    for turn in range(len(record.turns)):
        branch = Branch(record, turn)
        engine: Any = RandomTextEngine()
        on = replace(on, engine=engine)
        again = play(on, replace(planned, identity=branch.identity, branch=branch))
        assert again.status == "finished", again.reason
        assert (again.id, again.seed) == (f"{record.id}-b{turn}", record.seed)
        for old, now in zip(record.turns[:turn], again.turns, strict=False):
            assert old._replace(seconds=0.0, rewards={}) == now._replace(seconds=0.0, rewards={})
        assert again.turns[turn].messages == record.turns[turn].messages
        for seat in record.streams:
            assert before(again, seat, turn) == before(record, seat, turn)
        assert all(request.seed[-1] >= turn for request in engine.requests), "nobody was asked for what is known"
        new += again.turns[turn].raw != record.turns[turn].raw
    assert new > 1 or responder != "p", "fresh draws from the parting on"


class Same(Branch):
    """A branch whose first new answer is that of the match."""

    def replies(self, seat: str) -> dict[int, Completion]:
        return Branch(self.match, self.turn + 1).replies(seat)


@pytest.mark.parametrize("script", ["random", "exploiter:conceder"])
def test_a_brain_goes_on_as_in_the_match(script: str) -> None:
    """It was asked again, so it is in the state it was in: a branch after its last turn has all its acts."""
    holders = {"opener": "p", "responder": script}
    on = make_lineup("negotiation", holders, **NEGOTIATION)
    planned, record = long_match(on, holders)
    turn = max(t.index for t in record.turns if t.seat == "opener")
    again = play(on, replace(planned, branch=Same(record, turn)))
    assert drop_times(again) == drop_times(record)


def test_games_of_chance_are_dealt_again(forgetful: str) -> None:
    holders = {"first": "p", "second": "p"}
    on = make_lineup("kuhn_poker", holders, dict.fromkeys(holders, forgetful), illegal="retry")
    planned, record = long_match(on, holders, 3)
    again = play(on, replace(planned, identity=record.identity.branch(2), branch=Branch(record, 2)))
    assert again.status == "finished", again.reason
    assert again.turns[2].messages == record.turns[2].messages


def test_a_replay_of_a_branch_draws_the_same_again() -> None:
    on = make_lineup("negotiation", BOTH, **NEGOTIATION)
    planned, record = long_match(on, BOTH)
    branch = Branch(record, 0)
    tries = [
        drop_times(play(on, replace(planned, identity=replace(branch.identity, attempt=attempt), branch=branch)))
        for attempt in range(3)
    ]
    assert len({str(row["turns"]) for row in tries}) == 1


def test_a_match_that_strays_from_what_it_should_repeat_has_failed() -> None:
    on = make_lineup("negotiation", BOTH, **NEGOTIATION)
    planned, record = long_match(on, BOTH)
    other = list(record.turns)
    other[1] = other[1]._replace(messages=(Message.of("opener", "something else"),))
    again = play(on, replace(planned, branch=Branch(replace(record, turns=tuple(other)), 2)))
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


def test_an_endpoint_says_again_what_it_said_and_is_not_asked() -> None:
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


def experiment(**play: Any) -> Experiment:
    lines = [f"{name}: {value}" for name, value in play.items()]
    return compose([text_layer("test", CONFIG + f"play: {{{', '.join(lines)}}}\n")])


CONFIG = """\
name: few
iterations: 1
game: {name: negotiation}
policies: {p: {model: nano}, old: {model: nano, train: false}}
seats: {opener: {role: nano_opener, policy: p}, responder: {role: nano_responder, policy: old}}
"""


def played() -> tuple[list[MatchPlan], list[MatchRecord]]:
    holders = {"opener": "p", "responder": "q"}
    on = make_lineup("negotiation", holders, **NEGOTIATION)
    plans = [make_plan(on, holders, number) for number in range(40)]
    return plans, [play(on, each) for each in plans]


def branched(plans: list[MatchPlan], records: list[MatchRecord], **settings: Any) -> list[MatchPlan]:
    part = make_part("branches", **settings)
    assert plan_with(part, plans) == plans
    return expand_with(part, records)


def only_opener_learns(record: MatchRecord) -> MatchRecord:
    return replace(record, seats={s: replace(its, trained=s == "opener") for s, its in record.seats.items()})


def test_branches_part_at_different_turns_of_learners_drawn_uniformly() -> None:
    plans, records = played()
    records = [only_opener_learns(record) for record in records]
    found = branched(plans, records, count=2)
    places: list[int] = []
    for record in records:
        mine = [p.branch for p in found if p.branch and p.branch.match is record]
        own = [turn.index for turn in record.turns if turn.seat == "opener"]
        assert len(mine) == min(2, len(own)) and {b.turn for b in mine} <= set(own)
        assert len({b.turn for b in mine}) == len(mine)
        places += [own.index(b.turn) for b in mine if len(own) == 3]
    assert {p.id for p in found} == {f"{p.branch.match.id}-b{p.branch.turn}" for p in found if p.branch}
    assert set(places) == {0, 1, 2}, "every turn has its chance"
    assert branched(plans, records, count=2) == found, "the same again after a restart"


def test_a_match_that_was_played_again_is_branched_by_its_own_plan() -> None:
    plans, records = played()
    retried = replace(records[0], identity=replace(plans[0].identity, attempt=2))
    (first, *_) = branched(plans, [retried])
    assert first.branch and first.id == f"{plans[0].id}-r2-b{first.branch.turn}"
    assert (first.seed, first.identity.attempt, first.seats) == (plans[0].seed, 0, plans[0].seats)


def test_matches_of_one_deal_have_draws_of_their_own() -> None:
    """Also none that a branch of another one has: (member, turn) and (member,) are different seeds."""
    on = make_lineup("negotiation", BOTH, **NEGOTIATION)
    first, second = (make_plan(on, BOTH, draws=(i,)) for i in (0, 1))
    engine: Any = on.engine
    record = play(on, first)
    play(on, second)
    play(on, replace(first, identity=record.identity.branch(0), branch=Branch(record, 0)))
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)


# -- pairs -------------------------------------------------------------------------------------------------


def test_pairs_are_the_two_answers_where_matches_part() -> None:
    on = make_lineup("negotiation", BOTH, **NEGOTIATION)
    planned, record = long_match(on, BOTH)
    branches = [Branch(record, turn) for turn in (1, 2)]
    others = [play(on, replace(planned, identity=branch.identity, branch=branch)) for branch in branches]
    found = [t for r in (others[1], record, others[0]) for t in trajectories(r)]
    named = {(t.match, t.seat): i for i, t in enumerate(found)}
    for pair in find_pairs(found):
        (one, two), place = (found[pair.first], found[pair.second]), pair.place
        match, turn = two.parent, two.parent_turn
        assert (one.match, one.seat) == (match, two.seat) == (record.id, record.turns[turn].seat)
        assert one.turns[place].index == two.turns[place].index == turn
        assert one.turns[place].raw != two.turns[place].raw
    expected = {
        (named[record.id, record.turns[turn].seat], named[other.id, record.turns[turn].seat])
        for turn, other in zip((1, 2), others, strict=True)
        if other.turns[turn].raw != record.turns[turn].raw
    }
    assert {pair[:2] for pair in find_pairs(found)} == expected and expected


def test_identical_answers_and_lonely_branches_are_no_pairs() -> None:
    on = make_lineup("negotiation", BOTH, **NEGOTIATION)
    _, record = long_match(on, BOTH)
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


def test_branches_at_the_last_turn_part_at_each_match_s_last_one() -> None:
    plans, records = played()
    records = [only_opener_learns(record) for record in records]
    found = branched(plans, records, at="last")
    ends = [max(turn.index for turn in record.turns if turn.seat == "opener") for record in records]
    assert [plan.branch.turn for plan in found if plan.branch] == ends
    with pytest.raises(ConfigError, match="at: last` is one branch of each match"):
        experiment(parts=[{"branches": {"count": 2, "at": "last"}}])
