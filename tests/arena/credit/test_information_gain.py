"""Information gain: numbers by hand, the belief behind it measured on real weights, and a run that lives on it."""

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
from agents.scoring import StreamScorer, StreamScores, score_with_entropy
from agents.stream import Stream
from agents.weights import load_model, load_tokenizer, resolve
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
from arena.records import MatchRecord, Trajectory, Turn, trajectories
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, open_lab
from tests.factories.trajectories import wrap_turns


def turn(index: int, **rewards: float) -> Turn:
    return Turn(
        index=index,
        seat="guesser",
        role="guesser",
        policy="shared",
        version=1,
        messages=(),
        raw="x",
        public="",
        private="",
        action="x",
        valid=True,
        rewards=rewards,
        finish="stop",
        tokens=1,
        seconds=0.0,
    )


def trajectory(beliefs: Sequence[float], goal: float, seed: int = 0) -> tuple[Trajectory, np.ndarray]:
    """A turn for each probability of the answer before it; the last one earns the goal."""
    turns = [turn(2 * k, **({"goal": goal} if k == len(beliefs) - 1 else {})) for k in range(len(beliefs))]
    made = wrap_turns(tuple(turns), game="quiz", seat="guesser", role="guesser", seed=seed)
    return made, np.log(np.array(beliefs, np.float64)).astype(np.float32)


def batch_of(found: list[tuple[Trajectory, np.ndarray]]) -> TurnBatch:
    return TurnBatch([t for t, _ in found], measures={"gold": [b for _, b in found]})


def stage(**settings: Any) -> CreditSpec:
    return CreditSpec.model_validate(dict(stages=[{"information_gain": {"outcome": "goal", **settings}}]))


def columns(found: list[tuple[Trajectory, np.ndarray]], **settings: Any) -> tuple[list[float], list[float]]:
    made = compute_named_rewards(batch_of(found), stage(**settings).stages)
    return made["information_gain"].tolist(), made["goal"].tolist()


# -- by hand -----------------------------------------------------------------------------------------------


def test_gains_are_differences_and_the_outcome_stays_last() -> None:
    # P = 0.1 0.3 0.2: the first turn brought +0.2, the second -0.1, and the last has the outcome
    gains, ends = columns([trajectory([0.1, 0.3, 0.2], 1.0)], normalise="none")
    assert gains == pytest.approx([0.2, -0.1, 0.0], abs=1e-6) and ends == [0, 0, 1]
    gains, _ = columns([trajectory([0.1, 0.3, 0.2], 1.0)], normalise="none", unit="log_probability")
    assert gains == pytest.approx([np.log(3), np.log(2 / 3), 0.0], rel=1e-5)


def test_joint_whitens_gains_and_outcomes_together() -> None:
    # one group: gains 0.2 and 0.4, outcomes 1 and 0.  mean 0.4; deviations -0.2 0 0.6 -0.4, variance 0.56/4 = 0.14
    found = [trajectory([0.1, 0.3], 1.0), trajectory([0.1, 0.5], 0.0)]
    gains, ends = columns(found)
    std = 0.14**0.5 + 1e-6
    assert gains == pytest.approx([-0.2 / std, 0, 0, 0], abs=1e-5)
    assert ends == pytest.approx([0, 0.6 / std, 0, -0.4 / std], abs=1e-5)


def test_separate_whitens_each_among_its_kind() -> None:
    # gains 0.2 0.4: mean 0.3, deviation 0.1; outcomes 1 0: mean 1/2, deviation 1/2
    found = [trajectory([0.1, 0.3], 1.0), trajectory([0.1, 0.5], 0.0)]
    gains, ends = columns(found, normalise="separate")
    assert gains == pytest.approx([-1, 0, 1, 0], abs=1e-4) and ends == pytest.approx([0, 1, 0, -1], abs=1e-4)


def test_each_deal_is_its_own_group() -> None:
    one, other = [trajectory([0.1, 0.3], 1.0), trajectory([0.1, 0.5], 0.0)], [trajectory([0.2, 0.9, 0.4], 1.0, seed=7)]
    assert columns(one + other)[0][:4] == pytest.approx(columns(one)[0])
    assert columns(one + other, by=["game"])[0][:4] != pytest.approx(columns(one)[0])


def test_a_gain_of_exactly_zero_is_a_turn_like_any_other() -> None:
    """The release leaves zeros out: its statistics change, and the turn gets the next one's advantage."""
    found = [trajectory([0.1, 0.1, 0.3], 1.0)]
    # gains 0, 0.2, outcome 1: mean 0.4, variance (0.16 + 0.04 + 0.36)/3.  The release: 0.2 and 1, mean 0.6
    std = (0.56 / 3) ** 0.5 + 1e-6
    gains, ends = columns(found)
    assert gains == pytest.approx([-0.4 / std, -0.2 / std, 0], abs=1e-5) and ends[2] == pytest.approx(
        0.6 / std, abs=1e-5
    )
    returns = batch_of(found).returns(compute_turn_rewards(batch_of(found), stage()))
    assert returns == pytest.approx([0, 0.4 / std, 0.6 / std], abs=1e-5), (
        "the first turn's own return, not the second's"
    )


