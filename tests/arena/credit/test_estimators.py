"""Advantage estimators: numbers worked by hand, naive loops beside vectorised ones, and invariances."""

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
from games.abilities import Situations
from games.contracts import Message, View
from tests.factories.records import make_turn, wrap_turns

TURN_LEVEL = ["mars", "rae", "grpo", "dr_grpo", "rloo", "reinforce_pp", "at_grpo", "gigpo", "step_episode"]
TURN_LEVEL += ["epo_weighted"]
ALL_ESTIMATORS = [*TURN_LEVEL, "mars_released"]


def make_trajectory(
    rewards: Sequence[float],
    role: str = "opener",
    seed: int = 0,
    observations: Sequence[str] | None = None,
    matched: Sequence[bool] | None = None,
    tokens: Sequence[int] | None = None,
    **changes: Any,
) -> Trajectory:
    """Return a trajectory with these rewards, and the turns' observations and reply lengths (`tokens`)."""
    turns, stream = [], Stream()
    for k, reward in enumerate(rewards):
        count = tokens[k] if tokens else 2
        text = observations[k] if observations else f"place {k}"
        stream.observe([1, 2, 3, *map(ord, text)])
        stream.append_sampled([5] * count, [-1.0] * count, 2 * k)
        messages = (Message.of("referee", text),)
        named_rewards = {"deal": float(reward)} | ({"match": 1.0} if matched and matched[k] else {})
        turns.append(make_turn(2 * k, named_rewards, role, messages=messages, tokens=count))
    fields: dict[str, Any] = {"seat": role, "role": role, "streams": (stream,), "seed": seed}
    return wrap_turns(turns, **(fields | changes))


def make_batch(trajectories: Sequence[Trajectory], **changes: Any) -> tuple[TurnBatch, np.ndarray]:
    batch = TurnBatch(list(trajectories), rng=np.random.default_rng(0), **changes)
    return batch, batch.column(lambda turn: turn.rewards["deal"])


def compute_advantages(estimator: str, trajectories: Sequence[Trajectory], **options: Any) -> list[list[float]]:
    """Return the advantages per trajectory and turn."""
    changes = {name: options.pop(name) for name in ("memory", "counted") if name in options}
    batch, rewards = make_batch(trajectories, **changes)
    values = choose("estimator", estimator, **options)(batch, rewards)
    return [part.tolist() for part in np.split(values, batch.starts[1:-1])]


def approximate(values: Sequence[Sequence[float]], tolerance: float = 1e-5) -> Any:
    return [pytest.approx(list(part), abs=tolerance) for part in values]


# -- groups of one deal -------------------------------------------------------------------------------------


def test_grpo_dr_grpo_and_rloo_by_hand() -> None:
    # returns 1, 2, 6: mean 3, gaps -2 -1 3, sample variance (4 + 1 + 9)/2 = 7
    trajectories = [make_trajectory([0, 1]), make_trajectory([2]), make_trajectory([1, 5, 0])]
    root = 7**0.5
    assert compute_advantages("dr_grpo", trajectories) == [[-2, -2], [-1], [3, 3, 3]]
    assert compute_advantages("grpo", trajectories) == approximate([[-2 / root] * 2, [-1 / root], [3 / root] * 3])
    # the others' mean: 1 - (2 + 6)/2, 2 - (1 + 6)/2, 6 - (1 + 2)/2
    assert compute_advantages("rloo", trajectories) == approximate([[-3, -3], [-1.5], [4.5] * 3])


def test_groups_are_one_deal_and_one_role() -> None:
    trajectories = [
        make_trajectory([1]),
        make_trajectory([3]),
        make_trajectory([10], seed=1),
        make_trajectory([20], "responder"),
        make_trajectory([5], game="h"),
    ]
    assert compute_advantages("dr_grpo", trajectories) == [[-1], [1], [0], [0], [0]], "groups of one are worth 0"
    assert compute_advantages("rloo", trajectories) == [[-2], [2], [0], [0], [0]]
    assert compute_advantages("grpo", trajectories)[2:] == [[0], [0], [0]]
    assert compute_advantages("dr_grpo", trajectories, by=["game"])[4] == [0]
    assert compute_advantages("dr_grpo", trajectories, by=["role"])[0] == [1 - 19 / 4]


def test_grpo_is_zero_where_all_returns_are_equal() -> None:
    trajectories = [make_trajectory([0.1]), make_trajectory([0.1]), make_trajectory([0.1])]
    for estimator in ("grpo", "dr_grpo", "rloo", "at_grpo"):
        assert compute_advantages(estimator, trajectories) == approximate([[0]] * 3, 1e-9)


def test_std_normalisation_favours_tasks_that_are_almost_always_solved() -> None:
    # binary returns of n = 20: Σ|A| = 2np(1-p) without the deviation, over √(p(1-p)·20/19) with it
    hard, easy = (
        [make_trajectory([float(i < 10)]) for i in range(20)],
        [make_trajectory([float(i < 19)], seed=1) for i in range(20)],
    )
    unscaled, divided = (np.abs(np.array(compute_advantages(e, hard + easy))).ravel() for e in ("dr_grpo", "grpo"))
    assert unscaled[:20].sum() / unscaled[20:].sum() == pytest.approx(0.25 / 0.0475)  # 5.26
    assert divided[:20].sum() / divided[20:].sum() == pytest.approx((0.25 / 0.0475) ** 0.5, rel=1e-4)  # 2.29


