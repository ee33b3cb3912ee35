"""A run with a league: past versions play with their old weights, and a resumed run meets the same opponents."""

import json
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from agents.engines.in_process import InProcessEngine
from agents.published import ModuleWeights
from agents.stream import Stream
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose, with_policies
from arena.config.sources import set_layer, text_layer
from arena.lab import Lab
from arena.league.pool import parse_version
from arena.store.run import RunFolder
from tests.factories.children import ChildFault, run_arena_child
from tests.factories.labs import copy_run, read_weight_files, reopen_lab, resume_lab, run_lab, stop_lab
from tests.factories.traces import assert_same_runs

ROLE = """\
role: {name}
game: kuhn_poker
system: "{{{{ seat }}}}"
turn: "{{% if first %}}card {{{{ private.card }}}}{{% endif %}}{{% for m in messages %}} {{{{ m.text }}}}{{% endfor %}}"
reply: {{format: free}}
memory: {{kind: all}}
sampling: {{temperature: 0.9, max_tokens: 3}}
"""
CONFIG = """\
name: league
iterations: 4
threads: 1
game: {name: kuhn_poker, options: {illegal: end, talk: false, penalty: 2}}
policies:
  shared:
    model: nano
    imitate: {scripted: [random], matches: 32, epochs: 2, minibatches: 4, lr: 3e-3}
seats:
  first: {role: poker, policy: shared}
  second: {role: poker, policy: shared}
league:
  opponents:
    - {play: self}
    - {play: past, lag: 2}
    - {play: pfsp, weight: 2.0, from: 2}
    - {play: fixed, policy: random}
  pool: {every: 2, keep: 2, in_memory: 1}
play: {matches: 16, in_flight: 6}
learn: {lr: 3e-3, regularisers: {kl: {weight: 0.01}}, gate_tolerance: 0.01}
checkpoint: {keep: 9}
"""


@pytest.fixture(scope="module")
def roles_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles")
    for name in ("poker", "caller"):
        (folder / f"{name}.yaml").write_text(ROLE.format(name=name))
    return folder


def make_experiment(roles_folder: Path, *assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), set_layer(f"roles={roles_folder}"), *map(set_layer, assignments)])


@pytest.fixture(scope="module")
def uninterrupted_run(roles_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lab]:
    folder = tmp_path_factory.mktemp("league") / "run"
    return folder, run_lab(folder, make_experiment(roles_folder))


def read_state(folder: Path, k: int) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((folder / "checkpoints" / f"{k:04d}" / "state.json").read_text())
    return state


def read_pool_files(folder: Path) -> dict[str, bytes]:
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in (folder / "league").rglob("*.safetensors")}


def list_opponents(folder: Path, k: int) -> set[str]:
    rows = RunFolder.open(folder).reader.log.read(k)
    return {s["policy"] for row in rows for s in row["seats"].values()} - {"shared"}


@pytest.mark.slow
def test_opponents_follow_the_mixtures_schedule(uninterrupted_run: tuple[Path, Lab]) -> None:
    folder, _ = uninterrupted_run
    assert list_opponents(folder, 1) == {"random", "shared@0"} == list_opponents(folder, 2)
    assert list_opponents(folder, 3) == {"random", "shared@0", "shared@2"}  # @2 by pfsp; two updates ago it was @0
    assert list_opponents(folder, 4) == {"random", "shared@0", "shared@1", "shared@2"}
    assert read_state(folder, 4)["league"]["pool"] == {
        "members": [0, 4], "recent": [2, 3, 4], "sealed": [0, 2, 3, 4],
    }  # fmt: skip


