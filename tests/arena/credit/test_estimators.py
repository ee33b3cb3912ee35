"""Advantage estimators: numbers worked by hand, naive loops beside vectorised ones, and what must change nothing."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.stream import Stream
from arena.config.kinds import choose
from arena.credit.assign import assign
from arena.credit.batch import Floats, TokenAdvantages, TurnBatch
from arena.credit.estimators import ESTIMATORS
from arena.credit.estimators.steps import compute_broken_returns, get_situations
from arena.credit.selection import SELECTORS, Selection
from arena.credit.settings import CreditSpec
from arena.records import Trajectory, Turn
from games import make
from games.contracts import Message, View

TURN_LEVEL = ["mars", "rae", "grpo", "dr_grpo", "rloo", "reinforce_pp", "at_grpo", "gigpo", "step_episode"]
TURN_LEVEL += ["epo_weighted"]
MINE = [*TURN_LEVEL, "mars_released"]


def played(
    rewards: Sequence[float],
    role: str = "opener",
    seed: int = 0,
    seen: Sequence[str] | None = None,
    matched: Sequence[bool] | None = None,
    tokens: Sequence[int] | None = None,
    **changes: Any,
) -> Trajectory:
    """A trajectory with these rewards; `seen` is what the mover was told, `tokens` how long its replies are."""
    turns, stream = [], Stream()
    for k, reward in enumerate(rewards):
        count = tokens[k] if tokens else 2
        text = seen[k] if seen else f"place {k}"
        stream.observe([1, 2, 3, *map(ord, text)])
        stream.append_sampled([5] * count, [-1.0] * count, 2 * k)
        told = (Message.of("referee", text),)
        named = {"deal": float(reward)} | ({"match": 1.0} if matched and matched[k] else {})
        turns.append(
            Turn(
                index=2 * k,
                seat=role,
                role=role,
                policy="shared",
                version=1,
                messages=told,
                raw="x",
                public="",
                private="",
                action="x",
                valid=True,
                rewards=named,
                finish="stop",
                tokens=count,
                seconds=0.0,
            ),
        )
    fields: dict[str, Any] = {"match": "m", "game": "g", "seat": role, "role": role, "policy": "shared", "version": 1}
    fields |= {"trained": True, "turns": tuple(turns), "streams": (stream,), "seed": seed}
    return Trajectory(**(fields | changes))


def batch_of(found: Sequence[Trajectory], **changes: Any) -> tuple[TurnBatch, np.ndarray]:
    batch = TurnBatch(list(found), rng=np.random.default_rng(0), **changes)
    return batch, batch.column(lambda turn: turn.rewards["deal"])


def advantages(estimator: str, found: Sequence[Trajectory], **given: Any) -> list[list[float]]:
    """Per trajectory and turn."""
    changes = {name: given.pop(name) for name in ("memory", "counted") if name in given}
    batch, rewards = batch_of(found, **changes)
    values = choose("estimator", estimator, **given)(batch, rewards)
    return [part.tolist() for part in np.split(values, batch.starts[1:-1])]


def near(values: Sequence[Sequence[float]], tolerance: float = 1e-5) -> Any:
    return [pytest.approx(list(part), abs=tolerance) for part in values]


# -- groups of one deal -------------------------------------------------------------------------------------


def test_grpo_and_its_kin_by_hand() -> None:
    # returns 1, 2, 6: mean 3, gaps -2 -1 3, sample variance (4 + 1 + 9)/2 = 7
    found = [played([0, 1]), played([2]), played([1, 5, 0])]
    root = 7**0.5
    assert advantages("dr_grpo", found) == [[-2, -2], [-1], [3, 3, 3]]
    assert advantages("grpo", found) == near([[-2 / root] * 2, [-1 / root], [3 / root] * 3])
    # the others' mean: 1 - (2 + 6)/2, 2 - (1 + 6)/2, 6 - (1 + 2)/2
    assert advantages("rloo", found) == near([[-3, -3], [-1.5], [4.5] * 3])


def test_groups_are_one_deal_and_one_role() -> None:
    found = [played([1]), played([3]), played([10], seed=1), played([20], "responder"), played([5], game="h")]
    assert advantages("dr_grpo", found) == [[-1], [1], [0], [0], [0]], "groups of one are worth 0"
    assert advantages("rloo", found) == [[-2], [2], [0], [0], [0]]
    assert advantages("grpo", found)[2:] == [[0], [0], [0]]
    assert advantages("dr_grpo", found, by=["game"])[4] == [0]
    assert advantages("dr_grpo", found, by=["role"])[0] == [1 - 19 / 4]


def test_grpo_is_zero_where_all_returns_are_equal() -> None:
    found = [played([0.1]), played([0.1]), played([0.1])]
    for estimator in ("grpo", "dr_grpo", "rloo", "at_grpo"):
        assert advantages(estimator, found) == near([[0]] * 3, 1e-9)


def test_the_deviation_weighs_up_tasks_that_are_almost_always_solved() -> None:
    # binary returns of n = 20: Σ|A| = 2np(1-p) without the deviation, over √(p(1-p)·20/19) with it
    hard, easy = [played([float(i < 10)]) for i in range(20)], [played([float(i < 19)], seed=1) for i in range(20)]
    plain, divided = (np.abs(np.array(advantages(e, hard + easy))).ravel() for e in ("dr_grpo", "grpo"))
    assert plain[:20].sum() / plain[20:].sum() == pytest.approx(0.25 / 0.0475)  # 5.26
    assert divided[:20].sum() / divided[20:].sum() == pytest.approx((0.25 / 0.0475) ** 0.5, rel=1e-4)  # 2.29


def test_groups_by_the_same_formula_as_torch() -> None:
    rng = np.random.default_rng(1)
    returns = torch.from_numpy(rng.normal(size=(5, 8)))
    found = [played([0.5, float(r) - 0.5], seed=i) for i, row in enumerate(returns) for r in row]
    gaps = returns - returns.mean(1, keepdim=True)
    expected = {"dr_grpo": gaps, "grpo": gaps / (returns.std(1, keepdim=True) + 1e-6)}
    expected["rloo"] = returns - (returns.sum(1, keepdim=True) - returns) / 7
    for estimator, values in expected.items():
        found_values = np.array(advantages(estimator, found))
        assert found_values[:, 0] == pytest.approx(values.flatten().numpy(), abs=1e-9)
        assert (found_values[:, 0] == found_values[:, 1]).all()


def test_at_grpo_compares_turns_of_the_same_number() -> None:
    found = [played([1, 2, 3]), played([0, 4]), played([2, 0])]
    # returns-to-go: 6 5 3, 4 4, 2 0. Turn 0: mean 4, sample deviation 2. Turn 1: 5 4 0, mean 3, variance (4+1+9)/2 = 7.
    # Turn 2: alone
    root = 7**0.5
    assert advantages("at_grpo", found) == near([[1, 2 / root, 0], [0, 1 / root], [-1, -3 / root]])
    # gamma 0: the turns' own rewards 1 0 2, mean 1, deviation 1; 2 4 0, mean 2, deviation 2
    assert advantages("at_grpo", found, gamma=0.0) == near([[0, 0, 0], [-1, 1], [1, -1]])


def test_reinforce_pp_whitens_over_the_policys_turns() -> None:
    found = [played([0, 0, 6]), played([2], "responder", seed=5), played([100], policy="other")]
    # returns-to-go 6 6 6 2: mean 5, population variance (1 + 1 + 1 + 9)/4 = 3
    assert advantages("reinforce_pp", found) == near([[3**-0.5] * 3, [-(3**0.5)], [0]])
    # gamma 0.5: 1.5 3 6 2: mean 3.125, variance (2.640625 + .015625 + 8.265625 + 1.265625)/4 = 3.046875
    first = advantages("reinforce_pp", found, gamma=0.5)[0]
    assert first == pytest.approx([-1.625 / 3.046875**0.5, -0.125 / 3.046875**0.5, 2.875 / 3.046875**0.5], abs=1e-5)


def test_reinforce_pp_with_baseline_whitens_what_dr_grpo_gives() -> None:
    found = [played([0, 1]), played([3]), played([7], seed=1)]
    # dr_grpo: -1 -1, 1, 0 (alone): mean -1/4, variance (.5625 + .5625 + 1.5625 + .0625)/4 = .6875
    root = 0.6875**0.5
    assert advantages("reinforce_pp", found, baseline=True) == near([[-0.75 / root] * 2, [1.25 / root], [0.25 / root]])


# -- steps --------------------------------------------------------------------------------------------------


def loop() -> list[Trajectory]:
    """A sees s, errs and comes back to s, does right and wins; B errs at s and has lost."""
    return [played([0, 0, 1], seen=["s", "elsewhere", "s"]), played([0, 0], seen=["s", "lost"])]


def test_gigpo_on_the_three_visits() -> None:
    # G at s: .95² = .9025, 1, 0: mean 1.9025/3 = .634167. Episode: returns 1 and 0, mean 1/2
    step = np.array([0.9025, 1.0, 0.0]) - 1.9025 / 3  # +.268 +.366 -.634
    assert advantages("gigpo", loop()) == near([[0.5 + step[0], 0.5, 0.5 + step[1]], [-0.5 + step[2], -0.5]])
    episode = advantages("dr_grpo", loop())
    assert episode[0][0] == episode[0][2], "by the episode alone the error is worth what the win is"
    doubled = advantages("gigpo", loop(), weight=2.0)
    assert doubled[0][0] == pytest.approx(0.5 + 2 * step[0])
    # by deviations: the step's sample variance (.0720 + .1338 + .4022)/2, the episode's (.25 + .25)/1
    spread, half = np.std(step, ddof=1), 0.5 / 0.5**0.5
    by_std = advantages("gigpo", loop(), mode="mean_std_norm")
    assert by_std == near([[half + step[0] / spread, half, half + step[1] / spread], [-half + step[2] / spread, -half]])


def test_gigpo_without_repeated_anchors_is_the_episode_alone() -> None:
    found = [played([0, 1], seen=["a", "b"]), played([1, 1], seen=["c", "d"]), played([5], seed=1, seen=["a"])]
    assert advantages("gigpo", found) == advantages("dr_grpo", found)
    assert advantages("gigpo", found, mode="mean_std_norm") == advantages("grpo", found)


def test_an_anchor_is_the_state_or_what_was_shown_within_the_group() -> None:
    one, other = played([1], seen=["s"]), played([0], seen=["s"])
    assert advantages("gigpo", [one, other]) == [[1], [-1]]
    assert advantages("gigpo", [one, played([0], seen=["t"])]) == [[0.5], [-0.5]]
    assert advantages("gigpo", [at(one, "here"), at(played([0], seen=["t"]), "here")]) == [[1], [-1]]
    assert advantages("gigpo", [at(one, "here"), at(other, "there")]) == [[0.5], [-0.5]]


def at(trajectory: Trajectory, situation: str) -> Trajectory:
    return replace(trajectory, turns=tuple(turn._replace(situation=situation) for turn in trajectory.turns))


def test_an_anchor_of_who_has_no_tokens_is_senders_and_texts() -> None:
    one, other = played([1], seen=["s"], streams=()), played([0], seen=["s"], streams=())
    forged = (Message.of("stranger", "s"),)
    elsewhere = Trajectory(**{**vars(other), "turns": (other.turns[0]._replace(messages=forged),)})
    assert advantages("gigpo", [one, other]) == [[1], [-1]]
    assert advantages("gigpo", [one, elsewhere]) == [[0.5], [-0.5]]
    assert advantages("gigpo", [one, played([0], seed=1, seen=["s"], streams=())]) == [[0], [0]]


@pytest.mark.parametrize(
    ("game", "options", "where"),
    [
        ("maze", {"size": 4}, lambda game: game.position),
        ("text_navigation", {}, lambda game: (game.position, tuple(game.places.items()))),
    ],
)
def test_anchors_of_a_game_are_its_situations(game: str, options: dict[str, Any], where: Any) -> None:
    """Two walks through one house: as many anchors as situations, none of which merges two."""
    trajectories, visited = [], []
    for walk in range(2):
        env, places = make(game, **options), []
        turns: list[Turn] = []
        rng = random.Random(walk)
        env.reset(seed=5)
        while not env.terminations["walker"]:
            places.append(where(env))
            view = View.of(env, "walker")
            act = rng.choice(view.legal or ())
            told, named = view.messages, env.situation("walker")
            turn = Turn(
                index=len(turns),
                seat="walker",
                role="w",
                policy="p",
                version=1,
                messages=told,
                raw=act,
                public="",
                private="",
                action=act,
                valid=True,
                rewards={},
                finish="script",
                tokens=0,
                seconds=0.0,
                situation=named,
            )
            turns.append(turn)
            env.step(act)
        visited += places
        trajectories.append(played([], role="walker", turns=tuple(turns), streams=()))
    found = get_situations(TurnBatch(trajectories))
    assert len(set(found)) == len(set(visited)) == len(set(zip(found, visited, strict=True)))
    assert len(set(visited)) < len(visited), "some situations came again"


def test_step_episode_by_hand() -> None:
    rewards, match = [1, 1, 0.55, 1, 1], [True, True, False, True, True]
    batch, column = batch_of([played(rewards, matched=match)])
    # nothing flows back from the third turn or over it: 1 + .5·1, 1, .55, 1 + .5·1, 1
    assert compute_broken_returns(batch, column, np.array(match), 0.5).tolist() == [1.5, 1, 0.55, 1.5, 1]
    other = [0.1, 0.3]
    found = [played(rewards, matched=match), played(other, matched=[False, True])]
    episode = np.array([*rewards, *other]) - np.mean([*rewards, *other])
    step = np.zeros(7)
    step[[0, 5]] = np.array([0.5, -0.5]) * (1.5 - 0.1)  # G of the other: .1 (no match), .3 (the end)
    step[[1, 6]] = np.array([0.5, -0.5]) * (1.0 - 0.3)
    plain = advantages("step_episode", found, mode="mean_norm")
    assert plain == near([(episode + step)[:5], (episode + step)[5:]])
    scaled = advantages("step_episode", found, episode_weight=2.0, step_weight=3.0)
    sign = np.sign(step) / 2**0.5  # two values d apart deviate by d/√2 from their mean ± d/2
    whole = 2 * episode / np.std(episode, ddof=1) + 3 * sign
    assert scaled == near([whole[:5], whole[5:]], 1e-4)


def test_step_episode_needs_the_games_own_mark() -> None:
    found = [played([1, 1]), played([0, 1])]
    no_mark = advantages("step_episode", found, mode="mean_norm", episode_weight=0.0)
    assert no_mark == [[0.5, 0], [-0.5, 0]], "without a match nothing flows back"
    other_name = advantages("step_episode", found, mode="mean_norm", episode_weight=0.0, match="deal")
    assert other_name == [[0.75, 0], [-0.75, 0]]  # G: 1 + .5·1 against 0, as a reward of 0 is no match


# -- with a memory, and without a baseline ------------------------------------------------------------------


def test_rae_by_hand() -> None:
    memory: dict[str, Any] = {}
    found = [played([0, 1]), played([-1], "responder"), played([3]), played([1, 1])]
    # openers at decay .5: b = 0, A = 1, b → .5; A = 3 - .5, b → 1.75; A = 2 - 1.75, b → 1.875
    assert advantages("rae", found, decay=0.5, memory=memory) == [[1, 1], [-1], [2.5], [0.25, 0.25]]
    assert memory == {"rae": {"g, opener": 1.875, "g, responder": -0.5}}
    kept = json.loads(json.dumps(memory))
    # gamma .5: (2 - 1.875) times .25 .5 1
    assert advantages("rae", [played([0, 0, 2])], decay=0.5, gamma=0.5, memory=kept) == [[0.03125, 0.0625, 0.125]]
    assert kept["rae"]["g, opener"] == pytest.approx(1.9375) and memory["rae"]["g, opener"] == 1.875


def test_rae_goes_on_where_it_stopped() -> None:
    rng = np.random.default_rng(2)
    found = [played(rng.normal(size=2).tolist(), ("opener", "responder")[i % 2]) for i in range(12)]
    whole: dict[str, Any] = {}
    at_once = advantages("rae", found, memory=whole)
    memory: dict[str, Any] = {}
    first = advantages("rae", found[:5], memory=memory)
    memory = json.loads(json.dumps(memory))
    assert first + advantages("rae", found[5:], memory=memory) == at_once and memory == whole


def test_rae_depends_on_the_order_within_a_role_alone() -> None:
    rng = np.random.default_rng(3)
    found = [played(rng.normal(size=2).tolist(), ("opener", "responder")[i % 2]) for i in range(10)]
    rows = sorted(range(10), key=lambda i: found[i].role)
    mixed, sorted_ = advantages("rae", found), advantages("rae", [found[i] for i in rows])
    assert [mixed[i] for i in rows] == sorted_
    assert advantages("rae", found[::-1])[::-1] != mixed


def test_a_trajectory_out_of_the_statistics_leaves_the_baseline() -> None:
    memory: dict[str, Any] = {}
    counted = np.array([True, False, True])
    found = [played([1]), played([100]), played([1])]
    assert advantages("rae", found, decay=0.5, memory=memory, counted=counted) == [[1], [99.5], [0.5]]
    assert memory == {"rae": {"g, opener": 0.75}}


def test_epo_weights_by_hand() -> None:
    # G: 1 + .99·(0 + .99·.5) = 1.49005, .495, .5: over 1.49005. Then all 0. Then -2 + .99 = -1.01, 1
    found = [played([1, 0, 0.5]), played([0, 0]), played([-2, 1])]
    assert advantages("epo_weighted", found) == near(
        [[1, 0.495 / 1.49005, 0.5 / 1.49005], [0, 0], [-1, 1 / 1.01]], 1e-9
    )


# -- the release of MARS ------------------------------------------------------------------------------------


def test_mars_released_by_hand() -> None:
    # one game, role a: turns of 1 and 2 tokens, r = 0, 3; role b: a turn of 1 token, r = 1.
    found = [played([0, 3], "a", tokens=[1, 2]), played([1], "b", tokens=[1])]
    # c = r - its role's mean: -1.5, 1.5 and 0, on the tokens (-1.5)(0 1.5)(0); unbiased variance 4.5/3 = 1.5
    # R: 0 and 1.5/√1.5 = √1.5; role b 0. Distinct values with padding's 0: a {0, √1.5}: mean √1.5/2; b {0}
    # less that: a -h (h h), b 0 with h = √1.5/2 = .612372. Tokens' mean h/4, variance (25 + 9 + 9 + 1)h²/16/3
    h = 1.5**0.5 / 2
    spread = (44 * h**2 / 48) ** 0.5
    expected = [[-1.25 * h / spread, 0.75 * h / spread], [-0.25 * h / spread]]
    assert advantages("mars_released", found) == near(expected, 1e-6)
    assert advantages("mars", found) == [[0, 0], [0]], "whereas both of a's turns return 3, and b's is alone"


def token_by_token(found: Sequence[Trajectory]) -> list[list[float]]:
    """The released order on padded tensors, step by step; one value per sampled token."""
    width = max(len(t.streams[0]) for t in found) + 1
    reward, mask, ends = (np.zeros((len(found), width)) for _ in range(3))
    for m, trajectory in enumerate(found):
        stream = trajectory.streams[0]
        mask[m, : len(stream)] = stream.mask
        for turn in trajectory.turns:
            own = [j for j, index in enumerate(stream.turns) if index == turn.index]
            reward[m, own[-1]], ends[m, own[-1]] = turn.rewards["deal"], 1
    tag = defaultdict(list)
    for m, trajectory in enumerate(found):
        tag[trajectory.game, trajectory.role].append(m)
    for rows in tag.values():
        mean = (reward[rows] * ends[rows]).sum() / ends[rows].sum()
        reward[rows] = (reward[rows] - mean) * ends[rows]
    reward = whitened(reward, mask) * mask
    value = np.cumsum(reward[:, ::-1], 1)[:, ::-1]
    for role in {t.role for t in found}:
        rows = [m for m, t in enumerate(found) if t.role == role]
        value[rows] -= np.mean(np.unique(np.round(value[rows], 6) + 0.0))
    value = whitened(value, mask)
    return [value[m][mask[m] > 0].tolist() for m in range(len(found))]


def whitened(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    own = values[mask > 0]
    return (values - own.mean()) / np.sqrt(own.var(ddof=1) + 1e-8)


def like_tic_tac_toe(seed: int, matches: int) -> list[Trajectory]:
    """Role a moves first and wins half of the matches, b 30 %; 0.1 each for a draw, 0.05 for every move."""
    rng, found = np.random.default_rng(seed), []
    ends = [(5, 1, -1), (7, 1, -1), (9, 1, -1), (6, -1, 1), (8, -1, 1), (9, 0.1, 0.1)]
    for i in range(matches):
        moves, *payoffs = ends[int(rng.choice(6, p=[0.5 / 3] * 3 + [0.15, 0.15, 0.2]))]
        for role, count, payoff in zip("ab", ((moves + 1) // 2, moves // 2), payoffs, strict=True):
            rewards = [0.05] * (count - 1) + [payoff + 0.05]
            found.append(played(rewards, role, game="gh"[i % 2], tokens=rng.integers(5, 40, count).tolist()))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_mars_released_token_by_token(seed: int) -> None:
    found = like_tic_tac_toe(seed, 40)
    batch, rewards = batch_of(found)
    mine = choose("estimator", "mars_released")(batch, rewards)[batch.token_turns]
    assert mine == pytest.approx(np.concatenate(token_by_token(found)), abs=1e-9)


def test_what_the_release_of_mars_does_to_roles() -> None:
    """Close to the paper's formula, yet the tokens of one role are told that they did well, of the other badly."""
    for seed in range(6):
        batch, rewards = batch_of(like_tic_tac_toe(seed, 192))
        paper, shipped = (choose("estimator", e)(batch, rewards)[batch.token_turns] for e in ("mars", "mars_released"))
        assert 0.9 < np.corrcoef(paper, shipped)[0, 1] < 0.996
        first = np.array([batch.trajectories[m].role == "a" for m in batch.owner])[batch.token_turns]
        for role in (first, ~first):
            assert abs(paper[role].mean()) < 0.03 * paper.std()
            assert abs(shipped[role].mean()) > 0.05 * shipped.std()
        assert shipped[first].mean() > 0 > shipped[~first].mean()


