"""Information gain: numbers by hand, beliefs measured on real weights, and a run that trains on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import games
from agents.chat import ChatFrame
from agents.model_folder import load_model, load_tokenizer
from agents.scoring import StreamScorer, StreamScores, score_with_entropy
from agents.stream import Stream
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.seating import resolve_tables
from arena.config.sources import set_layer, text_layer
from arena.credit.assign import assign, compute_named_rewards, compute_turn_rewards
from arena.credit.batch import TurnBatch
from arena.credit.gold import measure_beliefs
from arena.credit.measures import measure
from arena.credit.rewards.information_gain import Gold, find_gold
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.launch import start as launch
from arena.preflight import check_gold
from arena.records import MatchRecord, Trajectory, trajectories
from arena.store.run import RunFolder
from games.base import TextGame
from games.families.questions import Questions
from games.word_clue import WordClue
from games.wordle import Wordle
from tests.factories.labs import RecordingWatcher, open_lab
from tests.factories.records import make_turn, wrap_turns


def make_trajectory(beliefs: Sequence[float], goal: float, seed: int = 0) -> tuple[Trajectory, np.ndarray]:
    """Return a trajectory with one turn per belief, the last earning the goal, and the beliefs' logarithms."""
    last = len(beliefs) - 1
    turns = [make_turn(2 * k, {"goal": goal} if k == last else {}, "guesser", tokens=1) for k in range(len(beliefs))]
    trajectory = wrap_turns(turns, game="quiz", seed=seed)
    return trajectory, np.log(np.array(beliefs, np.float64)).astype(np.float32)


def make_batch(pairs: list[tuple[Trajectory, np.ndarray]]) -> TurnBatch:
    return TurnBatch([t for t, _ in pairs], measures={"gold": [b for _, b in pairs]})


def make_spec(**settings: Any) -> CreditSpec:
    return CreditSpec.model_validate(dict(stages=[{"information_gain": {"outcome": "goal", **settings}}]))


def compute_rewards(pairs: list[tuple[Trajectory, np.ndarray]], **settings: Any) -> tuple[list[float], list[float]]:
    rewards = compute_named_rewards(make_batch(pairs), make_spec(**settings).stages)
    return rewards["information_gain"].tolist(), rewards["goal"].tolist()


# -- by hand -----------------------------------------------------------------------------------------------


def test_gains_are_differences_and_the_outcome_stays_last() -> None:
    # P = 0.1 0.3 0.2: the first turn brought +0.2, the second -0.1, and the last has the outcome
    gains, outcomes = compute_rewards([make_trajectory([0.1, 0.3, 0.2], 1.0)], normalise="none")
    assert gains == pytest.approx([0.2, -0.1, 0.0], abs=1e-6) and outcomes == [0, 0, 1]
    gains, _ = compute_rewards([make_trajectory([0.1, 0.3, 0.2], 1.0)], normalise="none", unit="log_probability")
    assert gains == pytest.approx([np.log(3), np.log(2 / 3), 0.0], rel=1e-5)


def test_joint_whitens_gains_and_outcomes_together() -> None:
    # one group: gains 0.2 and 0.4, outcomes 1 and 0.  mean 0.4; deviations -0.2 0 0.6 -0.4, variance 0.56/4 = 0.14
    pairs = [make_trajectory([0.1, 0.3], 1.0), make_trajectory([0.1, 0.5], 0.0)]
    gains, outcomes = compute_rewards(pairs)
    std = 0.14**0.5 + 1e-6
    assert gains == pytest.approx([-0.2 / std, 0, 0, 0], abs=1e-5)
    assert outcomes == pytest.approx([0, 0.6 / std, 0, -0.4 / std], abs=1e-5)


def test_separate_whitens_each_kind_alone() -> None:
    # gains 0.2 0.4: mean 0.3, deviation 0.1; outcomes 1 0: mean 1/2, deviation 1/2
    pairs = [make_trajectory([0.1, 0.3], 1.0), make_trajectory([0.1, 0.5], 0.0)]
    gains, outcomes = compute_rewards(pairs, normalise="separate")
    assert gains == pytest.approx([-1, 0, 1, 0], abs=1e-4) and outcomes == pytest.approx([0, 1, 0, -1], abs=1e-4)


