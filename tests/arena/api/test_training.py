"""`arena.run` and `arena.resume`: what they take and return, stopped, failing, in loops, threads and twice."""

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


def small_run(out: Path, **more: Any) -> arena.Result:
    settings = TINY | more.pop("overrides", {})
    return arena.run("negotiation-nano", overrides=settings, out=out, **more)


def test_to_import_arena_loads_nothing_heavy() -> None:
    heavy = {"torch", "pandas", "pydantic", "numpy", "pyarrow", "transformers"}
    code = f"import sys, arena; print(sorted(set(sys.modules) & {heavy!r}), *arena.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] Progress Result resume run\n"


# -- what may be an experiment -----------------------------------------------------------------------------


def test_a_name_a_file_a_dict_and_an_experiment_are_the_same(tmp_path: Path) -> None:
    named = compose_experiment("negotiation-nano", {"learn.lr": 0.5}, seed=7)
    (tmp_path / "it.yaml").write_text(to_yaml(compose([recipe_layer("negotiation-nano")])))
    read = yaml.safe_load((tmp_path / "it.yaml").read_text())
    for given in (tmp_path / "it.yaml", str(tmp_path / "it.yaml"), read, compose([recipe_layer("negotiation-nano")])):
        assert compose_experiment(given, ["learn.lr=0.5"], seed=7) == named
    assert named.learn.lr == 0.5 and named.seed == 7
    assert compose_experiment("negotiation-nano", {"learn": {"lr": 0.5}}, 7) == named