def test_opponents_are_recorded_and_get_no_credit(uninterrupted_run: tuple[Path, Lab]) -> None:
    run = RunFolder.open(uninterrupted_run[0])
    for k in (1, 2, 3, 4):
        rows = {row["id"]: row for row in run.reader.log.read(k)}
        for row in rows.values():
            seats = row["seats"].values()
            assert any(s["trained"] for s in seats)
            for s in seats:
                is_live = s["policy"] == "shared"
                assert s["trained"] is is_live and s["kind"] == ("brain" if s["policy"] == "random" else "model")
                assert s["version"] == (k - 1 if is_live else int(s["policy"].partition("@")[2] or 0))
        credited = {(c.match, c.seat) for c in run.reader.credit(k)}
        moved = {(row["id"], t["seat"]) for row in rows.values() for t in row["turns"]}
        assert credited == {(m, seat) for m, seat in moved if rows[m]["seats"][seat]["trained"]}


def test_past_versions_play_with_their_own_weights(uninterrupted_run: tuple[Path, Lab]) -> None:
    """Past versions' samples have the log-probabilities of their checkpoint's weights, not of the newest."""
    folder, lab = uninterrupted_run
    streams: dict[str, list[Stream]] = {}
    for row in RunFolder.open(folder).reader.matches():
        for seat, seat_streams in row["streams"].items():
            streams.setdefault(row["seats"][seat]["policy"], []).extend(Stream(**stream) for stream in seat_streams)
    for version in (0, 1, 2):
        version_streams = streams[f"shared@{version}"]
        sampled = np.concatenate([[p for p, m in zip(s.logprobs, s.mask, strict=True) if m] for s in version_streams])
        weights = AutoModelForCausalLM.from_pretrained(
            folder / "checkpoints" / f"{version:04d}" / "policies" / "shared", attn_implementation="sdpa"
        )
        wait(lab.engine.publish("witness", 0, ModuleWeights(weights.eval())))
        temperatures = [0.9] * len(version_streams)
        past, current = (
            np.concatenate(wait(lab.engine.score(name, version_streams, temperatures)))
            for name in ("witness", "shared")
        )
        assert np.abs(past - sampled).max() < 1e-4
        assert np.abs(current - sampled).max() > 0.05
    wait(lab.engine.retire("witness"))


def test_league_folder_holds_the_listed_versions(uninterrupted_run: tuple[Path, Lab]) -> None:
    folder, _ = uninterrupted_run
    files = read_pool_files(folder)
    listed = {v for k in range(5) for versions in read_state(folder, k)["league"]["pool"].values() for v in versions}
    assert set(files) == {f"shared@{v}/model.safetensors" for v in listed}
    for version in listed:
        assert files[f"shared@{version}/model.safetensors"] == read_weight_files(folder, version)[0]
        AutoModelForCausalLM.from_pretrained(folder / "league" / f"shared@{version}")


def test_ratings_and_win_rates_include_past_versions(uninterrupted_run: tuple[Path, Lab]) -> None:
    folder, lab = uninterrupted_run
    names = {"poker/shared", "poker/random", *(f"poker/shared@{v}" for v in range(5))}
    assert set(read_state(folder, 4)["ratings"]) == names == set(lab.parts.ratings.state())
    assert read_state(folder, 4)["ratings"]["poker/shared@4"] == read_state(folder, 4)["ratings"]["poker/shared"]
    row = RunFolder.open(folder).reader.metrics()[-1]
    assert set(row["ratings"]) == {"poker/shared", "poker/shared@past", "poker/random"}
    assert set(row["win_rate"]) == {"shared vs shared@past", "shared vs random"}
    assert all(0 <= rate <= 1 for rate in row["win_rate"].values())
    assert set(read_state(folder, 4)["league"]["win_rates"]) == {
        f"kuhn_poker: shared vs {name}" for name in ("random", "shared@0", "shared@1", "shared@2")
    }


def assert_same_leagues(folder: Path, expected: Path) -> None:
    assert_same_runs(folder, expected)
    assert read_pool_files(folder) == read_pool_files(expected)


