"""Games whose seats have tools."""

import sys
from pathlib import Path
from typing import Any

import pytest

import games
from games.abilities import Pictures, Waiting
from games.base import TextGame
from games.conformance import kit
from games.contracts import View
from simulators.toolbox import equip
from simulators.toolbox.equipment import CALL_TURNS
from tests.factories.mcp_children import count_servers

FACTORIES = Path(__file__).parents[2] / "factories"
OWN = FACTORIES / "own_tools.py"
SERVER = f"{sys.executable} {FACTORIES / 'mcp_server.py'}"


def start_nim(*tools: Any, seed: int = 1) -> TextGame:
    """Return a dealt game of Nim whose first seat has tools."""
    game = equip(games.make("nim"), {"first": list(tools)})
    game.reset(seed=seed)
    return game


def read_messages(game: TextGame, seat: str = "first") -> list[str]:
    """Return the texts that a seat has received since its last act."""
    return [message.text for message in game.messages(seat)]


def test_tool_call_leaves_the_game_unchanged() -> None:
    game, unequipped = start_nim("calculator"), games.make("nim")
    unequipped.reset(seed=1)
    before = View.of(game, "second")._replace(messages=())
    game.step("calculator(expression='6 * 7')")
    assert read_messages(game) == ["42"] and game.agent_selection == "first" and game.infos["first"]["valid"]
    assert game.turns == 0 and View.of(game, "second") == before
    for either in (game, unequipped):
        either.step("TAKE 1 D")
    assert read_messages(game, "second") == read_messages(unequipped, "second")
    assert game.legal("second") == unequipped.legal("second") and game.payoffs() == unequipped.payoffs()


def test_tools_are_shown_only_to_their_seat() -> None:
    game = start_nim("calculator", f"{OWN}:double")
    view = View.of(game, "first")
    assert [tool["function"]["name"] for tool in view.tools] == ["calculator", "double"]
    assert view.private["tools"].splitlines()[1] == "double(number: int): Double a number."
    assert "tools" not in View.of(game, "second").private and not View.of(game, "second").tools


def test_games_with_their_own_executor_do_not_wait() -> None:
    for name, waits in (("nim", True), ("sql", False), ("data_analysis", False), ("workspace", True)):
        game = games.make(name)
        equipped = equip(game, {game.seats[0]: ["calculator"]})
        assert isinstance(equipped, Waiting) and equipped.waits is waits


def test_the_other_seat_has_no_tools() -> None:
    game = start_nim("calculator")
    game.step("TAKE 1 D")
    game.step("calculator('1')")
    assert game.infos["second"]["valid"] is False


@pytest.mark.parametrize(
    "reply",
    [
        "calculator('2+3')", 'calculator(expression="2+3")',
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2+3"}}\n</tool_call>',
        'I compute.\n<tool_call>{"name": "calculator", "arguments": {"expression": "2+3"}}</tool_call>',
        "<tool_call>\n<function=calculator>\n<parameter=expression>\n2+3\n</parameter>\n</function>\n</tool_call>",
    ],
)  # fmt: skip
def test_parses_calls_in_model_formats(reply: str) -> None:
    game = start_nim("calculator")
    game.step(reply)
    assert read_messages(game) == ["5"]


@pytest.mark.parametrize("reply", ["<tool_call>{]</tool_call>", "calculator(expression=3)", "dubble(number=2)"])
def test_wrong_call_gets_an_error(reply: str) -> None:
    game = start_nim("calculator", f"{OWN}:double")
    game.step(reply)
    (text,) = read_messages(game)
    assert text.startswith("Error: ") and game.agent_selection == "first"


def test_calls_of_one_reply_overlap_and_keep_their_order() -> None:
    game = start_nim(f"{OWN}:meet")
    game.step("\n".join(f"meet(number={n})" for n in range(4)))
    assert read_messages(game) == ["0", "1", "2", "3"]


def test_a_seat_cannot_call_tools_forever() -> None:
    game = start_nim("calculator")
    for _ in range(CALL_TURNS):
        game.step("calculator('1')")
        assert game.infos["first"]["valid"]
    game.step("calculator('1')")
    assert game.infos["first"]["valid"] is False and game.agent_selection == "first"
    game.step("calculator('1')")
    assert game.terminations["first"] and game.report()["ended"] == "illegal"
    assert game.report()["seat_tool_calls"] == CALL_TURNS


def test_reset_clears_tool_state() -> None:
    game = start_nim(f"{OWN}:Notebook")
    game.step("note(text='a')")
    game.reset(seed=1)
    game.step("read()")
    assert read_messages(game) == ["[]"]