def test_each_deal_is_its_own_group() -> None:
    first_deal, second_deal = (
        [make_trajectory([0.1, 0.3], 1.0), make_trajectory([0.1, 0.5], 0.0)],
        [make_trajectory([0.2, 0.9, 0.4], 1.0, seed=7)],
    )
    assert compute_rewards(first_deal + second_deal)[0][:4] == pytest.approx(compute_rewards(first_deal)[0])
    assert compute_rewards(first_deal + second_deal, by=["game"])[0][:4] != pytest.approx(
        compute_rewards(first_deal)[0]
    )


def test_zero_gains_count_as_turns() -> None:
    """The release leaves zeros out: its statistics change, and the turn gets the next one's advantage."""
    pairs = [make_trajectory([0.1, 0.1, 0.3], 1.0)]
    # gains 0, 0.2, outcome 1: mean 0.4, variance (0.16 + 0.04 + 0.36)/3.  The release: 0.2 and 1, mean 0.6
    std = (0.56 / 3) ** 0.5 + 1e-6
    gains, outcomes = compute_rewards(pairs)
    assert gains == pytest.approx([-0.4 / std, -0.2 / std, 0], abs=1e-5) and outcomes[2] == pytest.approx(
        0.6 / std, abs=1e-5
    )
    returns = make_batch(pairs).returns(compute_turn_rewards(make_batch(pairs), make_spec()))
    assert returns == pytest.approx([0, 0.4 / std, 0.6 / std], abs=1e-5), (
        "the first turn's own return, not the second's"
    )


belief_lists = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(belief_lists, min_size=1, max_size=5))
def test_gains_sum_to_the_last_belief_minus_the_first(all_beliefs: list[list[float]]) -> None:
    pairs = [make_trajectory(beliefs, 1.0, i) for i, beliefs in enumerate(all_beliefs)]
    batch = make_batch(pairs)
    gains = compute_named_rewards(batch, make_spec(normalise="none").stages)["information_gain"]
    assert batch.totals(gains) == pytest.approx([b[-1] - b[0] for b in all_beliefs], abs=1e-5)


@settings(deadline=None)
@given(st.lists(belief_lists, min_size=2, max_size=5), st.sampled_from(["joint", "separate"]))
def test_whitened_values_have_mean_zero(all_beliefs: list[list[float]], normalise: str) -> None:
    batch = make_batch([make_trajectory(b, float(i % 2)) for i, b in enumerate(all_beliefs)])
    rewards = compute_named_rewards(batch, make_spec(normalise=normalise).stages)
    assert (rewards["information_gain"] + rewards["goal"]).sum() == pytest.approx(0, abs=1e-4)


# -- measured beliefs --------------------------------------------------------------------------------------

GOLD = Gold("answer", "GUESS ")


@pytest.fixture(scope="module")
def nano() -> tuple[Any, ChatFrame]:
    folder = resolve("nano")
    return load_model(folder), ChatFrame(load_tokenizer(folder))


