"""Training of reward models: a planted preference is learned, resume is bit-equal, and figures by hand."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.errors import ConfigError, DivergedError, StoreError
from arena.reward_models.examples import Outcome, make_examples, split_groups
from arena.reward_models.training import compute_figures
from arena.store import checkpoints
from tests.factories.labs import RecordingWatcher
from tests.factories.preferences import (
    make_fit_settings,
    make_outcomes,
    make_planted_examples,
    make_stream,
    make_training,
)

FILES = ("policies/reward_model/model.safetensors", "policies/reward_model/optimizer.safetensors", "state.json")


def read_metrics(folder: Path) -> list[Any]:
    return [json.loads(line)["learn"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_planted_preference_is_learned_and_resume_is_bit_equal(tmp_path: Path) -> None:
    data, uninterrupted = make_planted_examples(360, group=4), tmp_path / "whole"
    wait(make_training(uninterrupted, data, epochs=3).run())
    learned = read_metrics(uninterrupted)[-1]["reward_model"]
    assert learned["held_out_accuracy"] >= 0.95 and learned["held_out_margin"] > 1
    assert (
        learned["held_out_calibration"] < 0.1
        and learned["loss"] < read_metrics(uninterrupted)[0]["reward_model"]["loss"]
    )

    interrupted = tmp_path / "begun"
    stopped = RecordingWatcher(lambda what, value: what == "phase" and value == (3, "learn"))
    with pytest.raises(KeyboardInterrupt):
        wait(make_training(interrupted, data, stopped, epochs=3).run())
    assert len(read_metrics(interrupted)) == 2
    wait(make_training(interrupted, data, epochs=3).run())
    killed = tmp_path / "late"  # killed after the metrics of iteration 2, before its checkpoint
    shutil.copytree(uninterrupted, killed)
    for k in (2, 3):
        shutil.rmtree(killed / "checkpoints" / f"000{k}")
    wait(make_training(killed, data, epochs=3).run())
    for folder in (interrupted, killed):
        assert read_metrics(folder) == read_metrics(uninterrupted)
        for file in FILES:
            resumed_file, expected_file = (
                run_folder / "checkpoints/0003" / file for run_folder in (folder, uninterrupted)
            )
            assert resumed_file.read_bytes() == expected_file.read_bytes(), file
    wait(make_training(uninterrupted, data, epochs=3).run())  # complete: nothing more to do
    assert len(read_metrics(uninterrupted)) == 3


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("objective", ["logistic", "squared"])
def test_labels_are_learned(tmp_path: Path, objective: Any) -> None:
    data = make_planted_examples(240, objective)
    wait(make_training(tmp_path / "run", data, objective=objective, epochs=6, batch=8).run())
    learned = read_metrics(tmp_path / "run")[-1]["reward_model"]
    assert learned["held_out_accuracy" if objective == "logistic" else "held_out_explained"] > 0.9


def test_gradient_does_not_depend_on_packing(tmp_path: Path) -> None:
    data, norms = make_planted_examples(40), []
    for budget in (24, 10_000):
        trainer = make_training(tmp_path / str(budget), data, token_budget=budget, batch=40)
        trainer.start(None)
        trainer.step(0)
        norms.append(trainer.step(1)["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4) and norms[0] > 0


def test_figures_by_hand() -> None:
    scores = np.array([2.0, 1.0, 0.0, 3.0, 1.0, 1.0], np.float32)  # gaps 1, -3, 0
    figures = compute_figures(scores, [0.0, 0.0, 0.0], "bradley_terry")
    assert figures["accuracy"] == 0.5 and figures["margin"] == pytest.approx(-2 / 3)
    assert figures["loss"] == pytest.approx((0.313262 + 3.048587 + 0.693147) / 3, abs=1e-5)
    # confidences .731 (right), .953 (wrong), .5 (half right)
    assert figures["calibration"] == pytest.approx((0.268941 + 0.952574 + 0.0) / 3, abs=1e-5)
    labels = compute_figures(np.array([1.0, -1.0, 2.0], np.float32), [1.0, 0.0, 0.0], "logistic")
    assert labels["accuracy"] == pytest.approx(2 / 3) and labels["margin"] == pytest.approx(0.5)
    squares = compute_figures(np.array([0.0, 2.0], np.float32), [0.0, 4.0], "squared")
    assert squares == {"loss": 1.0, "explained": 0.5}


def test_deals_are_not_split_and_pairs_are_peers() -> None:
    learned, held_out = split_groups([n // 3 for n in range(30)], 0.2, np.random.default_rng(0))
    assert sorted(learned + held_out) == [*range(30)]
    assert len({n // 3 for n in held_out}) == 2 and not {n // 3 for n in learned} & {n // 3 for n in held_out}
    conversations = make_outcomes(60, group=3)
    data = make_examples(conversations, "bradley_terry", 0.3, 4, 2.0, np.random.default_rng(0))
    worth = {tuple(one.stream.ids): one for one in conversations}
    for example in (*data.train, *data.held_out):
        better, worse = (worth[tuple(stream.ids)] for stream in example.streams)
        assert better.worth > worse.worth and better.peers == worse.peers
        assert example.value == 2 * (better.worth - worse.worth)
    pairs = [frozenset(tuple(s.ids) for s in one.streams) for one in data.train]
    assert len(pairs) == len({*pairs}), "no pair twice"


@pytest.mark.parametrize(
    ("objective", "conversations", "message"),
    [
        ("bradley_terry", [], "no conversation of the policy"),
        ("bradley_terry", [Outcome(make_stream([n]), 1.0, n, n) for n in range(9)], "differ in outcome"),
        ("logistic", [Outcome(make_stream([n]), 1.0, n, n) for n in range(9)], "all 8 labels are 1"),
        ("squared", [Outcome(make_stream([n]), 2.5, n, n) for n in range(9)], "all 8 labels are 2.5"),
        ("squared", [Outcome(make_stream([1]), 2.5, 1, 1)], "held out"),
    ],
)
def test_uninformative_data_give_one_line(objective: Any, conversations: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        make_examples(conversations, objective, 0.1, 4, 0.0, np.random.default_rng(0))
    assert "\n" not in str(error.value)


def test_resume_with_other_settings_or_examples_is_refused(tmp_path: Path) -> None:
    data = make_planted_examples(80)
    wait(make_training(tmp_path / "run", data, batch=8).run())
    cases: list[tuple[dict[str, Any], str]] = [({"lr": 1e-2}, "its setting lr changed"), ({}, "the examples changed")]
    for changes, message in cases:
        changed_data = data if changes else make_planted_examples(80, seed=1)
        with pytest.raises(StoreError, match=message):
            wait(make_training(tmp_path / "run", changed_data, batch=8, **changes).run())
    newest = checkpoints.newest(tmp_path / "run").folder
    (newest / FILES[0]).write_bytes(b"torn")
    watcher = RecordingWatcher()
    wait(make_training(tmp_path / "run", data, watcher, batch=8).run())  # goes back by one iteration
    assert any("resuming from iteration 2" in text for _, text in watcher.phases)


def test_nonfinite_weights_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"lower its lr \(1e\+30\)"):
        wait(make_training(tmp_path / "run", make_planted_examples(60), lr=1e30, grad_clip=1e30).run())


def test_every_step_belongs_to_one_iteration() -> None:
    for count, iterations in ((1, 10), (70, 3), (160, 7)):
        parts = make_fit_settings(epochs=2, batch=16, iterations=iterations).parts(count)
        assert [n for part in parts for n in part] == [*range(2 * -(-count // 16))]
        assert all(parts) and len(parts) <= iterations
