"""Runs in which adapters learn: one base for all, each its own role's, and the same whether or not interrupted."""

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
    make_experiment,
    make_warm_experiment,
    read_log,
    run_and_resume,
    run_lab,
    run_with_negated_advantages,
)

OPTIMIZER = "optimizer.safetensors"
LEAGUE = "league={opponents: [{play: self}, {play: past, lag: 1}], pool: {every: 1}}"


def two(warm: str, *assignments: str) -> Experiment:
    """An adapter for each role on warm weights."""
    adapter = "policies.shared.adapter={rank: 3}"
    return with_policies(make_warm_experiment(warm, adapter, "learn.lr=3e-3", *assignments), "separate")


def weight_files(folder: Path, iteration: int, policy: str) -> list[bytes]:
    where = folder / "checkpoints" / f"{iteration:04d}" / "policies" / policy
    return [(where / name).read_bytes() for name in (TENSORS, OPTIMIZER)]


@pytest.fixture(scope="module")
def trained(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder `first` of a run that trained two adapters for one iteration, to read."""
    folder = tmp_path_factory.mktemp("adapters") / "first"
    run_lab(folder, two(warm, "iterations=1"))
    return folder


@pytest.mark.slow
def test_a_league_of_adapters_stands_on_one_base(warm: str, tmp_path: Path) -> None:
    lab = run_lab(tmp_path / "run", two(warm, LEAGUE, "iterations=3"))
    assert isinstance(lab.engine, InProcessEngine)
    served = lab.engine._served
    assert {"nano_opener", "nano_responder", "nano_opener@reference"} <= served.keys()
    assert any(name.startswith("nano_opener@") and name != "nano_opener@reference" for name in served)
    assert len({id(one.model) for one in served.values()}) == 1
    pool = next((tmp_path / "run" / "league").rglob(TENSORS)).parent
    assert sum(file.stat().st_size for file in pool.rglob("*")) < Path(warm, "model.safetensors").stat().st_size / 5


def test_each_adapter_learns_from_its_own_roles_tokens_alone(warm: str, trained: Path, tmp_path: Path) -> None:
    run_with_negated_advantages(tmp_path / "turned", two(warm, "iterations=1"), role="nano_opener")
    for policy, equal in (("nano_opener", False), ("nano_responder", True)):
        one, other = (weight_files(run, 1, policy) for run in (trained, tmp_path / "turned"))
        assert (one == other) is equal


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
def test_they_resume_bit_by_bit(changes: tuple[str, ...], warm: str, tmp_path: Path) -> None:
    given = two(warm, *changes, "iterations=3", "checkpoint.keep=9", "play.matches=4")
    for folder in run_and_resume(given, tmp_path):
        assert read_log(folder) == read_log(tmp_path / "whole")
        for policy in ("nano_opener", "nano_responder"):
            assert weight_files(folder, 3, policy) == weight_files(tmp_path / "whole", 3, policy)


@pytest.mark.slow
def test_an_imitated_adapter_is_the_reference_of_its_run(tmp_path: Path) -> None:
    given = make_experiment("policies.shared.adapter={rank: 8}", "policies.shared.imitate.lr=1e-2")
    lab = run_lab(tmp_path / "run", given)
    assert (tmp_path / "run" / "checkpoints" / "0000" / "policies" / "shared" / TENSORS).exists()
    row = next(iter(lab.run_folder.reader.metrics()))
    assert row["learn"]["shared"]["kl"] < 0.1, "it holds on to what imitation made of it, not to the bare base"


def test_an_adapters_folder_goes_on_learning(trained: Path, tmp_path: Path) -> None:
    first = trained / "checkpoints" / "0001" / "policies" / "nano_opener"
    given = make_warm_experiment(str(first), "iterations=1", "learn.lr=0", "learn.regularisers={}")
    run_lab(tmp_path / "second", given)
    assert weight_files(tmp_path / "second", 1, "shared")[0] == (first / TENSORS).read_bytes()


def test_a_trained_adapter_is_evaluated_exported_and_merged(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    told = arena("eval", run, "--game", "negotiation", "--matches", "4", "--json")
    assert told.code == 0, told.err
    for options, file in (([], TENSORS), (["--merged"], "model.safetensors")):
        to = tmp_path / f"exported{len(options)}"
        told = arena("export", run, "--policy", "nano_opener", "--to", to, *options)
        assert told.code == 0, told.err
        assert (to / file).exists() and not (to / OPTIMIZER).exists()
        told = arena("eval", to, "--game", "negotiation", "--matches", "2", "--json")
        assert told.code == 0, told.err


def test_a_new_adapter_of_a_frozen_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="changes nothing"):
        make_experiment("policies.shared={model: nano, adapter: {rank: 8}, train: false}")


def test_a_frozen_policy_that_would_imitate_is_refused() -> None:
    """It used to play with the weights it was loaded with, and nobody said so."""
    with pytest.raises(ConfigError, match="imitates nobody"):
        make_experiment("policies.shared={model: nano, train: false, imitate: {scripted: [naive]}}")


@pytest.mark.parametrize(
    ("policy", "settings", "says"),
    [
        ("{{model: {folder}, adapter: {{rank: 2}}}}", [], "is already an adapter"),
        ("{{model: {folder}}}", ["learn.zero_stage=3"], "base is not partitioned"),
        ("{{model: nano, adapter: {{rank: 2}}}}", ["learn.zero_stage=3"], "base is not partitioned"),
        ("{{model: {folder}}}", ["precision=bf16-true", "learn.zero_stage=2"], "set precision to bf16"),
    ],
)
def test_what_cannot_be_is_refused(policy: str, settings: list[str], says: str, trained: Path, tmp_path: Path) -> None:
    folder = trained / "checkpoints" / "0001" / "policies" / "nano_opener"
    settings = ["policies.shared.imitate=null", f"policies.shared={policy.format(folder=folder)}", *settings]
    start = ("run", "selfplay", "--recipe", "negotiation-nano", "--out", tmp_path / "x")
    assert says in get_refusal(*start, *(part for setting in settings for part in ("--set", setting)))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["new", "folder", "none"])
def test_vllm_meets_past_versions_of_adapters_only(
    kind: str, warm: str, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided before any engine is made; `none` is refused with what to do."""
    monkeypatch.setattr("arena.preflight.check_engine", lambda spec: None)
    adapter = trained / "checkpoints" / "0001" / "policies" / "nano_opener"
    model = {"new": f"{{model: {warm}, adapter: {{rank: 2}}}}", "folder": f"{{model: {adapter}}}"}
    policy = model.get(kind, f"{{model: {warm}}}")
    given = make_experiment(
        f"policies={{shared: {policy}}}", "policies.shared.imitate=null", LEAGUE, "engine.kind=vllm"
    )
    if kind == "none":
        with pytest.raises(ConfigError, match="past versions of adapters only"):
            wait(preflight(given, lambda what: None))
    else:
        assert wait(preflight(given, lambda what: None)).experiment.engine.kind == "vllm"


def test_a_policy_begins_as_another_runs(trained: Path) -> None:
    """By RUN@ITERATION:POLICY, or the one of its own name: settled to a folder before the run begins."""
    kept_at = trained / "checkpoints" / "0001" / "policies"

    def begins(model: str, name: str = "shared") -> str:
        given = make_experiment(
            f"policies={{{name}: {{model: '{trained.parent}/{model}'}}}}",
            f"seats.opener.policy={name}",
            f"seats.responder.policy={name}",
        )
        return wait(preflight(given, lambda what: None)).experiment.policies[name].model

    assert begins("first@1:nano_responder") == str(kept_at / "nano_responder")
    assert begins("first", "nano_opener") == str(kept_at / "nano_opener")
    with pytest.raises(ConfigError, match=r"has nano_opener, nano_responder: write .*first:nano_opener"):
        begins("first")
    with pytest.raises(StoreError, match="keeps no weights of iteration 7"):
        begins("first@7")
