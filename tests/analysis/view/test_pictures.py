"""Pictures of a match in the page, the report, a person's seat and `arena show`, as the player saw them."""

import base64
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from analysis.report import report
from analysis.view.index import Index
from analysis.view.match import describe_match
from analysis.view.seats import Seats
from arena.errors import ConfigError
from arena.evaluate.deal_facts import replay_marks
from arena.store.reader import RunReader
from games.contracts import Deal
from tests.factories import seeing
from tests.factories.browser import open_chromium
from tests.factories.commands import arena
from tests.factories.pointing import ACTS, make_pointing_run
from tests.factories.report import read_answers
from tests.factories.seeing import SIZE
from tests.factories.view import SERVICES, Client, serve_page


@pytest.fixture(scope="module")
def picture_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pointing_run(tmp_path_factory.mktemp("runs") / "run")[0].path


def read_marks(game: str, options: str, seed: int, acts: Any) -> Any:
    return replay_marks(Deal(game, json.loads(options), seed), acts)


def test_pictures_have_their_place_and_acts_their_marks(picture_run: Path) -> None:
    index = Index(RunReader(picture_run))
    index.refresh(0.0)
    described = describe_match(index, "0000-0000", None, find_marks=read_marks)
    for turn, boxes in zip(
        described["turns"], ([10, 20, 10, 20], [5, 6, 30, 40], None, [0, 0, SIZE, SIZE]), strict=True
    ):
        (message,) = [message for message in turn["messages"] if message["images"]]
        (image,) = message["images"]
        assert image["place"] == len("..here: ") and message["text"].startswith("𝒯here:  What colour")
        assert turn["marks"] == (
            [{**{k: image[k] for k in ("hash", "width", "height")}, "boxes": [boxes]}] if boxes else []
        )
    assert "marks" not in describe_match(index, "0000-0000", None)["turns"][0]


def test_invalid_marks_of_a_game_are_dropped(picture_run: Path) -> None:
    index = Index(RunReader(picture_run))
    index.refresh(0.0)
    name = index.reader.match("0000-0000")["turns"][0]["messages"][0]["images"][0]["hash"]
    wild = [("0" * 64, 1, 2, 3, 4), (name, float("nan"), 1, 2, 3), (name, 1, float("inf"), 2, 3)]
    described = describe_match(index, "0000-0000", None, find_marks=lambda *given: [wild])
    assert [turn["marks"] for turn in described["turns"]] == [[]] * len(ACTS)


def test_a_report_holds_the_pictures(picture_run: Path) -> None:
    reader = RunReader(picture_run)
    page = report(picture_run, find_marks=read_marks)
    answers = read_answers(page)
    for name in reader.log.images(0):
        head, _, data = answers[f"images/{name}"].partition(",")
        assert head == "data:image/png;base64" and hashlib.sha256(base64.b64decode(data)).hexdigest() == name


def test_the_page_draws_pictures_and_marks(picture_run: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(report(picture_run, find_marks=read_marks))
    with (
        open_chromium() as browser,
        serve_page(picture_run.parent, services=SERVICES._replace(marks=read_marks)) as link,
    ):
        for address in (
            f"{link}/run/run/match/0000-0000",
            f"{(tmp_path / 'report.html').as_uri()}#/run/run/match/0000-0000",
        ):
            view: Any = browser.new_page()
            view.set_default_timeout(30_000)
            wrong: list[str] = []
            view.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
            view.goto(address)
            view.wait_for_selector(".seen .picture img >> nth=3")
            view.wait_for_selector(".act .marks rect >> nth=1")
            view.wait_for_selector(".act .marks circle")
            assert view.evaluate("[...document.querySelectorAll('.picture img')].every((i) => i.naturalWidth === 48)")
            assert wrong == []


def test_arena_show_names_pictures_and_their_files(picture_run: Path) -> None:
    result = arena("show", picture_run, "0000-0000")
    assert result.code == 0
    for name in RunReader(picture_run).log.images(0):
        assert f"{name} image/png 48x48: {picture_run / 'log' / 'blobs' / name}" in result.out.replace("\n", "")


def test_a_person_in_the_page_is_shown_pictures(tmp_path: Path) -> None:
    seats = Seats([sys.executable, "-P", "-m", "arena"])
    game = f"{seeing.__file__}:Colours"
    id = seats.begin("colours", ["play", f"--game={game}", "--seat=0=human", "--lines", "--seed=1"])
    seat = seats.seat(id)
    pictures: list[dict[str, Any]] = []
    for turn in range(2):
        for _ in range(1200):
            requests = [line["ask"] for line in seat.read_since(0)["lines"] if "ask" in line]
            if len(requests) > turn or not seat.is_running():
                break
            time.sleep(0.1)
        assert len(requests) == turn + 1, seat.read_since(0)
        pictures += [image for message in requests[turn]["messages"] for image in message[2:][0]]
        seat.answer("red", "")
    assert len(pictures) == 2 and all(image["place"] == len("What colour is this?") for image in pictures)
    client = Client(tmp_path)
    assert client.get(f"/api/play/nothing/images/{'0' * 64}", 404)
    for image in pictures:
        assert hashlib.sha256(seat.images[image["hash"]]).hexdigest() == image["hash"]
    seat._keep_image("0" * 64, base64.b64encode(b"other").decode())
    assert "0" * 64 not in seat.images
    seats.close()
    with pytest.raises(ConfigError):
        seats.seat("nothing")
