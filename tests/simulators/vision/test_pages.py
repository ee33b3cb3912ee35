"""Pages: overviews without values, search by captions, and VRAG-RL's rewards."""

import math
import random
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.png import encode
from simulators import conformance
from simulators.vision import Pages
from simulators.vision.boards import Board
from simulators.vision.drawing import reduce
from simulators.vision.glyphs import ROWS, draw_glyph
from simulators.vision.pages_acts import Act, read_act
from simulators.vision.pages_players import guess
from simulators.vision.scenes import crop_cell
from simulators.vision.slides import LABELS, VALUES, Deck, Slide, crop_page, load_deck, render
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds
from tests.simulators.vision.probes import decode_pixels, train_probe_accuracy


def start_game(seed: int = 3, **options: Any) -> Pages:
    game = Pages(**options)
    game.reset(seed=seed)
    return game


def play_legal_acts(game: Pages, *acts: str) -> dict[str, float]:
    """Play legal acts and return the rewards of the last one."""
    for act in acts:
        game.step(act)
        assert game.infos["viewer"]["valid"]
    rewards: dict[str, float] = game.infos["viewer"]["rewards"]
    return rewards


def list_printed_slides(world: int = 0, split: str = "train") -> list[Slide]:
    """Return the printed slides of a deck."""
    return [slide for slide in load_deck(world, split).slides if isinstance(slide, Slide)]


def get_target_slide(game: Pages) -> Any:
    return game.question.slide


def decode_newest_picture(game: Pages) -> np.ndarray:
    """Return the pixels of the picture in the newest message."""
    return decode_pixels(game.picture(game.messages("viewer")[-1].images[0].hash))


@pytest.mark.parametrize(
    "options", [{}, {"split": "test", "max_turns": 3, "world": 5}, {"objects": True, "split": "train"}], ids=str
)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    assert find_failed_checks(lambda: Pages(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"objects": True}], ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options: dict[str, Any], capsys: Any) -> None:
    assert passes_over_many_seeds(lambda: Pages(**options), options, capsys)


def test_glyphs_differ_by_hand_and_scale() -> None:
    assert len({draw_glyph(letter).tobytes() for letter in ROWS}) == len(ROWS) == 37
    rows = ["".join("#" if lit else "." for lit in row) for row in draw_glyph("R")]
    assert rows == ["####.", "#...#", "#...#", "####.", "#.#..", "#..#.", "#...#"]
    assert (draw_glyph("R", 3)[1::3, 1::3] == draw_glyph("R")).all() and draw_glyph("R", 3).shape == (21, 15)


def test_deck_has_two_editions_per_report_and_splits_share_no_firm() -> None:
    decks = [list_printed_slides(world, split) for world in (0, 1) for split in ("train", "test")]
    for slides in decks:
        assert len(slides) == len({slide.caption for slide in slides}) == 500
        reports: dict[tuple[str, str], list[Slide]] = {}
        for slide in slides:
            reports.setdefault((slide.firm, slide.topic), []).append(slide)
        assert len(reports) == 250
        assert all(len({slide.year for slide in pair}) == 2 for pair in reports.values())
        assert all(len({frozenset(slide.labels) for slide in pair}) == 1 for pair in reports.values())
    firms = [{slide.firm for slide in slides} for slides in decks]
    assert not (firms[0] | firms[2]) & (firms[1] | firms[3]) and firms[0] != firms[2]


def test_text_fits_on_the_page() -> None:
    longest = max((label for labels in LABELS.values() for label in labels), key=len)
    for slide in (*load_deck(0, "train").slides, *load_deck(0, "test").slides):
        assert len(slide.firm) <= 15 and len(f"{slide.topic} {slide.year}") <= 15 and len(longest) <= 8
        boxes = [slide.value_box(row) for row in range(4)]
        assert all(170 <= box[0] < box[2] <= 288 and box[3] <= 216 for box in boxes)


