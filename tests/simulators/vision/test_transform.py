"""Transform: code is interpreted within bounds, damage is undone by it, and rewards are CodeVision's."""

import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.abilities import GroundingLessons
from simulators import conformance
from simulators.vision import Transform
from simulators.vision.damage import Damage
from simulators.vision.image_code import MAX_SIZE, CodeError, Picture, run, spell_out
from simulators.vision.scenes import CELL, compute_iou, crop_cell, mark_corner, paint, resize
from simulators.vision.transform_lessons import make_corner_labels
from simulators.vision.transform_players import write_repair
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds
from tests.simulators.vision.probes import accuracy, decoded

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)


def started(seed: int = 3, **options: Any) -> Transform:
    game = Transform(**options)
    game.reset(seed=seed)
    return game


def seen(game: Transform) -> np.ndarray:
    """The picture in the newest message."""
    return decoded(game.picture(game.messages("viewer")[-1].images[0].hash))


def having(**damage: Any) -> Transform:
    """A match whose picture has this damage."""
    for seed in range(500):
        game = started(seed)
        if all(getattr(game.damage, name) == value for name, value in damage.items()):
            return game
    raise AssertionError(damage)


@pytest.mark.parametrize("options", [{}, {"split": "test", "max_turns": 2}, {"terse": True}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Transform(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"terse": True}], ids=str)
def test_it_keeps_its_promises_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Transform(**options), options, capsys)


def test_operations_are_those_of_pil() -> None:
    """rotate is counter-clockwise, flip mirrors left and right, crop counts thousandths, factors scale levels."""
    image = {"image": Picture.of(PIXELS)}

    def result(code: str) -> np.ndarray:
        return run(code, image)[0].pixels

    assert (result("image.rotate(90)") == np.rot90(PIXELS)).all()
    assert (result("image.rotate(-90)") == np.rot90(PIXELS, 3)).all() and (result("image.rotate(360)") == PIXELS).all()
    assert (result("image.flip()") == PIXELS[:, ::-1]).all()
    assert (result("image.crop(0, 0, 499, 332)") == PIXELS[:10, :10]).all()
    assert (result("image.brighten(2.5)") == np.clip(PIXELS * 2.5, 0, 255).astype(np.uint8)).all()
    assert result("image.contrast(16)").max() == 255 and (result("image.resize(40, 60)")[::2, ::2] == PIXELS).all()
    assert (result("a = image.flip()\nb = a.rotate(180)\nb.flip().rotate(180)") == PIXELS).all()
    assert run("image.flip().rotate(90)", image)[1] == ("flip", "rotate")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("", "1 to 8 lines"), ("image.rotate(45)", "rotate takes 90"), ("image.blur()", "no operation blur"),
        ("picture", "no image picture; there are: image"), ("image.rotate()", "rotate takes 1"),
        ("image.resize(99999, 99999)", "1 to 256 pixels"), ("image.resize(1e400, 1)", "arguments are numbers"),
        ("image.brighten(-1)", "a factor"), ("image.crop(5, 5, 5, 5)", "crop takes"), ("import os", "a line is"),
        ("image.rotate(9**9**9)", "arguments are numbers"), ("__import__('os').system('ls')", "no operation system"),
        ("image.pixels", "only images and calls"), ("image.__class__()", "no operation __class__"),
        ("[image for _ in range(10**9)]", "only images"), ("while True: image", "a line is"), ("x" * 401, "400 char"),
        ("(" * 399, "no code"), ("-" * 300 + "1", "only images"), ("image.flip()\n" * 9, "1 to 8 lines"),
        ("image" + ".flip()" * 13, "12 calls"), ("image.flip(x=1)", "only images"), ("\ud800", "no code"),
        ("image.rotate(True)", "arguments are numbers"), ("image.rotate(9j)", "arguments are numbers"),
        ("a, b = image", "a line is"), ("image.rotate(*[90])", "arguments are numbers"), ("\x00", "no code"),
        ("image.rotate(--90)", "arguments are numbers"), ("del image", "a line is"), ("image.crop(n, 0, 1, 1)", "arg"),
    ],
)  # fmt: skip
def test_other_code_is_refused_in_one_line(code: str, why: str) -> None:
    with pytest.raises(CodeError, match=why) as refused:
        run(code, {"image": Picture.of(PIXELS)})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_the_largest_program_is_quick() -> None:
    began = time.process_time()
    code = f"a=image.resize({MAX_SIZE},{MAX_SIZE})\n" + "\n".join(["a=a.brighten(9)"] * 7)
    assert run(code, {"image": Picture.of(PIXELS)})[0].pixels.shape == (MAX_SIZE, MAX_SIZE, 3)
    assert time.process_time() - began < 1.0


