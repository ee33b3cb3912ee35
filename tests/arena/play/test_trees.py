"""Trees: choice of branch points, equality of a branch with its match before, and credit of shared turns."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from agents.engines.base import Completion, Request
from arena.cli.show import list_branch_lines
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.branches import find_first_difference, number_copies
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.play.branches import Branch
from arena.play.lineup import Lineup
from arena.play.match import Limits, MatchPlan
from arena.play.orchestrator import play_all
from arena.play.parts.base import Progress
from arena.play.parts.trees import Tree, TreeRule
from arena.records import MatchRecord, trained_trajectories
from games.contracts import MatchId
from tests.factories.babble import FRAME, NoPastVersions, RandomTextEngine, make_lineup, make_plan
from tests.factories.rollout_parts import make_part

BOTH = {"opener": "p", "responder": "p"}
SIZES = dict.fromkeys(("p", "q"), FRAME.vocabulary_size)


class EntropyEngine(RandomTextEngine):
    """Babbler that reports entropies, drawn with its replies."""

    def _complete(self, request: Request) -> Completion:
        completion = super()._complete(request)
        rng = np.random.default_rng([*request.seed, 7])
        return replace(completion, entropy=tuple(rng.uniform(0.0, 9.0, len(completion.ids)).tolist()))


def make_tree_lineup() -> Lineup:
    return replace(make_lineup("negotiation", BOTH, illegal="retry", max_turns=6), engine=EntropyEngine())  # type: ignore[arg-type]


def make_plans(table: Lineup, deals: int = 3, group: int = 6) -> list[list[MatchPlan]]:
    groups = [
        [
            replace(make_plan(table, BOTH, d), identity=MatchId(1, d * group + i), draws=(i,), group=d)
            for i in range(group)
        ]
        for d in range(deals)
    ]
    return groups


def play_tree(table: Lineup, rule: TreeRule, dealt: list[list[MatchPlan]], in_flight: int = 4) -> list[MatchRecord]:
    async def play() -> list[MatchRecord]:
        part, records = make_part("trees", seed=5, **asdict(rule)), list[MatchRecord]()
        plans = await part.plan(1, [make_plan for deal in dealt for make_plan in deal])
        while plans:
            records += await play_all(plans, lambda p: table.play(p, NoPastVersions()), lambda r: None, in_flight)  # type: ignore[arg-type]
            progress = Progress(ended=records, records=records, given_up=[], deals=len(dealt))
            plans = (await part.expand(1, progress)).plans
        return records

    return asyncio.run(play())


def list_texts(records: Sequence[MatchRecord]) -> list[tuple[str, list[str]]]:
    return [(record.id, [turn.raw for turn in record.turns]) for record in records]


ALWAYS = TreeRule(first=2, trigger="random", chance=1.0)


@pytest.mark.parametrize("rule", [ALWAYS, TreeRule(first=2), TreeRule(), TreeRule(first=1, chain=0.05)])
def test_a_tree_has_as_many_matches_as_its_group(rule: TreeRule) -> None:
    records = play_tree(make_tree_lineup(), rule, make_plans(make_tree_lineup()))
    assert Counter(record.group for record in records) == {0: 6, 1: 6, 2: 6}
    assert len({record.id for record in records}) == len(records)
    by_id = {record.id: record for record in records}
    for record in records:
        if (parent := record.identity.parent) is None:
            continue
        original, branch_turn = by_id[str(parent)], record.identity.turn
        assert branch_turn > parent.turn, "no branch parts at a branch's first turn"
        mover = record.turns[branch_turn].seat
        assert any(turn.seat == mover for turn in record.turns[:branch_turn]), "nor at a seat's first turn"
        assert [t.raw for t in original.turns[:branch_turn]] == [t.raw for t in record.turns[:branch_turn]]
        for seat in record.streams:
            for original_stream, stream in zip(original.streams[seat], record.streams[seat], strict=False):
                cut = max([i + 1 for i, turn in enumerate(stream.turns) if 0 <= turn < branch_turn], default=0)
                for name in ("ids", "mask", "logprobs", "turns", "entropy"):
                    assert getattr(original_stream, name)[:cut] == getattr(stream, name)[:cut]


def test_branches_can_be_nested() -> None:
    records = play_tree(make_tree_lineup(), ALWAYS, make_plans(make_tree_lineup(), group=12))
    assert max(len(record.identity.lineage()) for record in records) >= 3


def test_tree_is_the_same_in_any_order_of_play() -> None:
    rule = TreeRule(first=2)
    assert list_texts(play_tree(make_tree_lineup(), rule, make_plans(make_tree_lineup()), 1)) == list_texts(
        play_tree(make_tree_lineup(), rule, make_plans(make_tree_lineup()), 18)
    )
    alone = [
        record for deal in make_plans(make_tree_lineup()) for record in play_tree(make_tree_lineup(), rule, [deal])
    ]
    together = play_tree(make_tree_lineup(), rule, make_plans(make_tree_lineup()))
    assert sorted(list_texts(alone)) == sorted(list_texts(together))


def test_without_branches_all_matches_begin_at_the_deal() -> None:
    records = play_tree(
        make_tree_lineup(), TreeRule(first=2, trigger="random", chance=0.0), make_plans(make_tree_lineup())
    )
    assert [record.identity.parent for record in records] == [None] * 18


@pytest.mark.parametrize(("rise", "p"), [(-1.0, 0.3), (0.0, 0.5), (1.0, 0.7), (9.0, 1.0), (-9.0, 0.0)])
def test_the_chance_of_a_branch_is_that_of_arpo(rise: float, p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, record = play_one_path(TreeRule(first=2))
    first = record.turns[0]
    monkeypatch.setattr(tree, "entropy", lambda record, turn: 1.0 + (rise if turn is not first else 0.0))
    assert tree.branch_probability(record, record.turns[2], 0) == pytest.approx(p)


@pytest.mark.parametrize(("chain", "p"), [(0, 0.5), (3, 0.4118), (6, 0.2857), (10, 0.0), (20, 0.0), (25, 0.0)])
def test_chains_are_penalised_as_in_aepo(chain: int, p: float) -> None:
    tree, record = play_one_path(TreeRule(first=2, trigger="random", chain=0.05))
    assert tree.branch_probability(record, record.turns[2], chain) == pytest.approx(p, abs=1e-4)


@pytest.mark.parametrize(("gap", "count"), [(-2.0, 5), (0.0, 9), (2.0, 12)])
def test_number_of_first_matches_is_as_in_aepo(gap: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, record = play_one_path(TreeRule(), group=16)
    firsts = {next(t for t in record.turns if t.seat == seat).index for seat in {t.seat for t in record.turns}}
    monkeypatch.setattr(tree, "entropy", lambda record, turn: 3.0 + (gap if turn.index in firsts else 0.0))
    assert tree._count_starts(record) == count


def play_one_path(rule: TreeRule, group: int = 6) -> tuple[Tree, MatchRecord]:
    table = make_tree_lineup()
    (deal,) = make_plans(table, 1, group)
    for match_plan in deal:
        record = asyncio.run(table.play(match_plan, NoPastVersions()))  # type: ignore[arg-type]
        if len(record.turns) > 2 and record.turns[2].seat == record.turns[0].seat:
            return Tree(deal, rule, SIZES, 5), record
    raise AssertionError("all matches are short")


def test_entropy_is_normalised_over_the_first_tokens() -> None:
    tree, record = play_one_path(TreeRule(first=2, tokens=2))
    turn = record.turns[2]
    stream = record.streams[turn.seat][0]
    begin = stream.turns.index(2)
    nats = sum(stream.entropy[begin : begin + 2])
    assert tree.entropy(record, turn) == pytest.approx(nats / np.log(FRAME.vocabulary_size))


@pytest.mark.slow
def test_entropy_decides_branch_points() -> None:
    """Branched turns have higher entropy than others; with a random trigger they do not."""
    gaps = {}
    for trigger in ("entropy", "random"):
        rule = TreeRule(first=4, trigger=trigger, weight=1.0)
        records = play_tree(make_tree_lineup(), rule, make_plans(make_tree_lineup(), 40, 8))
        by_id = {record.id: record for record in records}
        tree = Tree([], rule, SIZES, 5)
        branched = {(str(r.identity.parent), r.identity.turn) for r in records if r.identity.parent}
        rises: dict[bool, list[float]] = {True: [], False: []}
        for match in by_id.values():
            for turn in match.turns:
                first = next(t for t in match.turns if t.seat == turn.seat)
                if turn.index > max(first.index, match.identity.turn):
                    rise = tree.entropy(match, turn) - tree.entropy(match, first)
                    rises[(match.id, turn.index) in branched].append(rise)
        gaps[trigger] = float(np.mean(rises[True]) - np.mean(rises[False]))
    assert gaps["entropy"] > 1.0 > 0.6 > abs(gaps["random"])


def test_inherited_tokens_count_in_the_limits() -> None:
    table = make_tree_lineup()
    records = play_tree(table, ALWAYS, make_plans(table))
    branch = max((r for r in records if r.identity.parent), key=lambda r: r.identity.turn)
    shared = sum(turn.tokens for turn in branch.turns[: branch.identity.turn])
    short = replace(table, limits=Limits(tokens=shared))
    found = [p for deal in make_plans(table) for p in deal if p.identity == branch.identity.lineage()[0]]
    parent = next(r for r in records if r.identity == branch.identity.parent)
    again = replace(found[0], identity=branch.identity, branch=Branch(parent, branch.identity.turn))
    cut = asyncio.run(short.play(again, NoPastVersions()))  # type: ignore[arg-type]
    assert (cut.status, cut.reason) == ("failed", f"token limit: {shared} tokens written of {shared}")


# -- credit ------------------------------------------------------------------------------------------------


def make_batch(records: Sequence[MatchRecord]) -> TurnBatch:
    return TurnBatch(trained_trajectories(records))


def test_find_first_difference() -> None:
    root = MatchId(1, 0)
    left, right = root.branch(4), root.branch(6)
    inner = left.branch(9)
    assert [find_first_difference(a, b) for a, b in [(root, left), (left, right), (inner, root), (inner, left)]] == [
        4,
        4,
        4,
        9,
    ]
    assert (
        find_first_difference(root, MatchId(1, 1)) == 0
        and find_first_difference(inner, inner) > 1000
        and find_first_difference(right, inner) == 4
    )


def test_copies_of_a_turn_share_their_prefix() -> None:
    batch = make_batch(play_tree(make_tree_lineup(), ALWAYS, make_plans(make_tree_lineup(), 2, 8)))
    numbers = number_copies(batch)
    texts: dict[int, set[tuple[str, int, str]]] = {}
    for number, owner, turn in zip(numbers.tolist(), batch.owner.tolist(), batch.turns, strict=True):
        texts.setdefault(number, set()).add((batch.trajectories[owner].seat, turn.index, turn.raw))
    assert all(len(texts_of_copy) == 1 for texts_of_copy in texts.values()) and len(texts) < len(numbers)


def test_shared_prefix_has_the_mean_advantage_of_its_branches() -> None:
    batch = make_batch(play_tree(make_tree_lineup(), ALWAYS, make_plans(make_tree_lineup(), 3, 8)))
    soft = assign(batch, CreditSpec.model_validate({"estimator": "dr_grpo"}))
    hard = assign(batch, CreditSpec.model_validate({"estimator": "dr_grpo", "transforms": ["shared_prefix"]}))
    numbers = number_copies(batch)
    separate, shared = (np.concatenate([c.advantages for c in credited]) for credited in (soft, hard))
    for number in np.unique(numbers).tolist():
        rows = numbers == number
        assert np.ptp(shared[rows]) < 1e-9 and shared[rows].sum() == pytest.approx(separate[rows].sum())
    assert np.abs(separate - shared).max() > 0.01, "some copies differed"


def test_tree_estimator_by_hand() -> None:
    """Two matches from the deal, the first of which is branched at its seat's second turn."""
    records = play_tree(
        make_tree_lineup(), TreeRule(first=2, trigger="random", chance=1.0), make_plans(make_tree_lineup(), 8, 3)
    )
    seen = 0
    for group in range(8):
        dealt = [r for r in records if r.group == group]
        branch = next((r for r in dealt if r.identity.parent), None)
        if branch is None or (at := branch.identity.turn) is None:
            continue
        credited = assign(make_batch(dealt), CreditSpec.model_validate({"estimator": "tree"}))
        parent = str(branch.identity.parent)
        for item in credited:
            own = {c.trajectory.match: c for c in credited if c.trajectory.seat == item.trajectory.seat}
            if item.trajectory.match not in (parent, branch.id) or not {parent, branch.id} <= own.keys():
                continue
            returns = {match: float(one.rewards.sum()) for match, one in own.items()}
            mine, everyone = returns[item.trajectory.match], np.mean(list(returns.values()))
            node = np.mean([returns[parent], returns[branch.id]])
            mover, early = branch.turns[at].seat == item.trajectory.seat, item.trajectory.turns[0].index < at
            for turn, advantage in zip(item.trajectory.turns, item.advantages, strict=True):
                late = mine - node if mover and turn.index >= at else node - everyone
                assert advantage == pytest.approx(late if early else mine - everyone), turn.index
                seen += 1
    assert seen > 20


