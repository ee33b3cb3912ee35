"""The reward stage `reward_model`: scores on last turns, agreement, the alarm on a planted exploit, and refusals."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.stream import MediaSpan
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.credit.asking import AskContext
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.rewards.reward_model import Scorer
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError, PlayError, StoreError
from arena.learn.reward_model import RewardModel
from arena.preflight import preflight
from arena.records import Trajectory
from arena.reward_models.examples import Outcome, make_examples
from arena.store.run import RunFolder
from tests.factories.labs import check_resume, run_lab
from tests.factories.preferences import make_stream, make_training
from tests.factories.records import make_turn, wrap_turns

CONFIG = """\
name: scored
iterations: 3
threads: 1
game: {name: negotiation, options: {illegal: end, max_turns: 4, talk: false}}
policies:
  shared: {model: nano, imitate: {scripted: [random], matches: 24, epochs: 3, minibatches: 4, lr: 3e-3}}
seats:
  opener: {role: nano_opener, policy: shared}
  responder: {role: nano_responder, policy: shared}
play: {matches: 6, group: 2, in_flight: 4}
checkpoint: {keep: 5}
credit:
  stages: [{reward_model: {model: MODEL}}]
learn: {lr: 1e-3, minibatches: 2, regularisers: {kl: {weight: 0.01}}, gate_tolerance: 0.01}
"""


def make_wordy_outcomes(seed: int, count: int) -> list[Outcome]:
    """Return conversations whose outcome is their length."""
    lengths = np.random.default_rng(seed).integers(1, 25, count)
    streams = [
        make_stream([*np.random.default_rng(n).integers(280, 290, size).tolist(), 670])
        for n, size in enumerate(lengths)
    ]
    return [Outcome(s, float(len(s)), n, "all") for n, s in enumerate(streams)]


@pytest.fixture(scope="module")
def length_biased_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a reward model that learned to pay for length."""
    folder = tmp_path_factory.mktemp("lengthy")
    examples = make_examples(make_wordy_outcomes(0, 160), "bradley_terry", 0.2, 4, 0.0, np.random.default_rng(0))
    wait(make_training(folder, examples, epochs=2, iterations=1).run())
    return folder


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a reward model with random scores."""
    folder = tmp_path_factory.mktemp("random")
    reward_model = RewardModel.load(resolve("nano"))
    torch.nn.init.normal_(reward_model.module.head.weight, generator=torch.Generator().manual_seed(0))
    reward_model.save(folder)
    return folder


def make_scorer(folder: Path, notes: list[str] | None = None, state: Any = None, **settings: Any) -> Scorer:
    asker: Any = None  # a reward model asks no policy
    context = AskContext(asker, lambda game, seed: "", ([] if notes is None else notes).append)
    defaults: dict[str, Any] = {"model": str(folder), "seats": None, "pays": "learned", "window": 4}
    return Scorer(context, state or {}, **defaults | settings)


def make_conversation(number: int, length: int, payoff: float, turns: int = 1, **changes: Any) -> Trajectory:
    ids = np.random.default_rng(number).integers(280, 290, length).tolist()
    streams = (make_stream([5]), make_stream([*ids, 670]))  # memory dropped the first: only the last is scored
    turn_list = [make_turn(k, {}) for k in range(turns)]
    return wrap_turns(turn_list, **{"match": f"m{number}", "streams": streams, "payoff": payoff, **changes})


def test_score_reads_the_last_stream_and_is_paid_on_the_last_turn(random_model: Path) -> None:
    scorer = make_scorer(random_model, seats=["opener"])
    trajectories = [
        make_conversation(0, 5, 1.0, turns=3),
        make_conversation(1, 9, 0.0),
        make_conversation(2, 4, 1.0, seat="other"),
        make_conversation(3, 4, 1.0, streams=()),
    ]
    scores = wait(scorer.measure(1, trajectories))
    expected = RewardModel.load(random_model).score([one.streams[-1] for one in trajectories[:2]], 4096)
    assert scores[0][:2].tolist() == [0, 0] and [len(array) for array in scores] == [3, 1, 1, 1]
    assert [scores[0][-1], scores[1][-1]] == pytest.approx(expected.tolist(), rel=1e-4)
    assert scores[2][-1] == scores[3][-1] == 0
    repeated = wait(scorer.measure(1, trajectories[:2]))
    assert repeated[0][-1] == scores[0][-1], "scored once per iteration"
    figures = scorer.report(1)
    assert figures["agreement"] == float(expected[0] > expected[1]) and figures["payoff"] == 0.5
    assert figures["value"] == pytest.approx(expected.mean(), rel=1e-4) and figures["alarm"] == 0
    batch = TurnBatch(trajectories, measures={"reward_model.learned": scores})
    rule = CreditSpec.model_validate(
        {"stages": [{"reward_model": {"model": str(random_model)}}], "weights": {"learned": 2.0}}
    )
    assert [c.rewards[-1] for c in assign(batch, rule)] == pytest.approx([2 * float(f[-1]) for f in scores])


@pytest.mark.slow
def test_alarm_is_raised_when_a_length_biased_model_is_exploited(length_biased_model: Path) -> None:
    """Replies get longer and worse: the learned reward rises, and the true outcome falls."""
    notes: list[str] = []
    scorer = make_scorer(length_biased_model, notes)
    for k in range(1, 7):
        wait(scorer.measure(k, [make_conversation(100 * k + n, 2 + 3 * k + n % 2, payoff=-float(k)) for n in range(8)]))
        figures = scorer.report(k)
        restored = make_scorer(length_biased_model, notes, json.loads(json.dumps(scorer.state())))
        scorer = restored if k == 3 else scorer
    assert figures["alarm"] == 1
    assert len(notes) == 1 and "iteration 4: reward model of learned: over 4 iterations its value rose" in notes[0]
    honest = make_scorer(length_biased_model, notes)
    for k in range(1, 7):
        wait(
            honest.measure(
                k, [make_conversation(100 * k + n, 2 + 3 * k + n % 2, payoff=float(k + n % 2)) for n in range(8)]
            )
        )
        assert honest.report(k)["alarm"] == 0


def test_changed_model_or_image_stops_the_run(random_model: Path, tmp_path: Path) -> None:
    shutil.copytree(random_model, tmp_path / "own")
    scorer = make_scorer(tmp_path / "own")
    wait(scorer.measure(1, [make_conversation(0, 3, 0.0)]))
    RewardModel.load(resolve("nano")).save(tmp_path / "own")
    with pytest.raises(StoreError, match="changed since this run began"):
        wait(make_scorer(tmp_path / "own", state=scorer.state()).measure(2, [make_conversation(0, 3, 0.0)]))
    with_image = make_stream([1, 2])
    with_image.media.append(MediaSpan(0, 1, "0" * 64))
    with pytest.raises(PlayError, match="without images"):
        wait(scorer.measure(2, [make_conversation(0, 3, 0.0, streams=(with_image,))]))


def make_experiment(random_model: Path | str, *assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG.replace("MODEL", str(random_model))), *map(set_layer, assignments)])


@pytest.mark.slow
def test_resume_with_reward_model_is_bit_equal(random_model: Path, tmp_path: Path) -> None:
    check_resume(make_experiment(random_model), tmp_path)


def test_metrics_hold_the_over_optimisation_curve(random_model: Path, tmp_path: Path) -> None:
    run_lab(tmp_path / "run", make_experiment(random_model, "iterations=2"))
    for row in RunFolder.open(tmp_path / "run").reader.metrics():
        figures = row["reward_model.learned"]
        assert (
            {"value", "payoff", "agreement", "correlation", "alarm"} >= figures.keys() >= {"value", "payoff", "alarm"}
        )
        assert row["learn"]["shared"]["kl"] >= 0


@pytest.mark.slow
def test_weight_zero_measures_without_changing_the_run(random_model: Path, tmp_path: Path) -> None:
    run_lab(tmp_path / "measured", make_experiment(random_model, "iterations=2", "credit.weights={learned: 0.0}"))
    without = CONFIG.replace("stages: [{reward_model: {model: MODEL}}]", "stages: []")
    run_lab(tmp_path / "plain", compose([text_layer("test", without), set_layer("iterations=2")]))
    rows = [RunFolder.open(tmp_path / name).reader.metrics() for name in ("measured", "plain")]
    assert all({"value", "payoff", "alarm"} <= row["reward_model.learned"].keys() for row in rows[0])
    assert [row["learn"] for row in rows[0]] == [row["learn"] for row in rows[1]]
    measured_weights, plain_weights = (
        tmp_path / name / "checkpoints/0002/policies/shared/model.safetensors" for name in ("measured", "plain")
    )
    assert measured_weights.read_bytes() == plain_weights.read_bytes()


def read_refusal(experiment: Experiment) -> str:
    with pytest.raises(ConfigError) as error:
        wait(preflight(experiment, lambda step: None))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_unusable_reward_model_is_refused_before_the_run(
    random_model: Path, length_biased_model: Path, tmp_path: Path
) -> None:
    wait(preflight(make_experiment(random_model), lambda step: None))
    wait(preflight(make_experiment(length_biased_model), lambda step: None))
    assert "is no reward model" in read_refusal(make_experiment("nano"))
    assert "nowhere" in read_refusal(make_experiment("runs/nowhere"))
    other_model = tmp_path / "other"
    shutil.copytree(random_model, other_model)
    template = (other_model / "chat_template.jinja").read_text()
    (other_model / "chat_template.jinja").write_text(template.replace("'<|im_end|>'", "'<|im_end|><|im_end|>'"))
    assert "has another tokenizer or chat template than" in read_refusal(make_experiment(other_model))
    seats = CONFIG.replace("model: MODEL", f"model: {random_model}, seats: [openr]")
    message = read_refusal(compose([text_layer("test", seats)]))
    assert "no trained policy has the seat 'openr' — did you mean 'opener'?" in message


def test_refuses_two_models_for_one_reward(random_model: Path) -> None:
    stages: Sequence[Any] = [{"reward_model": {"model": str(random_model)}}] * 2
    with pytest.raises(ValueError, match=r"two stages measure reward_model\.learned"):
        CreditSpec.model_validate({"stages": stages})