@settings(deadline=None)
@given(st.text(alphabet="image.last()rotate90flpcbn,= \n-1", max_size=80))
def test_any_text_runs_or_is_refused(code: str) -> None:
    try:
        picture, _ = run(code, {"image": Picture.of(PIXELS), "last": Picture.of(PIXELS)})
    except CodeError:
        return
    assert max(picture.pixels.shape) <= MAX_SIZE and picture.pixels.shape[:2] == picture.rows.shape


def test_every_damage_is_undone_to_the_pixel() -> None:
    kinds = set()
    for seed in range(40):
        game = started(seed)
        clean = mark_corner(paint(game.scene, rng_after_scene(game, seed)))
        dark = clean // 8 * 8 if game.damage.dimmed else clean
        game.step(write_repair(game, game.scene.target))
        assert (seen(game) == crop_cell(dark, game.scene.target, CELL)).all()
        kinds.add(game.damage)
    assert len(kinds) >= 12


def rng_after_scene(game: Transform, seed: int) -> np.random.Generator:
    """The generator of a match as it was when its picture was painted."""
    rng = np.random.default_rng(seed)
    assert (game.draw_scene(rng), Damage.draw(rng)) == (game.scene, game.damage)
    return rng


def test_a_careful_match_by_hand() -> None:
    game = having(turned=90, flipped=True, dimmed=True)
    game.step(write_repair(game, game.scene.target))
    game.step(str(game.digit))
    paid = {"right": 1.0, "format": 0.1, "recall": 1.0, "bonus": 0.0, "overuse": 0.0, "spurious": 0.0}
    assert game.infos["viewer"]["rewards"] == paid and game.payoffs() == {"viewer": 2.1}


def test_a_careless_match_by_hand() -> None:
    """Mandatory is the crop alone: turned needlessly, in four runs, one of which failed, and with contrast besides."""
    game = having(turned=0, flipped=False, dimmed=False)
    for act in ("image.rotate(180)", "image.contrast(2)", "image.blur()", "image"):
        game.step(act)
        assert game.infos["viewer"]["valid"]
    game.step(f"answer: {game.digit}")
    paid = {"right": 1.0, "format": 0.0, "recall": 1 / 9, "bonus": 0.2, "overuse": -0.5, "spurious": -0.5}
    assert game.infos["viewer"]["rewards"] == pytest.approx(paid)


def test_a_mended_picture_left_whole_is_paid_by_its_parts_by_hand() -> None:
    """Of three mandatory operations two are done, and a ninth of the whole picture's area is the cell's."""
    game = having(turned=270, dimmed=True, flipped=False)
    game.step("image.rotate(90).brighten(8)")
    game.step(str((game.digit + 1) % 10))
    paid = {"right": 0.0, "format": 0.1, "recall": 19 / 27, "bonus": 0.0, "overuse": 0.0, "spurious": 0.0}
    assert game.infos["viewer"]["rewards"] == pytest.approx(paid)


def test_words_are_short_for_code_on_the_newest_result() -> None:
    assert spell_out(" rotate 3 flip bright ") == "last.rotate(270).flip().brighten(8)"
    assert spell_out("crop A crop f") == "last.crop(0, 0, 332, 332).crop(666, 333, 999, 665)"
    for text in ("rotate 0", "rotate 90", "rotate", "flip flip crop", "crop J", "flip  flip", "", "7", "flip\nflip"):
        assert spell_out(text) == text.strip()


@given(st.text(alphabet="rotate flip bright crop 123 ABI", max_size=60))
def test_any_words_are_code_that_runs_or_stay_as_they_are(text: str) -> None:
    code = spell_out(text)
    if code != text.strip():
        try:
            run(code, {"last": Picture.of(PIXELS)})
        except CodeError as why:
            assert "12 calls" in str(why) or "400 char" in str(why)


@pytest.mark.parametrize("terse", [False, True])
def test_who_mends_in_steps_does_all_that_is_mandatory_and_hits_half_of_the_time(terse: bool) -> None:
    game, hits = Transform(terse=terse), 0
    for seed in range(100):
        report = conformance.play(game, seed, "colour_in_steps")
        assert not report["errors"] and not report["spurious"]
        assert report["runs"] == 1 + any(game.damage), "it mends only what needs it"
        assert all(value == 1.0 for name, value in game.done.items() if name != "crop")
        hits += game.done["crop"] == 1.0
    assert 35 <= hits <= 65
    assert all(conformance.play(game, seed, "oracle")["recall"] == 1.0 for seed in range(30))