def test_mars_released_tells_seats_apart_where_one_role_holds_both() -> None:
    found = [
        played([1.0], "player", seat="x"),
        played([0, -1.0], "player", seat="y"),
        played([1.0], "player", seat="x"),
    ]
    assert advantages("mars_released", found, by=["seat"]) != advantages("mars_released", found)


# -- combined, and controls ---------------------------------------------------------------------------------


def test_weighted_sum_by_hand() -> None:
    found = [played([0, 1]), played([2])]
    parts = [{"estimator": "dr_grpo"}, {"estimator": {"mars": {"gamma": 0.0}}, "weight": 2}]
    # dr_grpo -.5 -.5 | .5; mars at gamma 0: 0 1 2, mean 1: -1 0 | 1
    assert advantages("weighted_sum", found, parts=parts) == [[-2.5, -0.5], [2.5]]


def test_the_parts_of_a_sum_remember_on_their_own() -> None:
    found = [played([1]), played([2])]
    memory: dict[str, Any] = {}
    parts = [{"estimator": {"rae": {"decay": d}}, "weight": w} for d, w in ((0.5, 1.0), (0.9, 10.0))]
    parts.insert(1, {"estimator": "dr_grpo", "weight": 0.0})
    # decay .5: 1, 2 - .5; decay .9: 1, 2 - .1
    assert advantages("weighted_sum", found, parts=parts, memory=memory) == near([[11], [1.5 + 19]], 1e-9)
    kept = json.loads(json.dumps(memory))
    assert kept == memory and list(kept["weighted_sum"]) == ["0 rae", "2 rae"]
    # b now .5·.5 + .5·2 = 1.25 and .9·.1 + .1·2 = .29
    again = advantages("weighted_sum", found[:1], parts=parts, memory=kept)
    assert again == near([[1 - 1.25 + 10 * (1 - 0.29)]], 1e-9)


