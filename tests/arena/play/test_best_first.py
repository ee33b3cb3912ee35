"""Best-first search as a player: expansion order, budget, and play of the path found."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import games
from agents.engines.base import Completion
from agents.memory import Memory
from agents.role import Role, load_role
from arena.config.seating import resolve_tables
from arena.errors import ConfigError
from arena.play.best_first import find_search_obstacle, priority
from arena.play.branches import Branch
from arena.play.contenders import ModelContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord, Seating
from games.contracts import MatchId
from simulators.prover import Prover
from simulators.prover.coqtop import find_coq_obstacle
from tests.factories.babble import FRAME, POLICIES
from tests.factories.texts import make_sampling_experiment
from tests.factories.walks import RandomWalkEngine

ROLE = load_role("nano_prover")
TACTICS = ("comm 1", "comm 2", "comm 3", "left 2", "right 2", "hm")


class WeightedEngine(RandomWalkEngine):
    """Engine that samples `TACTICS` at random, each with its own mean log-probability per token."""

    def __init__(self, acts: tuple[str, ...] = TACTICS, means: tuple[float, ...] = ()) -> None:
        super().__init__(acts)
        self.means = means or (-1.0,) * len(acts)

    def _complete(self, request: Any) -> Completion:
        self.requests.append(request)
        index = int(np.random.default_rng(request.seed).integers(len(self.acts)))
        ids = (*FRAME.encode(self.acts[index]), FRAME.stop_id)
        return Completion(ids, (self.means[index],) * len(ids), "stop", 3)


def make_role(search: dict[str, Any] | None, **fields: Any) -> Role:
    sampling = ROLE.sampling.model_validate({**ROLE.sampling.model_dump(), "search": search})
    return ROLE.model_copy(update={"sampling": sampling, **fields})


def prove(
    search: dict[str, Any] | None,
    seed: int,
    engine: Any = None,
    branch: Branch | None = None,
    options: Any = None,
    **fields: Any,
) -> tuple[MatchRecord, Any]:
    role = make_role(search, **fields)
    used_engine: Any = engine or WeightedEngine()
    contender = ModelContender("p", used_engine, lambda game, seat: (POLICIES["p"], role))
    seats = {"prover": Seating(role.role, "p", 3, False, "model")}
    identity = branch.identity if branch else MatchId(1, seed)
    options = options or {"depth": 2, "max_turns": 6}
    plan = MatchPlan(identity=identity, game="prover", options=options, seed=seed, seats=seats, branch=branch)
    record: MatchRecord = asyncio.run(play_one(plan, {"prover": contender}, 5, Limits()))
    assert record.status == "finished", record.reason
    return record, used_engine


@pytest.mark.parametrize(
    ("score", "depth", "alpha", "key"),
    [(-3.0, 3, 0.0, -3.0), (-3.0, 3, 1.0, -1.0), (-4.0, 4, 0.5, -2.0), (-1.0, 1, 1.0, -1.0), (0.0, 0, 1.0, 0.0)],
)
def test_priority(score: float, depth: int, alpha: float, key: float) -> None:
    """With alpha 0 a path of three tactics at -1 each ranks behind one tactic at -2; with alpha 1 before it."""
    assert priority(score, depth, alpha) == pytest.approx(key)
    assert (priority(-3.0, 3, alpha) > priority(-2.0, 1, alpha)) == (alpha > 0.37)


def test_search_proves_more_than_samples_and_plays_its_path() -> None:
    plain = [prove(None, seed)[0].report["success"] for seed in range(12)]
    result = [prove({"nodes": 200}, seed)[0] for seed in range(12)]
    assert sum(map(bool, plain)) + 4 <= sum(bool(record.report["success"]) for record in result)
    for record in result:
        assert {turn.source for turn in record.turns} == {"voted"}
        if record.report["success"]:  # a best-first path comes to no state twice, so no tactic is refused
            assert record.report["refused"] == 0 and record.report["invalid"] == 0


@pytest.mark.parametrize("order", ["best_first", "sample"])
def test_samples_stay_within_the_budget(order: str) -> None:
    for nodes in (1, 7, 50):
        record, engine = prove({"nodes": nodes, "order": order, "width": 4}, 3, WeightedEngine(("comm 9",)))
        assert not record.report["success"]  # "comm 9" never applies
        searched = len(engine.requests) - len(record.turns)
        # Best-first never meets a new state; samples go on to the last turn, again and again.
        assert searched == (min(4, nodes) if order == "best_first" else nodes)


def test_the_likeliest_path_is_expanded_first() -> None:
    """Of two tactics that apply, the one of higher log-probability leads to the state that is asked about next."""
    seed = next(seed for seed in range(50) if both_tactics_apply(seed))
    for means, expected in (((-1.0, -2.0), "comm 1"), ((-2.0, -1.0), "comm 2")):
        engine = WeightedEngine(("comm 1", "comm 2"), means)
        prove({"nodes": 17, "width": 16}, seed, engine)
        game = games.make("prover", depth=2, max_turns=6)
        game.reset(seed=seed)
        game.step(expected)
        assert FRAME.decode(engine.requests[16].ids).endswith(game.public()["numbered"])


def both_tactics_apply(seed: int) -> bool:
    game = Prover(depth=2, max_turns=6)
    for act in ("comm 1", "comm 2"):
        game.reset(seed=seed)
        game.step(act)
        if game.ended or game._refusal_count:
            return False
    return True


def test_search_samples_in_the_contexts_of_the_played_match() -> None:
    pairs = list[tuple[tuple[int, ...], tuple[int, ...]]]()

    class RecordingEngine(WeightedEngine):
        def _complete(self, request: Any) -> Completion:
            reply = super()._complete(request)
            pairs.append((request.ids, reply.ids))
            return reply

    played = (prove({"nodes": 200}, seed, RecordingEngine(), memory=Memory())[0] for seed in range(12))
    record = next(record for record in played if record.report["success"] and len(record.turns) > 1)
    (stream,) = record.streams["prover"]
    for turn in range(len(record.turns)):
        start = stream.turns.index(turn)
        reply = tuple(id for id, of in zip(stream.ids, stream.turns, strict=True) if of == turn)
        assert (tuple(stream.ids[:start]), reply) in pairs


def test_same_seed_gives_the_same_search() -> None:
    first, second = (prove({"nodes": 60, "alpha": 1.0}, 4)[0] for _ in range(2))
    assert [turn.raw for turn in first.turns] == [turn.raw for turn in second.turns]


def test_a_branch_repeats_its_parent_and_searches_from_there() -> None:
    parent, _ = prove(None, 2)
    branch = Branch(parent, 1)
    record, _ = prove({"nodes": 200}, 2, branch=branch)
    assert record.turns[0].raw == parent.turns[0].raw


@pytest.mark.skipif(bool(find_coq_obstacle()), reason="coqtop is not installed")
def test_a_game_that_blocks_is_searched_in_threads() -> None:
    coq = {"kind": "coq", "depth": [3, 4], "max_turns": 6}
    acts = ("intros.", "subst.", "auto.", "lia.", "destruct H.", "tauto.", "reflexivity.")
    result = [prove({"nodes": 60}, seed, WeightedEngine(acts), options=coq)[0] for seed in range(4)]
    assert any(record.report["success"] for record in result)


# -- what can be searched, and settings --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [("kuhn_poker", "2 seats"), ("repair", "names no situations"), ("maze", "hides something"), ("prover", "")],
)
def test_only_open_games_of_one_seat_are_searched(name: str, message: str) -> None:
    result = find_search_obstacle(games.make(name))
    assert message in result and bool(result) == bool(message)


def test_a_contender_that_cannot_search_is_refused() -> None:
    engine: Any = WeightedEngine()
    contender = ModelContender("p", engine, lambda game, seat: (POLICIES["p"], make_role({})))
    with pytest.raises(ConfigError, match=r"role nano_prover: sampling\.search: kuhn_poker has 2 seats"):
        contender.check("kuhn_poker", games.make("kuhn_poker"), "first")
    contender.check("prover", games.make("prover"), "prover")


def test_trained_policies_do_not_search(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"role odd: sampling\.search keeps one of several"):
        resolve_tables(make_sampling_experiment(tmp_path, "{search: {nodes: 4}}"))


WRONG = [
    {"sampling": {"search": {"nodes": 0}}}, {"sampling": {"search": {"alpha": -1}}},
    {"sampling": {"search": {}, "votes": {}}}, {"sampling": {"search": {}}, "memory": {"kind": "summary"}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Role.model_validate({"role": "r", **wrong})
