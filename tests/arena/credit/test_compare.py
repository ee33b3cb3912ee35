"""Estimators side by side on a kept log: the run's own numbers, tables by hand, hostile text, and what is refused."""

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
from tests.factories.trajectories import make_turn

CONFIG = """
name: kept
iterations: 2
game: {name: negotiation}
policies: {shared: {model: nano}}
seats: {opener: {role: nano_opener, policy: shared}, responder: {role: nano_responder, policy: random}}
credit: {weights: {deal: 0.5}, stages: [{valid_act: {bonus: 0.25}}]}
"""


def record(k: int, i: int, rewards: list[float], trained: bool = True, raw: str = "OFFER") -> MatchRecord:
    """A match in which the opener earns `rewards` turn by turn and the scripted responder says something between."""
    seats = {
        "opener": Seating("nano_opener", "shared", k, trained, "model"),
        "responder": Seating("nano_responder", "random", 0, False, "brain"),
    }
    turns, stream = [], Stream()
    for n, reward in enumerate(rewards):
        turns.append(make_turn(2 * n, {"deal": reward}, role="nano_opener", raw=raw, valid=n % 2 == 0))
        turns.append(make_turn(2 * n + 1, {}, seat="responder", role="nano_responder", policy="random", version=0))
        stream.observe([1])
        stream.append_sampled([2, 3], [-1.0, -1.0], 2 * n)
    streams = {"opener": (stream,), "responder": ()}
    return MatchRecord(
        identity=MatchId(k, i),
        game="negotiation",
        options={},
        seed=i // 2,
        seats=seats,
        status="finished",
        reason="",
        payoffs={},
        report={},
        turns=tuple(turns),
        streams=streams,
        started="now",
        seconds=1.0,
    )


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Experiment]:
    return logged_run(tmp_path / "run", [record(1, i, [float(i), 2.0 * i]) for i in range(4)] + [record(2, 0, [4.0])])


def logged_run(folder: Path, records: list[MatchRecord], config: str = CONFIG) -> tuple[Path, Experiment]:
    experiment = compose([text_layer("test", config)])
    run = RunFolder.create(folder, to_yaml(experiment), {})
    run.log.extend([r for r in records if r.iteration == 1])
    run.log.extend([r for r in records if r.iteration == 2])
    for k in {r.iteration for r in records}:
        run.log.seal(k)
    return folder, experiment


def chosen(*names: str) -> list[PartConfig]:
    return [choose("estimator", name) for name in names]


def said(folder: Path, experiment: Experiment, estimators: list[PartConfig], **which: Any) -> Comparison:
    run: dict[str, Any] = {"seed": experiment.seed, "length": experiment.iterations}
    return wait(compare(folder, experiment.credit, estimators, **run, **which))


def test_the_numbers_are_those_that_credit_gives(run: tuple[Path, Experiment]) -> None:
    folder, experiment = run
    found = said(folder, experiment, chosen("mars", "zero")).turns
    for k in (1, 2):
        rows = [MatchRecord.from_json(row) for row in RunFolder.open(folder).log.read(k)]
        batch = TurnBatch([t for r in rows for t in trajectories(r) if t.trained], Clock(k, 2))
        own = assign(batch, experiment.credit)
        part = found[found.iteration == k]
        np.testing.assert_allclose(part["mars"], np.concatenate([c.advantages for c in own]))
        np.testing.assert_allclose(part["reward"], np.concatenate([c.rewards for c in own]))
    assert (found["zero"] == 0).all() and set(found["role"]) == {"nano_opener"}
    assert found["turn"].tolist() == [0, 2] * 4 + [0]
    # 0.5 * deal + 0.25 for a valid act: match 0001-0001 earns 0.5 + 0.25, then 0.5 * 2
    assert found[found.match == "0001-0001"]["reward"].tolist() == [0.75, 1.0]


def test_what_estimators_remember_is_walked_through(run: tuple[Path, Experiment]) -> None:
    folder, experiment = run
    whole = said(folder, experiment, chosen("rae")).turns
    last = said(folder, experiment, chosen("rae"), iterations=[2]).turns
    assert whole[whole.iteration == 2]["rae"].tolist() == last["rae"].tolist()
    memory: dict[str, Any] = {}
    for k in (1, 2):
        rows = [MatchRecord.from_json(row) for row in RunFolder.open(folder).log.read(k)]
        batch = TurnBatch([t for r in rows for t in trajectories(r) if t.trained], Clock(k, 2), memory=memory)
        credited = assign(batch, CreditSpec.model_validate(dict(estimator="rae", **_rewards(experiment))))
    assert last["rae"].tolist() == pytest.approx(credited[0].advantages.tolist())


def _rewards(experiment: Experiment) -> dict[str, Any]:
    return {"stages": experiment.credit.stages, "weights": experiment.credit.weights}