def by_token(batch: TurnBatch, rewards: np.ndarray) -> TokenAdvantages:
    """Says 100·turn + place of the token in its turn."""
    starts = np.cumsum(batch.turn_tokens) - batch.turn_tokens
    return TokenAdvantages(100.0 * batch.token_turns + np.arange(len(batch.token_turns)) - starts[batch.token_turns])


def test_a_sum_is_of_tokens_where_a_part_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "by_token", by_token)
    found = [played([1, 0], tokens=[2, 1]), played([3], tokens=[2])]
    batch, rewards = batch_of(found)
    parts = [{"estimator": "by_token"}, {"estimator": "dr_grpo"}]
    values = choose("estimator", "weighted_sum", parts=parts)(batch, rewards)
    assert isinstance(values, TokenAdvantages) and values.values.tolist() == [-1, 0, 99, 201, 202]


def test_needs_reach_through_sums_and_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    def asking(batch: TurnBatch, rewards: np.ndarray) -> np.ndarray:
        """Asks."""
        return rewards

    asking.needs = ("entropy",)  # type: ignore[attr-defined]
    monkeypatch.setitem(ESTIMATORS, "asking", asking)
    parts = [{"estimator": "mars"}, {"estimator": {"shuffled": {"of": "asking"}}, "weight": 0.5}]
    rule = CreditSpec.model_validate(dict(estimator={"weighted_sum": {"parts": parts}}))
    assert rule.needs == {"entropy"}
    assert CreditSpec(**json.loads(rule.model_dump_json())) == rule, "written out and read back with every default"