@pytest.mark.slow
@pytest.mark.parametrize("done", [1, 3])
def test_run_resumed_from_an_older_checkpoint_meets_the_same_opponents(
    uninterrupted_run: tuple[Path, Lab], roles_folder: Path, tmp_path: Path, done: int
) -> None:
    folder = copy_run(uninterrupted_run[0], tmp_path / "run", done)
    lab = reopen_lab(folder, make_experiment(roles_folder))
    assert all(int(name.split("@")[1].split("/")[0]) <= done for name in read_pool_files(folder))
    loaded = count_served_versions(lab)
    wait(lab.run())
    assert_same_leagues(folder, uninterrupted_run[0])
    assert max(loaded) == 1 < len(list_opponents(folder, 4) - {"random"}), "no more versions in memory than the limit"


def count_served_versions(lab: Lab) -> list[int]:
    """Record the number of served past versions after each publication; read it after the run."""
    counts: list[int] = []
    engine = lab.engine
    assert isinstance(engine, InProcessEngine)
    publish = engine.publish

    async def publish_and_count(policy: str, version: int, weights: Any) -> None:
        await publish(policy, version, weights)
        counts.append(sum(parse_version(name) is not None for name in engine._served))

    engine.publish = publish_and_count  # type: ignore[method-assign]
    return counts


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("event", "value"), [("match", "0002-0009"), ("phase", (4, "commit"))])
def test_interrupted_league_resumes_bit_equal(
    uninterrupted_run: tuple[Path, Lab], roles_folder: Path, tmp_path: Path, event: str, value: Any
) -> None:
    config, folder = make_experiment(roles_folder), tmp_path / "run"
    stop_lab(folder, config, event, value)
    resume_lab(folder, config)
    assert_same_leagues(folder, uninterrupted_run[0])


@pytest.mark.slow
def test_separate_policies_play_each_others_past_versions(
    uninterrupted_run: tuple[Path, Lab], roles_folder: Path, tmp_path: Path
) -> None:
    warm = uninterrupted_run[0] / "checkpoints" / "0000" / "policies" / "shared"
    config = make_experiment(
        roles_folder, "policies.shared.imitate=null", f"policies.shared.model={warm}", "seats.second.role=caller",
        "iterations=2", "league.opponents=[{play: past, lag: 1}]", "learn.regularisers={kl: {weight: 0}}",
    )  # fmt: skip
    run_lab(tmp_path / "run", with_policies(config, "separate"))
    for k, past in ((1, 0), (2, 0)):
        rows = RunFolder.open(tmp_path / "run").reader.log.read(k)
        matchups = {tuple(s["policy"] for s in row["seats"].values()) for row in rows}
        assert matchups == {("poker", f"caller@{past}"), (f"poker@{past}", "caller")}
    assert sorted(p.name for p in (tmp_path / "run" / "league").iterdir()) == [
        f"{name}@{v}" for name in ("caller", "poker") for v in (0, 1, 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_league_killed_between_writes_resumes_bit_equal(roles_folder: Path, tmp_path: Path, number: int) -> None:
    (tmp_path / "mine.yaml").write_text(CONFIG.replace("keep: 9", "every: 2, keep: 1"))
    command = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--config", tmp_path / "mine.yaml", "--json"]
    command += ["--roles", roles_folder]
    uninterrupted = [*command, "--out", tmp_path / "whole"]
    assert (
        run_arena_child(tmp_path / "said", *uninterrupted, fault=ChildFault(count_steps=tmp_path / "steps")).code == 0
    )
    step = random.Random(number).randint(1, int((tmp_path / "steps").read_text()))
    run = tmp_path / "run"
    result = run_arena_child(tmp_path / "said", *command, "--out", run, fault=ChildFault(kill_at_step=step))
    assert result.code == -signal.SIGKILL, result
    resume_command = ["resume", run, "--json"] if (run / "config.yaml").exists() else [*command, "--out", run]
    result = run_arena_child(tmp_path / "said", *resume_command)
    assert result.code == 0, result.err
    assert_same_runs(run, tmp_path / "whole")
    assert read_pool_files(run) == read_pool_files(tmp_path / "whole")
