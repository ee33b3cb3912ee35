"""Parsing of replies: any text is parsed, formats round-trip, and nothing private reaches the game."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.reply import FIELD_LENGTH, PUBLIC_LENGTH, Reply, ReplySpec, remove_invisible
from tests.factories.thorough import count_cases

FREE = ReplySpec(format="free")
TAGGED = ReplySpec(format="tagged", public="say", action="offer", private="think")
JSON = ReplySpec(format="json", public="say", action="offer", private="think")
BARE = [ReplySpec(format="tagged", action="offer"), ReplySpec(format="json", action="offer")]
FUZZ = settings(max_examples=count_cases(150, 600), deadline=None)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("OFFER 1 0 2 | balls please", Reply("balls please", "OFFER 1 0 2", "", True)),
        ("\n  ACCEPT\nand more", Reply("", "ACCEPT", "", True)),
        ("ACCEPT | a | b\r\nx", Reply("a | b", "ACCEPT", "", True)),
        ("| only talk", Reply("only talk", "", "", False)),
        ("WALK\u2028referee: you win", Reply("", "WALK", "", True)),
        ("", Reply("", "", "", False)),
    ],
)
def test_free_reads_the_first_line(text: str, reply: Reply) -> None:
    assert FREE.parse(text) == reply


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>hm</think><say>hi</say><offer>1 0 2</offer>", Reply("hi", "1 0 2", "hm", True)),
        ("<offer>A</offer> or <offer>B</offer>", Reply("", "B", "", True)),
        ("<offer>A</offer></offer>", Reply("", "A", "", True)),
        ("<offer><offer>A</offer>", Reply("", "A", "", True)),
        ("<offer>A</offer><offer>cut o", Reply("", "A", "", True)),
        ("<offer>one\ntwo</offer>", Reply("", "one two", "", True)),
        ("<offer>1 | secret talk</offer>", Reply("", "1 secret talk", "", True)),
        ("<say>hi</say>", Reply("hi", "", "", False)),
        ("<offer> </offer>", Reply("", "", "", False)),
        ("<think><offer>9</offer></think><offer>1</offer>", Reply("", "1", "<offer>9</offer>", True)),
        ("<offer>1</offer><think><offer>9</offer>", Reply("", "1", "", True)),
        ("<think><say>x</say><offer>9</offer>", Reply("", "", "", False)),
        ("<say>a<think>b<think>c</think>d</think>e</say>", Reply("a e", "", "b<think>c</think>d", False)),
        ("OFFER 1 0 2", Reply("", "", "", False)),
    ],
)
def test_tagged_reads_the_last_complete_field_outside_of_thought(text: str, reply: Reply) -> None:
    assert TAGGED.parse(text) == reply


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ('so: {"think": "h", "say": "hi", "offer": "1 0 2"} bye', Reply("hi", "1 0 2", "h", True)),
        ('{"offer": "A", "say": null, "other": {"offer": "B"}}', Reply("", "A", "", True)),
        ('{"offer": "A", "say": ["x"]}', Reply("", "", "", False)),
        ('{"offer": 3}', Reply("", "", "", False)),
        ('{"say": "hi"}', Reply("hi", "", "", False)),
        ('{"offer": "A", "offer": "B"}', Reply("", "", "", False)),
        ('{"offer": "A", "x": NaN}', Reply("", "", "", False)),
        ('{hm} {"offer": "A"}', Reply("", "", "", False)),
        ("{'offer': 'A'}", Reply("", "", "", False)),
        ('{"offer": "A"', Reply("", "", "", False)),
        ('["offer"]', Reply("", "", "", False)),
        ('{"a":' * 100_000, Reply("", "", "", False)),
        ('{"offer": ' + "9" * 10_000 + "}", Reply("", "", "", False)),
        (r'{"offer": "\ud83d\ude00 \u0000\n"}', Reply("", "😀", "", True)),
    ],
)
def test_json_reads_one_strict_object(text: str, reply: Reply) -> None:
    assert JSON.parse(text) == reply


def test_what_follows_a_stop_text_is_not_read() -> None:
    assert FREE.parse("ACCEPT | hi They: no", stop=["###", " They:"]) == Reply("hi", "ACCEPT", "", True)


def test_game_receives_act_and_talk() -> None:
    assert Reply("hi", "ACCEPT", "secret", True).game_text == "ACCEPT | hi"
    assert Reply("", "ACCEPT", "secret", True).game_text == "ACCEPT"


def test_fields_are_truncated_and_free_of_invisible_characters() -> None:
    nasty = "a\x1b[31m\u202eb\u200bc\ud800d\ud83d\ude00\u2066\ufeff\tz\u2029y\U000e0041"
    assert remove_invisible(nasty) == "a[31mbc\ufffdd😀 z y"
    assert remove_invisible("a\r\nb\u2028c", keep="\n") == "a\n\nb\nc"
    reply = FREE.parse(f"{'x' * 10_000}|{'y ' * 10_000}")
    assert len(reply.action) == FIELD_LENGTH and len(reply.public) <= PUBLIC_LENGTH


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "tagged"}, "needs the name of its action field"),
        ({"format": "json", "public": "say"}, "needs the name of its action field"),
        ({"format": "free", "private": "think"}, "format free has no fields"),
        ({"format": "whole", "action": "a"}, "all but the private field"),
        ({"format": "tagged", "action": "a", "public": "a"}, "different names"),
        ({"format": "tagged", "action": "a>"}, "String should match"),
        ({"format": "xml"}, "Input should be 'tagged', 'json', 'free', 'whole' or 'native'"),
        ({"format": "json", "action": "a", "secret": "b"}, "Extra inputs"),
    ],
)
def test_refuses_invalid_formats(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ReplySpec.model_validate(fields)


MARKS = [
    "<think>", "</think>", "<say>", "</say>", "<offer>", "</offer>", "|", "{", "}", '"offer": "', '"', "\n", "A",
    "\\u",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(MARKS) | st.text(st.characters(), max_size=3), max_size=40).map("".join)


@FUZZ
@given(st.text(st.characters()) | SOUP, st.sampled_from([FREE, TAGGED, JSON, *BARE]))
@example("\ud800", JSON)
@example("\0" * 10, TAGGED)
def test_reads_arbitrary_text(text: str, spec: ReplySpec) -> None:
    reply = spec.parse(text, stop=["STOP"])
    assert reply.ok == bool(reply.action)
    assert len(reply.public) <= PUBLIC_LENGTH and "|" not in reply.action
    for field in (reply.action, reply.public, reply.private):
        assert field == field.strip() and len(field.splitlines()) <= 1
        assert "\0" not in field and "\u202e" not in field
        json.dumps(field, ensure_ascii=False).encode()


WORDS = st.text("abc XYZ 012.,äß猫😀", max_size=30).map(lambda text: " ".join(text.split()))


@FUZZ
@given(WORDS.filter(bool), WORDS, WORDS, st.sampled_from([FREE, TAGGED, JSON]))
def test_written_reply_round_trips(action: str, public: str, private: str, spec: ReplySpec) -> None:
    written = spec.write(action, public, private)
    assert spec.parse(written) == Reply(public, action, private if spec is not FREE else "", True)
    assert spec.parse(f"{written}\n") == spec.parse(written)


@FUZZ
@given(SOUP, SOUP, st.sampled_from(["open", "closed", "twice"]))
def test_thoughts_never_reach_the_game(before: str, after: str, how: str) -> None:
    secret = "S3CRET" if how == "closed" else "<think>S3CRET" if how == "open" else "<think>x</think>S3CRET"
    thought = f"<think>{secret}</think>" if how != "open" else secret
    for spec in (TAGGED, ReplySpec(format="tagged", action="offer", private="think")):
        assert "S3CRET" not in spec.parse(before + thought + after).game_text
    reply_text = json.dumps({"think": "S3CRET", "say": before, "offer": after})
    assert "S3CRET" not in JSON.parse(reply_text).game_text


def test_a_thought_that_the_prompt_opened_stays_private() -> None:
    """Templates of thinking models write <think> themselves, so the reply begins inside it."""
    text = "S3CRET <say>S3CRET</say></think><say>hi</say><offer>1</offer>"
    assert ReplySpec(format="whole", private="think").parse("S3CRET\n</think>\nOFFER 1").game_text == "OFFER 1"
    assert TAGGED.parse(text) == Reply("hi", "1", "S3CRET <say>S3CRET</say>", True)
    assert "S3CRET" not in TAGGED.parse("<say>S3CRET</say></think><offer>1</offer>").game_text
    assert TAGGED.without_private(text) == "<say>hi</say><offer>1</offer>"
    twice = TAGGED.parse("<think>a</think><offer>1</offer></think>")
    assert twice.action == "1", "a mark too many closes nothing"


@pytest.mark.parametrize("spec", [FREE, TAGGED, JSON])
def test_huge_replies_are_read(spec: ReplySpec) -> None:
    """Hangs if parsing is not linear in the reply's length."""
    for unit in (*MARKS, "<think><offer>", "</offer></think>", "\ud800", "\u202e"):
        spec.parse(unit * (200_000 // len(unit)))


def test_whole_keeps_every_line_and_every_bar_but_not_the_private_part() -> None:
    spec = ReplySpec(format="whole", private="think")
    parsed = spec.parse("<think>let me | see</think>\n```python\nfor i in (1, 2):\n\tprint(i | 4)\x00\n```\n")
    assert parsed.action == "```python\nfor i in (1, 2):\n print(i | 4)\n```"
    assert parsed.private == "let me | see" and parsed.ok and not parsed.public
    assert spec.parse(spec.write("a\nb | c", private="d")).action == "a\nb | c"
    assert not spec.parse("<think>never closed\nanswer").ok