@pytest.mark.parametrize("estimator", MINE)
def test_any_estimator_can_be_shuffled(estimator: str) -> None:
    found = like_tic_tac_toe(1, 20)
    batch, rewards = batch_of(found)
    honest = choose("estimator", estimator)(batch, rewards)
    control = choose("estimator", "shuffled", of=estimator, by=["role"])(batch_of(found)[0], rewards)
    roles = np.array([batch.trajectories[m].role for m in batch.owner])
    for role in ("a", "b"):
        assert sorted(control[roles == role].tolist()) == sorted(honest[roles == role].tolist())
    assert (control != honest).mean() > 0.3


def test_shuffled_tokens_move_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "by_token", by_token)
    found = [played([0, 0], tokens=[4, 2]), played([0, 0], tokens=[0, 1]), played([0], policy="other", tokens=[3])]
    batch, rewards = batch_of(found)
    values = choose("estimator", "shuffled", of="by_token")(batch, rewards)
    assert isinstance(values, TokenAdvantages)
    turns = [part.tolist() for part in np.split(values.values, np.cumsum(batch.turn_tokens)[:-1])]
    assert turns[2] == [] and turns[4] == [400, 401, 402], "alone in its group"
    drawn = [int(turn[0] // 100) for turn in (turns[0], turns[1], turns[3])]
    assert sorted(drawn) == [0, 1, 3]
    length = {0: 4, 1: 2, 3: 1}
    for row, source in zip((0, 1, 3), drawn, strict=True):
        stretched = [100 * source + k * length[source] // length[row] for k in range(length[row])]
        assert turns[row] == stretched


@given(
    st.lists(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=4), min_size=2, max_size=9),
    st.integers(0, 99),
)
def test_regrouped_compares_as_many_with_each_other_but_others(rewards: list[list[float]], seed: int) -> None:
    found = [played(r, seat=("a", "b", "c")[i % 3]) for i, r in enumerate(rewards)]
    batch, flat = batch_of(found)
    batch = replace(batch, rng=np.random.default_rng(seed))
    heard: list[TurnBatch] = []

    def seats(batch: TurnBatch, rewards: Floats) -> Floats:
        heard.append(batch)
        return rewards

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ESTIMATORS, "seats", seats)
        assert choose("estimator", "regrouped", of="seats", what=["seat"])(batch, flat).tolist() == flat.tolist()
    (given,) = heard
    assert Counter(t.seat for t in given.trajectories) == Counter(t.seat for t in found)
    assert [t.turns for t in given.trajectories] == [t.turns for t in found]


def test_regrouped_by_hand_when_all_labels_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seats a, a, b, b with returns 0, 4, 1, 3, each less its group's mean; dealt as b, a, b, a."""
    found = [played([r], seat=seat) for seat, r in zip("aabb", (0, 4, 1, 3), strict=True)]
    batch, rewards = batch_of(found)
    mars = {"mars": {"by": ["seat"]}}
    assert choose("estimator", "mars", by=["seat"])(batch, rewards).tolist() == [-2, 2, -1, 1]
    monkeypatch.setattr(TurnBatch, "permute_within", lambda batch, rows, groups: np.array([2, 0, 3, 1]))
    assert choose("estimator", "regrouped", of=mars, what=["seat"])(batch, rewards).tolist() == [-0.5, 0.5, 0.5, -0.5]


def test_regrouped_situations_stay_in_their_deal_and_are_met_as_often() -> None:
    """GiGPO's anchors: every deal has the situations it had, at other turns."""
    found = [played([0, 1, 2], seed=seed, seen=["p", "q", f"r{n}"]) for seed in (1, 2) for n in range(6)]
    batch, rewards = batch_of(found)
    heard: list[TurnBatch] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ESTIMATORS, "seen", lambda batch, rewards: (heard.append(batch), rewards)[1])
        choose("estimator", "regrouped", of="seen", what=["situation"], within=["seed"])(batch, rewards)
    was, now = get_situations(batch), get_situations(heard[0])
    for rows in (slice(0, 18), slice(18, 36)):
        assert sorted(Counter(was[rows]).values()) == sorted(Counter(now[rows]).values()) == [1] * 6 + [6, 6]
        firsts = {new for old, new in zip(was[rows], now[rows], strict=True) if old == was[rows.start]}
        assert len(firsts) > 1, "they are at other turns"
    control = choose("estimator", "regrouped", of="gigpo", what=["situation"], within=["game", "seed", "role"])
    assert control(batch, rewards).tolist() != choose("estimator", "gigpo")(batch, rewards).tolist()


