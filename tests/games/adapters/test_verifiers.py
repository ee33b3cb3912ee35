"""verifiers: environments in a child process, tools, rubrics, replays, and processes that crash or hang."""

import functools
import importlib.util
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import games
from arena.config.own_files import _hash_modules
from arena.play.match import Limits
from games.adapters import child as children
from games.adapters import loading
from games.adapters import verifiers as adapter
from games.adapters.modules import find_child_module
from games.adapters.verifiers import Verifiers, parse_calls
from games.base import IllegalAct
from games.conformance.kit import check
from tests.factories.faults import FAULTS, FaultTarget, inject_faults, kill_and_wait

has_verifiers = bool(os.environ.get(adapter.PYTHON)) or importlib.util.find_spec("verifiers") is not None
needs_verifiers = pytest.mark.skipif(not has_verifiers, reason=f"set {adapter.PYTHON} to a Python that has verifiers")
LEG_COUNTING = "verifiers:verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv"
SHOP_MODULE = '''
import os
import random
import time

import verifiers as vf
from datasets import Dataset


def price(item: str) -> str:
    """Price of an item.

    Args:
        item: what to buy.
    """
    if item == "bomb":
        os._exit(3)
    if item == "sleep":
        time.sleep(60)
    return f"{item} costs {random.randint(2, 9)}"


def right(completion, answer):
    return float(answer in str(completion[-1].content))


def load_environment(rows=4):
    table = [{"question": f"What do {n} apples cost? {'Say' if n else 'Tell'}.", "answer": "7"} for n in range(rows)]
    rubric = vf.Rubric(funcs=[right], weights=[1.0])
    rows = Dataset.from_list(table)
    return vf.ToolEnv(tools=[price], max_turns=4, rubric=rubric, dataset=rows, system_prompt="Shop.")


class Guess(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        if "7" in str(messages[-1].content):
            state["final_env_response"] = [vf.UserMessage(content="Right!")]
            return state["final_env_response"]
        return [vf.UserMessage(content="No.")]


def guess():
    return Guess(rubric=vf.Rubric(funcs=[right]), dataset=Dataset.from_list([{"question": "Guess.", "answer": "7"}]))
'''


GUESS = FaultTarget(
    game="verifiers:apple_shop:guess", options={}, acts=["5"], pid=lambda game: game.env.child.pid,
    timeouts=[(adapter, "STEP_SECONDS"), (adapter, "START_SECONDS")],
)  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folder with an environment's module, on the child's PYTHONPATH."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "apple_shop.py").write_text(SHOP_MODULE, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{children.ROOT}{os.pathsep}{folder}")
        yield folder
    adapter._CHILDREN.clear()


def start_game(name: str = "verifiers:apple-shop", seed: int = 0, **options: Any) -> Verifiers:
    game = games.make(name, **options)
    assert isinstance(game, Verifiers)
    game.reset(seed=seed)
    return game


@needs_verifiers
def test_verifiers_environments_pass_the_conformance_kit(shop: Path) -> None:
    for name in ("verifiers:apple-shop", "verifiers:apple_shop:guess"):
        findings = check(functools.partial(games.make, name, max_turns=5), seeds=2, acts=60)
        assert {finding.name for finding in findings if finding.ok is False} == set(), findings
        assert {finding.name for finding in findings if finding.ok is None} <= {"secrets"}, findings


@needs_verifiers
def test_tools_answer_and_the_rubric_pays(shop: Path) -> None:
    game = start_game()
    assert game.private("agent") == {"prompt": "Shop.", "tools": "price(item: string): Price of an item."}
    assert game.definitions("agent")[0]["function"]["name"] == "price"
    assert game.messages("agent")[0].text.startswith("What do ")
    game.step('<tool_call>{"name": "price", "arguments": {"item": "apple"}}</tool_call>')
    (answer,) = game.messages("agent")
    assert answer.sender == "tool" and answer.text.startswith("apple costs ")
    game.step("price(item='pear')\nprice(item='fig')")
    assert [message.text.split()[0] for message in game.messages("agent")] == ["pear", "fig"]
    game.step('{"name": "price", "arguments": ["apple"]}')
    assert game.infos["agent"]["valid"] is False and not game.ended
    game.step("It costs 7.")
    report = game.report()
    assert report["ended"] == "over" and report["reward"] == 1.0 and report["metric_price_calls"] == 3.0
    assert game._totals["agent"] == {"reward": 1.0, "illegal": -1.0} and report["stopped"] == "no_tools_called"


