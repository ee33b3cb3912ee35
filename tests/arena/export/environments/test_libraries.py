"""Exported modules play Arena's matches in the libraries themselves; tests skip libraries that are not installed."""

import re
import runpy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread
from time import sleep
from types import ModuleType
from typing import Any

import pytest

from arena.export.environments.episode import Task
from tests.factories.commands import arena
from tests.factories.environments import FinishedMatch, export_environment, play_matches

AGAINST = ("--against", "cfr", "--option", "illegal=end")
TASK = Task("kuhn_poker", {"illegal": "end"}, "first", "cfr")

TASK_SEATS = ("first", "second")


@pytest.fixture(scope="module")
def kuhn_matches() -> list[FinishedMatch]:
    return play_matches(TASK, "random")


def test_gymnasium(kuhn_matches: list[FinishedMatch], tmp_path: Path) -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    module = export_environment("kuhn_poker", "gymnasium", tmp_path / "env", *AGAINST)
    assert module.ID == "arena/kuhn_poker-v0"
    env = gymnasium.make(module.ID)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checker recommends arrays
        check_env(env.unwrapped, skip_render_check=True)
    for match in kuhn_matches:
        env.reset(seed=match.seed)
        steps = [env.step(act) for act in match.own]
        assert [step[2] for step in steps] == [False] * (len(steps) - 1) + [True]
        assert sum(step[1] for step in steps) == steps[-1][4]["payoff"] == match.payoffs["first"]
    env.reset(seed=kuhn_matches[0].seed)
    assert env.step("nonsense")[1:4] == (-3.0, True, False), "the stake and the penalty"
    assert len({env.reset()[1]["seed"] for _ in range(5)}) == 5, "without a seed, deals differ"
    env.close()


def test_gymnasium_gives_pictures() -> None:
    from gymnasium.utils.env_checker import check_env

    from arena.export.environments.gymnasium import GameEnv

    env = GameEnv("zoom", render_mode="ansi")
    text, info = env.reset(seed=1)
    assert "[image png 48x48 " in text and info["images"][0].startswith(b"\x89PNG")
    assert "zoom" in str(env.task) and env.render()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env, skip_render_check=True)


def test_pettingzoo(kuhn_matches: list[FinishedMatch], tmp_path: Path) -> None:
    from pettingzoo.test import api_test, parallel_api_test, seed_test

    module = export_environment("kuhn_poker", "pettingzoo", tmp_path / "env", "--option", "illegal=end")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(module.env(), num_cycles=50)
        seed_test(module.env, num_cycles=20)
        parallel_api_test(module.parallel_env(), num_cycles=20)
    for match in kuhn_matches:
        env = module.env()
        env.reset(seed=match.seed)
        sums = dict.fromkeys(env.possible_agents, 0.0)
        acts = iter(match.acts)
        for seat in env.agent_iter():
            _, reward, ended, _, _ = env.last()
            sums[seat] += reward
            env.step(None if ended else next(acts))
        assert sums == match.payoffs
        parallel = module.parallel_env()
        parallel.reset(seed=match.seed)
        for act in match.acts:
            rewards = parallel.step(dict.fromkeys(parallel.agents, act))[1]
        assert rewards == match.payoffs


