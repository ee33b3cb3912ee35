"""Transform: bounded interpretation of code, repair of damage, and CodeVision's rewards."""

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
from tests.simulators.vision.probes import decode_pixels, train_probe_accuracy

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)


def start_game(seed: int = 3, **options: Any) -> Transform:
    game = Transform(**options)
    game.reset(seed=seed)
    return game


def decode_newest_picture(game: Transform) -> np.ndarray:
    """Return the pixels of the picture in the newest message."""
    return decode_pixels(game.picture(game.messages("viewer")[-1].images[0].hash))


def start_damaged_game(**damage: Any) -> Transform:
    """Start a match whose picture has this damage."""
    for seed in range(500):
        game = start_game(seed)
        if all(getattr(game.damage, name) == value for name, value in damage.items()):
            return game
    raise AssertionError(damage)


@pytest.mark.parametrize("options", [{}, {"split": "test", "max_turns": 2}, {"terse": True}], ids=str)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Transform(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"terse": True}], ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Transform(**options), options, capsys)


def test_operations_match_pil() -> None:
    """rotate is counter-clockwise, flip is horizontal, crop counts in thousandths, and factors scale levels."""
    image = {"image": Picture.of(PIXELS)}

    def apply_code(code: str) -> np.ndarray:
        return run(code, image)[0].pixels

    assert (apply_code("image.rotate(90)") == np.rot90(PIXELS)).all()
    assert (apply_code("image.rotate(-90)") == np.rot90(PIXELS, 3)).all() and (
        apply_code("image.rotate(360)") == PIXELS
    ).all()
    assert (apply_code("image.flip()") == PIXELS[:, ::-1]).all()
    assert (apply_code("image.crop(0, 0, 499, 332)") == PIXELS[:10, :10]).all()
    assert (apply_code("image.brighten(2.5)") == np.clip(PIXELS * 2.5, 0, 255).astype(np.uint8)).all()
    assert (
        apply_code("image.contrast(16)").max() == 255 and (apply_code("image.resize(40, 60)")[::2, ::2] == PIXELS).all()
    )
    assert (apply_code("a = image.flip()\nb = a.rotate(180)\nb.flip().rotate(180)") == PIXELS).all()
    assert run("image.flip().rotate(90)", image)[1] == ("flip", "rotate")