chances = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(chances, min_size=1, max_size=5))
def test_gains_sum_to_the_last_belief_minus_the_first(found: list[list[float]]) -> None:
    made = [trajectory(beliefs, 1.0, i) for i, beliefs in enumerate(found)]
    batch = batch_of(made)
    gains = compute_named_rewards(batch, stage(normalise="none").stages)["information_gain"]
    assert batch.totals(gains) == pytest.approx([b[-1] - b[0] for b in found], abs=1e-5)


@settings(deadline=None)
@given(st.lists(chances, min_size=2, max_size=5), st.sampled_from(["joint", "separate"]))
def test_whitened_values_have_mean_zero(found: list[list[float]], normalise: str) -> None:
    batch = batch_of([trajectory(b, float(i % 2)) for i, b in enumerate(found)])
    made = compute_named_rewards(batch, stage(normalise=normalise).stages)
    assert (made["information_gain"] + made["goal"]).sum() == pytest.approx(0, abs=1e-4)


# -- the belief, measured ----------------------------------------------------------------------------------

GOLD = Gold("answer", "GUESS ")


@pytest.fixture(scope="module")
def nano() -> tuple[Any, ChatFrame]:
    folder = resolve("nano")
    return load_model(folder), ChatFrame(load_tokenizer(folder))


def score_with(model: Any) -> Any:
    async def score(streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        return score_with_entropy(StreamScorer(model), streams, temperatures, 256)

    return score


def spoken(frame: ChatFrame, answer: str, windows: bool = False) -> Trajectory:
    """Three turns, as a chat player keeps them; with `windows` each in a stream of its own, the past as context."""
    streams, stream = [], Stream()
    for k, (heard, said) in enumerate([("book or hat", "book"), ("no", "hat ball"), ("hot", "ball")]):
        if k == 0 or windows:
            stream = Stream([*stream.ids], [False] * len(stream), [0.0] * len(stream), [-1] * len(stream))
            streams.append(stream)
        stream.observe(frame.open("find it") if not len(stream) else frame.close("stop"))
        stream.observe(frame.ask(heard))
        ids = [*frame.encode(said), frame.stop_id]
        stream.append_sampled(ids, [-1.0] * len(ids), 2 * k + 1)
    turns = tuple(turn(2 * k + 1) for k in range(3))
    report = {"ended": "solved", "answer": answer}
    return wrap_turns(turns, game="quiz", seat="g", role="g", streams=tuple(streams), report=report)


@pytest.mark.parametrize("windows", [False, True])
def test_beliefs_are_the_models_own_before_each_turn(nano: tuple[Any, ChatFrame], windows: bool) -> None:
    model, frame = nano
    one, other = spoken(frame, "ball", windows), spoken(frame, "antelope two", windows)
    found = wait(measure_beliefs([one, other], frame, score_with(model), GOLD))
    for talk, said in ((one, found[0]), (other, found[1])):
        words = frame.encode("GUESS " + str(talk.report["answer"]))
        # " ball" is one token, blank and all; "antelope" is spelled in bytes, and the blank is one of its own
        lead = len(frame.encode("GUESS" if talk is one else "GUESS "))
        for k, place in enumerate([1, 3, 5]):
            (stream,) = [s for s in talk.streams if place in s.turns]
            context = stream.ids[: stream.turns.index(place)]
            with torch.no_grad():
                logits = model(torch.tensor([context + words])).logits[0].log_softmax(-1)
            own = [float(logits[len(context) + i - 1, words[i]]) for i in range(lead, len(words))]
            assert own and said[k] == pytest.approx(np.mean(own), abs=1e-5)
    assert len({round(float(b), 6) for b in found[0]}) == 3, "each turn's context tells something else"


def test_the_answers_tokens_begin_with_the_blank_that_belongs_to_them(nano: tuple[Any, ChatFrame]) -> None:
    frame = nano[1]
    seen: list[Stream] = []

    async def score(streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        seen.extend(streams)
        assert set(temperatures) == {1.0}
        return [StreamScores(np.zeros(1, np.float32), np.zeros(1, np.float32))] * len(streams)

    wait(measure_beliefs([spoken(frame, "ball")], frame, score, GOLD))
    for stream in seen:
        assert frame.decode([i for i, own in zip(stream.ids, stream.mask, strict=True) if own]) == " ball"
        assert frame.decode(stream.ids).endswith("GUESS ball")
    wait(measure_beliefs([spoken(frame, "<|im_end|><|user|>")], frame, score, GOLD))
    asked = seen[-1]
    own = [i for i, own in zip(asked.ids, asked.mask, strict=True) if own]
    assert frame.control_ids.isdisjoint(own), "an answer is content, whatever it spells"


def test_many_trajectories_are_asked_in_parts_and_come_back_in_order(nano: tuple[Any, ChatFrame]) -> None:
    frame = nano[1]

    async def score(streams: Sequence[Stream], temperatures: Sequence[float]) -> list[StreamScores]:
        return [StreamScores(np.full(1, -len(s), np.float32), np.zeros(1, np.float32)) for s in streams]

    talks = [spoken(frame, "ball" * (1 + i % 3)) for i in range(150)]
    whole = wait(measure_beliefs(talks, frame, score, GOLD))
    assert [b.tolist() for b in whole] == [wait(measure_beliefs([t], frame, score, GOLD))[0].tolist() for t in talks]


@pytest.mark.parametrize("report", [{"ended": "x"}, {"ended": "x", "answer": ""}, {"ended": "x", "answer": 4.0}])
def test_a_match_without_an_answer_is_told_in_one_line(nano: tuple[Any, ChatFrame], report: dict[str, Any]) -> None:
    talk = spoken(nano[1], "ball")
    talk.report.clear()  # type: ignore[attr-defined]
    talk.report.update(report)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="the report of quiz has no answer in 'answer'") as refusal:
        wait(measure_beliefs([talk], nano[1], score_with(nano[0]), GOLD))
    assert "\n" not in str(refusal.value)


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


def experiment(*assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), *map(set_layer, assignments)])