@needs_verifiers
def test_seed_decides_row_and_tool_randomness_even_when_interleaved(shop: Path) -> None:
    call = "price(item='apple')"
    traces = []
    for _ in range(2):
        game, other = start_game(seed=3), start_game(seed=4)
        lines: list[object] = [game.row]
        for _ in range(2):
            other.step(call)
            game.step(call)
            lines.append(game.messages("agent")[-1].text)
        traces.append(lines)
    assert traces[0] == traces[1] and len({start_game(seed=seed).row for seed in range(12)}) > 1


@needs_verifiers
def test_clone_replays_and_is_independent(shop: Path) -> None:
    game = start_game(seed=5)
    game.step("price(item='apple')")
    twin = game.clone()
    for either in (game, twin):
        either.step("price(item='pear')")
    assert game.messages("agent") == twin.messages("agent")
    twin.step("7")
    assert twin.ended and not game.ended and game.clone().clone().env.replies == game.env.replies


@needs_verifiers
def test_turn_limit_ends_the_rollout_and_the_rubric_still_pays(shop: Path) -> None:
    game = start_game("verifiers:apple_shop:guess", max_turns=2)
    game.step("5")
    assert game.messages("agent")[-1].text == "No."
    game.step("6")
    assert game.ended == "turns" and game.report()["stopped"] == "prompt_too_long" and game.payoffs() == {"agent": 0.0}
    game = start_game("verifiers:apple_shop:guess")
    game.step("7")
    assert game.ended == "over" and game.messages("agent")[0].text == "Right!"


@needs_verifiers
@pytest.mark.parametrize(("item", "message"), [("bomb", "has ended"), ("sleep", "no answer in time")])
def test_crashed_or_hanging_process_fails_the_match_and_is_replaced(
    shop: Path, monkeypatch: pytest.MonkeyPatch, item: str, message: str
) -> None:
    game = start_game()
    pid = game.env.child.pid
    monkeypatch.setattr(adapter, "STEP_SECONDS", 0.5)
    with pytest.raises(RuntimeError, match=message):
        game.step(f"price(item='{item}')")
    with pytest.raises(OSError):
        os.kill(pid, 0)
    monkeypatch.setattr(adapter, "STEP_SECONDS", 60.0)
    assert start_game().env.child.pid != pid


@needs_verifiers
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_match_with_a_failing_process_is_retried(shop: Path, fault: str) -> None:
    reasons = inject_faults(GUESS, fault)
    message = "no answer in time" if fault == "hang" else "has ended|Broken pipe"
    assert all(re.search(message, reason) for reason in reasons), reasons


@needs_verifiers
@pytest.mark.slow
def test_process_that_exceeds_the_turn_limit_is_ended(shop: Path) -> None:
    reasons = inject_faults(GUESS, "hang", Limits(turn_seconds=15.0))
    assert len(reasons) == 1 and "turn time limit" in min(reasons)


@needs_verifiers
def test_killed_process_raises(shop: Path) -> None:
    game = start_game()
    os.kill(game.env.child.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="has ended"):
        game.step("hello")


