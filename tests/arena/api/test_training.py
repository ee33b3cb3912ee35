"""`arena.run` and `arena.resume`: arguments and results, cancellation, errors, event loops and threads."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import yaml

import arena
from arena.api.settings import compose_experiment
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer
from arena.errors import ConfigError, Interrupted, StoreError
from arena.store.locks import is_in_use
from tests.factories.commands import arena as command

TINY: dict[str, Any] = {"policies.shared.imitate": None, "iterations": 2, "play.matches": 2, "learn.minibatches": 1}
TINY |= {"game.options.max_turns": 2}


def run_small_experiment(out: Path, **more: Any) -> arena.Result:
    settings = TINY | more.pop("overrides", {})
    return arena.run("negotiation-nano", overrides=settings, out=out, **more)


def test_importing_arena_loads_no_heavy_packages() -> None:
    heavy = {"torch", "pandas", "pydantic", "numpy", "pyarrow", "transformers"}
    code = f"import sys, arena; print(sorted(set(sys.modules) & {heavy!r}), *arena.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] Progress Result resume run\n"


# -- experiments -----------------------------------------------------------------------------------------------


def test_name_file_dict_and_experiment_are_equivalent(tmp_path: Path) -> None:
    named = compose_experiment("negotiation-nano", {"learn.lr": 0.5}, seed=7)
    (tmp_path / "it.yaml").write_text(to_yaml(compose([recipe_layer("negotiation-nano")])))
    read = yaml.safe_load((tmp_path / "it.yaml").read_text())
    for given in (tmp_path / "it.yaml", str(tmp_path / "it.yaml"), read, compose([recipe_layer("negotiation-nano")])):
        assert compose_experiment(given, ["learn.lr=0.5"], seed=7) == named
    assert named.learn.lr == 0.5 and named.seed == 7
    assert compose_experiment("negotiation-nano", {"learn": {"lr": 0.5}}, 7) == named


@pytest.mark.parametrize(
    ("given", "overrides", "message"),
    [
        ("negotiation-nan", {}, "unknown recipe 'negotiation-nan' — did you mean 'negotiation-nano'?"),
        (
            "negotiation-nano",
            {"learn.lrr": 1},
            "overrides: learn.lrr: learn.lrr: unknown field — did you mean 'lr'?",
        ),
        ("negotiation-nano", {"learn.lr": "quick"}, "overrides: learn.lr: learn.lr"),
        ("negotiation-nano", {"learn.lr": float("nan")}, "overrides: learn.lr: invalid value"),
        ("negotiation-nano", {"learn.lr": object()}, "object is not a text, number, list or dict"),
        ("negotiation-nano", {"learn.lr": np.ones(2)}, "overrides: learn.lr: invalid value: can only convert an array"),
        (
            "negotiation-nano",
            {"learn.lr": torch.ones(2)},
            "overrides: learn.lr: invalid value: a Tensor with 2 elements",
        ),
        ("negotiation-nano", None, "overrides must be a dict such as"),
        ("negotiation-nano", 5, "or a list of texts, not int"),
        ("negotiation-nano", {3: 4}, "a setting must be a text such as 'learn.lr', not int"),
        ("negotiation-nano", "learn.lr=1", 'write overrides=["learn.lr=1"]'),
        ("negotiation-nano", ["learn.lr"], "write it as a.b=value"),
        ({"game": {"nam": "nim"}}, {}, "the dict: "),
        ({}, {}, "the dict: "),
        ("nowhere.yaml", {}, "nowhere.yaml: cannot be read"),
        (7, {}, "the experiment must be a recipe's name, the path of a YAML file, a dict or an Experiment, not int"),
    ],
)
def test_invalid_experiment_gives_one_line(given: Any, overrides: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        arena.run(given, overrides=overrides)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
def test_long_setting_name_is_shortened_in_the_error() -> None:
    with pytest.raises(ConfigError) as error:
        arena.run("negotiation-nano", overrides={".".join("a" * 50_000): 1})
    assert len(str(error.value)) < 400


def test_accepts_numpy_numbers_and_home_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.yaml").write_text(to_yaml(compose([recipe_layer("negotiation-nano")])))
    seven, two = cast("list[int]", [np.int64(7), np.int64(2)])
    for given in ("~/it.yaml", Path("~/it.yaml")):
        made = compose_experiment(given, {"iterations": np.int64(3)}, seed=seven)
        assert (made.seed, made.iterations) == (7, 3)
    result = run_small_experiment(Path("~/run"), overrides={"iterations": 1})
    assert arena.resume(result.folder, iterations=two).folder == tmp_path / "run"
    assert arena.resume("~/run").complete and not (tmp_path / "~").exists()


FORKED = """
import os, sys
import arena
arena.run("negotiation-nano", overrides=eval(sys.argv[2]), out=sys.argv[1] + "/a")
if child := os.fork():
    os.waitpid(child, 0)
else:
    try:
        arena.run("negotiation-nano", overrides=eval(sys.argv[2]), out=sys.argv[1] + "/b")
    except arena.errors.ConfigError as error:
        print(error, flush=True)
    os._exit(0)