def test_groups_equal_the_formula_in_torch() -> None:
    rng = np.random.default_rng(1)
    returns = torch.from_numpy(rng.normal(size=(5, 8)))
    trajectories = [make_trajectory([0.5, float(r) - 0.5], seed=i) for i, row in enumerate(returns) for r in row]
    differences = returns - returns.mean(1, keepdim=True)
    expected = {"dr_grpo": differences, "grpo": differences / (returns.std(1, keepdim=True) + 1e-6)}
    expected["rloo"] = returns - (returns.sum(1, keepdim=True) - returns) / 7
    for estimator, values in expected.items():
        actual = np.array(compute_advantages(estimator, trajectories))
        assert actual[:, 0] == pytest.approx(values.flatten().numpy(), abs=1e-9)
        assert (actual[:, 0] == actual[:, 1]).all()


def test_at_grpo_compares_turns_of_the_same_number() -> None:
    trajectories = [make_trajectory([1, 2, 3]), make_trajectory([0, 4]), make_trajectory([2, 0])]
    # returns-to-go: 6 5 3, 4 4, 2 0. Turn 0: mean 4, sample deviation 2. Turn 1: 5 4 0, mean 3, variance (4+1+9)/2 = 7.
    # Turn 2: alone
    root = 7**0.5
    assert compute_advantages("at_grpo", trajectories) == approximate(
        [[1, 2 / root, 0], [0, 1 / root], [-1, -3 / root]]
    )
    # gamma 0: the turns' own rewards 1 0 2, mean 1, deviation 1; 2 4 0, mean 2, deviation 2
    assert compute_advantages("at_grpo", trajectories, gamma=0.0) == approximate([[0, 0, 0], [-1, 1], [1, -1]])


def test_reinforce_pp_whitens_over_the_policys_turns() -> None:
    trajectories = [
        make_trajectory([0, 0, 6]),
        make_trajectory([2], "responder", seed=5),
        make_trajectory([100], policy="other"),
    ]
    # returns-to-go 6 6 6 2: mean 5, population variance (1 + 1 + 1 + 9)/4 = 3
    assert compute_advantages("reinforce_pp", trajectories) == approximate([[3**-0.5] * 3, [-(3**0.5)], [0]])
    # gamma 0.5: 1.5 3 6 2: mean 3.125, variance (2.640625 + .015625 + 8.265625 + 1.265625)/4 = 3.046875
    first = compute_advantages("reinforce_pp", trajectories, gamma=0.5)[0]
    assert first == pytest.approx([-1.625 / 3.046875**0.5, -0.125 / 3.046875**0.5, 2.875 / 3.046875**0.5], abs=1e-5)


def test_reinforce_pp_with_baseline_whitens_dr_grpo() -> None:
    trajectories = [make_trajectory([0, 1]), make_trajectory([3]), make_trajectory([7], seed=1)]
    # dr_grpo: -1 -1, 1, 0 (alone): mean -1/4, variance (.5625 + .5625 + 1.5625 + .0625)/4 = .6875
    root = 0.6875**0.5
    assert compute_advantages("reinforce_pp", trajectories, baseline=True) == approximate(
        [[-0.75 / root] * 2, [1.25 / root], [0.25 / root]]
    )


# -- steps --------------------------------------------------------------------------------------------------


def make_revisiting_pair() -> list[Trajectory]:
    """Return two trajectories: one visits s, errs, revisits s and wins; the other errs at s and loses."""
    return [
        make_trajectory([0, 0, 1], observations=["s", "elsewhere", "s"]),
        make_trajectory([0, 0], observations=["s", "lost"]),
    ]


def test_gigpo_on_the_three_visits() -> None:
    # G at s: .95² = .9025, 1, 0: mean 1.9025/3 = .634167. Episode: returns 1 and 0, mean 1/2
    step = np.array([0.9025, 1.0, 0.0]) - 1.9025 / 3  # +.268 +.366 -.634
    assert compute_advantages("gigpo", make_revisiting_pair()) == approximate(
        [[0.5 + step[0], 0.5, 0.5 + step[1]], [-0.5 + step[2], -0.5]]
    )
    episode = compute_advantages("dr_grpo", make_revisiting_pair())
    assert episode[0][0] == episode[0][2], "by the episode alone the error gets the same advantage as the win"
    doubled = compute_advantages("gigpo", make_revisiting_pair(), weight=2.0)
    assert doubled[0][0] == pytest.approx(0.5 + 2 * step[0])
    # by deviations: the step's sample variance (.0720 + .1338 + .4022)/2, the episode's (.25 + .25)/1
    spread, half = np.std(step, ddof=1), 0.5 / 0.5**0.5
    by_std = compute_advantages("gigpo", make_revisiting_pair(), mode="mean_std_norm")
    assert by_std == approximate(
        [[half + step[0] / spread, half, half + step[1] / spread], [-half + step[2] / spread, -half]]
    )


def test_gigpo_without_repeated_anchors_equals_dr_grpo() -> None:
    trajectories = [
        make_trajectory([0, 1], observations=["a", "b"]),
        make_trajectory([1, 1], observations=["c", "d"]),
        make_trajectory([5], seed=1, observations=["a"]),
    ]
    assert compute_advantages("gigpo", trajectories) == compute_advantages("dr_grpo", trajectories)
    assert compute_advantages("gigpo", trajectories, mode="mean_std_norm") == compute_advantages("grpo", trajectories)