def test_overview_and_size_do_not_depend_on_values() -> None:
    for slide in list_printed_slides()[:40]:
        other = slide._replace(values=tuple(100 + 9 - value for value in slide.values))
        pixels, other_pixels = render(slide), render(other)
        assert encode(reduce(pixels)) == encode(reduce(other_pixels)) and len(encode(pixels)) == len(
            encode(other_pixels)
        )
        assert (pixels != other_pixels).any()


def test_pages_are_cached_by_content_and_cannot_be_changed() -> None:
    slide = load_deck(0, "train").slides[0]
    assert render(slide) is render(slide._replace())
    with pytest.raises(ValueError, match="read-only"):
        render(slide)[0, 0] = 0
    assert (render.__wrapped__(slide) == render(slide)).all()


def test_probe_reads_values_from_crops_but_not_from_overviews() -> None:
    overview_cells, value_crops, digits = list[np.ndarray](), list[np.ndarray](), list[int]()
    for slide in load_deck(0, "train").slides:
        for row, value in enumerate(slide.values):
            left, top, right, bottom = slide.value_box(row)
            digits.append(value % 10)
            value_crops.append(crop_page(render(slide), (left - 3, top - 3, right + 3, bottom + 3)))
            overview_cells.append(reduce(render(slide))[top // 3 - 2 : bottom // 3 + 2, left // 3 - 2 : right // 3 + 2])
    assert train_probe_accuracy(value_crops, digits, is_linear=True) > 0.9
    assert train_probe_accuracy(overview_cells, digits, is_linear=True) < 0.1 + 4 * (0.09 / 400) ** 0.5


def test_scripted_players_are_ordered() -> None:
    game, count = Pages(split="train"), 120
    scores = {
        name: np.mean([conformance.play(game, seed, name)["score"] for seed in range(count)])
        for name in ("oracle", "hasty")
    }
    assert scores["oracle"] == 1.0 and 0.38 <= scores["hasty"] <= 0.62
    acts = {tuple(map(game.players["blind"](game, 0), conformance.walk(game, seed, "blind")))[-1] for seed in range(9)}
    assert acts == {guess(VALUES)}, "the blind player's acts vary"
    values = [value for slide in game.deck.slides for value in slide.values]
    assert max(np.bincount(values)) / len(values) <= 1 / len(VALUES) + 0.02, (
        "guessing the most frequent value beats chance"
    )


def test_values_are_uncorrelated_with_position_and_year() -> None:
    rows = [
        (slide.year, row, slide.columns[row], slide.values[row]) for slide in list_printed_slides() for row in range(4)
    ]
    for feature in zip(*[row[:3] for row in rows], strict=True):
        assert abs(np.corrcoef(feature, [row[3] for row in rows])[0, 1]) < 4 / len(rows) ** 0.5


def test_a_match_by_hand() -> None:
    game = start_game()
    slide, row = get_target_slide(game), game.question.row
    (message,) = game.messages("viewer")
    label, year = slide.labels[row], slide.year
    assert message.parts == (f"How much is {label} in {slide.firm}, {slide.topic} {year}?",)
    assert play_legal_acts(game, f"search {slide.firm} {slide.topic} {year}") == {}
    (message,) = game.messages("viewer")
    assert message.parts[0] == "Slide 1." and (decode_newest_picture(game) == reduce(render(slide))).all()
    play_legal_acts(game, slide.write_zoom(row))
    assert decode_newest_picture(game).shape[:2] in {(20, 23), (21, 23), (20, 24), (21, 24)} and game.hit
    assert play_legal_acts(game, f"answer {slide.values[row]}.") == {"right": 0.7, "format": 0.1, "ndcg": 0.2}
    assert game.payoffs() == {"viewer": pytest.approx(1.0)}


def test_later_search_results_earn_less() -> None:
    game = start_game()
    slide = get_target_slide(game)
    first, twin = (
        candidate for candidate in game.deck.slides if (candidate.firm, candidate.topic) == (slide.firm, slide.topic)
    )
    query = f"search {slide.firm} {slide.topic}"
    play_legal_acts(game, query, query)
    assert game.found == [first, twin], "ties are not in the deck's order"
    rewards = play_legal_acts(game, f"answer {game.number}")
    assert rewards["ndcg"] == pytest.approx(0.2 / math.log2(2 + game.found.index(slide)))
    game.reset(seed=3)
    play_legal_acts(game, "search courses")
    assert play_legal_acts(game, f"answer {game.number}") == {"right": 0.7, "format": 0.1, "ndcg": 0.0}


def test_answer_and_search_are_both_required() -> None:
    game = start_game()
    assert play_legal_acts(game, f"answer {game.number}") == {} and not game.report()["success"]
    game = start_game(max_turns=2)
    assert play_legal_acts(game, "search harvest", "search harvest") == {} and game.ended == "turns"


def test_errors_are_observations_and_cost_the_format() -> None:
    game = start_game(max_turns=12)
    for act, text in [
        ("bbox 0 0 9 9", "Error: search first"), ("search xyzzy", "Error: no other slide"), 
        ("", "Error: write search"), ("search ?!", "Error: a query needs words"), ("answer", "Error: write"),
        ("search " + "a" * 201, "Error: write"),
    ]:  # fmt: skip
        play_legal_acts(game, act)
        assert game.messages("viewer")[-1].text.startswith(text)
    play_legal_acts(game, "search harvest", "bbox 9 9 1 1")
    assert game.messages("viewer")[-1].text == "Error: bbox needs four numbers from 0 to 999"
    assert play_legal_acts(game, f"answer {game.number}")["format"] == 0.0 and game.report()["errors"] == 7


def test_large_crop_is_no_sharper_than_the_overview() -> None:
    game = start_game()
    slide = get_target_slide(game)
    play_legal_acts(game, f"search {slide.caption}", "bbox 0 0 999 999")
    assert (decode_newest_picture(game) == reduce(render(slide))).all() and not game.hit


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("search a b", Act("search", "a b")), ("Search: a\nb", Act("search", "a b")),
        (" answer 7 ", Act("answer", "7")),
        ("I think. <bbox>[1, 2, 3, 4]</bbox>", Act("bbox", "[1, 2, 3, 4]")), ("<answer>7</answer>", Act("answer", "7")),
        ("<search>a</search><answer>7</answer>", Act("search", "a")), ("<search>a</answer>", None), ("searching", None),
        ("answer", None), ("", None), ("<search>" * 500, None), ("answer \u200b", None), ("bbox " + "1" * 3990, None),
    ],
)  # fmt: skip
def test_parses_acts(text: str, act: Act | None) -> None:
    assert read_act(text) == act


