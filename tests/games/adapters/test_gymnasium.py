"""Gymnasium's environments: acts in words, observations as text, copies by deepcopy or replay, and what is refused."""

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


class Odd(gymnasium.Env):  # type: ignore[misc]  # gymnasium is not checked
    """Says a text back, with random numbers of the process; fails on "fail" and prints."""

    observation_space = spaces.Dict({"said": spaces.Text(20), "drawn": spaces.Discrete(10**6)})
    action_space = spaces.Text(20)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, weight: float = 1.0) -> None:
        self.weight, self.said = weight, "nothing"

    def _seen(self) -> dict[str, Any]:
        print("noise")
        return {"said": self.said, "drawn": int(np.random.randint(10**6))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.said = "nothing"
        return self._seen(), {}

    def step(self, action: str) -> Any:
        np.random.rand()
        if action == "fail":
            self.said = "broken"
            raise RuntimeError("as asked\nto")
        self.said += action
        return self._seen(), self.weight * len(self.said), action == "end", False, {}


class Rebuilt(Odd, gymnasium.utils.EzPickle):  # type: ignore[misc]
    """The same, which deepcopy would make anew from its arguments."""

    def __init__(self, weight: float = 1.0) -> None:
        gymnasium.utils.EzPickle.__init__(self, weight)
        super().__init__(weight)


class Uncopied(Odd):
    """The same, which cannot be copied at all."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("holds a lock")


for kind in (Odd, Rebuilt, Uncopied):
    gymnasium.register(f"Arena{kind.__name__}-v0", entry_point=kind, max_episode_steps=9)


started = partial(make_dealt_game, GymnasiumGame)


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
def test_environments_keep_our_promises(name: str, options: dict[str, Any], unchecked: dict[str, None]) -> None:
    findings = check(lambda: games.make(name, **options), seeds=2, acts=100)
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == unchecked, findings


def test_the_lake_is_crossed_by_words_and_pays_one() -> None:
    game = started(LAKE, ansi=True)
    assert game.messages("agent")[0].text == "observation: 0\n\n[S]FFF\nFHFH\nFFFH\nHFFG"
    assert game.infos["agent"]["legal"] == ["left", "down", "right", "up"]
    for act in ("down", "DOWN", " right ", "down", "right", "right"):
        game.step(act)
    assert game.ended == "over" and game.payoffs() == {"agent": 1.0} and game.report()["reward"] == 1.0
    assert "observation: 15" in game.render()


def test_acts_are_numbers_or_own_words_and_masks_are_kept() -> None:
    assert started("gymnasium:CartPole-v1").legal("agent") == ["0", "1"]
    game = started("gymnasium:CartPole-v1", acts=["push left", "push right"])
    game.step("Push  Right")
    assert game.infos["agent"]["valid"] and game.rewards == {"agent": 1.0}
    taxi = started("gymnasium:Taxi-v4")
    legal = taxi.legal("agent") or []
    assert 0 < len(legal) < 6 and len(legal) == sum(taxi._is_allowed(action) for action in range(6))
    taxi.step(next(word for word in taxi.words if word not in legal))
    assert not taxi.infos["agent"]["valid"]


def test_our_own_limit_ends_a_match_that_would_go_on() -> None:
    game = started("gymnasium:Taxi-v4", max_turns=3)
    while not game.ended:
        game.step((game.legal("agent") or [])[0])
    assert game.ended == "turns" and game.turns == 3 and game.public() == {"steps_left": 0}


@pytest.mark.parametrize("kind", ["Odd", "Rebuilt", "Uncopied"])
def test_copies_go_on_alone_whichever_way_they_are_made(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    game = started(f"gymnasium:Arena{kind}-v0(weight=0.5)", seed=3)
    for act in ("a", "b"):
        game.step(act)
    twin = game.clone()
    for each in (game, twin):
        assert each.env.unwrapped.said == "nothingab" and each.env is not (twin if each is game else game).env
        each.step("c")
        each.step("end")
    assert game.render() == twin.render() and "drawn: " in game.render() and game.ended == "over"
    assert game.payoffs() == twin.payoffs() == {"agent": 0.5 * (8 + 9 + 10 + 13)}
    assert capsys.readouterr().out == "", "what environments print is kept off the output"


def test_an_act_that_the_environment_fails_on_changes_nothing() -> None:
    game, same = started("gymnasium:ArenaOdd-v0", seed=1), started("gymnasium:ArenaOdd-v0", seed=1)
    for each in (game, same):
        each.step("a")
    game.step("fail")
    assert not game.infos["agent"]["valid"] and game.faults == ["RuntimeError: as asked to"]
    game.step("x" * 21)
    assert game.ended == "illegal", "no text of that space"
    game, _ = started("gymnasium:ArenaOdd-v0", seed=1), game
    game.step("a")
    game.step("fail")
    for each in (game, same):
        each.step("b")
    assert game.messages("agent")[-1] == same.messages("agent")[-1], "its random numbers go on as before"


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("gymnasium:FrozenLak-v1", {}, "did you mean 'FrozenLake-v1'?"),
        ("gymnasium:FrozenLake-v1(is_slippery)", {}, "write settings as NAME(setting=value, …)"),
        ("gymnasium:FrozenLake-v1(map_name=9x9)", {}, "Gymnasium cannot make FrozenLake-v1(map_name=9x9): KeyError"),
        ("gymnasium:FrozenLake-v1", {"depth": 1}, "unexpected keyword argument 'depth'"),
        ("gymnasium:FrozenLake-v1", {"acts": ["a", "b", "A", "c"]}, "acts must be 4 different words"),
        ("gymnasium:FrozenLake-v1", {"max_turns": 0}, "max_turns must be a whole number"),
        ("gymnasium:Pendulum-v1", {}, "Pendulum-v1 has neither discrete nor text actions: Box"),
        ("gymnasium:no.such:Env-v0", {}, "the module no.such cannot be imported: No module named 'no'"),
        ("gymnasium:../x:Env-v0", {}, "is no name of a module"),
    ],
)
def test_what_is_no_game_of_gymnasium_is_told_in_a_line(name: str, options: dict[str, Any], told: str) -> None:
    assert told in get_refusal_reason(name, **options)


def test_pictures_are_refused() -> None:
    class Seen(Odd):
        observation_space = spaces.Box(0, 255, (8, 9), np.uint8)

    gymnasium.register("ArenaSeen-v0", entry_point=Seen)
    with pytest.raises(ValueError, match="observations of more than 64 numbers"):
        games.make("gymnasium:ArenaSeen-v0")


def test_settings_in_a_name() -> None:
    assert split_settings("A-v1") == ("A-v1", {}) == split_settings(" A-v1() ")
    assert split_settings("a:B-v0(on=true, n=-3, share=.5, text=4x4, off=False)") == (
        "a:B-v0", {"on": True, "n": -3, "share": 0.5, "text": "4x4", "off": False},
    )  # fmt: skip
    for text in ("", "A(", "A)", "A(b)", "A(b=1,b=2)", "A(1=2)", "A(b=1)(c=2)", "(a=1)", "A(b=(1))"):
        with pytest.raises(ValueError, match="write"):
            split_settings(text)


class Held(Odd):
    """The same, which counts those that are open; closing it fails after "stuck"."""

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


gymnasium.register("ArenaHeld-v0", entry_point=Held)


def test_environments_are_closed_after_trials_failures_and_matches() -> None:
    game = games.make("gymnasium:ArenaHeld-v0")
    assert not Held.opened, "the one that was made to see its spaces"
    for seed in range(2):
        game.reset(seed=seed)
        assert len(Held.opened) == 1, "a match that was not ended is closed by the next"
    game.step("a")
    twin = game.clone()
    assert len(Held.opened) == 2
    twin.close()
    game.step("fail")
    assert len(Held.opened) == 1 and game.env.unwrapped.said == "nothinga", "the one that failed is closed"
    game = started("gymnasium:ArenaHeld-v0")
    game.step("end")
    game.close()
    assert game.ended and game.env is None and game.clone().ended and not game.faults
    stuck = started("gymnasium:ArenaHeld-v0")
    stuck.step("stuck")
    stuck.close()
    assert stuck.faults == ["OSError: no window"]
