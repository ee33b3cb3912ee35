"""Training of reward models: a planted preference is learned, resume repeats every bit, and hand-worked figures."""

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


def rows(folder: Path) -> list[Any]:
    return [json.loads(line)["learn"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_planted_preference_is_learned_and_resume_repeats_every_bit(tmp_path: Path) -> None:
    given, whole = make_planted_examples(360, group=4), tmp_path / "whole"
    wait(make_training(whole, given, epochs=3).run())
    learned = rows(whole)[-1]["reward_model"]
    assert learned["held_out_accuracy"] >= 0.95 and learned["held_out_margin"] > 1
    assert learned["held_out_calibration"] < 0.1 and learned["loss"] < rows(whole)[0]["reward_model"]["loss"]

    begun = tmp_path / "begun"
    stopped = RecordingWatcher(lambda what, value: what == "phase" and value == (3, "learn"))
    with pytest.raises(KeyboardInterrupt):
        wait(make_training(begun, given, stopped, epochs=3).run())
    assert len(rows(begun)) == 2
    wait(make_training(begun, given, epochs=3).run())
    late = tmp_path / "late"  # killed after the metrics of iteration 2, before its checkpoint
    shutil.copytree(whole, late)
    for k in (2, 3):
        shutil.rmtree(late / "checkpoints" / f"000{k}")
    wait(make_training(late, given, epochs=3).run())
    for folder in (begun, late):
        assert rows(folder) == rows(whole)
        for file in FILES:
            one, other = (place / "checkpoints/0003" / file for place in (folder, whole))
            assert one.read_bytes() == other.read_bytes(), file
    wait(make_training(whole, given, epochs=3).run())  # complete: nothing more to do
    assert len(rows(whole)) == 3


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("objective", ["logistic", "squared"])
def test_labels_are_learned(tmp_path: Path, objective: Any) -> None:
    given = make_planted_examples(240, objective)
    wait(make_training(tmp_path / "run", given, objective=objective, epochs=4, batch=8).run())
    learned = rows(tmp_path / "run")[-1]["reward_model"]
    assert learned["held_out_accuracy" if objective == "logistic" else "held_out_explained"] > 0.9


def test_the_gradient_of_a_step_does_not_depend_on_how_it_is_packed(tmp_path: Path) -> None:
    given, norms = make_planted_examples(40), []
    for budget in (24, 10_000):
        made = make_training(tmp_path / str(budget), given, token_budget=budget, batch=40)
        made.start(None)
        made.step(0)
        norms.append(made.step(1)["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4) and norms[0] > 0


def test_figures_are_those_worked_by_hand() -> None:
    scores = np.array([2.0, 1.0, 0.0, 3.0, 1.0, 1.0], np.float32)  # gaps 1, -3, 0
    found = compute_figures(scores, [0.0, 0.0, 0.0], "bradley_terry")
    assert found["accuracy"] == 0.5 and found["margin"] == pytest.approx(-2 / 3)
    assert found["loss"] == pytest.approx((0.313262 + 3.048587 + 0.693147) / 3, abs=1e-5)
    # confidences .731 (right), .953 (wrong), .5 (half right)
    assert found["calibration"] == pytest.approx((0.268941 + 0.952574 + 0.0) / 3, abs=1e-5)
    labels = compute_figures(np.array([1.0, -1.0, 2.0], np.float32), [1.0, 0.0, 0.0], "logistic")
    assert labels["accuracy"] == pytest.approx(2 / 3) and labels["margin"] == pytest.approx(0.5)
    squares = compute_figures(np.array([0.0, 2.0], np.float32), [0.0, 4.0], "squared")
    assert squares == {"loss": 1.0, "explained": 0.5}


def test_deals_are_on_one_side_only_and_pairs_are_of_peers() -> None:
    learned, tested = split_groups([n // 3 for n in range(30)], 0.2, np.random.default_rng(0))
    assert sorted(learned + tested) == [*range(30)]
    assert len({n // 3 for n in tested}) == 2 and not {n // 3 for n in learned} & {n // 3 for n in tested}
    given = make_outcomes(60, group=3)
    made = make_examples(given, "bradley_terry", 0.3, 4, 2.0, np.random.default_rng(0))
    worth = {tuple(one.stream.ids): one for one in given}
    for example in (*made.train, *made.held_out):
        better, worse = (worth[tuple(stream.ids)] for stream in example.streams)
        assert better.worth > worse.worth and better.peers == worse.peers
        assert example.value == 2 * (better.worth - worse.worth)
    pairs = [frozenset(tuple(s.ids) for s in one.streams) for one in made.train]
    assert len(pairs) == len({*pairs}), "no pair twice"


@pytest.mark.parametrize(
    ("objective", "given", "told"),
    [
        ("bradley_terry", [], "no conversation of the policy"),
        ("bradley_terry", [Outcome(make_stream([n]), 1.0, n, n) for n in range(9)], "differ in outcome"),
        ("logistic", [Outcome(make_stream([n]), 1.0, n, n) for n in range(9)], "all 8 labels are 1"),
        ("squared", [Outcome(make_stream([n]), 2.5, n, n) for n in range(9)], "all 8 labels are 2.5"),
        ("squared", [Outcome(make_stream([1]), 2.5, 1, 1)], "held out"),
    ],
)
def test_data_that_teach_nothing_are_refused_in_one_line(objective: Any, given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refusal:
        make_examples(given, objective, 0.1, 4, 0.0, np.random.default_rng(0))
    assert "\n" not in str(refusal.value)


def test_a_run_is_not_resumed_with_other_settings_or_examples(tmp_path: Path) -> None:
    given = make_planted_examples(80)
    wait(make_training(tmp_path / "run", given, batch=8).run())
    refused: list[tuple[dict[str, Any], str]] = [({"lr": 1e-2}, "its setting lr changed"), ({}, "the examples changed")]
    for changes, told in refused:
        other = given if changes else make_planted_examples(80, seed=1)
        with pytest.raises(StoreError, match=told):
            wait(make_training(tmp_path / "run", other, batch=8, **changes).run())
    newest = checkpoints.newest(tmp_path / "run").folder
    (newest / FILES[0]).write_bytes(b"torn")
    watcher = RecordingWatcher()
    wait(make_training(tmp_path / "run", given, watcher, batch=8).run())  # goes back by one iteration
    assert any("resuming from iteration 2" in text for _, text in watcher.phases)


def test_weights_that_are_not_finite_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"lower its lr \(1e\+30\)"):
        wait(make_training(tmp_path / "run", make_planted_examples(60), lr=1e30, grad_clip=1e30).run())


def test_every_step_belongs_to_one_iteration() -> None:
    for count, iterations in ((1, 10), (70, 3), (160, 7)):
        parts = make_fit_settings(epochs=2, batch=16, iterations=iterations).parts(count)
        assert [n for part in parts for n in part] == [*range(2 * -(-count // 16))]
        assert all(parts) and len(parts) <= iterations
