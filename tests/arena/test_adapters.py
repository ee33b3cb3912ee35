"""Runs that train adapters: shared base, separate learning per role, and bit-equal resumption."""

import shutil
from pathlib import Path

import pytest

from agents.adapter_config import TENSORS
from agents.engines.in_process import InProcessEngine
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import with_policies
from arena.errors import ConfigError, StoreError
from arena.preflight import preflight
from tests.factories.commands import arena, get_refusal
from tests.factories.labs import (
    check_resume,
    make_experiment,
    make_warm_experiment,
    run_lab,
    run_with_negated_advantages,
)

OPTIMIZER = "optimizer.safetensors"
LEAGUE = "league={opponents: [{play: self}, {play: past, lag: 1}], pool: {every: 1}}"


def make_adapter_experiment(warm: str, *assignments: str) -> Experiment:
    """Return an experiment with an adapter for each role, on the warm weights."""
    adapter = "policies.shared.adapter={rank: 3}"
    return with_policies(make_warm_experiment(warm, adapter, "learn.lr=3e-3", *assignments), "separate")


def read_weights(folder: Path, iteration: int, policy: str) -> list[bytes]:
    saved = folder / "checkpoints" / f"{iteration:04d}" / "policies" / policy
    return [(saved / name).read_bytes() for name in (TENSORS, OPTIMIZER)]