# -- beside naive loops -------------------------------------------------------------------------------------


def naive(estimator: str, found: Sequence[Trajectory]) -> list[list[float]]:
    """Each estimator once more at its defaults, with lists and loops."""
    rewards = [[turn.rewards["deal"] for turn in t.turns] for t in found]
    task = [(t.game, t.seed, t.role) for t in found]

    def to_go(values: list[float], gamma: float) -> list[float]:
        return [sum(gamma ** (j - k) * values[j] for j in range(k, len(values))) for k in range(len(values))]

    def standard(value: float, like: list[float], std: bool, ddof: int = 1) -> float:
        if len(like) < 2:
            return 0.0
        gap, spread = value - float(np.mean(like)), float(np.std(like, ddof=ddof))
        return (gap / (spread + 1e-6) if spread >= 1e-6 else 0.0) if std else gap

    def same_task(m: int) -> list[int]:
        return [n for n in range(len(found)) if task[n] == task[m]]

    result = []
    for m, own in enumerate(rewards):
        peers = same_task(m)
        totals = [sum(rewards[n]) for n in peers]
        if estimator in ("grpo", "dr_grpo"):
            result.append([standard(sum(own), totals, estimator == "grpo")] * len(own))
        elif estimator == "rloo":
            others = [sum(rewards[n]) for n in peers if n != m]
            result.append([sum(own) - float(np.mean(others)) if others else 0.0] * len(own))
        elif estimator == "at_grpo":
            like = [[to_go(rewards[n], 1.0)[k] for n in peers if len(rewards[n]) > k] for k in range(len(own))]
            result.append([standard(v, like[k], True) for k, v in enumerate(to_go(own, 1.0))])
        elif estimator == "reinforce_pp":
            everyone = [v for values in rewards for v in to_go(values, 1.0)]
            result.append([standard(v, everyone, True, 0) for v in to_go(own, 1.0)])
        elif estimator == "gigpo":
            seen = defaultdict(list)
            for n in peers:
                for turn, value in zip(found[n].turns, to_go(rewards[n], 0.95), strict=True):
                    seen[turn.messages[0].text].append(value)
            episode = standard(sum(own), totals, False)
            told = [turn.messages[0].text for turn in found[m].turns]
            result.append(
                [episode + standard(v, seen[told[k]], False) for k, v in enumerate(to_go(own, 0.95))],
            )
        elif estimator == "step_episode":

            def broken(n: int) -> list[float]:
                values, running = list(rewards[n]), 0.0
                for k in range(len(values) - 1, -1, -1):
                    matched = "match" in found[n].turns[k].rewards
                    values[k] += 0.5 * running if matched else 0.0
                    running = values[k] if matched else 0.0
                return values

            pooled = [v for n in peers for v in rewards[n]]
            like = [[broken(n)[k] for n in peers if len(rewards[n]) > k] for k in range(len(own))]
            result.append(
                [standard(own[k], pooled, True) + standard(v, like[k], True) for k, v in enumerate(broken(m))],
            )
        elif estimator == "epo_weighted":
            values = to_go(own, 0.99)
            top = max(map(abs, values))
            result.append([v / top if top else 0.0 for v in values])
        elif estimator == "rae":
            before = [sum(rewards[n]) for n in range(m) if (found[n].game, found[n].role) == (task[m][0], task[m][2])]
            baseline = sum(0.05 * value * 0.95**age for age, value in enumerate(reversed(before)))
            result.append([sum(own) - baseline] * len(own))
        else:
            key = (found[m].game, found[m].role, found[m].policy)
            alike = [r for t, r in zip(found, rewards, strict=True) if (t.game, t.role, t.policy) == key]
            mean = float(np.mean([v for own_rewards in alike for v in to_go(own_rewards, 1.0)]))
            result.append([v - mean for v in to_go(own, 1.0)])
    return result