def test_anchor_is_the_situation_or_the_observation() -> None:
    first, second = make_trajectory([1], observations=["s"]), make_trajectory([0], observations=["s"])
    assert compute_advantages("gigpo", [first, second]) == [[1], [-1]]
    assert compute_advantages("gigpo", [first, make_trajectory([0], observations=["t"])]) == [[0.5], [-0.5]]
    assert compute_advantages(
        "gigpo", [with_situation(first, "here"), with_situation(make_trajectory([0], observations=["t"]), "here")]
    ) == [[1], [-1]]
    assert compute_advantages("gigpo", [with_situation(first, "here"), with_situation(second, "there")]) == [
        [0.5],
        [-0.5],
    ]


def with_situation(trajectory: Trajectory, situation: str) -> Trajectory:
    return replace(trajectory, turns=tuple(turn._replace(situation=situation) for turn in trajectory.turns))


def test_anchor_without_tokens_is_senders_and_texts() -> None:
    first, second = (
        make_trajectory([1], observations=["s"], streams=()),
        make_trajectory([0], observations=["s"], streams=()),
    )
    forged = (Message.of("stranger", "s"),)
    other_sender = Trajectory(**{**vars(second), "turns": (second.turns[0]._replace(messages=forged),)})
    assert compute_advantages("gigpo", [first, second]) == [[1], [-1]]
    assert compute_advantages("gigpo", [first, other_sender]) == [[0.5], [-0.5]]
    assert compute_advantages("gigpo", [first, make_trajectory([0], seed=1, observations=["s"], streams=())]) == [
        [0],
        [0],
    ]


@pytest.mark.parametrize(
    ("game", "options", "get_place"),
    [
        ("maze", {"size": 4}, lambda game: game.position),
        ("text_navigation", {}, lambda game: (game.position, tuple(game.places.items()))),
    ],
)
def test_anchors_equal_the_games_situations(game: str, options: dict[str, Any], get_place: Any) -> None:
    """Two walks through one house give one anchor per situation."""
    trajectories, visited = [], []
    for walk in range(2):
        env, places = make(game, **options), []
        assert isinstance(env, Situations)
        turns: list[Turn] = []
        rng = random.Random(walk)
        env.reset(seed=5)
        while not env.terminations["walker"]:
            places.append(get_place(env))
            view = View.of(env, "walker")
            action = rng.choice(view.legal or ())
            details = {"messages": view.messages, "situation": env.situation("walker"), "raw": action, "action": action}
            turns.append(make_turn(len(turns), {}, "walker", **details))
            env.step(action)
        visited += places
        trajectories.append(wrap_turns(turns))
    anchors = get_situations(TurnBatch(trajectories))
    assert len(set(anchors)) == len(set(visited)) == len(set(zip(anchors, visited, strict=True)))
    assert len(set(visited)) < len(visited), "some situations repeat"


def test_step_episode_by_hand() -> None:
    rewards, match = [1, 1, 0.55, 1, 1], [True, True, False, True, True]
    batch, column = make_batch([make_trajectory(rewards, matched=match)])
    # nothing flows back from the third turn or over it: 1 + .5·1, 1, .55, 1 + .5·1, 1
    assert compute_broken_returns(batch, column, np.array(match), 0.5).tolist() == [1.5, 1, 0.55, 1.5, 1]
    other_rewards = [0.1, 0.3]
    trajectories = [make_trajectory(rewards, matched=match), make_trajectory(other_rewards, matched=[False, True])]
    episode = np.array([*rewards, *other_rewards]) - np.mean([*rewards, *other_rewards])
    step = np.zeros(7)
    step[[0, 5]] = np.array([0.5, -0.5]) * (1.5 - 0.1)  # G of the other: .1 (no match), .3 (the end)
    step[[1, 6]] = np.array([0.5, -0.5]) * (1.0 - 0.3)
    unscaled = compute_advantages("step_episode", trajectories, mode="mean_norm")
    assert unscaled == approximate([(episode + step)[:5], (episode + step)[5:]])
    scaled = compute_advantages("step_episode", trajectories, episode_weight=2.0, step_weight=3.0)
    sign = np.sign(step) / 2**0.5  # two values d apart deviate by d/√2 from their mean ± d/2
    expected = 2 * episode / np.std(episode, ddof=1) + 3 * sign
    assert scaled == approximate([expected[:5], expected[5:]], 1e-4)


def test_step_episode_needs_the_match_reward() -> None:
    trajectories = [make_trajectory([1, 1]), make_trajectory([0, 1])]
    no_mark = compute_advantages("step_episode", trajectories, mode="mean_norm", episode_weight=0.0)
    assert no_mark == [[0.5, 0], [-0.5, 0]], "without a match no return flows back"
    other_name = compute_advantages("step_episode", trajectories, mode="mean_norm", episode_weight=0.0, match="deal")
    assert other_name == [[0.75, 0], [-0.75, 0]]  # G: 1 + .5·1 against 0, as a reward of 0 is no match


# -- with a memory, and without a baseline ------------------------------------------------------------------


def test_rae_by_hand() -> None:
    memory: dict[str, Any] = {}
    trajectories = [
        make_trajectory([0, 1]),
        make_trajectory([-1], "responder"),
        make_trajectory([3]),
        make_trajectory([1, 1]),
    ]
    # openers at decay .5: b = 0, A = 1, b → .5; A = 3 - .5, b → 1.75; A = 2 - 1.75, b → 1.875
    assert compute_advantages("rae", trajectories, decay=0.5, memory=memory) == [[1, 1], [-1], [2.5], [0.25, 0.25]]
    assert memory == {"rae": {"g, opener": 1.875, "g, responder": -0.5}}
    restored = json.loads(json.dumps(memory))
    # gamma .5: (2 - 1.875) times .25 .5 1
    assert compute_advantages("rae", [make_trajectory([0, 0, 2])], decay=0.5, gamma=0.5, memory=restored) == [
        [0.03125, 0.0625, 0.125]
    ]
    assert restored["rae"]["g, opener"] == pytest.approx(1.9375) and memory["rae"]["g, opener"] == 1.875