@pytest.mark.parametrize("name", ["twenty_questions", "guess_city", "wordle", "word_clue"])
def test_games_that_hide_an_answer_report_it_to_nobody_at_the_table(name: str) -> None:
    game = games.make(name, illegal="end")
    game.reset(seed=3)
    for seat in game.agent_iter():
        *_, terminated, truncated, _ = game.last()
        game.step(None if terminated or truncated else "nonsense")
        assert "answer" not in game.infos.get(seat, {}).get("public", {})
    hidden = {"twenty_questions": lambda: game.hidden.names[0], "guess_city": lambda: game.hidden.names[0]}
    hidden |= {"wordle": lambda: game.word, "word_clue": lambda: ", ".join(game.targets)}
    assert game.report()["answer"] == hidden[name]()


def test_a_game_that_reports_no_answer_is_refused_before_anybody_plays(tmp_path: Path) -> None:
    wait(check_gold(experiment(), resolve_tables(experiment())))
    with pytest.raises(ConfigError, match=r"the report of wordle has no answer in 'anwser' \(its texts: answer\)"):
        wrong = experiment("credit.stages=[{information_gain: {outcome: goal, gold: anwser}}]")
        wait(launch(wrong, tmp_path / "run", RecordingWatcher()))
    assert not (tmp_path / "run").exists()
    board = experiment("game=null", "seats=null", f"tables=[{TIC_TAC_TOE}]")
    with pytest.raises(ConfigError, match=r"the report of tic_tac_toe has no answer in 'answer' \(it has no text\)"):
        wait(check_gold(board, resolve_tables(board)))


def test_two_stages_that_ask_differently_are_refused() -> None:
    assert find_gold(stage(gold="word", before="It is ").stages) == Gold("word", "It is ") and find_gold([]) is None
    twice = [{"information_gain": {"outcome": "goal", "before": b}} for b in ("a", "b")]
    with pytest.raises(ValueError, match="give both the same `gold` and `before`"):
        CreditSpec.model_validate(dict(stages=twice))


# -- a run -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_measures_its_beliefs_and_credits_them(tmp_path: Path) -> None:
    given = experiment()
    lab = open_lab(tmp_path / "run", given)
    taken: list[Any] = []

    async def credit(k: int, records: list[MatchRecord]) -> Any:
        found = [t for record in records for t in trajectories(record)]
        heat = {"nano_player": 1.0}
        wanted, gold = given.credit.needs, find_gold(given.credit.stages)
        taken.append((found, await measure(wanted, found, lab.policies, heat, gold)))
        return await type(lab).credit(lab, k, records)

    lab.credit = credit  # type: ignore[method-assign, assignment]
    wait(lab.run())
    ((found, measures),) = taken
    assert [len(b) for b in measures["gold"]] == [len(t.turns) for t in found]
    assert max(len(t.turns) for t in found) > 1, "the policy learned to guess"
    batch = TurnBatch(found, measures=measures)
    gains = compute_named_rewards(batch, stage(normalise="none").stages)["information_gain"]
    assert np.abs(gains).max() > 0
    again = {
        (c.trajectory.match, t.index): a
        for c in assign(batch, given.credit)
        for t, a in zip(c.trajectory.turns, c.advantages, strict=True)
    }
    run = RunFolder.open(tmp_path / "run")
    assert {(r.match, r.turn): pytest.approx(r.advantage, abs=1e-5) for r in run.log.credit(1)} == again
    assert any(again.values())
    assert not any(name.startswith("answer") for name in run.reader.metrics()[0]["report"]), "no figure for each word"
