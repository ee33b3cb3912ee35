"""Frames: clips with briefly shown digits, lookup of times, and FrameThinker's reward gates."""

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
from tests.simulators.vision.probes import decode_pixels, train_probe_accuracy


def start_game(seed: int = 3, **options: Any) -> Frames:
    game = Frames(**options)
    game.reset(seed=seed)
    return game


def play_legal_acts(game: Frames, *acts: str) -> dict[str, float]:
    """Play legal acts and return the rewards of the last one."""
    for act in acts:
        game.step(act)
        assert game.infos["viewer"]["valid"]
    rewards: dict[str, float] = game.infos["viewer"]["rewards"]
    return rewards


def make_lookup_act(game: Frames) -> str:
    second = game.clip.target_event.second
    return f"get frame number at time {second // 60}:{second % 60:02d}"


@pytest.mark.parametrize("options", [{}, {"asked": "time", "split": "test", "longest": 400, "sheet": True}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Frames(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"sheet": True}], ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Frames(**options), options, capsys)


@pytest.mark.parametrize("is_timed", [True, False])
def test_events_are_separate_and_not_in_the_first_frames(is_timed: bool) -> None:
    for seed in range(200):
        clip = draw_clip(np.random.default_rng(seed), 400 if seed % 2 else 2000, is_timed)
        starts = sorted(event.start for event in clip.events)
        assert len(starts) == 4 and min(np.diff(starts)) >= WINDOW + APART and (clip.target > 0) == is_timed
        assert starts[0] >= 0 and starts[-1] + WINDOW <= clip.length
        assert all(event.holds(event.second * clip.rate) for event in clip.events)
        assert not any(event.holds(frame) for event in clip.events for frame in sample_frames(0, clip.length - 1))


def test_frames_do_not_depend_on_the_drawing_order() -> None:
    clip = draw_clip(np.random.default_rng(1), 2000, False)
    frames = [draw_frame(clip, number) for number in range(clip.length)[:40]]
    assert all(
        (draw_frame.__wrapped__(clip, number) == frame).all() for number, frame in reversed([*enumerate(frames)])
    )


def test_only_an_events_frames_show_its_digit_and_lamp() -> None:
    clip = draw_clip(np.random.default_rng(1), 400, False)
    first = clip.events[0]
    other = clip._replace(events=(first._replace(digit=(first.digit + 1) % 10), *clip.events[1:]))
    differing = [n for n in range(clip.length) if (draw_frame(clip, n) != draw_frame(other, n)).any()]
    assert differing == [*range(first.start, first.start + WINDOW)]
    red = [n for n in range(clip.length) if draw_frame(clip, n)[4, 27, 0] > draw_frame(clip, n)[4, 27, 1]]
    assert red == [*range(first.start + WINDOW // 2)]


@pytest.mark.parametrize(
    ("ends", "frames"),
    [((0, 0), [0]), ((3, 7), [3, 4, 5, 6, 7]), ((0, 15), [1, 3, 5, 7, 9, 11, 13, 15]), ((0, 7), [*range(8)])],
)
def test_eight_frames_are_spread_evenly(ends: tuple[int, int], frames: list[int]) -> None:
    assert sample_frames(*ends) == frames


@given(st.integers(0, 1999), st.integers(0, 1999))
def test_frames_lie_in_their_interval(first_bound: int, second_bound: int) -> None:
    first, last = sorted((first_bound, second_bound))
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
def test_parses_acts(text: str, act: Any) -> None:
    assert read_act(text) == act


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("25 75", Choose(25, 75, True)), ("frame 150", Choose(150, 150, True)), ("0:25", LookUp(25)),
        ("3 to 9 <action>25 75</action>", Choose(25, 75, False)), ("25", None), ("frame", None), ("frame 1 2", None),
        ("1:2", None), ("25  75", None), ("2575", None), ("25 75 125", None),
    ],
)  # fmt: skip
def test_parses_short_forms(text: str, act: Any) -> None:
    assert read_act(text) == act and (act is None or read_act(str(act)) == act._replace(**get_default_agreement(act)))


def get_default_agreement(act: Any) -> dict[str, bool]:
    """Return the field values of an act that is written without a thought."""
    return {"agrees": True} if isinstance(act, Choose) else {}


@given(st.text(alphabet="<action>/choose frames between 0123456789:", max_size=60))
def test_any_text_is_an_act_or_none(text: str) -> None:
    assert read_act(str(read_act(text) or "")) == read_act(text) or "action" in text


def test_match_by_hand() -> None:
    game = start_game(asked="time")
    event = game.clip.target_event
    frame = event.second * game.clip.rate
    play_legal_acts(game, make_lookup_act(game))
    assert game.messages("viewer")[-1].text == f"Frame {frame}."
    play_legal_acts(game, f"choose frames between {frame} and {frame}")
    (message,) = game.messages("viewer")
    assert message.parts[:2] == (f"Frames {frame} to {frame}.", str(frame)) and message.sender == "tool"
    assert (decode_pixels(game.picture(message.images[0].hash)) == draw_frame(game.clip, frame)).all()
    assert play_legal_acts(game, str(event.digit)) == {"right": 1.0, "spotlight": 0.02, "lookup": 0.5}
    assert game.payoffs() == {"viewer": 1.52}


def test_first_message_has_eight_frames_of_equal_size() -> None:
    sizes = set()
    for seed in range(20):
        game = start_game(seed)
        (message,) = game.messages("viewer")
        assert [int(part) for part in message.parts[1:] if isinstance(part, str)] == sample_frames(
            0, game.clip.length - 1
        )
        sizes |= {(image.width, image.height, len(game.picture(image.hash))) for image in message.images}
    assert len(sizes) == 1