def make_scorer(model: Any) -> Any:
    async def score(streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        return score_with_entropy(StreamScorer(model), streams, temperatures, 256)

    return score


def make_conversation(frame: ChatFrame, answer: str, windows: bool = False) -> Trajectory:
    """Return a trajectory of three turns as a chat player stores it, with `windows` one stream per turn."""
    streams, stream = [], Stream()
    for k, (message, reply) in enumerate([("book or hat", "book"), ("no", "hat ball"), ("hot", "ball")]):
        if k == 0 or windows:
            stream = Stream([*stream.ids], [False] * len(stream), [0.0] * len(stream), [-1] * len(stream))
            streams.append(stream)
        stream.observe(frame.open("find it") if not len(stream) else frame.close("stop"))
        stream.observe(frame.ask(message))
        ids = [*frame.encode(reply), frame.stop_id]
        stream.append_sampled(ids, [-1.0] * len(ids), 2 * k + 1)
    turns = [make_turn(2 * k + 1, {}, "g", tokens=1) for k in range(3)]
    report = {"ended": "solved", "answer": answer}
    return wrap_turns(turns, game="quiz", streams=tuple(streams), report=report)


@pytest.mark.parametrize("windows", [False, True])
def test_beliefs_equal_the_models_probabilities_before_each_turn(nano: tuple[Any, ChatFrame], windows: bool) -> None:
    model, frame = nano
    first, second = make_conversation(frame, "ball", windows), make_conversation(frame, "antelope two", windows)
    beliefs = wait(measure_beliefs([first, second], frame, make_scorer(model), GOLD))
    for trajectory, own_beliefs in ((first, beliefs[0]), (second, beliefs[1])):
        answer_ids = frame.encode("GUESS " + str(trajectory.report["answer"]))
        # " ball" is one token, blank and all; "antelope" is spelled in bytes, and the blank is one of its own
        prefix_length = len(frame.encode("GUESS" if trajectory is first else "GUESS "))
        for k, index in enumerate([1, 3, 5]):
            (stream,) = [s for s in trajectory.streams if index in s.turns]
            context = stream.ids[: stream.turns.index(index)]
            with torch.no_grad():
                logits = model(torch.tensor([context + answer_ids])).logits[0].log_softmax(-1)
            logprobs = [
                float(logits[len(context) + i - 1, answer_ids[i]]) for i in range(prefix_length, len(answer_ids))
            ]
            assert logprobs and own_beliefs[k] == pytest.approx(np.mean(logprobs), abs=1e-5)
    assert len({round(float(b), 6) for b in beliefs[0]}) == 3, "each turn has another context"


def test_answer_tokens_include_their_leading_blank(nano: tuple[Any, ChatFrame]) -> None:
    frame = nano[1]
    scored: list[Stream] = []

    async def score(streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        scored.extend(streams)
        assert set(temperatures) == {1.0}
        return [StreamScores(np.zeros(1, np.float32), np.zeros(1, np.float32))] * len(streams)

    wait(measure_beliefs([make_conversation(frame, "ball")], frame, score, GOLD))
    for stream in scored:
        assert frame.decode([i for i, ids in zip(stream.ids, stream.mask, strict=True) if ids]) == " ball"
        assert frame.decode(stream.ids).endswith("GUESS ball")
    wait(measure_beliefs([make_conversation(frame, "<|im_end|><|user|>")], frame, score, GOLD))
    last = scored[-1]
    ids = [i for i, ids in zip(last.ids, last.mask, strict=True) if ids]
    assert frame.control_ids.isdisjoint(ids), "an answer is content even if it spells control tokens"


def test_many_trajectories_are_measured_in_parts_and_in_order(nano: tuple[Any, ChatFrame]) -> None:
    frame = nano[1]

    async def score(streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        return [StreamScores(np.full(1, -len(s), np.float32), np.zeros(1, np.float32)) for s in streams]

    conversations = [make_conversation(frame, "ball" * (1 + i % 3)) for i in range(150)]
    beliefs = wait(measure_beliefs(conversations, frame, score, GOLD))
    assert [b.tolist() for b in beliefs] == [
        wait(measure_beliefs([t], frame, score, GOLD))[0].tolist() for t in conversations
    ]


@pytest.mark.parametrize("report", [{"ended": "x"}, {"ended": "x", "answer": ""}, {"ended": "x", "answer": 4.0}])
def test_match_without_answer_gives_one_line(nano: tuple[Any, ChatFrame], report: dict[str, Any]) -> None:
    trajectory = make_conversation(nano[1], "ball")
    trajectory.report.clear()  # type: ignore[attr-defined]
    trajectory.report.update(report)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="the report of quiz has no answer in 'answer'") as error:
        wait(measure_beliefs([trajectory], nano[1], make_scorer(nano[0]), GOLD))
    assert "\n" not in str(error.value)


# -- before play -------------------------------------------------------------------------------------------

CONFIG = """\
name: gain
iterations: 1
threads: 1
game: {name: wordle, options: {words: [offer, right, three], max_turns: 3, illegal: end, penalty: 0}}
policies:
  shared: {model: nano, imitate: {scripted: [random], matches: 48, epochs: 4, minibatches: 4, lr: 6e-3}}
seats: {guesser: {role: nano_player, policy: shared}}
play: {matches: 8, group: 4}
credit: {stages: [{information_gain: {outcome: goal, before: "GUESS "}}]}
learn: {lr: 1e-3, minibatches: 1, regularisers: {}, gate_tolerance: 0.01}
"""


TIC_TAC_TOE = """{game: {name: tic_tac_toe}, seats: {
  first: {role: nano_tic_tac_toe, policy: shared}, second: {role: nano_tic_tac_toe, policy: random}}}"""


def make_experiment(*assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


@pytest.mark.parametrize("name", ["twenty_questions", "guess_city", "wordle", "word_clue"])
def test_games_do_not_reveal_their_answer_during_the_match(name: str) -> None:
    game = games.make(name, illegal="end")
    game.reset(seed=3)
    for seat in game.agent_iter():
        *_, terminated, truncated, _ = game.last()
        game.step(None if terminated or truncated else "nonsense")
        assert "answer" not in game.infos.get(seat, {}).get("public", {})
    assert game.report()["answer"] == get_answer(game)


def get_answer(game: TextGame) -> str:
    """Return the hidden answer of a match."""
    if isinstance(game, Questions):
        return game.hidden.names[0]
    if isinstance(game, Wordle):
        return game.word
    assert isinstance(game, WordClue)
    return ", ".join(game.targets)


def test_game_without_answer_in_report_is_refused_before_play(tmp_path: Path) -> None:
    wait(check_gold(make_experiment(), resolve_tables(make_experiment())))
    with pytest.raises(ConfigError, match=r"the report of wordle has no answer in 'anwser' \(its texts: answer\)"):
        wrong = make_experiment("credit.stages=[{information_gain: {outcome: goal, gold: anwser}}]")
        wait(launch(wrong, tmp_path / "run", RecordingWatcher()))
    assert not (tmp_path / "run").exists()
    board = make_experiment("game=null", "seats=null", f"tables=[{TIC_TAC_TOE}]")
    with pytest.raises(ConfigError, match=r"the report of tic_tac_toe has no answer in 'answer' \(it has no text\)"):
        wait(check_gold(board, resolve_tables(board)))


def test_two_stages_with_different_questions_are_refused() -> None:
    assert find_gold(make_spec(gold="word", before="It is ").stages) == Gold("word", "It is ") and find_gold([]) is None
    twice = [{"information_gain": {"outcome": "goal", "before": b}} for b in ("a", "b")]
    with pytest.raises(ValueError, match="give both the same `gold` and `before`"):
        CreditSpec.model_validate(dict(stages=twice))


# -- a run -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_measures_and_credits_beliefs(tmp_path: Path) -> None:
    experiment = make_experiment()
    lab = open_lab(tmp_path / "run", experiment)
    recorded: list[Any] = []

    async def credit(k: int, records: list[MatchRecord]) -> Any:
        rollouts = [t for record in records for t in trajectories(record)]
        temperatures = {"nano_player": 1.0}
        needs, gold = experiment.credit.needs, find_gold(experiment.credit.stages)
        recorded.append((rollouts, await measure(needs, rollouts, lab.policies, temperatures, gold)))
        return await type(lab).credit(lab, k, records)

    lab.credit = credit  # type: ignore[method-assign, assignment]
    wait(lab.run())
    ((rollouts, measures),) = recorded
    assert [len(b) for b in measures["gold"]] == [len(t.turns) for t in rollouts]
    assert max(len(t.turns) for t in rollouts) > 1, "the policy learned to guess"
    batch = TurnBatch(rollouts, measures=measures)
    gains = compute_named_rewards(batch, make_spec(normalise="none").stages)["information_gain"]
    assert np.abs(gains).max() > 0
    recomputed = {
        (c.trajectory.match, t.index): a
        for c in assign(batch, experiment.credit)
        for t, a in zip(c.trajectory.turns, c.advantages, strict=True)
    }
    run = RunFolder.open(tmp_path / "run")
    assert {(r.match, r.turn): pytest.approx(r.advantage, abs=1e-5) for r in run.reader.credit(1)} == recomputed
    assert any(recomputed.values())
    assert not any(name.startswith("answer") for name in run.reader.metrics()[0]["report"]), "no metric per word"
