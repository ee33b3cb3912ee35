"""The game `search`: conformance, tool calls as turns, and scripted players as references."""

import pytest

from simulators.conformance import play, walk
from simulators.search import Search
from simulators.search.scoring import normalise
from tests.factories.thorough import count_cases
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

OPTIONS = {
    "words": {"pages": 300},
    "all sorts": {
        "pages": 300,
        "sorts": ["chain", "compare", "count", "unanswerable"],
        "hops": [1, 4],
        "split": "train",
    },
    "terse": {"pages": 100, "terse": True, "cost": 0.1, "worlds": 3},
    "letters": {"pages": 20, "terse": True, "worlds": 4, "backwards": False, "hops": [1, 2]},
    "dense": {"pages": 200, "retriever": "dense", "show": "pages", "pay": "f1", "illegal": "end"},
    "hybrid": {"pages": 200, "retriever": "hybrid", "searches": 2, "opens": 1, "split": "test"},
}


@pytest.mark.thorough
@pytest.mark.slow_after(2)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_passes_the_conformance_kit(options) -> None:
    assert find_failed_checks(lambda: Search(**options), seeds=count_cases(3, 8), acts=count_cases(100, 300)) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_passes_the_conformance_kit_over_many_seeds(options, capsys) -> None:
    assert passes_over_many_seeds(lambda: Search(**options), options, capsys)


def test_tool_call_is_a_turn_with_a_private_result() -> None:
    game = Search(pages=100, searches=2, opens=1, cost=0.25)
    game.reset(seed=1)
    title = game.library.titles[3]
    game.step(f'<tool_call>{{"name": "search", "arguments": {{"query": "{title}"}}}}</tool_call>')
    (message,) = game.messages("solver")
    assert message.sender == "tool" and f"[{title}]" in message.text and game.agent_selection == "solver"
    assert game.rewards["solver"] == -0.25
    game.step(f'open(title="{title}")')
    assert game.messages("solver")[0].text == game.library.pages[title]
    game.step(f'open(title="{title}")')
    assert game.messages("solver")[0].text.startswith("Error: no pages may be opened") and game.rewards["solver"] == 0
    game.step(f"ANSWER {game.question.answer}")
    report = game.report()
    assert (report["score"], report["calls"], game.payoffs()) == (1.0, 2, {"solver": 0.5})


def test_a_match_without_an_answer_ends() -> None:
    game = Search(pages=100, searches=1, opens=1)
    game.reset(seed=1)
    for _step in range(6):
        game.step('search(query="anything")')
    assert game.ended == "turns" and game.report()["score"] == 0


def test_terse_acts() -> None:
    game = Search(pages=100, terse=True)
    game.reset(seed=0)
    assert game.question.program
    start = game.question.program.chains[0].start
    game.step(f"?{start}")
    assert game.messages("solver")[0].text == game.library.pages[start]
    game.step(f"=The  {game.question.answer.upper()}!")
    assert game.report()["success"] and game.final_answer("solver") == normalise(game.question.answer)


def test_reader_succeeds_and_closed_book_player_fails() -> None:
    game = Search(pages=300, hops=[1, 3], sorts=["chain", "count", "unanswerable"])
    score = {
        player: sum(float(play(game, seed, player)["score"]) for seed in range(60)) / 60
        for player in ("reader", "closed_book")
    }
    assert score["reader"] > 0.75 and score["closed_book"] < 0.3
    chains = Search(pages=300)
    assert sum(float(play(chains, seed, "closed_book")["score"]) for seed in range(60)) < 3


def test_splits_share_no_question() -> None:
    starts: dict[str, set[str]] = {}
    for split in ("train", "test"):
        game = Search(pages=200, split=split, hops=1)
        starts[split] = set()
        for seed in range(80):
            game.reset(seed=seed)
            assert game.question.program
            starts[split].add(game.question.program.chains[0].start)
    assert starts["train"] and starts["test"] and not starts["train"] & starts["test"]


def test_illegal_act_gets_one_hint() -> None:
    game = Search(pages=100)
    game.reset(seed=0)
    game.step("I wonder")
    assert "write one call of a tool, or ANSWER" in game.messages("solver")[0].text
    game.step("A" * 10**6)
    assert game.ended == "illegal" and game.report()["score"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pages": 10}, "pages must be a whole number from 20 to 100000"),
        ({"sorts": "riddle"}, "sorts must be some of chain, compare, count, unanswerable"),
        ({"hops": [3, 2]}, "hops must be a whole number from 3 to 4"),
        ({"hops": 5}, "hops must be a whole number from 1 to 4"),
        ({"retriever": "grep"}, "retriever must be"),
        ({"terse": True, "show": "titles"}, "show must be pages"),
        ({"worlds": 65}, "worlds must be a whole number from 1 to 64"),
        ({"worlds": 2, "pages": 5_000}, "worlds must be 1 if pages is a file or a number over 2,000"),
        ({"pages": "nowhere.jsonl"}, "nowhere.jsonl: the corpus cannot be read"),
    ],
)
def test_refuses_invalid_options_in_one_line(options, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        Search(**options)
    assert "\n" not in str(refused.value)


def test_solver_receives_only_tool_messages() -> None:
    game = Search(pages=100, sorts=["chain"], hops=2)
    for view in walk(game, 3, "reader"):
        for message in view.messages:
            assert message.sender == "tool"
    assert game.report()["recall"] == 1.0