def test_rae_resumes_from_its_memory() -> None:
    rng = np.random.default_rng(2)
    trajectories = [make_trajectory(rng.normal(size=2).tolist(), ("opener", "responder")[i % 2]) for i in range(12)]
    full_memory: dict[str, Any] = {}
    at_once = compute_advantages("rae", trajectories, memory=full_memory)
    memory: dict[str, Any] = {}
    first = compute_advantages("rae", trajectories[:5], memory=memory)
    memory = json.loads(json.dumps(memory))
    assert first + compute_advantages("rae", trajectories[5:], memory=memory) == at_once and memory == full_memory


def test_rae_depends_only_on_the_order_within_a_role() -> None:
    rng = np.random.default_rng(3)
    trajectories = [make_trajectory(rng.normal(size=2).tolist(), ("opener", "responder")[i % 2]) for i in range(10)]
    rows = sorted(range(10), key=lambda i: trajectories[i].role)
    in_order, by_role = (
        compute_advantages("rae", trajectories),
        compute_advantages("rae", [trajectories[i] for i in rows]),
    )
    assert [in_order[i] for i in rows] == by_role
    assert compute_advantages("rae", trajectories[::-1])[::-1] != in_order


def test_uncounted_trajectory_does_not_change_the_baseline() -> None:
    memory: dict[str, Any] = {}
    counted = np.array([True, False, True])
    trajectories = [make_trajectory([1]), make_trajectory([100]), make_trajectory([1])]
    assert compute_advantages("rae", trajectories, decay=0.5, memory=memory, counted=counted) == [[1], [99.5], [0.5]]
    assert memory == {"rae": {"g, opener": 0.75}}


def test_epo_weights_by_hand() -> None:
    # G: 1 + .99·(0 + .99·.5) = 1.49005, .495, .5: over 1.49005. Then all 0. Then -2 + .99 = -1.01, 1
    trajectories = [make_trajectory([1, 0, 0.5]), make_trajectory([0, 0]), make_trajectory([-2, 1])]
    assert compute_advantages("epo_weighted", trajectories) == approximate(
        [[1, 0.495 / 1.49005, 0.5 / 1.49005], [0, 0], [-1, 1 / 1.01]], 1e-9
    )


# -- the release of MARS ------------------------------------------------------------------------------------


def test_mars_released_by_hand() -> None:
    # one game, role a: turns of 1 and 2 tokens, r = 0, 3; role b: a turn of 1 token, r = 1.
    trajectories = [make_trajectory([0, 3], "a", tokens=[1, 2]), make_trajectory([1], "b", tokens=[1])]
    # c = r - its role's mean: -1.5, 1.5 and 0, on the tokens (-1.5)(0 1.5)(0); unbiased variance 4.5/3 = 1.5
    # R: 0 and 1.5/√1.5 = √1.5; role b 0. Distinct values with padding's 0: a {0, √1.5}: mean √1.5/2; b {0}
    # less that: a -h (h h), b 0 with h = √1.5/2 = .612372. Tokens' mean h/4, variance (25 + 9 + 9 + 1)h²/16/3
    h = 1.5**0.5 / 2
    spread = (44 * h**2 / 48) ** 0.5
    expected = [[-1.25 * h / spread, 0.75 * h / spread], [-0.25 * h / spread]]
    assert compute_advantages("mars_released", trajectories) == approximate(expected, 1e-6)
    assert compute_advantages("mars", trajectories) == [[0, 0], [0]], "both of a's turns return 3, and b's is alone"


