"""Comparison of estimators on a stored log: the run's own numbers, tables by hand, hostile text and refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.kinds import choose
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.compare import Comparison, compare, name_columns
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.part_config import PartConfig
from arena.parts.schedules import Clock
from arena.records import MatchRecord, Seating, trajectories
from arena.store.run import RunFolder
from games.contracts import MatchId
from tests.factories.commands import arena
from tests.factories.records import make_match_record, make_turn

CONFIG = """
name: kept
iterations: 2
game: {name: negotiation}
policies: {shared: {model: nano}}
seats: {opener: {role: nano_opener, policy: shared}, responder: {role: nano_responder, policy: random}}
credit: {weights: {deal: 0.5}, stages: [{valid_act: {bonus: 0.25}}]}
"""


def make_record(k: int, i: int, rewards: list[float], trained: bool = True, raw: str = "OFFER") -> MatchRecord:
    """Return a match whose opener earns `rewards` turn by turn; a scripted responder speaks in between."""
    seats = {
        "opener": Seating("nano_opener", "shared", k, trained, "model"),
        "responder": Seating("nano_responder", "random", 0, False, "brain"),
    }
    turns, stream = [], Stream()
    for n, reward in enumerate(rewards):
        turns.append(make_turn(2 * n, {"deal": reward}, role="nano_opener", raw=raw, valid=n % 2 == 0))
        turns.append(make_turn(2 * n + 1, {}, "responder", role="nano_responder", policy="random", version=0))
        stream.observe([1])
        stream.append_sampled([2, 3], [-1.0, -1.0], 2 * n)
    streams = {"opener": (stream,), "responder": ()}
    return make_match_record(
        identity=MatchId(k, i), game="negotiation", seed=i // 2, seats=seats, turns=tuple(turns), streams=streams
    )


@pytest.fixture
def stored_run(tmp_path: Path) -> tuple[Path, Experiment]:
    return write_run(
        tmp_path / "run", [make_record(1, i, [float(i), 2.0 * i]) for i in range(4)] + [make_record(2, 0, [4.0])]
    )


def write_run(folder: Path, records: list[MatchRecord], config: str = CONFIG) -> tuple[Path, Experiment]:
    experiment = compose([text_layer("test", config)])
    run = RunFolder.create(folder, to_yaml(experiment), {})
    run.log.extend([r for r in records if r.iteration == 1])
    run.log.extend([r for r in records if r.iteration == 2])
    for k in {r.iteration for r in records}:
        run.log.seal(k)
    return folder, experiment


def choose_estimators(*names: str) -> list[PartConfig]:
    return [choose("estimator", name) for name in names]


def compare_run(folder: Path, experiment: Experiment, estimators: list[PartConfig], **options: Any) -> Comparison:
    run_settings: dict[str, Any] = {"seed": experiment.seed, "length": experiment.iterations}
    return wait(compare(folder, experiment.credit, estimators, **run_settings, **options))


def test_columns_equal_the_runs_own_credit(stored_run: tuple[Path, Experiment]) -> None:
    folder, experiment = stored_run
    turns = compare_run(folder, experiment, choose_estimators("mars", "zero")).turns
    for k in (1, 2):
        rows = [MatchRecord.from_json(row) for row in RunFolder.open(folder).reader.log.read(k)]
        batch = TurnBatch([t for r in rows for t in trajectories(r) if t.trained], Clock(k, 2))
        credited = assign(batch, experiment.credit)
        part = turns[turns.iteration == k]
        np.testing.assert_allclose(part["mars"], np.concatenate([c.advantages for c in credited]))
        np.testing.assert_allclose(part["reward"], np.concatenate([c.rewards for c in credited]))
    assert (turns["zero"] == 0).all() and set(turns["role"]) == {"nano_opener"}
    assert turns["turn"].tolist() == [0, 2] * 4 + [0]
    # 0.5 * deal + 0.25 for a valid act: match 0001-0001 earns 0.5 + 0.25, then 0.5 * 2
    assert turns[turns.match == "0001-0001"]["reward"].tolist() == [0.75, 1.0]


def test_estimator_memory_is_rebuilt_from_earlier_iterations(stored_run: tuple[Path, Experiment]) -> None:
    folder, experiment = stored_run
    all_turns = compare_run(folder, experiment, choose_estimators("rae")).turns
    last_turns = compare_run(folder, experiment, choose_estimators("rae"), iterations=[2]).turns
    assert all_turns[all_turns.iteration == 2]["rae"].tolist() == last_turns["rae"].tolist()
    memory: dict[str, Any] = {}
    for k in (1, 2):
        rows = [MatchRecord.from_json(row) for row in RunFolder.open(folder).reader.log.read(k)]
        batch = TurnBatch([t for r in rows for t in trajectories(r) if t.trained], Clock(k, 2), memory=memory)
        credited = assign(batch, CreditSpec.model_validate(dict(estimator="rae", **reward_settings(experiment))))
    assert last_turns["rae"].tolist() == pytest.approx(credited[0].advantages.tolist())


def reward_settings(experiment: Experiment) -> dict[str, Any]:
    return {"stages": experiment.credit.stages, "weights": experiment.credit.weights}


def test_critic_is_fitted_on_past_iterations_only(tmp_path: Path) -> None:
    records = [make_record(k, i, [float(i % 3), 2.0 * (i % 2)]) for k in (1, 2) for i in range(6)]
    folder, experiment = write_run(tmp_path / "run", records)
    turns = compare_run(folder, experiment, choose_estimators("gae_turn", "mars")).turns
    first = turns[turns.iteration == 1]  # all values are 0 yet: plain returns, which mars centres
    np.testing.assert_allclose(first["gae_turn"] - first["gae_turn"].mean(), first["mars"], atol=1e-6)
    second = turns[turns.iteration == 2]
    assert abs(second["gae_turn"].mean()) < abs(first["gae_turn"].mean()) / 4
    with pytest.raises(ConfigError, match="gae_token needs token_values, which no match log holds"):
        compare_run(folder, experiment, choose_estimators("gae_token"))


def test_tables_by_hand(tmp_path: Path) -> None:
    config = CONFIG.replace("credit: {weights: {deal: 0.5}, stages: [{valid_act: {bonus: 0.25}}]}", "")
    folder, experiment = write_run(
        tmp_path / "run", [make_record(1, 0, [1.0, 3.0]), make_record(1, 1, [0.0, 0.0])], config
    )
    comparison = compare_run(folder, experiment, [choose("estimator", "mars", gamma=0.0), *choose_estimators("zero")])
    # turns earn 1 3 0 0, mean 1: 0 2 -1 -1; deviation sqrt((0 + 4 + 1 + 1) / 4)
    assert comparison.turns["mars"].tolist() == [0, 2, -1, -1]
    overview = comparison.overview()
    rows = overview.to_dict("split")
    rows = dict(zip(rows["index"], rows["data"], strict=True))
    assert rows["mars"] == pytest.approx([0, 1.5**0.5, 0.25, 0.25]) and rows["zero"] == [0, 0, 1, 0]
    correlations = comparison.correlations()
    assert (
        correlations.loc["mars", "mars"] == 1
        and np.isnan(correlations.loc["zero"]).all()
        and np.isnan(correlations["zero"]).all()
    )
    bias = comparison.bias()
    assert bias.loc[("negotiation", "nano_opener"), "mars"] == 0 and np.isnan(bias["zero"]).all()
    assert comparison.most_disputed() == "0001-0000"


def test_equal_estimators_are_distinguished_by_their_settings(stored_run: tuple[Path, Experiment]) -> None:
    both = [choose("estimator", "mars"), choose("estimator", "mars", gamma=0.5)]
    comparison = compare_run(*stored_run, both)
    assert len(set(comparison.estimators)) == 2 and all("gamma=" in name for name in comparison.estimators)
    assert name_columns(choose_estimators("mars", "zero")) == ["mars", "zero"]
    with pytest.raises(ConfigError, match="named twice"):
        name_columns(choose_estimators("mars", "mars"))


def test_file_estimator_is_named_without_folder_unless_ambiguous(tmp_path: Path) -> None:
    files = [tmp_path / folder / "own.py" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("def mine(batch, rewards):\n    '''Rewards as they are.'''\n    return rewards\n", "utf-8")
    first, second = (f"{file}:mine" for file in files)
    assert name_columns(choose_estimators("mars", first)) == ["mars", "own.py:mine"]
    assert name_columns(choose_estimators(first, second)) == [first, second]


def test_command_prints_tables_and_json(stored_run: tuple[Path, Experiment]) -> None:
    result = arena("credit", stored_run[0], "--estimators", "mars,[zero]".replace("[", "").replace("]", ""))
    assert result.code == 0 and "correlation" in result.out and "mean advantage by role" in result.out
    assert "opener: OFFER" in result.out and "responder: " in result.out
    data = json.loads(arena("credit", stored_run[0], "--estimators", "[mars, {mars: {std: true}}]", "--json").out)
    assert set(data) == {"overview", "correlations", "bias", "turns"} and len(data["turns"]) == 9
    assert len(data["overview"]) == 2


def test_model_text_is_not_read_as_markup(tmp_path: Path) -> None:
    folder, _ = write_run(
        tmp_path / "run", [make_record(1, i, [float(i)], raw="[red]\x1b[31mhello[/red]\n\x07") for i in range(2)]
    )
    result = arena("credit", folder, "--estimators", "mars")
    assert result.code == 0 and "[red]" in result.out and "\x1b" not in result.out and "\x07" not in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--estimators", "mrs"], "unknown estimator 'mrs' — did you mean 'mars'?"),
        (["--estimators", "[{mars: {gama: 1}}]"], "unknown setting of estimator mars — did you mean 'gamma'?"),
        (["--estimators", "[mars"], "--estimators"),
        (["--estimators", "mars,mars"], "named twice"),
        (["--estimators", "mars", "--match", "0009-0000"], "match '0009-0000' has no turn"),
        (["--estimators", "mars", "--iteration", "7"], "no turn of a trained policy"),
    ],
)
def test_wrong_use_gives_one_line(stored_run: tuple[Path, Experiment], arguments: list[str], message: str) -> None:
    result = arena("credit", stored_run[0], *arguments)
    assert result.code == 2 and message in result.line


def test_run_without_learners_is_refused(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path / "run", [make_record(1, 0, [1.0], trained=False)])
    assert "no turn of a trained policy" in arena("credit", folder, "--estimators", "mars").line