def test_sheet_shows_numbered_frames_at_half_size() -> None:
    game = start_game(sheet=True)
    (message,) = game.messages("viewer")
    numbers = sample_frames(0, game.clip.length - 1)
    (image,) = message.images
    pixels = decode_pixels(game.picture(image.hash))
    assert message.parts == (game.question, " ".join(map(str, numbers)), image) and pixels.shape == (48, 48, 3)
    for cell, number in enumerate(numbers):
        top, left = cell // 3 * 16, cell % 3 * 16
        assert (pixels[top : top + 16, left : left + 16] == draw_frame(game.clip, number)[1::2, 1::2]).all()
    assert not pixels[32:, 32:].any()
    play_legal_acts(game, "frame 30")
    (message,) = game.messages("viewer")
    assert (decode_pixels(game.picture(message.images[0].hash)) == draw_frame(game.clip, 30)).all()


def test_a_probe_reads_digits_and_the_lamp_from_sheets() -> None:
    rng, cells, digits = np.random.default_rng(2), list[np.ndarray](), list[int]()
    while len(digits) < 1500:
        clip = draw_clip(rng, 400, False)
        for event in clip.events:
            cells.append(clip.draw_sheet([event.start + int(rng.integers(WINDOW))])[:16, :16])
            digits.append(event.digit)
    assert train_probe_accuracy(cells, digits, is_linear=True) > 0.9


@pytest.mark.parametrize("kind", Frames.lesson_kinds)
def test_lessons_label_their_sheets(kind: str) -> None:
    game, rng = Frames(sheet=True, split="train"), random.Random(4)
    for _ in range(30):
        lesson = game.lesson(rng, kind)
        images = [part for part in lesson.parts if not isinstance(part, str)]
        assert len(images) == len(lesson.labels) and {image.hash for image in images} == set(lesson.pictures)
        words = [word for grid in lesson.labels for row in grid for cell in row for word in cell]
        known_words = {"lamp": {"red", "green"}, "edge": {"red", "green"}, "copy": set()}
        assert set(words) <= known_words.get(kind, {"none", *"0123456789"}) and (words or lesson.answer)
        if kind == "edge":
            numbers = str(lesson.parts[0]).split()[2:]
            label_by_number = dict(zip(numbers, words, strict=True))
            expected = "red" if "red" in str(lesson.parts[0]) else "green"
            assert label_by_number.get(lesson.answer, expected) == expected
    assert game.lesson(random.Random(7), kind) == game.lesson(random.Random(7), kind)


@pytest.mark.parametrize("asked", ["time", "lamp"])
def test_hasty_demonstrator_is_right_about_half_of_the_time(asked: Any) -> None:
    game = Frames(sheet=True, longest=400, asked=asked)
    reports = [conformance.play(game, seed, "hasty") for seed in range(150)]
    assert 0.4 <= np.mean([report["score"] for report in reports]) <= 0.7
    assert not any(report["errors"] or report["ignored"] or report["repeated"] for report in reports)
    assert asked == "lamp" or 0.35 <= np.mean([report["looked_up"] for report in reports]) <= 0.65


def make_faulty_acts(game: Frames, fault: str) -> list[str]:
    start = game.clip.target_event.start
    choose_act = f"choose frames between {start} and {start + 9}"
    return {
        "repeated": [choose_act, choose_act],
        "disagreed": [f"between 1 and 2 <action>{choose_act}</action>"],
        "ignored": [make_lookup_act(game), "choose frames between 0 and 1", choose_act],
    }[fault]


@pytest.mark.parametrize("fault", ["repeated", "disagreed", "ignored"])
def test_gates_remove_the_reward(fault: str) -> None:
    for gates in (True, False):
        game = start_game(asked="time", gates=gates)
        rewards = play_legal_acts(game, *make_faulty_acts(game, fault), f"output answer: {game.digit}")
        assert bool(rewards) is not gates and game.report()[fault] and game.report()["success"]


def test_answering_right_after_a_lookup_ignores_it() -> None:
    game = start_game(asked="time")
    assert play_legal_acts(game, make_lookup_act(game), str(game.digit)) == {} and game.report()["ignored"]


def test_errors_are_observations_and_numbers_are_clamped() -> None:
    game = start_game(max_turns=6)
    for act, text in [
        ("choose frames between 9 and 3", "Error: the first frame comes after"),
        ("get frame number at time 9999:59", "Error: the clip ends at "), ("what", "Error: write choose frames"),
        ("choose frames between 999999999 and 999999999", f"Frames {game.clip.length - 1} to {game.clip.length - 1}."),
    ]:  # fmt: skip
        play_legal_acts(game, act)
        assert game.messages("viewer")[-1].text.startswith(text)
    play_legal_acts(game, "what", "what")
    assert game.ended == "turns" and game.report()["errors"] == 5 and game.payoffs() == {"viewer": 0.0}


def test_scripted_players_are_ordered() -> None:
    game = Frames()
    scores = {
        name: np.mean([conformance.play(game, seed, name)["score"] for seed in range(40)])
        for name in ("oracle", "finder", "uniform")
    }
    assert scores["oracle"] == 1.0 and scores["finder"] >= 0.85 and 0.1 <= scores["uniform"] <= 0.6
    digits = [draw_clip(np.random.default_rng(seed), 2000, True).target_event.digit for seed in range(2000)]
    assert {game.players["blind"](game, seed)(None) for seed in range(9)} == {"output answer: 7"}  # type: ignore[arg-type]
    assert max(np.bincount(digits)) / len(digits) <= 0.12