"""


@pytest.mark.slow
def test_forked_process_is_refused_without_hanging(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKED, str(tmp_path), repr(TINY)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.startswith("this process was forked from one that has run an experiment"), done
    assert [folder.name for folder in tmp_path.iterdir() if not folder.is_symlink()] == ["a"]


def test_circular_dict_gives_one_line() -> None:
    circular: dict[str, Any] = {"name": "x"}
    circular["game"] = circular
    with pytest.raises(ConfigError, match="the dict: invalid value: Circular reference"):
        arena.run(circular)


def test_bad_seed_or_progress_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed"):
        arena.run("negotiation-nano", seed=-1, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="progress must be a Progress or a function, not int"):
        arena.run("negotiation-nano", progress=3, out=tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="there is no folder"):
        arena.resume(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- runs --------------------------------------------------------------------------------------------------


def test_run_reports_progress_and_can_be_resumed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    result = run_small_experiment(tmp_path / "run", seed=3, progress=lambda progress: lines.append(str(progress)))
    assert [line.split(":")[0] for line in lines] == ["iteration 1 of 2", "iteration 2 of 2"]
    assert result.complete and result.done == 2 and repr(result).endswith("run: 2 of 2 iterations)")
    assert result.metrics["iteration"].tolist() == [1, 2] and "reward.nano_opener" in result.metrics
    assert result.checkpoint == tmp_path / "run" / "checkpoints" / "0002"
    assert (result.policies["shared"] / "config.json").exists()
    again = arena.resume(result.folder, iterations=3, overrides={"learn.lr": 1e-5})
    assert again.done == 3 and len(again.rows) == 3 and len(result.metrics) == 2
    with pytest.raises(StoreError, match="already holds a run"):
        run_small_experiment(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"play\.matches \(2 → 4\) cannot change"):
        arena.resume(result.folder, overrides={"play.matches": 4})
    assert capfd.readouterr().out == "", "nothing is printed unasked"


def test_callback_can_cancel_and_resume_continues(tmp_path: Path) -> None:
    result = run_small_experiment(
        tmp_path / "run", overrides={"iterations": 9}, progress=lambda progress: progress.cancel()
    )
    assert (result.done, result.iterations, result.complete) == (1, 9, False)
    assert not is_in_use(result.folder)
    assert arena.resume(result.folder, iterations=2).complete


@pytest.mark.slow
def test_run_cancelled_at_its_last_iteration_is_complete(tmp_path: Path) -> None:
    result = run_small_experiment(
        tmp_path / "run", progress=lambda progress: progress.cancel() if len(progress.rows) == 2 else None
    )
    assert result.complete and run_small_experiment(tmp_path / "next").complete, "the engine was not closed"


def test_callback_error_ends_the_run_and_reaches_the_caller(tmp_path: Path) -> None:
    def fail(progress: arena.Progress) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_small_experiment(tmp_path / "run", progress=fail)
    assert not is_in_use(tmp_path / "run")
    assert arena.resume(tmp_path / "run").complete


def test_one_run_at_a_time_cancellable_from_another_thread(tmp_path: Path) -> None:
    results, is_started = list[arena.Result](), threading.Event()
    progress = arena.Progress(lambda progress: is_started.set())
    arguments: dict[str, Any] = {"overrides": {"iterations": 10_000}, "progress": progress}
    thread = threading.Thread(target=lambda: results.append(run_small_experiment(tmp_path / "run", **arguments)))
    thread.start()
    assert is_started.wait(120)
    with pytest.raises(ConfigError, match="this process is already in a run"):
        run_small_experiment(tmp_path / "other")
    progress.cancel()
    thread.join(60)
    assert not thread.is_alive()
    (result,) = results
    assert 1 <= result.done < 10_000 and not (tmp_path / "other").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of another kind there")
def test_ctrl_c_stops_cleanly_and_names_the_resume_command(tmp_path: Path) -> None:
    many = {"iterations": 10_000}
    with pytest.raises(Interrupted, match=r"committed iterations are safe, and arena resume .*run continues"):
        run_small_experiment(
            tmp_path / "run", overrides=many, progress=lambda progress: signal.raise_signal(signal.SIGINT)
        )
    assert not is_in_use(tmp_path / "run") and arena.Result(tmp_path / "run").done >= 1
    assert arena.resume(tmp_path / "run", progress=lambda progress: progress.cancel()).done >= 2


def test_interrupt_in_a_notebook_stops_the_run_and_not_the_kernel(tmp_path: Path) -> None:
    """A loop is already running there, so the run plays in a thread beside it."""

    def press_stop(progress: arena.Progress) -> None:
        if len(progress.rows) == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    async def run_cell() -> None:
        with pytest.raises(KeyboardInterrupt):
            run_small_experiment(tmp_path / "run", overrides={"iterations": 10_000}, progress=press_stop)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(run_cell())
    finally:
        loop.close()
    assert not is_in_use(tmp_path / "run") and 1 <= arena.Result(tmp_path / "run").done < 10_000
    assert run_small_experiment(tmp_path / "next", overrides={"iterations": 1}).complete


def test_run_cancelled_before_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    progress = arena.Progress()
    progress.cancel()
    with pytest.raises(Interrupted, match="interrupted before the run began"):
        run_small_experiment(tmp_path / "run", progress=progress)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_runs_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def run_cell() -> list[int]:
        return [run_small_experiment(tmp_path / name).done for name in ("one", "two")]

    assert asyncio.run(run_cell()) == [2, 2]


def test_the_same_seed_gives_the_same_figures_as_the_command_line(tmp_path: Path) -> None:
    from_python = run_small_experiment(tmp_path / "one", overrides={"iterations": 1}, seed=5)
    plain = {**TINY, "policies.shared.imitate": "null", "iterations": 1}
    words = [part for key, value in plain.items() for part in ("--set", f"{key}={value}")]
    result = command(
        "run", "selfplay", "--recipe", "negotiation-nano", *words, "--seed", "5", "--out", tmp_path / "two", "--json"
    )
    assert result.code == 0, result.err
    from_command = arena.Result(tmp_path / "two")
    for column in ("mean_payoff", "valid_rate", "tokens"):
        assert from_python.metrics[column].tolist() == from_command.metrics[column].tolist()


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder, because runs without `out` are written to the working directory."""
    monkeypatch.chdir(tmp_path)