def test_textarena(kuhn_matches: list[FinishedMatch], tmp_path: Path) -> None:
    textarena = pytest.importorskip("textarena")
    module = export_environment("kuhn_poker", "textarena", tmp_path / "env", "--option", "illegal=end")
    for match in kuhn_matches:
        env, raw = textarena.make(module.ID), textarena.make(f"{module.ID}-raw")
        for environment in (env, raw):
            environment.reset(num_players=module.PLAYERS, seed=match.seed)
        for turn, act in enumerate(match.acts):
            player, text = env.get_observation()
            assert player == turn % 2 and f"You are {TASK_SEATS[player]}. Kuhn poker" in text
            assert turn == 0 or f"[{TASK_SEATS[1 - player]}] {match.acts[turn - 1]}" in text
            observed = raw.get_observation()[1]
            assert observed[0][2].name == ("PROMPT" if turn < 2 else "PLAYER_ACTION")
            done, info = env.step(act)
            raw.step(act)
            assert info == {"valid": True} and done == (turn == len(match.acts) - 1)
        rewards, infos = env.close()
        assert {TASK_SEATS[player]: reward for player, reward in rewards.items()} == match.payoffs
        assert infos[0]["reason"] and infos[0]["role"] == "first" and not infos[0]["invalid_move"]
    env.reset(num_players=2, seed=1)
    env.step("[second] nonsense")
    rewards, infos = env.close()
    assert rewards == {0: -3.0, 1: 0.0} and infos[0]["invalid_move"] and not infos[1]["invalid_move"]
    with pytest.raises(ValueError, match="2 players, not 3"):
        env.reset(num_players=3)