@pytest.fixture(scope="module")
def trained_run(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder `first` of a run that trained two adapters for one iteration, to read."""
    folder = tmp_path_factory.mktemp("adapters") / "first"
    run_lab(folder, make_adapter_experiment(warm, "iterations=1"))
    return folder


@pytest.mark.slow
def test_league_of_adapters_shares_one_base(warm: str, tmp_path: Path) -> None:
    lab = run_lab(tmp_path / "run", make_adapter_experiment(warm, LEAGUE, "iterations=3"))
    assert isinstance(lab.engine, InProcessEngine)
    served = lab.engine._served
    assert {"nano_opener", "nano_responder", "nano_opener@reference"} <= served.keys()
    assert any(name.startswith("nano_opener@") and name != "nano_opener@reference" for name in served)
    assert len({id(served_policy.model) for served_policy in served.values()}) == 1
    pool = next((tmp_path / "run" / "league").rglob(TENSORS)).parent
    assert sum(file.stat().st_size for file in pool.rglob("*")) < Path(warm, "model.safetensors").stat().st_size / 5


def test_each_adapter_learns_only_from_its_own_roles_tokens(warm: str, trained_run: Path, tmp_path: Path) -> None:
    run_with_negated_advantages(tmp_path / "turned", make_adapter_experiment(warm, "iterations=1"), role="nano_opener")
    for policy, equal in (("nano_opener", False), ("nano_responder", True)):
        first, second = (read_weights(run, 1, policy) for run in (trained_run, tmp_path / "turned"))
        assert (first == second) is equal


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "changes",
    [
        (LEAGUE,),
        ("precision=bf16",),
        ("learn.zero_stage=1",),
        ("credit.estimator=gae_turn", "credit.critic=value_head"),
    ],
    ids=str,
)
def test_adapter_runs_resume_bit_equal(changes: tuple[str, ...], warm: str, tmp_path: Path) -> None:
    config = make_adapter_experiment(warm, *changes, "iterations=3", "checkpoint.keep=9", "play.matches=4")
    check_resume(config, tmp_path)


@pytest.mark.slow
def test_an_imitated_adapter_is_the_reference_of_its_run(tmp_path: Path) -> None:
    config = make_experiment("policies.shared.adapter={rank: 8}", "policies.shared.imitate.lr=1e-2")
    lab = run_lab(tmp_path / "run", config)
    assert (tmp_path / "run" / "checkpoints" / "0000" / "policies" / "shared" / TENSORS).exists()
    row = next(iter(lab.run_folder.reader.metrics()))
    assert row["learn"]["shared"]["kl"] < 0.1, "the KL reference is the imitated adapter, not the base"


def test_adapter_folder_continues_training(trained_run: Path, tmp_path: Path) -> None:
    first = trained_run / "checkpoints" / "0001" / "policies" / "nano_opener"
    config = make_warm_experiment(str(first), "iterations=1", "learn.lr=0", "learn.regularisers={}")
    run_lab(tmp_path / "second", config)
    assert read_weights(tmp_path / "second", 1, "shared")[0] == (first / TENSORS).read_bytes()


def test_a_trained_adapter_is_evaluated_exported_and_merged(trained_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained_run, tmp_path / "run")
    result = arena("eval", run, "--game", "negotiation", "--matches", "4", "--json")
    assert result.code == 0, result.err
    for options, file in (([], TENSORS), (["--merged"], "model.safetensors")):
        to = tmp_path / f"exported{len(options)}"
        result = arena("export", run, "--policy", "nano_opener", "--to", to, *options)
        assert result.code == 0, result.err
        assert (to / file).exists() and not (to / OPTIMIZER).exists()
        result = arena("eval", to, "--game", "negotiation", "--matches", "2", "--json")
        assert result.code == 0, result.err


def test_a_new_adapter_of_a_frozen_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="changes nothing"):
        make_experiment("policies.shared={model: nano, adapter: {rank: 8}, train: false}")


def test_a_frozen_policy_that_would_imitate_is_refused() -> None:
    """It used to play with its loaded weights, without a message."""
    with pytest.raises(ConfigError, match="cannot imitate"):
        make_experiment("policies.shared={model: nano, train: false, imitate: {scripted: [naive]}}")


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ("{{model: {folder}, adapter: {{rank: 2}}}}", [], "is already an adapter"),
        ("{{model: {folder}}}", ["learn.zero_stage=3"], "base is not partitioned"),
        ("{{model: nano, adapter: {{rank: 2}}}}", ["learn.zero_stage=3"], "base is not partitioned"),
        ("{{model: {folder}}}", ["precision=bf16-true", "learn.zero_stage=2"], "set precision to bf16"),
    ],
)
def test_impossible_settings_are_refused(
    policy: str, settings: list[str], message: str, trained_run: Path, tmp_path: Path
) -> None:
    folder = trained_run / "checkpoints" / "0001" / "policies" / "nano_opener"
    settings = ["policies.shared.imitate=null", f"policies.shared={policy.format(folder=folder)}", *settings]
    start = ("run", "selfplay", "--recipe", "negotiation-nano", "--out", tmp_path / "x")
    assert message in get_refusal(*start, *(part for setting in settings for part in ("--set", setting)))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["new", "folder", "none"])
def test_vllm_plays_past_versions_of_adapters_only(
    kind: str, warm: str, trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked before any engine starts; `none` is refused with a suggestion."""
    monkeypatch.setattr("arena.preflight.check_engine", lambda spec: None)
    adapter = trained_run / "checkpoints" / "0001" / "policies" / "nano_opener"
    model = {"new": f"{{model: {warm}, adapter: {{rank: 2}}}}", "folder": f"{{model: {adapter}}}"}
    policy = model.get(kind, f"{{model: {warm}}}")
    config = make_experiment(
        f"policies={{shared: {policy}}}", "policies.shared.imitate=null", LEAGUE, "engine.kind=vllm"
    )
    if kind == "none":
        with pytest.raises(ConfigError, match="past versions of adapters only"):
            wait(preflight(config, lambda text: None))
    else:
        assert wait(preflight(config, lambda text: None)).experiment.engine.kind == "vllm"


def test_policy_can_start_from_another_runs_weights(trained_run: Path) -> None:
    """RUN@ITERATION:POLICY, or the policy of the same name, is resolved to a folder before the run begins."""
    policies_folder = trained_run / "checkpoints" / "0001" / "policies"

    def resolve_model(model: str, name: str = "shared") -> str:
        policies = f"policies={{{name}: {{model: '{trained_run.parent}/{model}'}}}}"
        config = make_experiment(policies, f"seats.opener.policy={name}", f"seats.responder.policy={name}")
        return wait(preflight(config, lambda text: None)).experiment.policies[name].model

    assert resolve_model("first@1:nano_responder") == str(policies_folder / "nano_responder")
    assert resolve_model("first", "nano_opener") == str(policies_folder / "nano_opener")
    with pytest.raises(ConfigError, match=r"has nano_opener, nano_responder: write .*first:nano_opener"):
        resolve_model("first")
    with pytest.raises(StoreError, match="keeps no weights of iteration 7"):
        resolve_model("first@7")
