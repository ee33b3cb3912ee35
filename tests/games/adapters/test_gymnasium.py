"""Gymnasium's environments: acts in words, observations as text, copies by deepcopy or replay, and refusals."""

from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import games
from games.adapters.gymnasium import GymnasiumGame
from games.adapters.named import split_settings
from games.conformance.kit import check
from tests.factories.adapted import get_refusal_reason, make_dealt_game

LAKE = "gymnasium:FrozenLake-v1(is_slippery=false)"


class Echo(gymnasium.Env):  # type: ignore[misc]  # gymnasium is not checked
    """Environment that echoes texts, draws from the global generator, prints, and fails on "fail"."""

    observation_space = spaces.Dict({"said": spaces.Text(20), "drawn": spaces.Discrete(10**6)})
    action_space = spaces.Text(20)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, weight: float = 1.0) -> None:
        self.weight, self.said = weight, "nothing"

    def _observe(self) -> dict[str, Any]:
        print("noise")
        return {"said": self.said, "drawn": int(np.random.randint(10**6))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.said = "nothing"
        return self._observe(), {}

    def step(self, action: str) -> Any:
        np.random.rand()
        if action == "fail":
            self.said = "broken"
            raise RuntimeError("as asked\nto")
        self.said += action
        return self._observe(), self.weight * len(self.said), action == "end", False, {}


class RebuiltEcho(Echo, gymnasium.utils.EzPickle):  # type: ignore[misc]
    """Echo that deepcopy would construct anew from its arguments."""

    def __init__(self, weight: float = 1.0) -> None:
        gymnasium.utils.EzPickle.__init__(self, weight)
        super().__init__(weight)


class UncopiableEcho(Echo):
    """Echo that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("holds a lock")


for kind in (Echo, RebuiltEcho, UncopiableEcho):
    gymnasium.register(f"Arena{kind.__name__}-v0", entry_point=kind, max_episode_steps=9)


start_game = partial(make_dealt_game, GymnasiumGame)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("name", "options", "unchecked"),
    [
        (LAKE, {"ansi": True}, {}),
        ("gymnasium:Blackjack-v1", {}, {"secrets": None}),
        ("gymnasium:Taxi-v4", {"max_turns": 20}, {"secrets": None}),
        ("gymnasium:CartPole-v1", {"acts": ["left", "right"]}, {"secrets": None}),
    ],
)
def test_environments_pass_the_conformance_kit(name: str, options: dict[str, Any], unchecked: dict[str, None]) -> None:
    findings = check(lambda: games.make(name, **options), seeds=2, acts=100)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == unchecked, findings


def test_frozen_lake_is_crossed_in_words_and_pays_one() -> None:
    game = start_game(LAKE, ansi=True)
    assert game.messages("agent")[0].text == "observation: 0\n\n[S]FFF\nFHFH\nFFFH\nHFFG"
    assert game.infos["agent"]["legal"] == ["left", "down", "right", "up"]
    for act in ("down", "DOWN", " right ", "down", "right", "right"):
        game.step(act)
    assert game.ended == "over" and game.payoffs() == {"agent": 1.0} and game.report()["reward"] == 1.0
    assert "observation: 15" in game.render()


def test_acts_are_numbers_or_given_words_and_masks_apply() -> None:
    assert start_game("gymnasium:CartPole-v1").legal("agent") == ["0", "1"]
    game = start_game("gymnasium:CartPole-v1", acts=["push left", "push right"])
    game.step("Push  Right")
    assert game.infos["agent"]["valid"] and game.rewards == {"agent": 1.0}
    taxi = start_game("gymnasium:Taxi-v4")
    legal = taxi.legal("agent") or []
    assert 0 < len(legal) < 6 and len(legal) == sum(taxi._is_allowed(action) for action in range(6))
    taxi.step(next(word for word in taxi.words if word not in legal))
    assert not taxi.infos["agent"]["valid"]


def test_max_turns_ends_the_match() -> None:
    game = start_game("gymnasium:Taxi-v4", max_turns=3)
    while not game.ended:
        game.step((game.legal("agent") or [])[0])
    assert game.ended == "turns" and game.turns == 3 and game.public() == {"steps_left": 0}


@pytest.mark.parametrize("kind", ["Echo", "RebuiltEcho", "UncopiableEcho"])
def test_every_kind_of_copy_is_independent(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    game = start_game(f"gymnasium:Arena{kind}-v0(weight=0.5)", seed=3)
    for act in ("a", "b"):
        game.step(act)
    twin = game.clone()
    for either in (game, twin):
        assert either.env.unwrapped.said == "nothingab" and either.env is not (twin if either is game else game).env
        either.step("c")
        either.step("end")
    assert game.render() == twin.render() and "drawn: " in game.render() and game.ended == "over"
    assert game.payoffs() == twin.payoffs() == {"agent": 0.5 * (8 + 9 + 10 + 13)}
    assert capsys.readouterr().out == "", "the environment's prints reach the output"


def test_act_that_fails_in_the_environment_changes_nothing() -> None:
    game, unrefused = start_game("gymnasium:ArenaEcho-v0", seed=1), start_game("gymnasium:ArenaEcho-v0", seed=1)
    for either in (game, unrefused):
        either.step("a")
    game.step("fail")
    assert not game.infos["agent"]["valid"] and game.faults == ["RuntimeError: as asked to"]
    game.step("x" * 21)
    assert game.ended == "illegal", "longer than the text space allows"
    game, _ = start_game("gymnasium:ArenaEcho-v0", seed=1), game
    game.step("a")
    game.step("fail")
    for either in (game, unrefused):
        either.step("b")
    assert game.messages("agent")[-1] == unrefused.messages("agent")[-1], "the failure advanced the generator"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gymnasium:FrozenLak-v1", {}, "did you mean 'FrozenLake-v1'?"),
        ("gymnasium:FrozenLake-v1(is_slippery)", {}, "write settings as NAME(setting=value, …)"),
        ("gymnasium:FrozenLake-v1(map_name=9x9)", {}, "Gymnasium cannot make FrozenLake-v1(map_name=9x9): KeyError"),
        ("gymnasium:FrozenLake-v1", {"depth": 1}, "unexpected keyword argument 'depth'"),
        ("gymnasium:FrozenLake-v1", {"acts": ["a", "b", "A", "c"]}, "acts must be 4 different words"),
        ("gymnasium:FrozenLake-v1", {"max_turns": 0}, "max_turns must be a whole number"),
        ("gymnasium:Pendulum-v1", {}, "Pendulum-v1 has neither discrete nor text actions: Box"),
        ("gymnasium:no.such:Env-v0", {}, "the module no.such cannot be imported: No module named 'no'"),
        ("gymnasium:../x:Env-v0", {}, "is not a module name"),
    ],
)
def test_unavailable_environment_is_refused_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    assert message in get_refusal_reason(name, **options)


def test_refuses_image_observations() -> None:
    class Pixels(Echo):
        observation_space = spaces.Box(0, 255, (8, 9), np.uint8)

    gymnasium.register("ArenaPixels-v0", entry_point=Pixels)
    with pytest.raises(ValueError, match="observations of more than 64 numbers"):
        games.make("gymnasium:ArenaPixels-v0")


def test_settings_in_a_name() -> None:
    assert split_settings("A-v1") == ("A-v1", {}) == split_settings(" A-v1() ")
    assert split_settings("a:B-v0(on=true, n=-3, share=.5, text=4x4, off=False)") == (
        "a:B-v0", {"on": True, "n": -3, "share": 0.5, "text": "4x4", "off": False},
    )  # fmt: skip
    for text in ("", "A(", "A)", "A(b)", "A(b=1,b=2)", "A(1=2)", "A(b=1)(c=2)", "(a=1)", "A(b=(1))"):
        with pytest.raises(ValueError, match="write"):
            split_settings(text)


class CountedEcho(Echo):
    """Echo that tracks its open instances; closing it fails after "stuck"."""

    opened: ClassVar[set[int]] = set()

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__(weight)
        self.opened.add(id(self))

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("holds a window")

    def close(self) -> None:
        self.opened.discard(id(self))
        if "stuck" in self.said:
            raise OSError("no window")


gymnasium.register("ArenaCountedEcho-v0", entry_point=CountedEcho)


def test_environments_are_closed_after_trials_failures_and_matches() -> None:
    game = games.make("gymnasium:ArenaCountedEcho-v0")
    assert isinstance(game, GymnasiumGame)
    assert not CountedEcho.opened, "the trial environment is still open"
    for seed in range(2):
        game.reset(seed=seed)
        assert len(CountedEcho.opened) == 1, "reset closes the unfinished match"
    game.step("a")
    twin = game.clone()
    assert len(CountedEcho.opened) == 2
    twin.close()
    game.step("fail")
    assert len(CountedEcho.opened) == 1 and game.env.unwrapped.said == "nothinga", "the failed environment is closed"
    game = start_game("gymnasium:ArenaCountedEcho-v0")
    game.step("end")
    game.close()
    assert game.ended and game.env is None and game.clone().ended and not game.faults
    stuck = start_game("gymnasium:ArenaCountedEcho-v0")
    stuck.step("stuck")
    stuck.close()
    assert stuck.faults == ["OSError: no window"]