def test_without_branches_the_tree_is_a_flat_group() -> None:
    batch = make_batch(
        play_tree(
            make_tree_lineup(), TreeRule(first=2, trigger="random", chance=0.0), make_plans(make_tree_lineup(), 4, 4)
        )
    )
    flat, tree = (assign(batch, CreditSpec.model_validate({"estimator": name})) for name in ("dr_grpo", "tree"))
    for one, two in zip(flat, tree, strict=True):
        assert two.advantages == pytest.approx(one.advantages)


def test_a_tree_is_shown_below_its_root() -> None:
    records = play_tree(make_tree_lineup(), ALWAYS, make_plans(make_tree_lineup(), 1, 8))
    rows = [record.to_json() for record in records]
    deep = max(records, key=lambda r: len(r.identity.lineage()))
    (_, title), *lines = list_branch_lines(rows, deep.to_json())
    family = [r for r in records if r.identity.lineage()[0] == deep.identity.lineage()[0]]
    assert title == "branches:" and {line.split()[0]: depth for depth, line in lines} == {
        record.id: len(record.identity.lineage()) for record in family
    }
    assert f"from turn {deep.identity.turn + 1} on" in next(line for _, line in lines if f"{deep.id} " in line)
    orphan = [row for row in rows if row["id"] != str(deep.identity.parent)]
    assert len(list_branch_lines(orphan, deep.to_json())) == len(family), (
        "a parent that failed is no reason to hide a branch"
    )