@st.composite
def trajectories(draw: st.DrawFn) -> list[Trajectory]:
    found = []
    for m in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 4))

        def each(values: st.SearchStrategy[Any], count: int = count) -> Any:
            return draw(st.lists(values, min_size=count, max_size=count))

        found.append(
            played(
                each(st.integers(-3, 3)),
                draw(st.sampled_from(["opener", "responder"])),
                seed=draw(st.integers(0, 1)),
                seen=each(st.sampled_from("st")),
                matched=each(st.booleans()),
                tokens=each(st.integers(1, 4)),
                match=str(m),
            )
        )
    return found


@pytest.mark.parametrize("estimator", TURN_LEVEL)
@settings(max_examples=25, deadline=None)
@given(found=trajectories())
def test_vectorised_equals_naive(estimator: str, found: list[Trajectory]) -> None:
    assert advantages(estimator, found) == near(naive(estimator, found), 1e-6)


@settings(max_examples=40, deadline=None)
@given(found=trajectories())
def test_mars_released_equals_naive(found: list[Trajectory]) -> None:
    batch, rewards = batch_of(found)
    mine = choose("estimator", "mars_released")(batch, rewards)[batch.token_turns]
    if len(mine) > 1:  # a single token cannot be whitened
        assert mine == pytest.approx(np.concatenate(token_by_token(found)), abs=1e-5)