def compute_mars_token_by_token(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Compute the released MARS step by step on padded arrays; return one value per sampled token."""
    width = max(len(t.streams[0]) for t in trajectories) + 1
    reward, mask, ends = (np.zeros((len(trajectories), width)) for _ in range(3))
    for m, trajectory in enumerate(trajectories):
        stream = trajectory.streams[0]
        mask[m, : len(stream)] = stream.mask
        for turn in trajectory.turns:
            positions = [j for j, index in enumerate(stream.turns) if index == turn.index]
            reward[m, positions[-1]], ends[m, positions[-1]] = turn.rewards["deal"], 1
    groups = defaultdict(list)
    for m, trajectory in enumerate(trajectories):
        groups[trajectory.game, trajectory.role].append(m)
    for rows in groups.values():
        mean = (reward[rows] * ends[rows]).sum() / ends[rows].sum()
        reward[rows] = (reward[rows] - mean) * ends[rows]
    reward = whiten(reward, mask) * mask
    value = np.cumsum(reward[:, ::-1], 1)[:, ::-1]
    for role in {t.role for t in trajectories}:
        rows = [m for m, t in enumerate(trajectories) if t.role == role]
        value[rows] -= np.mean(np.unique(np.round(value[rows], 6) + 0.0))
    value = whiten(value, mask)
    return [value[m][mask[m] > 0].tolist() for m in range(len(trajectories))]


def whiten(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    sampled = values[mask > 0]
    return (values - sampled.mean()) / np.sqrt(sampled.var(ddof=1) + 1e-8)


def make_tic_tac_toe_matches(seed: int, matches: int) -> list[Trajectory]:
    """Return matches in which role a moves first and wins 50 %, b 30 %; a draw pays 0.1 each, a move 0.05."""
    rng, trajectories = np.random.default_rng(seed), []
    ends = [(5, 1, -1), (7, 1, -1), (9, 1, -1), (6, -1, 1), (8, -1, 1), (9, 0.1, 0.1)]
    for i in range(matches):
        moves, *payoffs = ends[int(rng.choice(6, p=[0.5 / 3] * 3 + [0.15, 0.15, 0.2]))]
        for role, count, payoff in zip("ab", ((moves + 1) // 2, moves // 2), payoffs, strict=True):
            rewards = [0.05] * (count - 1) + [payoff + 0.05]
            trajectories.append(
                make_trajectory(rewards, role, game="gh"[i % 2], tokens=rng.integers(5, 40, count).tolist())
            )
    return trajectories


@pytest.mark.parametrize("seed", range(3))
def test_mars_released_equals_the_token_loop(seed: int) -> None:
    trajectories = make_tic_tac_toe_matches(seed, 40)
    batch, rewards = make_batch(trajectories)
    actual = choose("estimator", "mars_released")(batch, rewards)[batch.token_turns]
    assert actual == pytest.approx(np.concatenate(compute_mars_token_by_token(trajectories)), abs=1e-9)


def test_released_mars_favours_the_role_that_wins() -> None:
    """Close to the paper's formula, but one role's tokens get positive advantages on average, the other's negative."""
    for seed in range(6):
        batch, rewards = make_batch(make_tic_tac_toe_matches(seed, 192))
        paper, shipped = (choose("estimator", e)(batch, rewards)[batch.token_turns] for e in ("mars", "mars_released"))
        assert 0.9 < np.corrcoef(paper, shipped)[0, 1] < 0.996
        first = np.array([batch.trajectories[m].role == "a" for m in batch.owner])[batch.token_turns]
        for role in (first, ~first):
            assert abs(paper[role].mean()) < 0.03 * paper.std()
            assert abs(shipped[role].mean()) > 0.05 * shipped.std()
        assert shipped[first].mean() > 0 > shipped[~first].mean()


def test_mars_released_can_separate_seats_of_one_role() -> None:
    trajectories = [
        make_trajectory([1.0], "player", seat="x"),
        make_trajectory([0, -1.0], "player", seat="y"),
        make_trajectory([1.0], "player", seat="x"),
    ]
    assert compute_advantages("mars_released", trajectories, by=["seat"]) != compute_advantages(
        "mars_released", trajectories
    )


# -- combined, and controls ---------------------------------------------------------------------------------


def test_weighted_sum_by_hand() -> None:
    trajectories = [make_trajectory([0, 1]), make_trajectory([2])]
    parts = [{"estimator": "dr_grpo"}, {"estimator": {"mars": {"gamma": 0.0}}, "weight": 2}]
    # dr_grpo -.5 -.5 | .5; mars at gamma 0: 0 1 2, mean 1: -1 0 | 1
    assert compute_advantages("weighted_sum", trajectories, parts=parts) == [[-2.5, -0.5], [2.5]]


def test_parts_of_a_sum_have_separate_memories() -> None:
    trajectories = [make_trajectory([1]), make_trajectory([2])]
    memory: dict[str, Any] = {}
    parts = [{"estimator": {"rae": {"decay": d}}, "weight": w} for d, w in ((0.5, 1.0), (0.9, 10.0))]
    parts.insert(1, {"estimator": "dr_grpo", "weight": 0.0})
    # decay .5: 1, 2 - .5; decay .9: 1, 2 - .1
    assert compute_advantages("weighted_sum", trajectories, parts=parts, memory=memory) == approximate(
        [[11], [1.5 + 19]], 1e-9
    )
    restored = json.loads(json.dumps(memory))
    assert restored == memory and list(restored["weighted_sum"]) == ["0 rae", "2 rae"]
    # b now .5·.5 + .5·2 = 1.25 and .9·.1 + .1·2 = .29
    next_advantages = compute_advantages("weighted_sum", trajectories[:1], parts=parts, memory=restored)
    assert next_advantages == approximate([[1 - 1.25 + 10 * (1 - 0.29)]], 1e-9)


def number_tokens(batch: TurnBatch, rewards: np.ndarray) -> TokenAdvantages:
    """Return 100·turn + the token's position in its turn as advantages."""
    starts = np.cumsum(batch.turn_tokens) - batch.turn_tokens
    return TokenAdvantages(100.0 * batch.token_turns + np.arange(len(batch.token_turns)) - starts[batch.token_turns])


def test_sum_is_per_token_if_a_part_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "number_tokens", number_tokens)
    trajectories = [make_trajectory([1, 0], tokens=[2, 1]), make_trajectory([3], tokens=[2])]
    batch, rewards = make_batch(trajectories)
    parts = [{"estimator": "number_tokens"}, {"estimator": "dr_grpo"}]
    values = choose("estimator", "weighted_sum", parts=parts)(batch, rewards)
    assert isinstance(values, TokenAdvantages) and values.values.tolist() == [-1, 0, 99, 201, 202]