# -- settings ----------------------------------------------------------------------------------------------

KUHN = """\
name: here
game: {name: kuhn_poker}
seats: {first: {role: nano_kuhn, policy: p}, second: {role: nano_kuhn, policy: p}}
policies: {p: {model: nano}}
iterations: 1
"""


@pytest.mark.parametrize(
    ("play", "message"),
    [
        ("{parts: [{trees: {first: 2}}]}", "raise play.group, which is 1"),
        ("{group: 4, parts: [{trees: {first: 4}}]}", "besides the first 4: raise play.group"),
        ("{group: 4, parts: [branches, {trees: {first: 2}}]}", "leave out branches"),
        ("{group: 4, enough: 0.5, parts: [{trees: {first: 2}}]}", "enough to 1"),
        ("{group: 4, parts: [{trees: {first: 2}}]}", "set engine.entropy to true"),
        ("{group: 4, parts: [{trees: {trigger: random}}]}", "set engine.entropy to true"),
        ("{group: 4, parts: [{trees: {trigger: random, first: 0}}]}", "trees"),
        ("{group: 4, parts: [{trees: {chance: 2}}]}", "less than or equal to 1"),
        ("{group: 4, parts: [{trees: {triger: random}}]}", "triger"),
    ],
)
def test_invalid_trees_are_refused_in_one_line(play: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        compose([text_layer("here", KUHN + f"play: {play}\n")])
    assert "\n" not in str(error.value)


def test_a_random_trigger_needs_no_entropy() -> None:
    layer = text_layer("here", KUHN + "play: {group: 4, parts: [{trees: {trigger: random, first: 2}}]}\n")
    experiment: Any = compose([layer])
    assert isinstance(experiment, Experiment) and experiment.play.part("trees")
