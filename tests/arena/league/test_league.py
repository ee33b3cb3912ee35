"""A whole run with a league: past selves play with their old weights, and a resumed run meets the same ones."""

import json
import random
import shutil
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
from arena.config.layers import compose, to_yaml, with_policies
from arena.config.sources import set_layer, text_layer
from arena.lab import Lab
from arena.league.pool import parse_version
from arena.store.run import RunFolder
from tests.factories.children import ChildFault, run_arena_child
from tests.factories.labs import RecordingWatcher, read_log, read_weight_files
from tests.factories.traces import assert_same, read_trace

ROLE = """\
role: {name}
game: kuhn_poker
system: "{{{{ seat }}}}"
turn: "{{% if first %}}card {{{{ private.card }}}}{{% endif %}}{{% for m in messages %}} {{{{ m.text }}}}{{% endfor %}}"
reply: {{format: free}}
memory: {{kind: all}}
sampling: {{temperature: 0.9, max_tokens: 3, truncated: illegal}}
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
def roles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles")
    for name in ("poker", "caller"):
        (folder / f"{name}.yaml").write_text(ROLE.format(name=name))
    return folder


def experiment(roles: Path, *assignments: str) -> Experiment:
    return compose([text_layer("test", CONFIG), set_layer(f"roles={roles}"), *map(set_layer, assignments)])


def finished(folder: Path, given: Experiment) -> Lab:
    lab = wait(Lab.open(RunFolder.create(folder, to_yaml(given), {}), given, RecordingWatcher()))
    wait(lab.run())
    return lab


@pytest.fixture(scope="module")
def unbroken(roles: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lab]:
    folder = tmp_path_factory.mktemp("league") / "run"
    return folder, finished(folder, experiment(roles))


def state(folder: Path, k: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "checkpoints" / f"{k:04d}" / "state.json").read_text())
    return found


def pool_files(folder: Path) -> dict[str, bytes]:
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in (folder / "league").rglob("*.safetensors")}


def guests(folder: Path, k: int) -> set[str]:
    rows = RunFolder.open(folder).log.read(k)
    return {s["policy"] for row in rows for s in row["seats"].values()} - {"shared"}


@pytest.mark.slow
def test_everybody_in_the_mixture_was_met_when_it_was_time(unbroken: tuple[Path, Lab]) -> None:
    folder, _ = unbroken
    assert guests(folder, 1) == {"random", "shared@0"} == guests(folder, 2)
    assert guests(folder, 3) == {"random", "shared@0", "shared@2"}  # @2 by pfsp; two updates ago it was @0
    assert guests(folder, 4) == {"random", "shared@0", "shared@1", "shared@2"}
    assert state(folder, 4)["league"]["pool"] == {
        "members": [0, 4], "recent": [2, 3, 4], "sealed": [0, 2, 3, 4],
    }  # fmt: skip


def test_opponents_are_recorded_as_who_they_were_and_earn_no_credit(unbroken: tuple[Path, Lab]) -> None:
    run = RunFolder.open(unbroken[0])
    for k in (1, 2, 3, 4):
        rows = {row["id"]: row for row in run.log.read(k)}
        for row in rows.values():
            seats = row["seats"].values()
            assert any(s["trained"] for s in seats)
            for s in seats:
                live = s["policy"] == "shared"
                assert s["trained"] is live and s["kind"] == ("brain" if s["policy"] == "random" else "model")
                assert s["version"] == (k - 1 if live else int(s["policy"].partition("@")[2] or 0))
        credited = {(c.match, c.seat) for c in run.log.credit(k)}
        moved = {(row["id"], t["seat"]) for row in rows.values() for t in row["turns"]}
        assert credited == {(m, seat) for m, seat in moved if rows[m]["seats"][seat]["trained"]}


def test_past_versions_play_with_the_weights_they_had(unbroken: tuple[Path, Lab]) -> None:
    """What a past version sampled has the log-probabilities of its checkpoint's weights, not of today's."""
    folder, lab = unbroken
    streams: dict[str, list[Stream]] = {}
    for row in RunFolder.open(folder).log.rows():
        for seat, found in row["streams"].items():
            streams.setdefault(row["seats"][seat]["policy"], []).extend(Stream(**stream) for stream in found)
    for version in (0, 1, 2):
        own = streams[f"shared@{version}"]
        sampled = np.concatenate([[p for p, m in zip(s.logprobs, s.mask, strict=True) if m] for s in own])
        weights = AutoModelForCausalLM.from_pretrained(
            folder / "checkpoints" / f"{version:04d}" / "policies" / "shared", attn_implementation="sdpa"
        )
        wait(lab.engine.publish("witness", 0, ModuleWeights(weights.eval())))
        heat = [0.9] * len(own)
        then, now = (np.concatenate(wait(lab.engine.score(name, own, heat))) for name in ("witness", "shared"))
        assert np.abs(then - sampled).max() < 1e-4
        assert np.abs(now - sampled).max() > 0.05
    wait(lab.engine.retire("witness"))


def test_the_folder_holds_what_the_checkpoints_hold(unbroken: tuple[Path, Lab]) -> None:
    folder, _ = unbroken
    files = pool_files(folder)
    listed = {v for k in range(5) for versions in state(folder, k)["league"]["pool"].values() for v in versions}
    assert set(files) == {f"shared@{v}/model.safetensors" for v in listed}
    for version in listed:
        assert files[f"shared@{version}/model.safetensors"] == read_weight_files(folder, version)[0]
        AutoModelForCausalLM.from_pretrained(folder / "league" / f"shared@{version}")


def test_ratings_and_win_rates_know_the_past(unbroken: tuple[Path, Lab]) -> None:
    folder, lab = unbroken
    names = {"poker/shared", "poker/random", *(f"poker/shared@{v}" for v in range(5))}
    assert set(state(folder, 4)["ratings"]) == names == set(lab.parts.ratings.state())
    assert state(folder, 4)["ratings"]["poker/shared@4"] == state(folder, 4)["ratings"]["poker/shared"]
    row = RunFolder.open(folder).reader.metrics()[-1]
    assert set(row["ratings"]) == {"poker/shared", "poker/shared@past", "poker/random"}
    assert set(row["win_rate"]) == {"shared vs shared@past", "shared vs random"}
    assert all(0 <= rate <= 1 for rate in row["win_rate"].values())
    assert set(state(folder, 4)["league"]["win_rates"]) == {
        f"kuhn_poker: shared vs {name}" for name in ("random", "shared@0", "shared@1", "shared@2")
    }


def same(folder: Path, expected: Path) -> None:
    assert read_log(folder) == read_log(expected)
    for k in range(5):
        assert read_weight_files(folder, k) == read_weight_files(expected, k)
        assert state(folder, k) == state(expected, k)
    assert pool_files(folder) == pool_files(expected)


@pytest.mark.slow
@pytest.mark.parametrize("done", [1, 3])
def test_a_run_that_lost_its_latest_checkpoints_meets_the_same_again(
    unbroken: tuple[Path, Lab], roles: Path, tmp_path: Path, done: int
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(unbroken[0], folder)
    for later in range(done + 1, 5):
        shutil.rmtree(folder / "checkpoints" / f"{later:04d}")
    lab = wait(Lab.open(RunFolder.open(folder), experiment(roles), RecordingWatcher()))
    assert all(int(name.split("@")[1].split("/")[0]) <= done for name in pool_files(folder))
    loaded = past_versions_served(lab)
    wait(lab.run())
    same(folder, unbroken[0])
    assert max(loaded) == 1 < len(guests(folder, 4) - {"random"}), "no more in memory than fit, however many were met"


def past_versions_served(lab: Lab) -> list[int]:
    """How many there were after each publication, to be read when the run is over."""
    counts: list[int] = []
    engine = lab.engine
    assert isinstance(engine, InProcessEngine)
    publish = engine.publish

    async def counted(policy: str, version: int, weights: Any) -> None:
        await publish(policy, version, weights)
        counts.append(sum(parse_version(name) is not None for name in engine._served))

    engine.publish = counted  # type: ignore[method-assign]
    return counts


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("what", "value"), [("match", "0002-0009"), ("phase", (4, "commit"))])
def test_a_run_with_a_league_stopped_anywhere_goes_on_as_if_never_stopped(
    unbroken: tuple[Path, Lab], roles: Path, tmp_path: Path, what: str, value: Any
) -> None:
    given, folder = experiment(roles), tmp_path / "run"
    watcher = RecordingWatcher(lambda w, v: (w, v) == (what, value))
    with pytest.raises(KeyboardInterrupt):
        wait(wait(Lab.open(RunFolder.create(folder, to_yaml(given), {}), given, watcher)).run())
    wait(wait(Lab.open(RunFolder.open(folder), given, RecordingWatcher())).run())
    same(folder, unbroken[0])


@pytest.mark.slow
def test_separate_policies_meet_each_others_past_selves(
    unbroken: tuple[Path, Lab], roles: Path, tmp_path: Path
) -> None:
    warm = unbroken[0] / "checkpoints" / "0000" / "policies" / "shared"
    given = experiment(
        roles, "policies.shared.imitate=null", f"policies.shared.model={warm}", "seats.second.role=caller",
        "iterations=2", "league.opponents=[{play: past, lag: 1}]", "learn.regularisers={kl: {weight: 0}}",
    )  # fmt: skip
    finished(tmp_path / "run", with_policies(given, "separate"))
    for k, past in ((1, 0), (2, 0)):
        rows = RunFolder.open(tmp_path / "run").log.read(k)
        met = {tuple(s["policy"] for s in row["seats"].values()) for row in rows}
        assert met == {("poker", f"caller@{past}"), (f"poker@{past}", "caller")}
    assert sorted(p.name for p in (tmp_path / "run" / "league").iterdir()) == [
        f"{name}@{v}" for name in ("caller", "poker") for v in (0, 1, 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_a_process_killed_between_any_two_writes_of_a_league_ends_as_the_unbroken(
    roles: Path, tmp_path: Path, number: int
) -> None:
    (tmp_path / "mine.yaml").write_text(CONFIG.replace("keep: 9", "every: 2, keep: 1"))
    command = ["run", "selfplay", "--recipe", "kuhn_poker-nano", "--config", tmp_path / "mine.yaml", "--json"]
    command += ["--roles", roles]
    whole = [*command, "--out", tmp_path / "whole"]
    assert run_arena_child(tmp_path / "said", *whole, fault=ChildFault(count_steps=tmp_path / "steps")).code == 0
    step = random.Random(number).randint(1, int((tmp_path / "steps").read_text()))
    run = tmp_path / "run"
    told = run_arena_child(tmp_path / "said", *command, "--out", run, fault=ChildFault(kill_at_step=step))
    assert told.code == -signal.SIGKILL, told
    again = ["resume", run, "--json"] if (run / "config.yaml").exists() else [*command, "--out", run]
    told = run_arena_child(tmp_path / "said", *again)
    assert told.code == 0, told.err
    assert_same(read_trace(run), read_trace(tmp_path / "whole"))
    assert pool_files(run) == pool_files(tmp_path / "whole")
