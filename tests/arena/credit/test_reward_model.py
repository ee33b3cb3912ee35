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
from tests.factories.labs import read_log, run_and_resume, run_lab
from tests.factories.preferences import make_stream, make_training
from tests.factories.trajectories import make_turn, wrap_turns

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


def wordy(seed: int, count: int) -> list[Outcome]:
    """Conversations that are worth their length."""
    lengths = np.random.default_rng(seed).integers(1, 25, count)
    said = [
        make_stream([*np.random.default_rng(n).integers(280, 290, size).tolist(), 670])
        for n, size in enumerate(lengths)
    ]
    return [Outcome(s, float(len(s)), n, "all") for n, s in enumerate(said)]


@pytest.fixture(scope="module")
def pays_length(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model that learned to pay for length: its training's folder."""
    folder = tmp_path_factory.mktemp("lengthy")
    given = make_examples(wordy(0, 160), "bradley_terry", 0.2, 4, 0.0, np.random.default_rng(0))
    wait(make_training(folder, given, epochs=2, iterations=1).run())
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model with random scores."""
    folder = tmp_path_factory.mktemp("random")
    made = RewardModel.load(resolve("nano"))
    torch.nn.init.normal_(made.module.head.weight, generator=torch.Generator().manual_seed(0))
    made.save(folder)
    return folder


def scorer(folder: Path, notes: list[str] | None = None, state: Any = None, **settings: Any) -> Scorer:
    asker: Any = None  # a reward model asks nobody
    context = AskContext(asker, lambda game, seed: "", ([] if notes is None else notes).append)
    plain: dict[str, Any] = {"model": str(folder), "seats": None, "pays": "learned", "window": 4}
    return Scorer(context, state or {}, **plain | settings)


def talk(number: int, length: int, payoff: float, turns: int = 1, **changes: Any) -> Trajectory:
    said = np.random.default_rng(number).integers(280, 290, length).tolist()
    streams = (make_stream([5]), make_stream([*said, 670]))  # memory dropped the first: only the last is read
    found = [make_turn(k, {}) for k in range(turns)]
    return wrap_turns(found, **{"match": f"m{number}", "streams": streams, "payoff": payoff, **changes})


def test_a_score_is_paid_on_the_last_turn_and_reads_the_last_stream(model: Path) -> None:
    made = scorer(model, seats=["opener"])
    given = [talk(0, 5, 1.0, turns=3), talk(1, 9, 0.0), talk(2, 4, 1.0, seat="other"), talk(3, 4, 1.0, streams=())]
    found = wait(made.measure(1, given))
    expected = RewardModel.load(model).score([one.streams[-1] for one in given[:2]], 4096)
    assert found[0][:2].tolist() == [0, 0] and [len(array) for array in found] == [3, 1, 1, 1]
    assert [found[0][-1], found[1][-1]] == pytest.approx(expected.tolist(), rel=1e-4)
    assert found[2][-1] == found[3][-1] == 0
    again = wait(made.measure(1, given[:2]))
    assert again[0][-1] == found[0][-1], "scored once per iteration"
    figures = made.report(1)
    assert figures["agreement"] == float(expected[0] > expected[1]) and figures["payoff"] == 0.5
    assert figures["value"] == pytest.approx(expected.mean(), rel=1e-4) and figures["alarm"] == 0
    batch = TurnBatch(given, measures={"reward_model.learned": found})
    rule = CreditSpec.model_validate({"stages": [{"reward_model": {"model": str(model)}}], "weights": {"learned": 2.0}})
    assert [c.rewards[-1] for c in assign(batch, rule)] == pytest.approx([2 * float(f[-1]) for f in found])


@pytest.mark.slow
def test_the_alarm_rises_when_a_model_that_pays_for_length_is_exploited(pays_length: Path) -> None:
    """Replies get longer and worse: the learned reward rises, and the true outcome falls."""
    notes: list[str] = []
    made = scorer(pays_length, notes)
    for k in range(1, 7):
        wait(made.measure(k, [talk(100 * k + n, 2 + 3 * k + n % 2, payoff=-float(k)) for n in range(8)]))
        figures = made.report(k)
        restored = scorer(pays_length, notes, json.loads(json.dumps(made.state())))
        made = restored if k == 3 else made
    assert figures["alarm"] == 1
    assert len(notes) == 1 and "iteration 4: reward model of learned: over 4 iterations its value rose" in notes[0]
    honest = scorer(pays_length, notes)
    for k in range(1, 7):
        wait(honest.measure(k, [talk(100 * k + n, 2 + 3 * k + n % 2, payoff=float(k + n % 2)) for n in range(8)]))
        assert honest.report(k)["alarm"] == 0


def test_a_changed_model_or_an_image_stops_the_run(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "own")
    made = scorer(tmp_path / "own")
    wait(made.measure(1, [talk(0, 3, 0.0)]))
    RewardModel.load(resolve("nano")).save(tmp_path / "own")
    with pytest.raises(StoreError, match="changed since this run began"):
        wait(scorer(tmp_path / "own", state=made.state()).measure(2, [talk(0, 3, 0.0)]))
    seen = make_stream([1, 2])
    seen.media.append(MediaSpan(0, 1, "0" * 64))
    with pytest.raises(PlayError, match="without images"):
        wait(made.measure(2, [talk(0, 3, 0.0, streams=(seen,))]))


def experiment(model: Path | str, *assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG.replace("MODEL", str(model))), *map(set_layer, assignments)])


@pytest.mark.slow
def test_a_run_with_a_reward_model_resumes_to_the_same_bits(model: Path, tmp_path: Path) -> None:
    for folder in run_and_resume(experiment(model), tmp_path):
        whole, again = RunFolder.open(tmp_path / "whole"), RunFolder.open(folder)
        assert read_log(folder) == read_log(tmp_path / "whole")
        for name in ("policies/shared/model.safetensors", "state.json"):
            one, other = (place / "checkpoints/0003" / name for place in (folder, tmp_path / "whole"))
            assert one.read_bytes() == other.read_bytes()
        assert [row["reward_model.learned"] for row in again.reader.metrics()] == [
            row["reward_model.learned"] for row in whole.reader.metrics()
        ]


def test_a_run_has_the_curve_of_over_optimisation_in_its_metrics(model: Path, tmp_path: Path) -> None:
    run_lab(tmp_path / "run", experiment(model, "iterations=2"))
    for row in RunFolder.open(tmp_path / "run").reader.metrics():
        figures = row["reward_model.learned"]
        assert (
            {"value", "payoff", "agreement", "correlation", "alarm"} >= figures.keys() >= {"value", "payoff", "alarm"}
        )
        assert row["learn"]["shared"]["kl"] >= 0


@pytest.mark.slow
def test_with_weight_0_it_is_a_measure_that_changes_nothing_else(model: Path, tmp_path: Path) -> None:
    run_lab(tmp_path / "measured", experiment(model, "iterations=2", "credit.weights={learned: 0.0}"))
    without = CONFIG.replace("stages: [{reward_model: {model: MODEL}}]", "stages: []")
    run_lab(tmp_path / "plain", compose([text_layer("test", without), set_layer("iterations=2")]))
    rows = [RunFolder.open(tmp_path / name).reader.metrics() for name in ("measured", "plain")]
    assert all({"value", "payoff", "alarm"} <= row["reward_model.learned"].keys() for row in rows[0])
    assert [row["learn"] for row in rows[0]] == [row["learn"] for row in rows[1]]
    one, other = (
        tmp_path / name / "checkpoints/0002/policies/shared/model.safetensors" for name in ("measured", "plain")
    )
    assert one.read_bytes() == other.read_bytes()


def refused(given: Experiment) -> str:
    with pytest.raises(ConfigError) as refusal:
        wait(preflight(given, lambda step: None))
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_what_cannot_score_is_refused_before_the_run(model: Path, pays_length: Path, tmp_path: Path) -> None:
    wait(preflight(experiment(model), lambda step: None))
    wait(preflight(experiment(pays_length), lambda step: None))
    assert "is no reward model" in refused(experiment("nano"))
    assert "nowhere" in refused(experiment("runs/nowhere"))
    other = tmp_path / "other"
    shutil.copytree(model, other)
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(template.replace("'<|im_end|>'", "'<|im_end|><|im_end|>'"))
    assert "has another tokenizer or chat template than" in refused(experiment(other))
    seats = CONFIG.replace("model: MODEL", f"model: {model}, seats: [openr]")
    told = refused(compose([text_layer("test", seats)]))
    assert "no trained policy has the seat 'openr' — did you mean 'opener'?" in told


def test_two_models_that_pay_the_same_reward_are_refused(model: Path) -> None:
    stages: Sequence[Any] = [{"reward_model": {"model": str(model)}}] * 2
    with pytest.raises(ValueError, match=r"two stages measure reward_model\.learned"):
        CreditSpec.model_validate({"stages": stages})