@pytest.mark.parametrize(
    ("given", "overrides", "says"),
    [
        ("negotiation-nan", {}, "unknown recipe 'negotiation-nan' — did you mean 'negotiation-nano'?"),
        (
            "negotiation-nano",
            {"learn.lrr": 1},
            "overrides: learn.lrr: learn.lrr: unknown field — did you mean 'lr'?",
        ),
        ("negotiation-nano", {"learn.lr": "quick"}, "overrides: learn.lr: learn.lr"),
        ("negotiation-nano", {"learn.lr": float("nan")}, "overrides: learn.lr: no settings"),
        ("negotiation-nano", {"learn.lr": object()}, "object is no text, number, list or dict"),
        ("negotiation-nano", {"learn.lr": np.ones(2)}, "overrides: learn.lr: no settings: can only convert an array"),
        ("negotiation-nano", {"learn.lr": torch.ones(2)}, "overrides: learn.lr: no settings: a Tensor with 2 elements"),
        ("negotiation-nano", None, "overrides are a dict such as"),
        ("negotiation-nano", 5, "or texts, not int"),
        ("negotiation-nano", {3: 4}, "a setting is a text such as 'learn.lr', not int"),
        ("negotiation-nano", "learn.lr=1", 'write overrides=["learn.lr=1"]'),
        ("negotiation-nano", ["learn.lr"], "write it as a.b=value"),
        ({"game": {"nam": "nim"}}, {}, "the dict: "),
        ({}, {}, "the dict: "),
        ("nowhere.yaml", {}, "nowhere.yaml: cannot be read"),
        (7, {}, "an experiment is a recipe's name, the path of a YAML file, a dict or an Experiment, not int"),
    ],
)
def test_what_is_none_is_one_line(given: Any, overrides: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        arena.run(given, overrides=overrides)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
def test_a_long_name_of_a_setting_is_not_repeated_whole() -> None:
    with pytest.raises(ConfigError) as error:
        arena.run("negotiation-nano", overrides={".".join("a" * 50_000): 1})
    assert len(str(error.value)) < 400


def test_numbers_of_numpy_and_paths_of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.yaml").write_text(to_yaml(compose([recipe_layer("negotiation-nano")])))
    seven, two = cast("list[int]", [np.int64(7), np.int64(2)])
    for given in ("~/it.yaml", Path("~/it.yaml")):
        made = compose_experiment(given, {"iterations": np.int64(3)}, seed=seven)
        assert (made.seed, made.iterations) == (7, 3)
    begun = small_run(Path("~/run"), overrides={"iterations": 1})
    assert arena.resume(begun.folder, iterations=two).folder == tmp_path / "run"
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
def test_a_fork_of_a_process_that_ran_is_refused_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKED, str(tmp_path), repr(TINY)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.startswith("this process was forked from one that has run an experiment"), done
    assert [folder.name for folder in tmp_path.iterdir() if not folder.is_symlink()] == ["a"]


def test_a_dict_that_contains_itself_is_one_line() -> None:
    endless: dict[str, Any] = {"name": "x"}
    endless["game"] = endless
    with pytest.raises(ConfigError, match="the dict: no settings: Circular reference"):
        arena.run(endless)


def test_a_bad_seed_or_progress_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed"):
        arena.run("negotiation-nano", seed=-1, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="progress is a Progress or a function, not int"):
        arena.run("negotiation-nano", progress=3, out=tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="there is no folder"):
        arena.resume(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- runs --------------------------------------------------------------------------------------------------


def test_a_run_is_followed_read_and_gone_on_with(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    result = small_run(tmp_path / "run", seed=3, progress=lambda of: said.append(str(of)))
    assert [line.split(":")[0] for line in said] == ["iteration 1 of 2", "iteration 2 of 2"]
    assert result.complete and result.done == 2 and repr(result).endswith("run: 2 of 2 iterations)")
    assert result.metrics["iteration"].tolist() == [1, 2] and "reward.nano_opener" in result.metrics
    assert result.checkpoint == tmp_path / "run" / "checkpoints" / "0002"
    assert (result.policies["shared"] / "config.json").exists()
    again = arena.resume(result.folder, iterations=3, overrides={"learn.lr": 1e-5})
    assert again.done == 3 and len(again.rows) == 3 and len(result.metrics) == 2
    with pytest.raises(StoreError, match="already holds a run"):
        small_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"play\.matches \(2 → 4\) cannot change"):
        arena.resume(result.folder, overrides={"play.matches": 4})
    assert capfd.readouterr().out == "", "nothing is printed unasked"


def test_the_callback_may_stop_it_and_another_call_goes_on(tmp_path: Path) -> None:
    result = small_run(tmp_path / "run", overrides={"iterations": 9}, progress=lambda of: of.cancel())
    assert (result.done, result.iterations, result.complete) == (1, 9, False)
    assert not is_in_use(result.folder)
    assert arena.resume(result.folder, iterations=2).complete


@pytest.mark.slow
def test_cancelled_at_its_last_iteration_it_is_complete(tmp_path: Path) -> None:
    result = small_run(tmp_path / "run", progress=lambda of: of.cancel() if len(of.rows) == 2 else None)
    assert result.complete and small_run(tmp_path / "next").complete, "and the engine was closed in order"


def test_what_a_callback_raises_ends_the_run_and_reaches_the_caller(tmp_path: Path) -> None:
    def broken(of: arena.Progress) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        small_run(tmp_path / "run", progress=broken)
    assert not is_in_use(tmp_path / "run")
    assert arena.resume(tmp_path / "run").complete


def test_another_thread_may_run_and_another_stop_it_and_one_runs_at_a_time(tmp_path: Path) -> None:
    results, first = list[arena.Result](), threading.Event()
    progress = arena.Progress(lambda of: first.set())
    run: dict[str, Any] = {"overrides": {"iterations": 10_000}, "progress": progress}
    thread = threading.Thread(target=lambda: results.append(small_run(tmp_path / "run", **run)))
    thread.start()
    assert first.wait(120)
    with pytest.raises(ConfigError, match="this process has a run"):
        small_run(tmp_path / "other")
    progress.cancel()
    thread.join(60)
    assert not thread.is_alive()
    (result,) = results
    assert 1 <= result.done < 10_000 and not (tmp_path / "other").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of another kind there")
def test_ctrl_c_ends_it_in_order_and_says_how_to_go_on(tmp_path: Path) -> None:
    many = {"iterations": 10_000}
    with pytest.raises(Interrupted, match=r"committed iterations are safe, and arena resume .*run continues"):
        small_run(tmp_path / "run", overrides=many, progress=lambda of: signal.raise_signal(signal.SIGINT))
    assert not is_in_use(tmp_path / "run") and arena.Result(tmp_path / "run").done >= 1
    assert arena.resume(tmp_path / "run", progress=lambda of: of.cancel()).done >= 2


def test_in_a_notebook_an_interrupt_stops_the_run_and_not_the_kernel(tmp_path: Path) -> None:
    """There a loop runs already, and the run in a thread beside it."""

    def stop_button(of: arena.Progress) -> None:
        if len(of.rows) == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    async def cell() -> None:
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path / "run", overrides={"iterations": 10_000}, progress=stop_button)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(cell())
    finally:
        loop.close()
    assert not is_in_use(tmp_path / "run") and 1 <= arena.Result(tmp_path / "run").done < 10_000
    assert small_run(tmp_path / "next", overrides={"iterations": 1}).complete


def test_cancelled_before_it_begins_there_is_no_folder(tmp_path: Path) -> None:
    progress = arena.Progress()
    progress.cancel()
    with pytest.raises(Interrupted, match="interrupted before the run began"):
        small_run(tmp_path / "run", progress=progress)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_it_runs_where_a_loop_runs_already_as_in_a_notebook(tmp_path: Path) -> None:
    async def cell() -> list[int]:
        return [small_run(tmp_path / name).done for name in ("one", "two")]

    assert asyncio.run(cell()) == [2, 2]


def test_the_same_seed_gives_the_same_figures_as_the_command_line(tmp_path: Path) -> None:
    one = small_run(tmp_path / "one", overrides={"iterations": 1}, seed=5)
    plain = {**TINY, "policies.shared.imitate": "null", "iterations": 1}
    words = [part for key, value in plain.items() for part in ("--set", f"{key}={value}")]
    told = command(
        "run", "selfplay", "--recipe", "negotiation-nano", *words, "--seed", "5", "--out", tmp_path / "two", "--json"
    )
    assert told.code == 0, told.err
    two = arena.Result(tmp_path / "two")
    for column in ("mean_payoff", "valid_rate", "tokens"):
        assert one.metrics[column].tolist() == two.metrics[column].tolist()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without `out` would lie in the working directory."""
    monkeypatch.chdir(tmp_path)