@given(st.text(max_size=60) | st.text(alphabet="<search>/bboxanswer 19", max_size=60))
def test_any_text_is_an_act_or_none(text: str) -> None:
    act = read_act(text)
    assert act is None or (act.words == act.words.strip() and 0 < len(act.words) <= 200)


def test_copies_share_the_deck_and_same_seeds_show_the_same_bytes() -> None:
    first, second = start_game(4), start_game(4)
    assert first.clone().deck is first.deck and isinstance(first.deck, Deck)
    for game in (first, second):
        play_legal_acts(game, f"search {get_target_slide(game).caption}")
    assert first.album.pictures == second.album.pictures


def test_a_missing_package_is_reported_at_the_start(monkeypatch: Any) -> None:
    load_deck.cache_clear()
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ValueError, match="searching needs bm25s: pip install 'arena-selfplay"):
        Pages()
    monkeypatch.undo()
    load_deck.cache_clear()


def test_board_deck_has_two_boards_per_firm_and_splits_share_no_firm() -> None:
    decks = [load_deck(0, split, True).slides for split in ("train", "test")]
    for slides in decks:
        firms: dict[str, list[Board]] = {}
        for board in slides:
            assert isinstance(board, Board) and len(set(board.labels)) == 6
            assert all(len(board.rivals(row)) == 2 and row in board.rivals(row) for row in range(6))
            firms.setdefault(board.firm, []).append(board)
        assert len(slides) == 500 and len(firms) == 250
        assert all(
            {*first.labels} == {*second.labels} and first.year != second.year for first, second in firms.values()
        )
    assert not {board.firm for board in decks[0]} & {board.firm for board in decks[1]}