def test_needs_propagate_through_sums_and_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    def needy(batch: TurnBatch, rewards: np.ndarray) -> np.ndarray:
        """Return the rewards; needs entropy."""
        return rewards

    needy.needs = ("entropy",)  # type: ignore[attr-defined]
    monkeypatch.setitem(ESTIMATORS, "needy", needy)
    parts = [{"estimator": "mars"}, {"estimator": {"shuffled": {"of": "needy"}}, "weight": 0.5}]
    rule = CreditSpec.model_validate(dict(estimator={"weighted_sum": {"parts": parts}}))
    assert rule.needs == {"entropy"}
    assert CreditSpec(**json.loads(rule.model_dump_json())) == rule, "written out and read back with every default"


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_any_estimator_can_be_shuffled(estimator: str) -> None:
    trajectories = make_tic_tac_toe_matches(1, 20)
    batch, rewards = make_batch(trajectories)
    original = choose("estimator", estimator)(batch, rewards)
    shuffled = choose("estimator", "shuffled", of=estimator, by=["role"])(make_batch(trajectories)[0], rewards)
    roles = np.array([batch.trajectories[m].role for m in batch.owner])
    for role in ("a", "b"):
        assert sorted(shuffled[roles == role].tolist()) == sorted(original[roles == role].tolist())
    assert (shuffled != original).mean() > 0.3


def test_shuffled_tokens_move_turn_by_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATORS, "number_tokens", number_tokens)
    trajectories = [
        make_trajectory([0, 0], tokens=[4, 2]),
        make_trajectory([0, 0], tokens=[0, 1]),
        make_trajectory([0], policy="other", tokens=[3]),
    ]
    batch, rewards = make_batch(trajectories)
    values = choose("estimator", "shuffled", of="number_tokens")(batch, rewards)
    assert isinstance(values, TokenAdvantages)
    turns = [part.tolist() for part in np.split(values.values, np.cumsum(batch.turn_tokens)[:-1])]
    assert turns[2] == [] and turns[4] == [400, 401, 402], "alone in its group"
    sources = [int(turn[0] // 100) for turn in (turns[0], turns[1], turns[3])]
    assert sorted(sources) == [0, 1, 3]
    length = {0: 4, 1: 2, 3: 1}
    for row, source in zip((0, 1, 3), sources, strict=True):
        stretched = [100 * source + k * length[source] // length[row] for k in range(length[row])]
        assert turns[row] == stretched


@given(
    st.lists(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=4), min_size=2, max_size=9),
    st.integers(0, 99),
)
def test_regrouped_keeps_group_sizes_and_changes_members(rewards: list[list[float]], seed: int) -> None:
    trajectories = [make_trajectory(r, seat=("a", "b", "c")[i % 3]) for i, r in enumerate(rewards)]
    batch, flat = make_batch(trajectories)
    batch = replace(batch, rng=np.random.default_rng(seed))
    batches: list[TurnBatch] = []

    def record_batch(batch: TurnBatch, rewards: Floats) -> Floats:
        batches.append(batch)
        return rewards

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ESTIMATORS, "record_batch", record_batch)
        assert choose("estimator", "regrouped", of="record_batch", what=["seat"])(batch, flat).tolist() == flat.tolist()
    (regrouped,) = batches
    assert Counter(t.seat for t in regrouped.trajectories) == Counter(t.seat for t in trajectories)
    assert [t.turns for t in regrouped.trajectories] == [t.turns for t in trajectories]


def test_regrouped_by_hand_when_all_labels_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seats a, a, b, b with returns 0, 4, 1, 3, each minus its group's mean; permuted to b, a, b, a."""
    trajectories = [make_trajectory([r], seat=seat) for seat, r in zip("aabb", (0, 4, 1, 3), strict=True)]
    batch, rewards = make_batch(trajectories)
    mars = {"mars": {"by": ["seat"]}}
    assert choose("estimator", "mars", by=["seat"])(batch, rewards).tolist() == [-2, 2, -1, 1]
    monkeypatch.setattr(TurnBatch, "permute_within", lambda batch, rows, groups: np.array([2, 0, 3, 1]))
    assert choose("estimator", "regrouped", of=mars, what=["seat"])(batch, rewards).tolist() == [-0.5, 0.5, 0.5, -0.5]


def test_regrouped_situations_stay_in_their_deal_with_equal_counts() -> None:
    """GiGPO's anchors: every deal keeps its situations, but at other turns."""
    trajectories = [
        make_trajectory([0, 1, 2], seed=seed, observations=["p", "q", f"r{n}"]) for seed in (1, 2) for n in range(6)
    ]
    batch, rewards = make_batch(trajectories)
    batches: list[TurnBatch] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ESTIMATORS, "record_batch", lambda batch, rewards: (batches.append(batch), rewards)[1])
        choose("estimator", "regrouped", of="record_batch", what=["situation"], within=["seed"])(batch, rewards)
    before, after = get_situations(batch), get_situations(batches[0])
    for rows in (slice(0, 18), slice(18, 36)):
        assert sorted(Counter(before[rows]).values()) == sorted(Counter(after[rows]).values()) == [1] * 6 + [6, 6]
        firsts = {new for old, new in zip(before[rows], after[rows], strict=True) if old == before[rows.start]}
        assert len(firsts) > 1, "situations moved to other turns"
    control = choose("estimator", "regrouped", of="gigpo", what=["situation"], within=["game", "seed", "role"])
    assert control(batch, rewards).tolist() != choose("estimator", "gigpo")(batch, rewards).tolist()


# -- beside naive loops -------------------------------------------------------------------------------------


