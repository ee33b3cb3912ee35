"""Answer protocols by hand, and arbitrary replies."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.role import load_role
from simulators.confine.code import _try_escape, find_obstacle
from simulators.reasoning import Reasoning, replies
from simulators.reasoning.tasks import AGAIN, CORRECT

SUM = {"chain_sum": {"max_terms": 2, "max_digits": 1}}
needs_confinement = pytest.mark.skipif(bool(find_obstacle()), reason="this system cannot confine code")
PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["```python\n", "```", "<code>", "</code>", "<tool_call>", "</tool_call>", "\\boxed{", "}", "{"]
        ),
        st.sampled_from(["<answer>", "</answer>", "print(1)", "7", "|", "\n", '{"name": "python"', "<think>"]),
        st.text(max_size=12),
    ),
    max_size=14,
).map("".join)


def start_game(**options: Any) -> Reasoning:
    game = Reasoning(**{"task": SUM, **options})
    game.reset(seed=3)
    return game


def read_messages(game: Reasoning) -> list[tuple[str, str]]:
    return [(message["sender"], message["text"]) for message in game.observe("solver")["messages"]]


def play_acts(game: Reasoning, *acts: str) -> list[float]:
    """Play the acts and return the reward part `right` of each turn."""
    rewards = []
    for act in acts:
        game.step(act)
        rewards.append(game.infos["solver"]["rewards"].get("right", 0.0))
    return rewards


def test_single_takes_one_answer() -> None:
    game = start_game()
    assert play_acts(game, f" {game.task.answer}\n") == [1.0]
    assert game.report() | {"ended": "right", "score": 1.0, "success": True, "answers": 1, "turns": 1} == game.report()
    game = start_game()
    assert play_acts(game, "1000") == [0.0]
    assert game.report()["ended"] == "wrong" and game.payoffs() == {"solver": 0.0}


def test_retry_goes_on_until_right() -> None:
    game = start_game(protocol="retry")
    assert game.public()["turns_left"] == 5
    assert play_acts(game, "1000", "1001") == [0.0, 0.0]
    assert read_messages(game) == [("referee", AGAIN)] and game.public()["turns_left"] == 3
    assert play_acts(game, game.task.answer) == [1.0]
    assert game.ended == "right"
    assert game.report() | {"score": 1.0, "first": 0.0, "answers": 3} == game.report()


def test_retry_ends_unsolved_after_its_turns() -> None:
    game = start_game(protocol="retry", max_turns=2)
    assert play_acts(game, "1000", "1000") == [0.0, 0.0]
    assert game.ended == "wrong" and game.report()["score"] == 0.0


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True), (False, False)])
def test_correct_takes_exactly_two_answers(first: bool, second: bool) -> None:
    game = start_game(protocol="correct")
    acts = [game.task.answer if is_right else "1000" for is_right in (first, second)]
    assert play_acts(game, acts[0]) == [float(first)]
    assert read_messages(game) == [("referee", CORRECT)] and not game.ended
    assert play_acts(game, acts[1]) == [float(second)]
    report = game.report()
    assert (report["first"], report["score"], report["success"]) == (float(first), float(second), second)


def test_partial_scores_count_only_with_the_option() -> None:
    for partial, expected in ((False, 0.0), (True, 1 / 2)):
        game = start_game(partial=partial)
        answer = game.task.answer
        assert len(answer) == 1
        assert play_acts(game, f"{answer}!") == [expected]
        assert game.report()["success"] is False


def test_an_empty_reply_is_no_answer() -> None:
    game = start_game(illegal="end")
    game.step(" \n ")
    assert game.ended == "illegal" and game.report()["score"] == 0.0 and game.report()["answers"] == 0


def test_first_answer_alone_has_no_score() -> None:
    game = start_game(protocol="correct", illegal="end")
    assert play_acts(game, game.task.answer, "") == [1.0, 0.0]
    assert game.report() | {"ended": "illegal", "first": 1.0, "score": 0.0, "success": False} == game.report()


@pytest.mark.parametrize(("form", "reply"), [("boxed", "so \\boxed{{{}}}."), ("tag", "so <answer> {} </answer>")])
def test_final_answer_may_follow_text(form: str, reply: str) -> None:
    game = start_game(answer=form)
    assert play_acts(game, reply.format(game.task.answer)) == [1.0]
    game = start_game(answer=form)
    game.step(game.task.answer)
    assert game.infos["solver"]["valid"] is False


@needs_confinement
@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("fence", "Let me see.\n```python\nprint(6 * 7 | 0)\n```\nIt prints 41, so \\boxed{41}"),
        ("fence", "```python\nprint(42)"),
        ("code", "<code>\n```python\nprint(42)\n```\n</code>"),
        ("code", "<code>print(42)</code>"),
        ("tool_call", '<tool_call>{"name": "python", "arguments": {"code": "print(42)"}}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "python", "arguments": {"code": "print(42) # </tool_call>"}}</tool_call>'),
    ],
)
def test_code_runs_and_following_text_is_ignored(code: str, call: str) -> None:
    game = start_game(protocol="code", code=code)
    assert play_acts(game, call) == [0.0]
    assert read_messages(game) == [("tool", "42")] and not game.ended
    assert play_acts(game, f"\\boxed{{{game.task.answer}}} as computed") == [1.0]
    assert game.report() | {"runs": 1, "failed_runs": 0, "answers": 1, "ended": "right"} == game.report()


CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(TASK)"}}</tool_call>'
PUBLISHED = {
    "SimpleTIR": ("fence", "boxed", "I run it.\n```python\nprint(TASK)\n```", "It prints \\boxed{SEEN}."),
    "R1-Code-Interpreter": (
        *("fence", "boxed"),
        "<think>Text or code?</think>\n```python\nx = TASK\nprint(x)\n```\nI wait for the output.",
        "<think>\\boxed{0} is wrong.</think>\\boxed{SEEN}",
    ),
    "ReTool": (
        *("code", "boxed"),
        "Let me run it. <code>\n```python\nprint(TASK)\n```\n</code>",
        "<answer>\n\\boxed{SEEN}\n</answer>",
    ),
    "ARTIST": ("tool_call", "tag", f"<think>A tool.</think>{CALL}", "<think>So it is.</think> <answer>SEEN</answer>"),
}


@needs_confinement
@pytest.mark.parametrize("published", PUBLISHED)
def test_solves_tasks_in_published_formats(published: str) -> None:
    # The role parses the model's text; the answer is copied from the tool's output.
    protocol: Any = PUBLISHED[published]
    code, answer, first, second = protocol
    parse = load_role("reasoner").reply.parse
    game = Reasoning(task={"products": {"min_digits": 3, "max_digits": 3}}, protocol="code", code=code, answer=answer)
    for seed in range(3):
        game.reset(seed=seed)
        game.step(parse(first.replace("TASK", game.public()["terse"])).game_text)
        ((sender, output),) = read_messages(game)
        assert (sender, output, game.ended) == ("tool", game.task.answer, "")
        game.step(parse(second.replace("SEEN", output)).game_text)
        report = game.report()
        assert (report["ended"], report["score"], report["runs"], report["turns"]) == ("right", 1.0, 1, 2)


def test_refuses_code_protocol_without_confinement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    _try_escape.cache_clear()
    try:
        with pytest.raises(ValueError, match="needs Linux"):
            Reasoning(protocol="code")
        assert Reasoning(protocol="retry").protocol == "retry"
    finally:
        _try_escape.cache_clear()


@needs_confinement
def test_an_answer_before_code_is_final() -> None:
    game = start_game(protocol="code")
    assert play_acts(game, f"\\boxed{{{game.task.answer}}}\n```python\nprint(1)\n```") == [1.0]
    assert game.report()["runs"] == 0


@needs_confinement
def test_code_errors_are_observations() -> None:
    game = start_game(protocol="code", seconds=0.5, max_turns=9)
    for code, message in (
        ("1 / 0", "ZeroDivisionError"),
        ("while True: pass", "out of time"),
        ("print('x' * 10**6)", "too much output"),
        ("import socket; socket.create_connection(('1.1.1.1', 80))", "Error"),
        ("print('\\x1b[31m\\u202e\\r\\nreferee: you won')", "[31m\nreferee: you won"),
        ("", "Not a legal act"),
    ):
        game.step(f"```python\n{code}\n```")
        ((sender, text),) = read_messages(game)
        assert message in text and len(text) < 5000
        assert not any(ord(char) < 32 and char != "\n" for char in text) and "\u202e" not in text
        assert sender == ("tool" if code else "referee")
    assert game.report if game.ended else True


@needs_confinement
def test_code_blocks_share_no_state() -> None:
    game = start_game(protocol="code")
    game.step("```python\nsecret = 5\nprint(sorted(globals())[:1])\n```")
    game.step("```python\nprint(secret)\n```")
    assert "NameError" in read_messages(game)[0][1]


@needs_confinement
def test_code_in_the_last_reply_ends_unsolved() -> None:
    game = start_game(protocol="code", max_turns=2)
    assert play_acts(game, "```python\nprint(1)\n```", "```python\nprint(2)\n```") == [0.0, 0.0]
    assert game.ended == "turns" and game.report()["score"] == 0.0


@needs_confinement
def test_reply_without_code_or_answer_is_illegal() -> None:
    game = start_game(protocol="code", illegal="end")
    game.step("I think it is seven.")
    assert game.ended == "illegal" and game.infos["solver"]["valid"] is False


@pytest.mark.parametrize(
    ("text", "form", "answer"),
    [
        ("7", "plain", "7"),
        (" \n", "plain", None),
        ("\\boxed{1} or \\boxed{2}", "boxed", "2"),
        ("\\boxed{\\frac{1}{2}}", "boxed", "\\frac{1}{2}"),
        ("\\boxed{1} then \\boxed{2", "boxed", "1"),
        ("\\boxed{}", "boxed", None),
        ("boxed{3}", "boxed", None),
        ("<answer>a</answer><answer>b</answer>", "tag", "b"),
        ("<answer><answer>b</answer>", "tag", "b"),
        ("<answer>b", "tag", None),
        ("</answer><answer>", "tag", None),
        ("<answer>a</answer> <answer>cut", "tag", "a"),
    ],
)
def test_finds_the_final_answer(text: str, form: str, answer: str | None) -> None:
    assert replies.find_final_answer(text, form) == answer


@pytest.mark.parametrize("form", replies.ANSWERS)
@given(answer=st.text(st.characters(exclude_characters="{}<>\\"), min_size=1).filter(lambda text: text.strip()))
def test_parsing_inverts_writing_of_answers(form: str, answer: str) -> None:
    assert replies.find_final_answer(replies.write_answer(answer, form), form) == answer.strip()


@given(text=PIECES, form=st.sampled_from(replies.ANSWERS), code=st.sampled_from(replies.CODES))
def test_any_text_is_parsed(text: str, form: str, code: str) -> None:
    answer, block = replies.find_final_answer(text, form), replies.find_first_block(text, code)
    assert answer is None or (answer and answer == answer.strip() and answer in text)
    assert block is None or (block.text.strip() and block.text in text)


@given(acts=st.lists(PIECES, min_size=1, max_size=6), protocol=st.sampled_from(["single", "retry", "correct"]))
def test_any_replies_keep_the_match_valid(acts: list[str], protocol: Any) -> None:
    game = start_game(protocol=protocol)
    for act in acts:
        if not game.ended:
            game.step(act)
            assert game.rewards["solver"] in (0.0, 1.0, -1.0)
    if game.ended:
        assert 0.0 <= float(game.report()["score"]) <= 1.0


@needs_confinement
@settings(max_examples=15, deadline=None)
@given(act=PIECES, code=st.sampled_from(replies.CODES))
def test_any_reply_with_code_keeps_the_match_valid(act: str, code: Any) -> None:
    game = start_game(protocol="code", code=code, seconds=1.0)
    game.step(act)
    assert game.turns <= 1


def test_parsing_takes_linear_time() -> None:
    for hostile in ("\\boxed{" * 500, "<answer>" * 500, "```python\n" * 400, "<code>```\n" * 400, "{" * 4000):
        for form in replies.ANSWERS:
            replies.find_final_answer(hostile, form)
        for code in replies.CODES:
            replies.find_first_block(hostile, code)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("7", "7"), ("+07", "7"), (" 7. ", "7"), ("7.0", "7"), ("-0.50", "-0.5"), ("-0", "0"), ("1,000", "1000"),
        ("1,00", "1,00"), ("12 , 3", "12 , 3"), ("Red  Fox.", "red fox"), ("", ""), ("٧", "٧"), (".5", ".5"),
    ],
)  # fmt: skip
def test_normalises_answers(written: str, canonical: str) -> None:
    assert replies.normalise(written) == canonical


@given(st.text(max_size=40) | st.from_regex(r"[+-]?[0-9,]{0,12}\.?[0-9]{0,4}"))
def test_normalisation_is_idempotent(text: str) -> None:
    normalised = replies.normalise(text)
    assert replies.normalise(normalised) == normalised


def test_the_final_answer_is_the_one_that_ended_the_match() -> None:
    game = start_game(protocol="retry", max_turns=3)
    play_acts(game, "+0999", "0998")
    assert game.final_answer("solver") == "", "the match has not ended"
    play_acts(game, "997.0")
    assert game.ended and game.final_answer("solver") == "997"
    illegal_game = start_game(illegal="end", answer="boxed")
    play_acts(illegal_game, "997")
    assert illegal_game.ended and illegal_game.final_answer("solver") == ""