def test_overview_and_size_do_not_depend_on_digits() -> None:
    for board in load_deck(0, "train", True).slides[:40]:
        assert isinstance(board, Board)
        digits = tuple((digit + 1) % 10 for digit in board.scene.digits)
        pixels, other_pixels = render(board), render(board._replace(scene=board.scene._replace(digits=digits)))
        assert encode(reduce(pixels)) == encode(reduce(other_pixels)) and len(encode(pixels)) == len(
            encode(other_pixels)
        )
        assert (pixels != other_pixels).any()


def test_a_match_over_boards_by_hand() -> None:
    game = start_game(objects=True)
    board, row = get_target_slide(game), game.question.row
    (message,) = game.messages("viewer")
    assert message.parts == (f"find {board.labels[row]} in {board.firm} {board.year}",)
    play_legal_acts(game, f"search {board.firm} {board.year}")
    assert (decode_newest_picture(game) == reduce(render(board))).all() and decode_newest_picture(game).shape == (
        48,
        48,
        3,
    )
    play_legal_acts(game, board.write_zoom(row).lower())
    cell = "ABCDEFGHI".index(board.write_zoom(row))
    assert (decode_newest_picture(game) == crop_cell(render(board), cell, 48)).all() and game.hit
    assert play_legal_acts(game, f"answer {board.values[row]}") == {"right": 0.7, "format": 0.1, "ndcg": 0.2}
    assert game.floor == 0.1


def test_cell_letters_need_a_search_and_boards() -> None:
    game = start_game(max_turns=12)
    play_legal_acts(game, "A")
    assert game.messages("viewer")[-1].text == "Error: search first"
    play_legal_acts(game, "search harvest", "A")
    assert game.messages("viewer")[-1].text == "Error: bbox needs four numbers from 0 to 999"


def test_scripted_players_of_boards_are_ordered() -> None:
    game = Pages(objects=True, split="train")
    reports_by_player = {
        name: [conformance.play(game, seed, name) for seed in range(150)] for name in ("oracle", "hasty", "moody")
    }
    score = {name: np.mean([report["score"] for report in reports]) for name, reports in reports_by_player.items()}
    assert score["oracle"] == 1.0 and 0.15 <= score["hasty"] <= 0.45 and 0.5 <= score["moody"] <= 0.75
    assert not any(report["errors"] for reports in reports_by_player.values() for report in reports)


@pytest.mark.parametrize("kind", Pages.lesson_kinds)
def test_lessons_are_about_boards(kind: str) -> None:
    game, rng = Pages(objects=True, split="train"), random.Random(4)
    for _ in range(20):
        lesson = game.lesson(rng, kind)
        images = [part for part in lesson.parts if not isinstance(part, str)]
        assert len(images) == len(lesson.labels) and {image.hash for image in images} == set(lesson.pictures)
        words = [word for grid in lesson.labels for row in grid for cell in row for word in cell]
        if kind == "query":
            assert lesson.answer.removeprefix("search ") in {board.caption for board in game.deck.slides}
            assert f"in {lesson.answer.removeprefix('search ')} query" in str(lesson.parts[0])
        if kind == "figure":
            assert lesson.answer == f"answer {words[0]}" and images[0].width == 48
    assert game.lesson(random.Random(7), kind) == game.lesson(random.Random(7), kind)