def test_words_are_read_only_if_the_game_is_terse() -> None:
    for terse in (False, True):
        game = started(terse=terse)
        game.step("flip")
        assert game.errors == (not terse)


@pytest.mark.parametrize("kind", Transform.lesson_kinds)
def test_lessons_label_each_cell_and_answer_with_words_that_run(kind: str) -> None:
    game, rng = Transform(terse=True), random.Random(4)
    assert isinstance(game, GroundingLessons)
    for _ in range(30):
        lesson = game.lesson(rng, kind)
        ((image,), (grid,)) = [part for part in lesson.parts if not isinstance(part, str)], lesson.labels
        assert {image.hash} == set(lesson.pictures) and [len(row) for row in grid] == [3, 3, 3]
        if lesson.answer:
            run(spell_out(lesson.answer), {"last": Picture.of(PIXELS)})
    assert game.lesson(random.Random(7), kind) == game.lesson(random.Random(7), kind)
    with pytest.raises(ValueError, match="there is no lesson 'x'; there are: attribute, glyph, find, mend"):
        game.lesson(rng, "x")


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_a_corner_is_labelled_where_it_lies_by_the_direction_of_the_longer_arm(flipped: bool, turned: int) -> None:
    damage = Damage(flipped, turned, False)
    lit = resize(damage.apply(mark_corner(np.zeros((3 * CELL, 3 * CELL, 3), np.uint8))).pixels)[..., 0] > 0
    ((row, column, arm),) = [
        (row, column, word)
        for row, words in enumerate(make_corner_labels(damage))
        for column, (word,) in enumerate(words)
        if word != "none"
    ]
    step = np.array({"right": (0, 1), "left": (0, -1), "up": (-1, 0), "down": (1, 0)}[arm])
    corner = np.array([row, column]) // 2 * (CELL - 1)
    other = np.array([-1, -1]) * np.sign(corner - 1) * (1 - abs(step))
    assert lit[tuple(corner + 20 * step)] and lit[tuple(corner + 8 * other)] and not lit[tuple(corner + 20 * other)]


def test_a_single_pixel_is_not_upright() -> None:
    game = having(turned=180, flipped=False)
    game.step("image.crop(0, 0, 1, 1)")
    assert game.done["upright"] == 0.0
    game.step("image.rotate(180)")
    assert game.done["upright"] == 1.0


def test_the_area_in_common_by_hand() -> None:
    assert compute_iou((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert compute_iou((0, 0, 2, 2), (2, 0, 4, 2)) == 0.0 and compute_iou((0, 0, 2, 2), (0, 0, 2, 2)) == 1.0


def test_an_error_is_an_observation_and_the_match_ends_with_its_turns() -> None:
    game = started(max_turns=2)
    game.step("image.blur()")
    (message,) = game.messages("viewer")
    assert message.sender == "tool" and message.text.startswith("Error: there is no operation blur")
    game.step("what?")
    assert game.ended == "turns" and game.payoffs() == {"viewer": 0.0} and game.report()["errors"] == 2


def test_the_blind_are_at_chance_and_the_oracle_is_right() -> None:
    game = Transform()
    assert all(conformance.play(game, seed, "oracle")["score"] == 1.0 for seed in range(60))
    assert 0.35 <= np.mean([conformance.play(game, seed, "colour")["score"] for seed in range(100)]) <= 0.75
    digits = [started(seed).digit for seed in range(600)]
    assert {game.players["blind"](game, seed)(None) for seed in range(9)} == {"7"}  # type: ignore[arg-type]
    assert digits.count(7) / len(digits) <= 0.12


def test_what_is_shown_first_is_the_same_for_every_digit() -> None:
    for seed in range(60):
        game = started(seed)
        scene = game.scene._replace(digits=tuple((digit + 1) % 10 for digit in game.scene.digits))
        other = game.damage.apply(mark_corner(paint(scene, rng_after_scene(game, seed))))
        assert (resize(other.pixels) == seen(game)).all() and (other.pixels != game.image.pixels).any()


@pytest.mark.slow
def test_a_probe_reads_no_digit_from_what_is_shown_first() -> None:
    pixels, digits, lengths, game = list[np.ndarray](), list[int](), set(), Transform()
    for seed in range(2000):
        game.reset(seed=seed)
        (image,) = game.messages("viewer")[0].images
        lengths.add((len(game.picture(image.hash)), image.width, image.height))
        pixels.append(seen(game))
        digits.append(game.digit)
    assert len(lengths) == 1
    assert accuracy(pixels, digits) < 0.1 + 4 * (0.09 / 400) ** 0.5