def test_a_critic_is_taught_on_the_way_and_never_sees_what_is_to_come(tmp_path: Path) -> None:
    records = [record(k, i, [float(i % 3), 2.0 * (i % 2)]) for k in (1, 2) for i in range(6)]
    folder, experiment = logged_run(tmp_path / "run", records)
    found = said(folder, experiment, chosen("gae_turn", "mars")).turns
    first = found[found.iteration == 1]  # all values are 0 yet: plain returns, which mars centres
    np.testing.assert_allclose(first["gae_turn"] - first["gae_turn"].mean(), first["mars"], atol=1e-6)
    second = found[found.iteration == 2]
    assert abs(second["gae_turn"].mean()) < abs(first["gae_turn"].mean()) / 4
    with pytest.raises(ConfigError, match="gae_token needs token_values, which no match log holds"):
        said(folder, experiment, chosen("gae_token"))


def test_tables_by_hand(tmp_path: Path) -> None:
    config = CONFIG.replace("credit: {weights: {deal: 0.5}, stages: [{valid_act: {bonus: 0.25}}]}", "")
    folder, experiment = logged_run(tmp_path / "run", [record(1, 0, [1.0, 3.0]), record(1, 1, [0.0, 0.0])], config)
    found = said(folder, experiment, [choose("estimator", "mars", gamma=0.0), *chosen("zero")])
    # turns earn 1 3 0 0, mean 1: 0 2 -1 -1; deviation sqrt((0 + 4 + 1 + 1) / 4)
    assert found.turns["mars"].tolist() == [0, 2, -1, -1]
    overview = found.overview()
    rows = overview.to_dict("split")
    rows = dict(zip(rows["index"], rows["data"], strict=True))
    assert rows["mars"] == pytest.approx([0, 1.5**0.5, 0.25, 0.25]) and rows["zero"] == [0, 0, 1, 0]
    alike = found.correlations()
    assert alike.loc["mars", "mars"] == 1 and np.isnan(alike.loc["zero"]).all() and np.isnan(alike["zero"]).all()
    bias = found.bias()
    assert bias.loc[("negotiation", "nano_opener"), "mars"] == 0 and np.isnan(bias["zero"]).all()
    assert found.most_disputed() == "0001-0000"


def test_two_of_one_kind_are_told_apart_by_their_settings(run: tuple[Path, Experiment]) -> None:
    both = [choose("estimator", "mars"), choose("estimator", "mars", gamma=0.5)]
    found = said(*run, both)
    assert len(set(found.estimators)) == 2 and all("gamma=" in name for name in found.estimators)
    assert name_columns(chosen("mars", "zero")) == ["mars", "zero"]
    with pytest.raises(ConfigError, match="named twice"):
        name_columns(chosen("mars", "mars"))


def test_an_estimator_of_a_file_is_named_without_folders_unless_two_files_are_called_alike(tmp_path: Path) -> None:
    files = [tmp_path / folder / "own.py" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("def mine(batch, rewards):\n    '''Rewards as they are.'''\n    return rewards\n", "utf-8")
    one, two = (f"{file}:mine" for file in files)
    assert name_columns(chosen("mars", one)) == ["mars", "own.py:mine"]
    assert name_columns(chosen(one, two)) == [one, two]


def test_the_command_shows_and_tells(run: tuple[Path, Experiment]) -> None:
    told = arena("credit", run[0], "--estimators", "mars,[zero]".replace("[", "").replace("]", ""))
    assert told.code == 0 and "correlation" in told.out and "mean advantage by role" in told.out
    assert "opener: OFFER" in told.out and "responder: " in told.out
    data = json.loads(arena("credit", run[0], "--estimators", "[mars, {mars: {std: true}}]", "--json").out)
    assert set(data) == {"overview", "correlations", "bias", "turns"} and len(data["turns"]) == 9
    assert len(data["overview"]) == 2


def test_what_models_wrote_is_no_markup(tmp_path: Path) -> None:
    folder, _ = logged_run(
        tmp_path / "run", [record(1, i, [float(i)], raw="[red]\x1b[31mhello[/red]\n\x07") for i in range(2)]
    )
    told = arena("credit", folder, "--estimators", "mars")
    assert told.code == 0 and "[red]" in told.out and "\x1b" not in told.out and "\x07" not in told.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--estimators", "mrs"], "unknown estimator 'mrs' — did you mean 'mars'?"),
        (["--estimators", "[{mars: {gama: 1}}]"], "unknown setting of estimator mars — did you mean 'gamma'?"),
        (["--estimators", "[mars"], "--estimators"),
        (["--estimators", "mars,mars"], "named twice"),
        (["--estimators", "mars", "--match", "0009-0000"], "match '0009-0000' has no turn"),
        (["--estimators", "mars", "--iteration", "7"], "no turn of a trained policy"),
    ],
)
def test_wrong_use_is_one_line(run: tuple[Path, Experiment], words: list[str], says: str) -> None:
    told = arena("credit", run[0], *words)
    assert told.code == 2 and says in told.line


def test_a_run_without_learners_has_nothing_to_compare(tmp_path: Path) -> None:
    folder, _ = logged_run(tmp_path / "run", [record(1, 0, [1.0], trained=False)])
    assert "no turn of a trained policy" in arena("credit", folder, "--estimators", "mars").line