# -- what must change nothing -------------------------------------------------------------------------------


def several(seed: int = 0) -> list[Trajectory]:
    """Two deals, four matches each, both roles, lengths and replies of all sizes."""
    rng, found = np.random.default_rng(seed), []
    for i in range(16):
        count = int(rng.integers(1, 5))
        found.append(
            played(
                rng.normal(size=count).round(2).tolist(), ("opener", "responder")[i % 2], seed=i // 2 % 2,
                seen=rng.choice(["s", "t"], count).tolist(), matched=(rng.random(count) < 0.6).tolist(),
                tokens=rng.integers(1, 6, count).tolist(), match=str(i // 2),
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("estimator", [e for e in MINE if e != "rae"])
def test_permuting_trajectories_permutes_advantages(estimator: str) -> None:
    found = several()
    order = np.random.default_rng(1).permutation(len(found))
    straight, permuted = advantages(estimator, found), advantages(estimator, [found[i] for i in order])
    assert permuted == near([straight[i] for i in order], 1e-9)


@pytest.mark.parametrize("estimator", MINE)
def test_another_policys_role_and_deal_change_nothing(estimator: str) -> None:
    found = several()
    others = [played([9.0, 9.0], "judge", seed=7, policy="other"), played([-9.0], "judge", seed=7, policy="other")]
    mixed = [others[0], *found, others[1]]
    assert advantages(estimator, mixed)[1:-1] == near(advantages(estimator, found), 1e-9)


@pytest.mark.parametrize("estimator", [e for e in TURN_LEVEL if e != "reinforce_pp"])
def test_another_role_of_the_same_policy_changes_nothing(estimator: str) -> None:
    found = several()
    mixed = [*found, played([9.0, 9.0], "judge"), played([-9.0], "judge")]
    assert advantages(estimator, mixed)[: len(found)] == near(advantages(estimator, found), 1e-9)


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "at_grpo", "gigpo", "step_episode", "epo_weighted"])
def test_another_deal_changes_nothing(estimator: str) -> None:
    found = several()
    first = [t for t in found if t.seed == 0]
    both, alone = advantages(estimator, found), advantages(estimator, first)
    assert [a for a, t in zip(both, found, strict=True) if t.seed == 0] == near(alone, 1e-9)


@pytest.mark.parametrize("estimator", MINE)
def test_only_the_release_of_mars_counts_tokens(estimator: str) -> None:
    found = several()
    rng = np.random.default_rng(4)
    longer = [
        played(
            [turn.rewards["deal"] for turn in t.turns],
            t.role,
            t.seed,
            [turn.messages[0].text for turn in t.turns],
            ["match" in turn.rewards for turn in t.turns],
            rng.integers(1, 50, len(t.turns)).tolist(),
            match=t.match,
        )
        for t in found
    ]
    same = advantages(estimator, found) == advantages(estimator, longer)
    assert same == (estimator != "mars_released")


@pytest.mark.parametrize("estimator", MINE)
def test_out_of_the_statistics_is_absent_for_all_others(estimator: str) -> None:
    found = several()
    counted = np.random.default_rng(5).random(len(found)) < 0.7
    there: dict[str, Any] = {}
    absent: dict[str, Any] = {}
    masked = advantages(estimator, found, counted=counted, memory=there)
    left = advantages(estimator, [t for t, c in zip(found, counted, strict=True) if c], memory=absent)
    assert [a for a, c in zip(masked, counted, strict=True) if c] == near(left, 1e-9) and there == absent
    assert all(np.isfinite(a).all() and np.abs(a).max() < 100 for a in masked), "the masked ones learn too"


@pytest.mark.parametrize("estimator", MINE)
def test_nobody_in_the_statistics(estimator: str) -> None:
    for values in advantages(estimator, several(), counted=np.zeros(16, bool)):
        assert np.isfinite(values).all() and (estimator in ("rae", "epo_weighted") or not np.any(values))


@pytest.mark.parametrize("estimator", MINE)
def test_one_out_of_the_statistics_of_equals_is_not_blown_up(estimator: str) -> None:
    found = [played([1.0]), played([1.0]), played([5.0])]
    values = advantages(estimator, found, counted=np.array([True, True, False]))
    assert np.abs(values).max() <= 8.0  # gigpo's episode and step give 4 each


@pytest.mark.parametrize("estimator", MINE)
def test_dropped_is_absent(monkeypatch: pytest.MonkeyPatch, estimator: str) -> None:
    found = several()
    gone = np.random.default_rng(6).random(len(found)) < 0.3

    def some(batch: TurnBatch, rewards: np.ndarray, selection: Selection) -> Selection:
        return selection.drop(batch, gone)

    monkeypatch.setitem(SELECTORS, "some", some)
    dropped = assign(
        batch_of(found)[0],
        CreditSpec.model_validate(dict(estimator=estimator, select=["some"], weights={"match": 0.0})),
    )
    kept = [t for t, g in zip(found, gone, strict=True) if not g]
    assert [c.advantages.tolist() for c in dropped] == near(advantages(estimator, kept), 1e-9)


@pytest.mark.parametrize("estimator", MINE)
def test_nobody_at_all(estimator: str) -> None:
    batch = TurnBatch([])
    assert len(choose("estimator", estimator)(batch, np.zeros(0))) == 0


@pytest.mark.parametrize("estimator", MINE)
def test_two_turns_are_told_apart_only_by_what_they_earned(estimator: str) -> None:
    """Every turn of a group whose values differ is credited, but for the listed zeros."""
    found = [played([float(i), 0.3 * i * i], matched=[True, True], seen=["s", "t"]) for i in range(1, 5)]
    values = advantages(estimator, found)
    assert all(a != b for a, b in pairwise(values)) and sum(v == 0 for part in values for v in part) <= 1


def test_settings_are_checked() -> None:
    mistakes: dict[str, dict[str, Any]] = {
        "grpo": {"by": ["turn"]}, "rae": {"decay": 1.0}, "gigpo": {"mode": "std"}, "weighted_sum": {"parts": []},
        "shuffled": {"of": "gropo"},
    }  # fmt: skip
    for name, wrong in mistakes.items():
        with pytest.raises(ValueError, match=name):
            choose("estimator", name, **wrong)
    with pytest.raises(ValueError, match="did you mean 'grpo'"):
        choose("estimator", "weighted_sum", parts=[{"estimator": "gropo"}])
