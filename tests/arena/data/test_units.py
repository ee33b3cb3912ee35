"""Reasoning traces split into units: texts by hand, unsplit messages, stream masks and slow patterns."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.chat import ChatFrame
from agents.nano import build_nano_tokenizer
from arena.config.data_sets import with_data_sets
from arena.data.rows import DataSet
from arena.data.samples import RowEncoder
from arena.data.units import UnitSplitter
from arena.errors import ConfigError
from arena.play.settings import SourceSpec, UnitsSpec
from tests.factories.data_sets import make_data_experiment, write_rows

QUESTION = {"role": "user", "content": "8 + 3 ="}
GO_ON = {"role": "user", "content": "go on"}


def make_reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def split_messages(messages: Any, end: str = "Wait", opening: int = 0) -> list[Any]:
    return UnitSplitter(end, "go on").split(messages, opening)[0]


def test_trace_is_split_into_turns() -> None:
    trace = [QUESTION, make_reply("It is 10. Wait\n 8 + 3 = 11.\nWait\nYes, 11.")]
    units = ["It is 10. Wait", "8 + 3 = 11.\nWait", "Yes, 11."]
    assert split_messages(trace) == [
        QUESTION,
        make_reply(units[0]),
        GO_ON,
        make_reply(units[1]),
        GO_ON,
        make_reply(units[2]),
    ]
    before = ["It is 10.", "Wait\n 8 + 3 = 11.", "Wait\nYes, 11."]
    assert [m["content"] for m in split_messages(trace, "(?=Wait)")[1::2]] == before
    assert split_messages([QUESTION, make_reply("11 Wait\n")]) == [QUESTION, make_reply("11 Wait\n")], (
        "a single unit is unchanged"
    )


def test_opening_and_tool_calls_are_not_split() -> None:
    call = {**make_reply("a Wait b"), "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    opening_messages = [QUESTION, make_reply("a Wait b"), QUESTION]
    assert split_messages([*opening_messages, make_reply("c Wait d")], opening=3) == [
        *opening_messages,
        make_reply("c Wait"),
        GO_ON,
        make_reply("d"),
    ]
    assert split_messages([QUESTION, call]) == [QUESTION, call]
    assert split_messages("no list") == "no list" and split_messages([None, make_reply("x")]) == [None, make_reply("x")]


@given(st.lists(st.text(alphabet="ab \n", max_size=6), min_size=1, max_size=6), st.sampled_from(["W", "(?=W)", "W|a"]))
def test_splitting_loses_no_text(parts: list[str], end: str) -> None:
    text = "W".join(parts)
    units = [m["content"] for m in split_messages([QUESTION, make_reply(text)], end) if m["role"] == "assistant"]
    assert "".join("".join(units).split()) == "".join(text.split())
    assert all(unit.strip() == unit and unit for unit in units) or len(units) == 1


def make_encoder(path: Path, end: str) -> RowEncoder:
    return RowEncoder(DataSet(path), ChatFrame(build_nano_tokenizer()), 512, UnitSplitter(end, "go on"))


def test_loss_is_on_the_units_only(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [{"messages": [QUESTION, make_reply("a Wait b")]}])
    (sample,) = make_encoder(file, "Wait").samples([0]).samples
    ids = [i for i, is_own in zip(sample.stream.ids, sample.stream.mask, strict=True) if is_own]
    assert build_nano_tokenizer().decode(ids, skip_special_tokens=True) == "a Waitb"
    assert sorted(set(sample.places.tolist())) == [0, 1], "two turns"


def test_unsplittable_row_gives_one_line(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [{"messages": [QUESTION, make_reply("a" * 60 + "b")]}])
    with pytest.raises(
        ConfigError, match=r"rows\.jsonl:1: messages: the regular expression .* takes over 2 s"
    ) as error:
        make_encoder(file, "(a|aa)+$").samples([0])
    assert "\n" not in str(error.value)
    for end, text, message in (("(a|aa)+$", "a" * 60 + "b", "takes over 2 s"), ("b", "b" * 3000, "over 1,000 units")):
        rows = write_rows(tmp_path / "many.jsonl", [{"messages": [QUESTION, make_reply(text)]}])
        config = make_data_experiment(rows, "chats", f"source.units={{end: '{end}'}}")
        with pytest.raises(ConfigError, match=rf"many\.jsonl:1: messages: .*{message}"):
            with_data_sets(config, lambda step: None)
    with pytest.raises(ValidationError, match="is no regular expression"):
        UnitsSpec(end="(")
    with pytest.raises(ValidationError, match="`units` splits the chats of `data`"):
        SourceSpec.model_validate({"log": "runs/x", "units": {"end": "Wait"}})
