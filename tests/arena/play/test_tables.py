"""Several games in one run: played by share, credited separately, and learned by the policies that play them."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml, with_policies
from arena.config.sources import set_layer, text_layer
from arena.lab import Lab
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, resume_lab, stop_lab
from tests.factories.traces import assert_same_runs

ROLE = """\
role: {name}
system: "{{{{ seat }}}}"
turn: |
  {{% if first and private.card is defined %}}
  card {{{{ private.card }}}}
  {{% elif first %}}
  {{{{ public.pool | join(" ") }}}} {{{{ private["values"] | join(" ") }}}}
  {{% endif %}}
  {{% for m in messages %}}
  {{{{ m.text }}}}
  {{% endfor %}}
reply: {{format: free}}
memory: {{kind: all}}
sampling: {{temperature: {heat}, max_tokens: 8}}
"""
CONFIG = """\
name: two
iterations: 2
threads: 1
policies:
  shared:
    model: nano
    imitate: {scripted: [random], matches: 48, epochs: 2, minibatches: 5, lr: 5e-3}
tables:
  - game: {name: negotiation, options: {illegal: end, max_turns: 4, talk: false}}
    seats: {opener: {role: anyone, policy: shared}, responder: {role: anyone, policy: shared}}
    share: 2.0
  - game: {name: kuhn_poker, options: {illegal: end, talk: false, penalty: 2}}
    seats: {first: {role: anyone, policy: shared}, second: {role: poker, policy: shared}}
play: {matches: 16, in_flight: 6}
learn: {lr: 1e-3, minibatches: 2, regularisers: {kl: {weight: 0.01}}, gate_tolerance: 0.01}
"""
BOTH = {"negotiation", "kuhn_poker"}


@pytest.fixture(scope="module")
def roles_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles")
    for name, temperature in (("anyone", 1.0), ("poker", 0.8)):
        (folder / f"{name}.yaml").write_text(ROLE.format(name=name, heat=temperature))
    return folder


def make_experiment(roles: Path, *assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), set_layer(f"roles={roles}"), *map(set_layer, assignments)])


def run_lab(folder: Path, config: Experiment) -> tuple[Lab, list[dict[str, Any]]]:
    watcher = RecordingWatcher()
    lab = wait(Lab.open(RunFolder.create(folder, to_yaml(config), {}), config, watcher))
    wait(lab.run())
    return lab, watcher.rows


@pytest.fixture(scope="module")
def finished_run(
    roles_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Lab, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("tables") / "run"
    return folder, *run_lab(folder, make_experiment(roles_folder))


@pytest.mark.slow
def test_every_game_is_played_by_its_share(finished_run: tuple[Path, Lab, Any]) -> None:
    for k in (1, 2):
        rows = RunFolder.open(finished_run[0]).reader.log.read(k)
        assert Counter(row["game"] for row in rows) == {"negotiation": 11, "kuhn_poker": 5}
        assert [row["id"] for row in rows] == [f"{k:04d}-{i:04d}" for i in range(16)]
        assert {row["options"].get("max_turns") for row in rows if row["game"] == "negotiation"} == {4}


def test_every_game_is_credited_by_itself(finished_run: tuple[Path, Lab, Any]) -> None:
    """The role `anyone` plays both games, and its mean advantage is 0 in each of them."""
    run = RunFolder.open(finished_run[0])
    for k in (1, 2):
        rows = {row["id"]: row for row in run.reader.log.read(k)}
        groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for credit in run.reader.credit(k):
            row = rows[credit.match]
            key = row["game"], row["seats"][credit.seat]["role"]
            groups.setdefault(key, []).append((credit.reward, credit.advantage))
        assert {game for game, role in groups if role == "anyone"} == BOTH
        for values in groups.values():
            assert np.mean([advantage for _, advantage in values]) == pytest.approx(0, abs=1e-9)
        means = [np.mean([reward for reward, _ in groups[game, "anyone"]]) for game in sorted(BOTH)]
        assert abs(means[0] - means[1]) > 0.5, "one mean for both games would not have been 0 in each"


def test_temperatures_are_those_of_the_roles(finished_run: tuple[Path, Lab, Any]) -> None:
    """The gate of 0.01 compared all log-probabilities under them; `second` of poker alone is cooler."""
    lab = finished_run[1]
    assert lab.parts.temperatures == {"anyone": 1.0, "poker": 0.8}
    assert all(row["learn"]["shared"]["logprob_gap"] < 0.01 for row in finished_run[2])


def test_metrics_are_reported_per_game(finished_run: tuple[Path, Lab, Any]) -> None:
    row = finished_run[2][-1]
    assert set(row["payoff"]) == {
        "negotiation.opener", "negotiation.responder", "kuhn_poker.first", "kuhn_poker.second",
    }  # fmt: skip
    assert {f"{game}.valid_rate" for game in BOTH} < set(row["report"])
    assert (row["report"]["negotiation.matches"], row["report"]["kuhn_poker.matches"]) == (11, 5)
    assert set(row["reward"]) == {"negotiation.anyone", "kuhn_poker.anyone", "kuhn_poker.poker"}
    assert 0 <= row["valid_rate"] <= 1
    assert set(row["ratings"]) == {"kuhn_poker/anyone/shared", "kuhn_poker/poker/shared"}


@pytest.mark.slow
def test_policies_of_several_games_imitate_and_learn_each_in_its_own(roles_folder: Path, tmp_path: Path) -> None:
    config = make_experiment(roles_folder, "iterations=1", "policies.shared.imitate.epochs=4")
    lab, rows = run_lab(tmp_path / "run", with_policies(config, "separate"))
    assert set(rows[0]["learn"]) == {"anyone", "poker"} and all(rows[0]["learn"].values())
    played = {
        (row["game"], s["policy"])
        for row in RunFolder.open(tmp_path / "run").reader.matches()
        for s in row["seats"].values()
    }
    assert played == {("negotiation", "anyone"), ("kuhn_poker", "anyone"), ("kuhn_poker", "poker")}
    assert lab.policies["poker"].version == 1


@pytest.mark.slow
def test_run_of_several_games_resumes_bit_equal(
    finished_run: tuple[Path, Lab, Any], roles_folder: Path, tmp_path: Path
) -> None:
    config, folder = make_experiment(roles_folder), tmp_path / "run"
    stop_lab(folder, config, "match", "0002-0012")
    resume_lab(folder, config)
    assert_same_runs(folder, finished_run[0])


@pytest.mark.slow
def test_one_policy_learns_both_games(roles_folder: Path, tmp_path: Path) -> None:
    _, rows = run_lab(tmp_path / "run", make_experiment(roles_folder, "iterations=8", "play.matches=64"))
    for game in BOTH:
        first, last = (np.mean([row["report"][f"{game}.valid_rate"] for row in part]) for part in (rows[:2], rows[-2:]))
        assert last > first + 0.1, game