@needs_verifiers
def test_process_that_cannot_be_restarted_fails_the_deal(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_and_wait(start_game().env.child.pid)
    monkeypatch.setattr(adapter, "Child", functools.partial(children.Child, environment={"PYTHONHOME": "/nowhere"}))
    game = games.make("verifiers:apple-shop")  # an error here would end the run
    with pytest.raises(children.ChildError, match="has ended"):
        game.reset(seed=0)


@needs_verifiers
@pytest.mark.slow
def test_packaged_environment_plays_unchanged() -> None:
    game = start_game(LEG_COUNTING, gym="leg_counting", num_train_examples=20, num_eval_examples=5, seed=1)
    assert "how many legs" in game.messages("agent")[0].text and "<answer>" in game.private("agent")["prompt"]
    twin = game.clone()
    game.step("<answer>1</answer>")
    assert game.reward < 1 and game.report()["metric_format_reward_func"] == 1.0
    from reasoning_gym import create_dataset

    answer = create_dataset("leg_counting", size=25, seed=0)[twin.row]["answer"]
    twin.step(f"I count.\n<answer>{answer}</answer>")
    assert twin.payoffs() == {"agent": 1.0}


@needs_verifiers
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("verifiers:nothing_there", {}, "cannot be loaded: ModuleNotFoundError: No module named 'nothing_there'"),
        ("verifiers:apple_shop:nobody", {}, "has no attribute 'nobody'"),
        ("verifiers:apple-shop(colour=red)", {}, "unexpected keyword argument 'colour'"),
        ("verifiers:apple-shop", {"max_turns": 0}, "max_turns must be"),
        ("verifiers:a b", {}, "write verifiers:ID"),
    ],
)
def test_unavailable_environment_is_refused_in_one_line(
    shop: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as refused:
        games.make(name, **options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_missing_verifiers_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(adapter.PYTHON, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'verifiers<0.2'" in (games.find_problem("verifiers:wordle") or "")
    monkeypatch.setenv(adapter.PYTHON, "/nowhere/python")
    assert "names no file" in (games.find_problem("verifiers:wordle") or "")


def test_refused_module_is_not_run() -> None:
    assert find_child_module("verifiers:prime/apple-shop(rows=3)") == "apple_shop"
    assert find_child_module("verifiers:package.part:Name") == "package.part"
    assert "apple_shop" in _hash_modules([{"name": "verifiers: apple-shop(rows=3)"}])
    loading.refuse("apple_shop", "read it first")
    try:
        for name in (
            "verifiers:apple-shop",
            "verifiers: apple_shop",
            "verifiers:a/apple-shop",
            "verifiers:apple_shop:guess",
        ):
            assert "read it first" in (games.find_problem(name) or "")
    finally:
        loading.reset()


TOOLS = [{"name": "price", "parameters": {"properties": {"item": {"type": "string"}, "n": {"type": "integer"}}}}]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("The answer is 7.", []),
        ("price", []),
        ("price(item='x') please", []),
        ("price(item='x', n=-2)", [("price", {"item": "x", "n": -2})]),
        ("price('x', n=1)", [("price", {"item": "x", "n": 1})]),
        ("price('x')\nprice('y')", [("price", {"item": "x"}), ("price", {"item": "y"})]),
        ('{"name": "a", "parameters": {"b": [1]}}', [("a", {"b": [1]})]),
        ('[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]', [("a", {}), ("b", {})]),
        ('I look.\n<tool_call>\n{"name": "a", "arguments": {"b": null}}', [("a", {"b": None})]),
        ("<tool_call>price(item='x')</tool_call>", [("price", {"item": "x"})]),
        ("<function=price><parameter=item>3</parameter><parameter=n>3</parameter></function>",
         [("price", {"item": "3", "n": 3})]),
        ("<think>price(item='x')</think>\nI do not know.", []),
    ],
)  # fmt: skip
def test_parses_tool_calls_in_all_forms(text: str, calls: list[Any]) -> None:
    assert parse_calls(text, TOOLS) == calls


@pytest.mark.parametrize(
    "text",
    ["<tool_call>please</tool_call>", '{"name": "a", "arguments": 3}', '{"name": 3}',
     "<tool_call>" + "[" * 5000, '{"name": "a", "arguments": ' + '{"a":' * 40 + "1" + "}" * 41,
     "\n".join(["a(b=1)"] * 9), "price('x', 1, 2)", "a('x')", "a(*b)", "a(__import__('os'))"],
)  # fmt: skip
def test_unparsable_tool_calls_are_illegal(text: str) -> None:
    with pytest.raises(IllegalAct):
        parse_calls(text, TOOLS)