def compute_naively(estimator: str, trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Compute an estimator at its defaults with lists and loops."""
    rewards = [[turn.rewards["deal"] for turn in t.turns] for t in trajectories]
    task = [(t.game, t.seed, t.role) for t in trajectories]

    def to_go(values: list[float], gamma: float) -> list[float]:
        return [sum(gamma ** (j - k) * values[j] for j in range(k, len(values))) for k in range(len(values))]

    def standard(value: float, comparison: list[float], std: bool, ddof: int = 1) -> float:
        if len(comparison) < 2:
            return 0.0
        difference, spread = value - float(np.mean(comparison)), float(np.std(comparison, ddof=ddof))
        return (difference / (spread + 1e-6) if spread >= 1e-6 else 0.0) if std else difference

    def same_task(m: int) -> list[int]:
        return [n for n in range(len(trajectories)) if task[n] == task[m]]

    result = []
    for m, own_rewards in enumerate(rewards):
        peers = same_task(m)
        totals = [sum(rewards[n]) for n in peers]
        if estimator in ("grpo", "dr_grpo"):
            result.append([standard(sum(own_rewards), totals, estimator == "grpo")] * len(own_rewards))
        elif estimator == "rloo":
            others = [sum(rewards[n]) for n in peers if n != m]
            result.append([sum(own_rewards) - float(np.mean(others)) if others else 0.0] * len(own_rewards))
        elif estimator == "at_grpo":
            comparison = [
                [to_go(rewards[n], 1.0)[k] for n in peers if len(rewards[n]) > k] for k in range(len(own_rewards))
            ]
            result.append([standard(v, comparison[k], True) for k, v in enumerate(to_go(own_rewards, 1.0))])
        elif estimator == "reinforce_pp":
            all_returns = [v for values in rewards for v in to_go(values, 1.0)]
            result.append([standard(v, all_returns, True, 0) for v in to_go(own_rewards, 1.0)])
        elif estimator == "gigpo":
            returns_by_observation = defaultdict(list)
            for n in peers:
                for turn, value in zip(trajectories[n].turns, to_go(rewards[n], 0.95), strict=True):
                    returns_by_observation[turn.messages[0].text].append(value)
            episode = standard(sum(own_rewards), totals, False)
            observations = [turn.messages[0].text for turn in trajectories[m].turns]
            result.append(
                [
                    episode + standard(v, returns_by_observation[observations[k]], False)
                    for k, v in enumerate(to_go(own_rewards, 0.95))
                ],
            )
        elif estimator == "step_episode":

            def broken(n: int) -> list[float]:
                values, running = list(rewards[n]), 0.0
                for k in range(len(values) - 1, -1, -1):
                    matched = "match" in trajectories[n].turns[k].rewards
                    values[k] += 0.5 * running if matched else 0.0
                    running = values[k] if matched else 0.0
                return values

            pooled = [v for n in peers for v in rewards[n]]
            comparison = [[broken(n)[k] for n in peers if len(rewards[n]) > k] for k in range(len(own_rewards))]
            result.append(
                [
                    standard(own_rewards[k], pooled, True) + standard(v, comparison[k], True)
                    for k, v in enumerate(broken(m))
                ],
            )
        elif estimator == "epo_weighted":
            values = to_go(own_rewards, 0.99)
            top = max(map(abs, values))
            result.append([v / top if top else 0.0 for v in values])
        elif estimator == "rae":
            before = [
                sum(rewards[n])
                for n in range(m)
                if (trajectories[n].game, trajectories[n].role) == (task[m][0], task[m][2])
            ]
            baseline = sum(0.05 * value * 0.95**age for age, value in enumerate(reversed(before)))
            result.append([sum(own_rewards) - baseline] * len(own_rewards))
        else:
            key = (trajectories[m].game, trajectories[m].role, trajectories[m].policy)
            same_role = [r for t, r in zip(trajectories, rewards, strict=True) if (t.game, t.role, t.policy) == key]
            mean = float(np.mean([v for values in same_role for v in to_go(values, 1.0)]))
            result.append([v - mean for v in to_go(own_rewards, 1.0)])
    return result


@st.composite
def draw_trajectories(draw: st.DrawFn) -> list[Trajectory]:
    trajectories = []
    for m in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 4))

        def draw_list(values: st.SearchStrategy[Any], count: int = count) -> Any:
            return draw(st.lists(values, min_size=count, max_size=count))

        trajectories.append(
            make_trajectory(
                draw_list(st.integers(-3, 3)),
                draw(st.sampled_from(["opener", "responder"])),
                seed=draw(st.integers(0, 1)),
                observations=draw_list(st.sampled_from("st")),
                matched=draw_list(st.booleans()),
                tokens=draw_list(st.integers(1, 4)),
                match=str(m),
            )
        )
    return trajectories


@pytest.mark.parametrize("estimator", TURN_LEVEL)
@settings(max_examples=25, deadline=None)
@given(trajectories=draw_trajectories())
def test_vectorised_equals_naive(estimator: str, trajectories: list[Trajectory]) -> None:
    assert compute_advantages(estimator, trajectories) == approximate(compute_naively(estimator, trajectories), 1e-6)


@settings(max_examples=40, deadline=None)
@given(trajectories=draw_trajectories())
def test_mars_released_equals_naive(trajectories: list[Trajectory]) -> None:
    batch, rewards = make_batch(trajectories)
    actual = choose("estimator", "mars_released")(batch, rewards)[batch.token_turns]
    if len(actual) > 1:  # a single token cannot be whitened
        assert actual == pytest.approx(np.concatenate(compute_mars_token_by_token(trajectories)), abs=1e-5)


# -- invariances --------------------------------------------------------------------------------------------


def make_mixed_trajectories(seed: int = 0) -> list[Trajectory]:
    """Return two deals of four matches each, with both roles and various lengths."""
    rng, trajectories = np.random.default_rng(seed), []
    for i in range(16):
        count = int(rng.integers(1, 5))
        trajectories.append(
            make_trajectory(
                rng.normal(size=count).round(2).tolist(), ("opener", "responder")[i % 2], seed=i // 2 % 2,
                observations=rng.choice(["s", "t"], count).tolist(), matched=(rng.random(count) < 0.6).tolist(),
                tokens=rng.integers(1, 6, count).tolist(), match=str(i // 2),
            )
        )  # fmt: skip
    return trajectories


@pytest.mark.parametrize("estimator", [e for e in ALL_ESTIMATORS if e != "rae"])
def test_permuting_trajectories_permutes_advantages(estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    order = np.random.default_rng(1).permutation(len(trajectories))
    original, permuted = (
        compute_advantages(estimator, trajectories),
        compute_advantages(estimator, [trajectories[i] for i in order]),
    )
    assert permuted == approximate([original[i] for i in order], 1e-9)


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_another_policy_changes_nothing(estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    others = [
        make_trajectory([9.0, 9.0], "judge", seed=7, policy="other"),
        make_trajectory([-9.0], "judge", seed=7, policy="other"),
    ]
    mixed = [others[0], *trajectories, others[1]]
    assert compute_advantages(estimator, mixed)[1:-1] == approximate(compute_advantages(estimator, trajectories), 1e-9)


@pytest.mark.parametrize("estimator", [e for e in TURN_LEVEL if e != "reinforce_pp"])
def test_another_role_of_the_same_policy_changes_nothing(estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    mixed = [*trajectories, make_trajectory([9.0, 9.0], "judge"), make_trajectory([-9.0], "judge")]
    assert compute_advantages(estimator, mixed)[: len(trajectories)] == approximate(
        compute_advantages(estimator, trajectories), 1e-9
    )


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "at_grpo", "gigpo", "step_episode", "epo_weighted"])
def test_another_deal_changes_nothing(estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    first = [t for t in trajectories if t.seed == 0]
    together, alone = compute_advantages(estimator, trajectories), compute_advantages(estimator, first)
    assert [a for a, t in zip(together, trajectories, strict=True) if t.seed == 0] == approximate(alone, 1e-9)


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_only_released_mars_depends_on_token_counts(estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    rng = np.random.default_rng(4)
    longer = [
        make_trajectory(
            [turn.rewards["deal"] for turn in t.turns],
            t.role,
            t.seed,
            [turn.messages[0].text for turn in t.turns],
            ["match" in turn.rewards for turn in t.turns],
            rng.integers(1, 50, len(t.turns)).tolist(),
            match=t.match,
        )
        for t in trajectories
    ]
    is_same = compute_advantages(estimator, trajectories) == compute_advantages(estimator, longer)
    assert is_same == (estimator != "mars_released")


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_uncounted_trajectories_are_absent_for_all_others(estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    counted = np.random.default_rng(5).random(len(trajectories)) < 0.7
    masked_memory: dict[str, Any] = {}
    counted_memory: dict[str, Any] = {}
    masked = compute_advantages(estimator, trajectories, counted=counted, memory=masked_memory)
    counted_only = compute_advantages(
        estimator, [t for t, c in zip(trajectories, counted, strict=True) if c], memory=counted_memory
    )
    assert [a for a, c in zip(masked, counted, strict=True) if c] == approximate(
        counted_only, 1e-9
    ) and masked_memory == counted_memory
    assert all(np.isfinite(a).all() and np.abs(a).max() < 100 for a in masked), "the masked ones learn too"


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_advantages_are_finite_if_nothing_is_counted(estimator: str) -> None:
    for values in compute_advantages(estimator, make_mixed_trajectories(), counted=np.zeros(16, bool)):
        assert np.isfinite(values).all() and (estimator in ("rae", "epo_weighted") or not np.any(values))


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_uncounted_outlier_among_equals_stays_bounded(estimator: str) -> None:
    trajectories = [make_trajectory([1.0]), make_trajectory([1.0]), make_trajectory([5.0])]
    values = compute_advantages(estimator, trajectories, counted=np.array([True, True, False]))
    assert np.abs(values).max() <= 8.0  # gigpo's episode and step give 4 each


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_dropped_trajectories_are_absent(monkeypatch: pytest.MonkeyPatch, estimator: str) -> None:
    trajectories = make_mixed_trajectories()
    is_dropped = np.random.default_rng(6).random(len(trajectories)) < 0.3

    def drop_some(batch: TurnBatch, rewards: np.ndarray, selection: Selection) -> Selection:
        return selection.drop(batch, is_dropped)

    monkeypatch.setitem(SELECTORS, "drop_some", drop_some)
    dropped = assign(
        make_batch(trajectories)[0],
        CreditSpec.model_validate(dict(estimator=estimator, select=["drop_some"], weights={"match": 0.0})),
    )
    remaining = [t for t, g in zip(trajectories, is_dropped, strict=True) if not g]
    assert [c.advantages.tolist() for c in dropped] == approximate(compute_advantages(estimator, remaining), 1e-9)


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_empty_batch_is_no_error(estimator: str) -> None:
    batch = TurnBatch([])
    assert len(choose("estimator", estimator)(batch, np.zeros(0))) == 0


@pytest.mark.parametrize("estimator", ALL_ESTIMATORS)
def test_turns_with_different_rewards_get_different_advantages(estimator: str) -> None:
    """Every turn of a group with different values is credited, except the listed zeros."""
    trajectories = [
        make_trajectory([float(i), 0.3 * i * i], matched=[True, True], observations=["s", "t"]) for i in range(1, 5)
    ]
    values = compute_advantages(estimator, trajectories)
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
