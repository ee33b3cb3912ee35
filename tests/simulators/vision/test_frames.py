"""Frames: clips show their digits for a moment, times are looked up, and gates take FrameThinker's reward."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import conformance
from simulators.vision import Frames
from simulators.vision.clips import APART, SHOWN, WINDOW, draw_clip, draw_frame, sample_frames
from simulators.vision.frames_acts import Answer, Choose, LookUp, read_act
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds
from tests.simulators.vision.probes import accuracy, decoded


def started(seed: int = 3, **options: Any) -> Frames:
    game = Frames(**options)
    game.reset(seed=seed)
    return game


def play(game: Frames, *acts: str) -> dict[str, float]:
    """The rewards of the last act, each of which must be legal."""
    for act in acts:
        game.step(act)
        assert game.infos["viewer"]["valid"]
    rewards: dict[str, float] = game.infos["viewer"]["rewards"]
    return rewards


def asked_time(game: Frames) -> str:
    second = game.clip.target_event.second
    return f"get frame number at time {second // 60}:{second % 60:02d}"


@pytest.mark.parametrize("options", [{}, {"asked": "time", "split": "test", "longest": 400, "sheet": True}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Frames(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"sheet": True}], ids=str)
def test_it_keeps_its_promises_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Frames(**options), options, capsys)


@pytest.mark.parametrize("is_timed", [True, False])
def test_clips_have_their_events_apart_and_none_among_the_first_frames(is_timed: bool) -> None:
    for seed in range(200):
        clip = draw_clip(np.random.default_rng(seed), 400 if seed % 2 else 2000, is_timed)
        starts = sorted(event.start for event in clip.events)
        assert len(starts) == 4 and min(np.diff(starts)) >= WINDOW + APART and (clip.target > 0) == is_timed
        assert starts[0] >= 0 and starts[-1] + WINDOW <= clip.length
        assert all(event.holds(event.second * clip.rate) for event in clip.events)
        assert not any(event.holds(frame) for event in clip.events for frame in sample_frames(0, clip.length - 1))


def test_frames_are_drawn_alone_as_in_any_order() -> None:
    clip = draw_clip(np.random.default_rng(1), 2000, False)
    one = [draw_frame(clip, number) for number in range(clip.length)[:40]]
    assert all((draw_frame.__wrapped__(clip, number) == frame).all() for number, frame in reversed([*enumerate(one)]))


def test_only_an_events_frames_depend_on_its_digit_and_its_lamp_changes_in_the_middle() -> None:
    clip = draw_clip(np.random.default_rng(1), 400, False)
    first = clip.events[0]
    other = clip._replace(events=(first._replace(digit=(first.digit + 1) % 10), *clip.events[1:]))
    differs = [n for n in range(clip.length) if (draw_frame(clip, n) != draw_frame(other, n)).any()]
    assert differs == [*range(first.start, first.start + WINDOW)]
    red = [n for n in range(clip.length) if draw_frame(clip, n)[4, 27, 0] > draw_frame(clip, n)[4, 27, 1]]
    assert red == [*range(first.start + WINDOW // 2)]


@pytest.mark.parametrize(
    ("ends", "frames"),
    [((0, 0), [0]), ((3, 7), [3, 4, 5, 6, 7]), ((0, 15), [1, 3, 5, 7, 9, 11, 13, 15]), ((0, 7), [*range(8)])],
)
def test_eight_frames_are_spread_evenly(ends: tuple[int, int], frames: list[int]) -> None:
    assert sample_frames(*ends) == frames


@given(st.integers(0, 1999), st.integers(0, 1999))
def test_frames_lie_in_their_interval(one: int, two: int) -> None:
    first, last = sorted((one, two))
    frames = sample_frames(first, last)
    assert frames == sorted(set(frames)) and first <= frames[0] and frames[-1] <= last
    assert len(frames) == min(SHOWN, last - first + 1)


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("choose frames between 3 and 9", Choose(3, 9, True)), ("Choose Frames Between 3 And 9", Choose(3, 9, True)),
        ("It is in 3 to 9. <action>choose frames between 3 and 9</action>", Choose(3, 9, True)),
        ("It is in 3-8 <action>choose frames between 3 and 9</action>", Choose(3, 9, False)),
        ("get frame number at time 1:05", LookUp(65)), ("get frame number at time 1:65", None),
        ("output answer: 7", Answer(7)), ("<action>output answer: seven</action>", Answer(7)), ("7", Answer(7)),
        ("output answer: 77", None), ("choose frames between 1e9 and 2e9", None), ("", None), ("<action>", None),
        ("choose frames between -1 and 5", None), ("choose frames between nan and inf", None), ("٧", None),
        ("choose frames between 9999999999 and 9999999999", None), ("<action>" * 500, None), ("3 and " * 600, None),
    ],
)  # fmt: skip
def test_acts_are_read(text: str, act: Any) -> None:
    assert read_act(text) == act


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("25 75", Choose(25, 75, True)), ("frame 150", Choose(150, 150, True)), ("0:25", LookUp(25)),
        ("3 to 9 <action>25 75</action>", Choose(25, 75, False)), ("25", None), ("frame", None), ("frame 1 2", None),
        ("1:2", None), ("25  75", None), ("2575", None), ("25 75 125", None),
    ],
)  # fmt: skip
def test_acts_have_short_forms(text: str, act: Any) -> None:
    assert read_act(text) == act and (act is None or read_act(str(act)) == act._replace(**agreed(act)))


def agreed(act: Any) -> dict[str, bool]:
    """What a text without a thought changes of an act."""
    return {"agrees": True} if isinstance(act, Choose) else {}


@given(st.text(alphabet="<action>/choose frames between 0123456789:", max_size=60))
def test_any_text_is_an_act_or_none(text: str) -> None:
    assert read_act(str(read_act(text) or "")) == read_act(text) or "action" in text


def test_a_careful_match_by_hand() -> None:
    game = started(asked="time")
    event = game.clip.target_event
    frame = event.second * game.clip.rate
    play(game, asked_time(game))
    assert game.messages("viewer")[-1].text == f"Frame {frame}."
    play(game, f"choose frames between {frame} and {frame}")
    (message,) = game.messages("viewer")
    assert message.parts[:2] == (f"Frames {frame} to {frame}.", str(frame)) and message.sender == "tool"
    assert (decoded(game.picture(message.images[0].hash)) == draw_frame(game.clip, frame)).all()
    assert play(game, str(event.digit)) == {"right": 1.0, "spotlight": 0.02, "lookup": 0.5}
    assert game.payoffs() == {"viewer": 1.52}


def test_the_first_frames_are_eight_and_alike_in_size() -> None:
    sizes = set()
    for seed in range(20):
        game = started(seed)
        (message,) = game.messages("viewer")
        assert [int(part) for part in message.parts[1:] if isinstance(part, str)] == sample_frames(
            0, game.clip.length - 1
        )
        sizes |= {(image.width, image.height, len(game.picture(image.hash))) for image in message.images}
    assert len(sizes) == 1


def test_a_sheet_shows_frames_at_half_their_size_after_all_their_numbers() -> None:
    game = started(sheet=True)
    (message,) = game.messages("viewer")
    numbers = sample_frames(0, game.clip.length - 1)
    (image,) = message.images
    pixels = decoded(game.picture(image.hash))
    assert message.parts == (game.question, " ".join(map(str, numbers)), image) and pixels.shape == (48, 48, 3)
    for place, number in enumerate(numbers):
        top, left = place // 3 * 16, place % 3 * 16
        assert (pixels[top : top + 16, left : left + 16] == draw_frame(game.clip, number)[1::2, 1::2]).all()
    assert not pixels[32:, 32:].any()
    play(game, "frame 30")
    (message,) = game.messages("viewer")
    assert (decoded(game.picture(message.images[0].hash)) == draw_frame(game.clip, 30)).all()


def test_a_probe_reads_digits_and_the_lamp_from_sheets() -> None:
    rng, cells, digits = np.random.default_rng(2), list[np.ndarray](), list[int]()
    while len(digits) < 1500:
        clip = draw_clip(rng, 400, False)
        for event in clip.events:
            cells.append(clip.draw_sheet([event.start + int(rng.integers(WINDOW))])[:16, :16])
            digits.append(event.digit)
    assert accuracy(cells, digits, is_linear=True) > 0.9


@pytest.mark.parametrize("kind", Frames.lesson_kinds)
def test_lessons_label_what_their_sheets_show(kind: str) -> None:
    game, rng = Frames(sheet=True, split="train"), random.Random(4)
    for _ in range(30):
        lesson = game.lesson(rng, kind)
        images = [part for part in lesson.parts if not isinstance(part, str)]
        assert len(images) == len(lesson.labels) and {image.hash for image in images} == set(lesson.pictures)
        words = [word for grid in lesson.labels for row in grid for cell in row for word in cell]
        known = {"lamp": {"red", "green"}, "edge": {"red", "green"}, "copy": set()}
        assert set(words) <= known.get(kind, {"none", *"0123456789"}) and (words or lesson.answer)
        if kind == "edge":
            numbers = str(lesson.parts[0]).split()[2:]
            first = dict(zip(numbers, words, strict=True))
            wanted = "red" if "red" in str(lesson.parts[0]) else "green"
            assert first.get(lesson.answer, wanted) == wanted
    assert game.lesson(random.Random(7), kind) == game.lesson(random.Random(7), kind)


def test_there_is_no_other_lesson() -> None:
    with pytest.raises(ValueError, match="there is no lesson 'x'; there are: lamp, digit, edge, copy"):
        Frames().lesson(random.Random(0), "x")


@pytest.mark.parametrize("asked", ["time", "lamp"])
def test_the_hasty_demonstrator_is_right_half_of_the_time_and_never_breaks_a_rule(asked: Any) -> None:
    game = Frames(sheet=True, longest=400, asked=asked)
    played = [conformance.play(game, seed, "hasty") for seed in range(150)]
    assert 0.4 <= np.mean([one["score"] for one in played]) <= 0.7
    assert not any(one["errors"] or one["ignored"] or one["repeated"] for one in played)
    assert asked == "lamp" or 0.35 <= np.mean([one["looked_up"] for one in played]) <= 0.65


def faulty(game: Frames, fault: str) -> list[str]:
    start = game.clip.target_event.start
    whole = f"choose frames between {start} and {start + 9}"
    return {
        "repeated": [whole, whole],
        "disagreed": [f"between 1 and 2 <action>{whole}</action>"],
        "ignored": [asked_time(game), "choose frames between 0 and 1", whole],
    }[fault]


@pytest.mark.parametrize("fault", ["repeated", "disagreed", "ignored"])
def test_gates_take_all_of_the_reward_and_without_them_it_is_paid(fault: str) -> None:
    for gates in (True, False):
        game = started(asked="time", gates=gates)
        paid = play(game, *faulty(game, fault), f"output answer: {game.digit}")
        assert bool(paid) is not gates and game.report()[fault] and game.report()["success"]


def test_looking_a_time_up_and_answering_at_once_ignores_it() -> None:
    game = started(asked="time")
    assert play(game, asked_time(game), str(game.digit)) == {} and game.report()["ignored"]


def test_errors_are_observations_and_numbers_are_clamped() -> None:
    game = started(max_turns=6)
    for act, said in [
        ("choose frames between 9 and 3", "Error: the first frame comes after"),
        ("get frame number at time 9999:59", "Error: the clip ends at "), ("what", "Error: write choose frames"),
        ("choose frames between 999999999 and 999999999", f"Frames {game.clip.length - 1} to {game.clip.length - 1}."),
    ]:  # fmt: skip
        play(game, act)
        assert game.messages("viewer")[-1].text.startswith(said)
    play(game, "what", "what")
    assert game.ended == "turns" and game.report()["errors"] == 5 and game.payoffs() == {"viewer": 0.0}


def test_yardsticks_stand_in_order() -> None:
    game = Frames()
    scores = {
        name: np.mean([conformance.play(game, seed, name)["score"] for seed in range(40)])
        for name in ("oracle", "finder", "uniform")
    }
    assert scores["oracle"] == 1.0 and scores["finder"] >= 0.85 and 0.1 <= scores["uniform"] <= 0.6
    digits = [draw_clip(np.random.default_rng(seed), 2000, True).target_event.digit for seed in range(2000)]
    assert {game.players["blind"](game, seed)(None) for seed in range(9)} == {"output answer: 7"}  # type: ignore[arg-type]
    assert max(np.bincount(digits)) / len(digits) <= 0.12
