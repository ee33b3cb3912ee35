"""Reasoning traces split into units: texts by hand, what stays whole, masks of the stream, and slow patterns."""

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
from tests.factories.data_sets import make_experiment, write_rows

ASKED = {"role": "user", "content": "8 + 3 ="}
GO_ON = {"role": "user", "content": "go on"}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def split(messages: Any, end: str = "Wait", opening: int = 0) -> list[Any]:
    return UnitSplitter(end, "go on").split(messages, opening)[0]


def test_a_trace_becomes_turns() -> None:
    trace = [ASKED, reply("It is 10. Wait\n 8 + 3 = 11.\nWait\nYes, 11.")]
    units = ["It is 10. Wait", "8 + 3 = 11.\nWait", "Yes, 11."]
    assert split(trace) == [ASKED, reply(units[0]), GO_ON, reply(units[1]), GO_ON, reply(units[2])]
    before = ["It is 10.", "Wait\n 8 + 3 = 11.", "Wait\nYes, 11."]
    assert [m["content"] for m in split(trace, "(?=Wait)")[1::2]] == before
    assert split([ASKED, reply("11 Wait\n")]) == [ASKED, reply("11 Wait\n")], "one unit is left as it is"


def test_the_opening_and_calls_of_tools_stay_whole() -> None:
    call = {**reply("a Wait b"), "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    shown = [ASKED, reply("a Wait b"), ASKED]
    assert split([*shown, reply("c Wait d")], opening=3) == [*shown, reply("c Wait"), GO_ON, reply("d")]
    assert split([ASKED, call]) == [ASKED, call]
    assert split("no list") == "no list" and split([None, reply("x")]) == [None, reply("x")]


@given(st.lists(st.text(alphabet="ab \n", max_size=6), min_size=1, max_size=6), st.sampled_from(["W", "(?=W)", "W|a"]))
def test_no_letter_is_lost(parts: list[str], end: str) -> None:
    text = "W".join(parts)
    found = [m["content"] for m in split([ASKED, reply(text)], end) if m["role"] == "assistant"]
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(unit.strip() == unit and unit for unit in found) or len(found) == 1


def encoder(path: Path, end: str) -> RowEncoder:
    return RowEncoder(DataSet(path), ChatFrame(build_nano_tokenizer()), 512, UnitSplitter(end, "go on"))


def test_the_loss_is_on_the_units_alone(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [{"messages": [ASKED, reply("a Wait b")]}])
    (sample,) = encoder(file, "Wait").samples([0]).samples
    own = [i for i, is_own in zip(sample.stream.ids, sample.stream.mask, strict=True) if is_own]
    assert build_nano_tokenizer().decode(own, skip_special_tokens=True) == "a Waitb"
    assert sorted(set(sample.places.tolist())) == [0, 1], "two turns"


def test_what_cannot_be_split_is_one_line(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [{"messages": [ASKED, reply("a" * 60 + "b")]}])
    with pytest.raises(
        ConfigError, match=r"rows\.jsonl:1: messages: the regular expression .* takes over 2 s"
    ) as error:
        encoder(file, "(a|aa)+$").samples([0])
    assert "\n" not in str(error.value)
    for end, text, said in (("(a|aa)+$", "a" * 60 + "b", "takes over 2 s"), ("b", "b" * 3000, "over 1,000 units")):
        many = write_rows(tmp_path / "many.jsonl", [{"messages": [ASKED, reply(text)]}])
        given = make_experiment(many, "chats", f"source.units={{end: '{end}'}}")
        with pytest.raises(ConfigError, match=rf"many\.jsonl:1: messages: .*{said}"):
            with_data_sets(given, lambda step: None)
    with pytest.raises(ValidationError, match="is no regular expression"):
        UnitsSpec(end="(")
    with pytest.raises(ValidationError, match="`units` splits the chats of `data`"):
        SourceSpec.model_validate({"log": "runs/x", "units": {"end": "Wait"}})