@pytest.mark.parametrize("library", ["gymnasium", "pettingzoo", "textarena"])
def test_a_written_module_plays_when_run(library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(library)
    assert arena("export-env", "tic_tac_toe", "--as", library, "--to", tmp_path / "env").code == 0
    runpy.run_path(str(tmp_path / "env" / "arena_tic_tac_toe.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    ends = {"gymnasium": "payoff", "pettingzoo": "(first|second): None", "textarena": "rewards"}  # either seat is last
    assert re.match(ends[library], last)


def test_textarena_with_one_seat(tmp_path: Path) -> None:
    textarena = pytest.importorskip("textarena")
    task = Task("repair").resolve()
    module = export_environment("repair", "textarena", tmp_path / "env")
    for match in play_matches(task, "oracle", 2):
        env = textarena.make(module.ID)
        env.reset(num_players=1, seed=match.seed)
        for act in match.acts:
            env.get_observation()
            done, _ = env.step(act)
        assert done and env.close()[0] == {0: match.payoffs["engineer"]}


def test_textarena_steps_one_match_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Games may use global random state."""
    pytest.importorskip("textarena")
    from arena.export.environments.textarena import GameEnv

    active, peak, barrier = 0, 0, Barrier(2)

    def play() -> None:
        env = GameEnv("kuhn_poker")
        step = env.game.step

        def step_slowly(act: str | None) -> None:
            nonlocal active, peak
            active, peak = active + 1, max(peak, active + 1)
            sleep(0.05)
            step(act)
            active -= 1

        monkeypatch.setattr(env.game, "step", step_slowly)
        env.reset(num_players=2, seed=1)
        barrier.wait(10)
        env.step("PASS")

    threads = [Thread(target=play) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peak == 1 and active == 0


def test_trl_environment(kuhn_matches: list[FinishedMatch], tmp_path: Path) -> None:
    module = export_environment("kuhn_poker", "trl", tmp_path / "env", *AGAINST)
    env = module.Environment()
    assert [row["seed"] for row in module.rows(range(3))] == [0, 1, 2]
    for match in kuhn_matches:
        assert env.reset(**module.rows([match.seed])[0]).startswith("You are first.")
        texts = [env.act(act) for act in match.own]
        assert texts[-1].endswith("The match is over.") == (env.act("BET") == texts[-1])
        assert env.get_reward() == match.payoffs["first"]
    env.reset(seed=kuhn_matches[0].seed)
    assert env.get_reward() == env.get_reward() == -2, "an unfinished match costs the stake"


def test_trl_environment_gives_pictures() -> None:
    pytest.importorskip("PIL")
    from arena.export.environments.trl import GameEnvironment

    parts = GameEnvironment(Task("zoom")).reset(seed=1)
    assert isinstance(parts, list)
    text, image = parts
    assert text["type"] == "text" and image["image"].size == (48, 48)


def test_openenv(kuhn_matches: list[FinishedMatch], tmp_path: Path) -> None:
    pytest.importorskip("openenv")
    from openenv.core.generic_client import GenericEnvClient

    module = export_environment("kuhn_poker", "openenv", tmp_path / "env", *AGAINST)
    with (
        serve(module) as url,
        GenericEnvClient(base_url=url).sync() as first_client,
        GenericEnvClient(base_url=url).sync() as second_client,
    ):
        for match in kuhn_matches:
            first, second = first_client.reset(seed=match.seed), second_client.reset(seed=match.seed)
            assert first.observation == second.observation and first.observation["legal"] == ["PASS", "BET"]
            results = [first_client.step({"act": act}) for act in match.own]
            assert results[-1].done and sum(result.reward for result in results) == match.payoffs["first"]
            assert second_client.step({"act": "?"}).reward == -3, "sessions are independent"
        with pytest.raises(RuntimeError, match="reset first"):
            first_client.step({"act": "BET"})
        assert first_client.state() == {"episode_id": None, "step_count": len(match.own)}


@contextmanager
def serve(module: ModuleType) -> Iterator[str]:
    import socket

    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(module.app(), log_level="critical"))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def test_verifiers(kuhn_matches: list[FinishedMatch], tmp_path: Path) -> None:
    vf = pytest.importorskip("verifiers", minversion="0.1.14")
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage

    module = export_environment("kuhn_poker", "verifiers", tmp_path / "env", *AGAINST)
    acts = {match.seed: match.own for match in kuhn_matches}

    class Script(Client):  # type: ignore[misc]
        """Client that answers a seed's prompts with the acts of its match; the seed stands in the model's name."""

        def __init__(self) -> None:
            super().__init__(None)

        async def get_response(self, prompt: Any, model: str, *_: Any, **__: Any) -> Any:
            turn = sum(message.role == "assistant" for message in prompt)
            reply = f"<think>I hold a secret</think>\n{acts[int(model)][turn]}"
            fields = {"content": reply, "reasoning_content": None, "tool_calls": None, "tokens": None}
            message = ResponseMessage(finish_reason="stop", is_truncated=False, **fields)
            return Response(id="0", created=0, model=model, usage=None, message=message)

        def setup_client(self, config: Any) -> Any: ...
        async def to_native_tool(self, tool: Any) -> Any: ...
        async def to_native_prompt(self, messages: Any) -> Any: ...
        async def get_native_response(self, *_: Any, **__: Any) -> Any: ...
        async def raise_from_native_response(self, response: Any) -> None: ...
        async def from_native_response(self, response: Any) -> Any: ...
        async def close(self) -> None: ...

    def generate_outputs(env: Any) -> dict[int, Any]:
        outputs = {}
        for row in env.get_dataset():
            seed = row["info"]["seed"]
            if seed in acts:
                (output,) = env.generate_sync([row], client=Script(), model=str(seed))["outputs"]
                outputs[seed] = output
        return outputs

    env = module.load_environment(num_train_examples=60, num_eval_examples=4)
    assert isinstance(env, vf.MultiTurnEnv) and len(env.get_eval_dataset()) == 4
    for seed, output in generate_outputs(env).items():
        (match,) = (match for match in kuhn_matches if match.seed == seed)
        assert output["reward"] == match.payoffs["first"], output["error"]
        assert [message.role for message in output["prompt"]] == ["system", "user"]
        assert "secret" not in str([message for message in output["completion"] if message.role == "user"])
        assert output["metrics"] | {"num_turns": 0} == {"payoff": output["reward"], "illegal": 0, "num_turns": 0}
    short_env = module.load_environment(num_train_examples=60, max_turns=1)
    for seed, output in generate_outputs(short_env).items():
        (match,) = (match for match in kuhn_matches if match.seed == seed)
        assert output["reward"] == (match.payoffs["first"] if len(match.own) == 1 else -2), "abandoned"
    for environment in (env, short_env):
        environment.matches.close()
    source = (tmp_path / "env" / "arena_kuhn_poker.py").read_text("utf-8")
    assert "import arena" not in source and "from arena" not in source, "it does not import Arena"