@pytest.mark.parametrize(
    ("code", "message"),
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
def test_refuses_other_code_in_one_line(code: str, message: str) -> None:
    with pytest.raises(CodeError, match=message) as refused:
        run(code, {"image": Picture.of(PIXELS)})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_largest_program_is_fast() -> None:
    started_at = time.process_time()
    code = f"a=image.resize({MAX_SIZE},{MAX_SIZE})\n" + "\n".join(["a=a.brighten(9)"] * 7)
    assert run(code, {"image": Picture.of(PIXELS)})[0].pixels.shape == (MAX_SIZE, MAX_SIZE, 3)
    assert time.process_time() - started_at < 1.0


@settings(deadline=None)
@given(st.text(alphabet="image.last()rotate90flpcbn,= \n-1", max_size=80))
def test_any_text_runs_or_is_refused(code: str) -> None:
    try:
        picture, _ = run(code, {"image": Picture.of(PIXELS), "last": Picture.of(PIXELS)})
    except CodeError:
        return
    assert max(picture.pixels.shape) <= MAX_SIZE and picture.pixels.shape[:2] == picture.rows.shape


def test_repairs_are_exact() -> None:
    damages = set()
    for seed in range(40):
        game = start_game(seed)
        clean = mark_corner(paint(game.scene, replay_generator(game, seed)))
        expected = clean // 8 * 8 if game.damage.dimmed else clean
        game.step(write_repair(game, game.scene.target))
        assert (decode_newest_picture(game) == crop_cell(expected, game.scene.target, CELL)).all()
        damages.add(game.damage)
    assert len(damages) >= 12


def replay_generator(game: Transform, seed: int) -> np.random.Generator:
    """Return a match's generator in its state before the picture was painted."""
    rng = np.random.default_rng(seed)
    assert (game.draw_scene(rng), Damage.draw(rng)) == (game.scene, game.damage)
    return rng


def test_perfect_match_by_hand() -> None:
    game = start_damaged_game(turned=90, flipped=True, dimmed=True)
    game.step(write_repair(game, game.scene.target))
    game.step(str(game.digit))
    rewards = {"right": 1.0, "format": 0.1, "recall": 1.0, "bonus": 0.0, "overuse": 0.0, "spurious": 0.0}
    assert game.infos["viewer"]["rewards"] == rewards and game.payoffs() == {"viewer": 2.1}


def test_a_careless_match_by_hand() -> None:
    """Only the crop is mandatory: a needless rotation, four runs, one of which fails, and a useful contrast."""
    game = start_damaged_game(turned=0, flipped=False, dimmed=False)
    for act in ("image.rotate(180)", "image.contrast(2)", "image.blur()", "image"):
        game.step(act)
        assert game.infos["viewer"]["valid"]
    game.step(f"answer: {game.digit}")
    rewards = {"right": 1.0, "format": 0.0, "recall": 1 / 9, "bonus": 0.2, "overuse": -0.5, "spurious": -0.5}
    assert game.infos["viewer"]["rewards"] == pytest.approx(rewards)


def test_repair_without_crop_is_partly_paid() -> None:
    """Two of three mandatory operations are done; the uncropped picture has nine times the cell's area."""
    game = start_damaged_game(turned=270, dimmed=True, flipped=False)
    game.step("image.rotate(90).brighten(8)")
    game.step(str((game.digit + 1) % 10))
    rewards = {"right": 0.0, "format": 0.1, "recall": 19 / 27, "bonus": 0.0, "overuse": 0.0, "spurious": 0.0}
    assert game.infos["viewer"]["rewards"] == pytest.approx(rewards)


def test_words_expand_to_code() -> None:
    assert spell_out(" rotate 3 flip bright ") == "last.rotate(270).flip().brighten(8)"
    assert spell_out("crop A crop f") == "last.crop(0, 0, 332, 332).crop(666, 333, 999, 665)"
    for text in ("rotate 0", "rotate 90", "rotate", "flip flip crop", "crop J", "flip  flip", "", "7", "flip\nflip"):
        assert spell_out(text) == text.strip()


@given(st.text(alphabet="rotate flip bright crop 123 ABI", max_size=60))
def test_any_words_expand_to_valid_code_or_stay(text: str) -> None:
    code = spell_out(text)
    if code != text.strip():
        try:
            run(code, {"last": Picture.of(PIXELS)})
        except CodeError as error:
            assert "12 calls" in str(error) or "400 char" in str(error)


@pytest.mark.parametrize("terse", [False, True])
def test_stepwise_player_repairs_everything_and_hits_half_of_the_time(terse: bool) -> None:
    game, hits = Transform(terse=terse), 0
    for seed in range(100):
        report = conformance.play(game, seed, "colour_in_steps")
        assert not report["errors"] and not report["spurious"]
        assert report["runs"] == 1 + any(game.damage), "a needless repair"
        assert all(value == 1.0 for name, value in game.done.items() if name != "crop")
        hits += game.done["crop"] == 1.0
    assert 35 <= hits <= 65
    assert all(conformance.play(game, seed, "oracle")["recall"] == 1.0 for seed in range(30))


def test_words_need_the_terse_option() -> None:
    for terse in (False, True):
        game = start_game(terse=terse)
        game.step("flip")
        assert game.errors == (not terse)


@pytest.mark.parametrize("kind", Transform.lesson_kinds)
def test_lessons_label_each_cell_with_valid_answers(kind: str) -> None:
    game, rng = Transform(terse=True), random.Random(4)
    assert isinstance(game, GroundingLessons)
    for _ in range(30):
        lesson = game.lesson(rng, kind)
        ((image,), (grid,)) = [part for part in lesson.parts if not isinstance(part, str)], lesson.labels
        assert {image.hash} == set(lesson.pictures) and [len(row) for row in grid] == [3, 3, 3]
        if lesson.answer:
            run(spell_out(lesson.answer), {"last": Picture.of(PIXELS)})
    assert game.lesson(random.Random(7), kind) == game.lesson(random.Random(7), kind)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_corner_label_is_the_direction_of_the_longer_arm(flipped: bool, turned: int) -> None:
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


def test_single_pixel_does_not_count_as_upright() -> None:
    game = start_damaged_game(turned=180, flipped=False)
    game.step("image.crop(0, 0, 1, 1)")
    assert game.done["upright"] == 0.0
    game.step("image.rotate(180)")
    assert game.done["upright"] == 1.0


def test_iou_by_hand() -> None:
    assert compute_iou((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert compute_iou((0, 0, 2, 2), (2, 0, 4, 2)) == 0.0 and compute_iou((0, 0, 2, 2), (0, 0, 2, 2)) == 1.0


def test_errors_are_observations_and_use_turns() -> None:
    game = start_game(max_turns=2)
    game.step("image.blur()")
    (message,) = game.messages("viewer")
    assert message.sender == "tool" and message.text.startswith("Error: there is no operation blur")
    game.step("what?")
    assert game.ended == "turns" and game.payoffs() == {"viewer": 0.0} and game.report()["errors"] == 2


def test_scripted_players_are_ordered() -> None:
    game = Transform()
    assert all(conformance.play(game, seed, "oracle")["score"] == 1.0 for seed in range(60))
    assert 0.35 <= np.mean([conformance.play(game, seed, "colour")["score"] for seed in range(100)]) <= 0.75
    digits = [start_game(seed).digit for seed in range(600)]
    assert {game.players["blind"](game, seed)(None) for seed in range(9)} == {"7"}  # type: ignore[arg-type]
    assert digits.count(7) / len(digits) <= 0.12


def test_first_picture_does_not_depend_on_the_digits() -> None:
    for seed in range(60):
        game = start_game(seed)
        scene = game.scene._replace(digits=tuple((digit + 1) % 10 for digit in game.scene.digits))
        other = game.damage.apply(mark_corner(paint(scene, replay_generator(game, seed))))
        assert (resize(other.pixels) == decode_newest_picture(game)).all() and (other.pixels != game.image.pixels).any()


@pytest.mark.slow
def test_probe_reads_no_digit_from_the_first_picture() -> None:
    pixels, digits, lengths, game = list[np.ndarray](), list[int](), set(), Transform()
    for seed in range(2000):
        game.reset(seed=seed)
        (image,) = game.messages("viewer")[0].images
        lengths.add((len(game.picture(image.hash)), image.width, image.height))
        pixels.append(decode_newest_picture(game))
        digits.append(game.digit)
    assert len(lengths) == 1
    assert train_probe_accuracy(pixels, digits) < 0.1 + 4 * (0.09 / 400) ** 0.5
