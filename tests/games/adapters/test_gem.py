"""GEM's offline games: boxed acts, unreadable acts, copies, the random player, and unavailable games."""

from functools import partial

import pytest

import games
from games.adapters.gem import GemGame
from games.conformance.kit import check
from games.contracts import View
from tests.factories.adapted import get_refusal_reason, make_dealt_game

pytest.importorskip("gem")
MINES, GUESS = "gem:game:Minesweeper-v0-easy", "gem:game:GuessTheNumber-v0-easy"


start_game = partial(make_dealt_game, GemGame)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    "name",
    ["Minesweeper-v0-easy", "GuessTheNumber-v0-hard", "Sudoku-v0-easy", "Mastermind-v0-random", "Game2048-v0-easy",
     "FifteenPuzzle-v0-easy", "TowerofHanoi-v0-easy", "Sokoban-v0-easy", "Crosswords-v0-easy"],
)  # fmt: skip
def test_gem_games_pass_the_conformance_kit(name: str) -> None:
    findings = check(lambda: games.make(f"gem:game:{name}"), seeds=2, acts=100)
    unchecked = {} if name.startswith("Tower") else {"secrets": None}
    assert {finding.name: finding.ok for finding in findings if not finding.ok} == unchecked, findings


def test_the_board_is_a_message_and_the_instructions_are_private() -> None:
    game = start_game(MINES)
    assert "You are playing the Minesweeper game." in game.private("agent")["prompt"]
    assert (
        game.messages("agent")[0].text.startswith("Here is the current board layout:") and game.legal("agent") is None
    )
    game.step("the corner | is safe, so \\boxed{reveal 0 0}")
    text = game.messages("agent")[0].text
    assert "you successfully revealed cell (0, 0)" in text and " 0 " in text and game.payoffs()["agent"] > 0


def test_boxed_and_plain_acts_play_the_same_match() -> None:
    acts = ["5", "2", "8", "4", "1"]
    outcomes = []
    for form in ("\\boxed{%s}", "%s", "I say \\boxed{%s}"):
        game = start_game(GUESS, 4)
        for act in acts:
            if not game.ended:
                game.step(form % act)
        outcomes.append((game.ended, game.payoffs(), game.report()["reward"]))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_unreadable_act_changes_nothing_and_may_be_retried() -> None:
    game, unrefused = start_game(MINES, 2), start_game(MINES, 2)
    for either in (game, unrefused):
        either.step("reveal 1 1")
    game.step("open all")
    assert game.infos["agent"]["valid"] is False and not game.ended and game.rewards == {"agent": -1.0}
    assert "you did not provide a valid guess" in game.messages("agent")[-1].text
    for either in (game, unrefused):
        either.step("reveal 4 4")
    assert game.messages("agent") == unrefused.messages("agent") and game.payoffs() == unrefused.payoffs()
    for _ in range(2):
        game.step("…") if not game.ended else None
    assert game.ended


@pytest.mark.parametrize("name", [MINES, "gem:game:TowerofHanoi-v0-easy"])
def test_random_player_ends_the_match_reproducibly(name: str) -> None:
    rendered = []
    for _ in range(2):
        game = start_game(name, 1, illegal="end", max_turns=30)
        act = game.players["random"](game, 5)
        while not game.ended:
            game.step(act(View.of(game, "agent", game.turns)))
        rendered.append(game.render())
    assert rendered[0] == rendered[1] and game.turns > 0


def test_clone_is_independent() -> None:
    game = start_game(MINES, 7)
    game.step("reveal 2 2")
    twin = game.clone()
    twin.step("flag 0 0")
    assert twin.env.flags[0][0] and not game.env.flags[0][0]
    game.step("flag 0 0")
    assert game.messages("agent") == twin.messages("agent")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gem:game:Mineweeper-v0-easy", "did you mean 'game:Minesweeper-v0-easy'?"),
        ("gem:math:GSM8K", "GEM has no offline game 'math:GSM8K'"),
        ("gem:game:FifteenPuzzle-v0-random", "GEM cannot make game:FifteenPuzzle-v0-random: TypeError"),
    ],
)
def test_unavailable_game_is_refused_in_one_line(name: str, message: str) -> None:
    assert message in get_refusal_reason(name)


def test_missing_corpus_is_named_and_never_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    monkeypatch.setattr(nltk, "download", lambda *_, **__: pytest.fail("asks a server"))
    monkeypatch.setattr(nltk.data, "path", [])
    assert "needs NLTK's corpus 'words'" in (games.find_problem("gem:game:Wordle-v0-easy") or "")
