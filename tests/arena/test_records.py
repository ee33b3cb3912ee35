"""Records survive JSON and Parquet whatever their texts hold; values that neither can hold are refused."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.stream import Stream
from arena.plain import printable, to_plain
from arena.records import MatchRecord, MatchSource, RecordError, Seating, Turn, trajectories
from arena.rows import message_from_row as message_of
from arena.rows import message_to_row
from arena.store.arrow import matches_to_table, table_to_matches
from games.contracts import Image, MatchId, Message, TurnSource
from tests.factories.records import make_match_record, make_turn

HOSTILE = ["\ud800", "a\udfffb", "\u2028", "\u0085", "\x00", "\r\n", "<|im_end|>", "\x1b[2J", "é", "[/b]", ""]
text = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=[]), max_size=20))
name = st.text("abcxyz_", min_size=1, max_size=8)
number = st.floats(allow_nan=False, allow_infinity=False)
float32 = st.floats(allow_nan=False, allow_infinity=False, width=32)
image = st.builds(Image, st.just("5e" * 32), st.just("image/png"), st.integers(1, 2**16), st.integers(1, 2**16))
message = st.builds(Message.of, text, text, st.lists(image, max_size=2))
json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(name, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    n = draw(st.integers(0, 6))
    ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n))
    mask = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    logprobs = draw(st.lists(float32, min_size=n, max_size=n))
    turns = draw(st.lists(st.integers(-1, 30), min_size=n, max_size=n))
    entropy = draw(st.just([]) | st.lists(float32, min_size=n, max_size=n))
    return Stream(ids, mask, logprobs, turns, entropy)


@st.composite
def identities(draw: st.DrawFn) -> MatchId:
    """Return ids of matches, of retries, and of branches of either."""
    match = MatchId(draw(st.integers(0, 99_999)), draw(st.integers(0, 99_999)), draw(st.integers(0, 3)))
    for turn, attempt in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3)), max_size=3)):
        match = replace(match.branch(turn), attempt=attempt)
    return match


turns = st.builds(
    Turn,
    index=st.integers(0, 100),
    seat=st.sampled_from(["opener", "responder"]),
    role=text,
    policy=text,
    version=st.integers(0, 1000),
    messages=st.lists(message, max_size=2).map(tuple),
    raw=text,
    public=text,
    private=text,
    action=text,
    valid=st.booleans(),
    rewards=st.dictionaries(name, number, max_size=3),
    finish=st.sampled_from(["stop", "length", "script"]),
    tokens=st.integers(0, 1000),
    seconds=number,
    source=st.sampled_from(get_args(TurnSource)),
    reward=st.just(0.0),
    advantage=st.just(0.0),
)
seating = st.builds(
    Seating, role=text, policy=text, version=st.integers(0, 1000), trained=st.booleans(),
    kind=st.sampled_from(["model", "brain"]),
)  # fmt: skip
seat_streams = st.lists(streams(), max_size=2).map(tuple)
records = st.builds(
    MatchRecord,
    identity=identities(),
    game=text,
    options=st.dictionaries(name, json_value, max_size=3),
    seed=st.integers(0, 2**64 - 1),
    seats=st.fixed_dictionaries({"opener": seating, "responder": seating}),
    status=st.sampled_from(["finished", "failed"]),
    reason=text,
    payoffs=st.dictionaries(st.sampled_from(["opener", "responder"]), number),
    report=st.dictionaries(name, st.one_of(number, st.booleans(), text), max_size=3),
    turns=st.lists(turns, max_size=3).map(tuple),
    streams=st.fixed_dictionaries({"opener": seat_streams, "responder": seat_streams}),
    started=st.just("2026-01-01T00:00:00.000+00:00"),
    seconds=number,
    group=st.integers(-1, 9),
    stage=st.sampled_from(["", "train"]),
    source=st.sampled_from(get_args(MatchSource)),
)


TURN = make_turn(0, {"deal": 4.0}, raw="raw", public="pub", private="priv", action="OFFER 1 0 2", seconds=0.1)


def make_match(**changes: Any) -> MatchRecord:
    fields = {
        "identity": MatchId(0, 0),
        "game": "negotiation",
        "options": {"items": ("books", "hats", "balls")},
        "seats": {
            "opener": Seating("opener", "shared", 1, True, "model"),
            "responder": Seating("responder", "random", 0, False, "brain"),
        },
        "payoffs": {"opener": 4.0, "responder": 6.0},
        "report": {"deal": True},
        "turns": (TURN, TURN._replace(index=1, seat="responder")),
        "streams": {"opener": (Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0]),), "responder": ()},
    }
    return make_match_record(**{**fields, **changes})


@settings(deadline=None)
@given(records)
def test_record_survives_a_json_line_and_parquet(record: MatchRecord) -> None:
    row = record.to_json()
    line = record.to_line()
    assert json.loads(line) == row and line.isascii() and len(line.splitlines()) == 1
    read = MatchRecord.from_json(json.loads(line))
    assert read.to_json() == row
    assert read == record or "\ufffd" in str(row)  # equal, or different only by replaced surrogates
    (sealed,) = table_to_matches(matches_to_table([row]))
    assert MatchRecord.from_json(sealed).to_json() == row


def test_surrogates_are_replaced_and_tuples_become_lists() -> None:
    row = make_match(reason="a\ud800b", options={"items": ("x", "y\udc00")}).to_json()
    assert row["reason"] == "a\ufffdb" and row["options"] == {"items": ["x", "y\ufffd"]}


@pytest.mark.parametrize(
    ("changes", "field_name"),
    [
        ({"payoffs": {"opener": float("nan")}}, "payoffs['opener'] is nan"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"report": {"deal": float("-inf")}}, "report.deal is -inf"),
        ({"turns": (TURN._replace(rewards={"deal": float("nan")}),)}, "turn 0: reward['deal'] is nan"),
        ({"streams": {"opener": (Stream([1], [True], [float("nan")], [0]),)}}, "not finite"),
        ({"streams": {"opener": (Stream([1], [True], [-1e300], [0]),)}}, "not finite"),
        ({"streams": {"ghost": ()}}, "ghost"),
        ({"options": {"when": object()}}, "options.when is a object"),
        ({"options": {1: 2}}, "keys must be text"),
        ({"report": {"deal": {1, 2}}}, "report.deal is a set"),
    ],
)
def test_unstorable_value_is_refused_with_its_field(changes: dict[str, object], field_name: str) -> None:
    for convert in (MatchRecord.to_json, MatchRecord.to_line):
        with pytest.raises(RecordError) as error:
            convert(make_match(**changes))
        message = str(error.value)
        assert field_name in message and "match 0000-0000 cannot be stored" in message and "\n" not in message


@pytest.mark.parametrize("row", [{}, {"id": 1}, {**make_match().to_json(), "turns": [{"seat": 1}]}])
def test_invalid_row_is_refused_in_one_line(row: dict[str, object]) -> None:
    with pytest.raises(RecordError, match=r"^match '.*' cannot be read: .*: restore the log from a copy$"):
        MatchRecord.from_json(row)


def test_trajectories_are_one_per_seat_that_played() -> None:
    opener, responder = trajectories(make_match())
    assert (opener.seat, opener.trained, len(opener.streams), len(opener.turns)) == ("opener", True, 1, 1)
    assert (responder.seat, responder.trained, len(responder.streams)) == ("responder", False, 0)
    assert trajectories(make_match(turns=(), streams={})) == []
    assert trajectories(make_match(status="failed", reason="time limit")) == []


def test_credit_is_set_on_a_copy_and_must_fit() -> None:
    opener = trajectories(make_match())[0]
    credited = opener.credited([4.0], [0.5])
    assert (credited.turns[0].reward, credited.turns[0].advantage) == (4.0, 0.5)
    assert opener.turns[0].advantage == 0.0
    with pytest.raises(ValueError):
        opener.credited([1.0, 2.0], [0.0, 0.0])


def test_to_plain_replaces_nan_if_asked() -> None:
    import numpy as np

    values = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": float("nan")}
    made = to_plain(values, "x", gaps=True)
    assert made == {"a": 0.5, "b": 3, "c": True, "d": None} and type(made["b"]) is int


def test_printable_text_is_one_line_without_escapes() -> None:
    assert printable("a\u2028b\x1b[2Jc\u202ed\r\ne\ud800") == "a b[2Jcd e\ufffd"


def test_records_load_without_torch_or_pandas() -> None:
    check = "import arena.records, sys; assert not {'torch', 'pandas', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


PARTS = st.lists(st.text(max_size=3) | st.just(Image("ab" * 32, "image/png", 3, 4)), max_size=5)


@given(PARTS)
def test_message_survives_the_log(parts: list[str | Image]) -> None:
    original = Message("x", tuple(parts))
    restored = message_of(message_to_row(original))
    assert (restored.text, restored.images) == (original.text, original.images)
    assert message_of(message_to_row(restored)) == restored, "a second round trip changed it"