def test_clones_are_independent() -> None:
    game = start_nim(f"{OWN}:Notebook", {"mcp": SERVER})
    game.step("note(text='a')")
    game.step("count()")
    twin = game.clone()
    for either, text in ((game, "b"), (twin, "c")):
        either.step(f"note(text='{text}')")
        either.step("read()")
        assert read_messages(either) == [f'["a","{text}"]']
        either.step("count()")
        assert read_messages(either) == ["2"]
        either.close()


def test_pictures_of_tools_are_images_of_the_game() -> None:
    game = start_nim({"function": f"{OWN}:picture"})
    game.step("picture(kind='png')")
    (image,) = game.messages("first")[0].images
    assert (image.width, image.height) == (3, 2)
    assert isinstance(game, Pictures) and game.picture(image.hash).startswith(b"\x89PNG")
    assert game.observation_space("first").contains(game.observe("first"))
    game.step("picture(kind='text')")
    assert read_messages(game) == ["Error: the image cannot be read: its format is unknown (PNG, JPEG and WebP are)"]


def test_a_method_may_show_an_image() -> None:
    game = start_nim(f"{OWN}:Camera")
    game.step("shoot()")
    (image,) = game.messages("first")[0].images
    assert isinstance(game, Pictures) and game.picture(image.hash).startswith(b"\x89PNG")


def test_tools_are_added_to_a_simulators_own() -> None:
    game = equip(games.make("desk", domain="shop"), {"agent": ["calculator"]})
    game.reset(seed=3)
    names = [tool["function"]["name"] for tool in View.of(game, "agent").tools]
    assert names[-1] == "calculator" and len(names) > 1
    turns = game.turns
    game.step("calculator('2+2')")
    assert read_messages(game, "agent") == ["4"] and game.turns == turns
    game.step("find_customer(email='x@mail.example', postcode='A1')")
    assert game.turns == turns + 1


def test_an_equipped_game_passes_the_games_checks() -> None:
    findings = kit.check(lambda: equip(games.make("kuhn_poker"), {"first": ["calculator"]}), seeds=10, acts=200)
    assert [finding.name for finding in findings if finding.ok is False] == []


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ({"third": ["calculator"]}, "there is no seat 'third': there are first, second"),
        ({"first": "calculator"}, "give the tools of first as a list"),
        ({"first": ["calculater"]}, "unknown tool 'calculater'"),
        ({"first": ["calculator", {"function": "calculator"}]}, "first has two tools called calculator"),
    ],
)
def test_refuses_invalid_tools_before_the_match(tools: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        equip(games.make("nim"), tools)


def test_a_tool_named_like_one_of_the_games_own_is_refused() -> None:
    game = equip(games.make("desk", domain="shop"), {"agent": [f"{OWN}:find_customer"]})
    with pytest.raises(ValueError, match="two tools called find_customer"):
        game.reset(seed=1)


FAULTS = ("", "garbage", "slow", "crash", "hang", "huge", "malformed", "error", "stubborn", "bomb", "child")


@pytest.mark.slow
def test_a_hundred_faulty_servers_fail_no_match() -> None:
    """The result of each faulty call is an observation, the match continues, and no server remains."""
    from concurrent.futures import ThreadPoolExecutor

    def play(number: int) -> str:
        fault = FAULTS[number % len(FAULTS)]
        game = start_nim({"mcp": f"{SERVER} {fault}", "timeout": 4.0, "retries": number % 3}, seed=number)
        game.step("act()")
        (text,) = read_messages(game)
        while game.agents and not game.terminations["first"]:
            seat = game.agent_selection
            game.step((game.legal(seat) or [""])[0])
        assert sum(game.payoffs().values()) == 0 and game.report()["seat_tool_calls"] == 1
        game.close()
        return f"{fault}: {text[:60]}"

    with ThreadPoolExecutor(8) as pool:
        results = set(pool.map(play, range(100)))
    assert results == {
        ": fine", "garbage: fine", "slow: fine", "stubborn: fine", "child: fine",
        "crash: Error: act failed: its server ended", "hang: Error: act took too long.",
        f"huge: {'x' * 60}", "malformed: Error: its server's answer is malformed", "error: Error: out of order",
        f"bomb: {'Error: the image cannot be read: its format is unknown (PNG, JPEG and WebP are)'[:60]}",
    }  # fmt: skip
    import time

    deadline = time.monotonic() + 30
    while count_servers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not count_servers()
