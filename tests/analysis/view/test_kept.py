"""Optional data of runs: branch trees, token entropies, ratios and gaps, images."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.stream import Stream
from arena.records import trajectories
from arena.store.blobs import Blobs
from arena.store.run import RunFolder
from games.contracts import MatchId
from tests.factories.browser import open_chromium
from tests.factories.made_run import make_match
from tests.factories.view import Client, serve_page


def make_branched_run(path: Path) -> RunFolder:
    """Write a match, two branches of it and a branch of one of these, with all token figures."""
    run, full = RunFolder.create(path, "game: negotiation\n", {}), make_match(0, 0)
    stream = Stream([1, 2, 3], [False, True, True], [0.0, -0.5, -1.5], [-1, 0, 0], [0.0, 0.25, 0.75])
    full = replace(full, streams={"opener": (stream,), "responder": ()})
    first = MatchId(0, 0, parent=full.identity, turn=1)
    second = MatchId(0, 0, parent=full.identity, turn=0)
    inner = MatchId(0, 0, parent=first, turn=1)
    records = [full, *(replace(full, identity=each, source="branched") for each in (first, second, inner))]
    run.log.extend(records)
    run.log.seal(0)
    credited = [t.credited([0.0] * len(t.turns), [0.5] * len(t.turns)) for t in trajectories(full)]
    figures = {"advantages": [0.25, 0.75], "ratios": [0.5, 2.0], "gaps": [-0.125, 0.125]}
    run.log.write_credit(0, credited, {(full.id, 0): figures})
    run.log.close()
    return run


def test_family_is_the_full_tree_from_any_of_its_matches(tmp_path: Path) -> None:
    make_branched_run(tmp_path / "run")
    asks = Client(tmp_path / "run")
    asks.get("/api/runs/run/matches")
    for id in ("0000-0000", "0000-0000-b1", "0000-0000-b1-b1"):
        family = {one["match"]: one for one in asks.get(f"/api/runs/run/matches/{id}")["family"]}
        assert set(family) == {"0000-0000", "0000-0000-b1", "0000-0000-b0", "0000-0000-b1-b1"}
        assert [family["0000-0000-b1-b1"][name] for name in ("parent", "parent_turn")] == ["0000-0000-b1", 1]
    assert asks.get("/api/runs/run/matches", parent="0000-0000")["total"] == 2


def test_figures_of_tokens_are_those_that_the_log_keeps(tmp_path: Path) -> None:
    make_branched_run(tmp_path / "run")
    answer = Client(tmp_path / "run").get("/api/runs/run/matches/0000-0000/tokens")
    assert answer["kept"] == ["logprob", "entropy", "advantage", "ratio", "gap"]
    (stream,) = answer["streams"]
    assert stream["entropy"] == [None, 0.25, 0.75] and stream["advantage"] == [None, 0.25, 0.75]
    assert stream["ratio"] == [None, 0.5, 2.0] and stream["gap"] == [None, -0.125, 0.125]
    assert stream["turn"] == [None, 0, 0] and stream["sampled"] == [False, True, True]


def test_the_page_draws_the_tree_and_every_overlay(tmp_path: Path) -> None:
    make_branched_run(tmp_path / "run")
    with open_chromium() as browser, serve_page(tmp_path) as link:
        view: Any = browser.new_page()
        view.set_default_timeout(30_000)
        wrong: list[str] = []
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.goto(f"{link}/run/run/match/0000-0000")
        view.wait_for_selector(".tree .branch >> nth=3")
        for overlay, tint in {"entropy": "v5", "ratio": "c5", "gap": "m5", "advantage": "c5", "logprob": "v4"}.items():
            view.select_option("#overlay", overlay)
            view.wait_for_selector(f".tokens .token.{tint}")
        view.click(".tree a >> text=0000-0000-b1-b1")
        view.wait_for_selector("h1 >> text=0000-0000-b1-b1")
        assert wrong == []


def test_images_require_the_token(tmp_path: Path) -> None:
    make_branched_run(tmp_path / "run")
    asks = Client(tmp_path / "run")
    data = b"\x89PNG\r\n\x1a\n" + b"0" * 30
    name = hashlib.sha256(data).hexdigest()
    Blobs(tmp_path / "run" / "log" / "blobs").put_all({name: data})
    path = f"/api/runs/run/images/{name}"
    assert asks.client.get(path).status_code == 401
    answer = asks.client.get(path, headers=asks.headers)
    assert answer.content == data and answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    Blobs(tmp_path / "run" / "log" / "blobs").put_all({hashlib.sha256(svg).hexdigest(): svg})
    answer = asks.client.get(f"/api/runs/run/images/{hashlib.sha256(svg).hexdigest()}", headers=asks.headers)
    assert answer.status_code == 415 and svg not in answer.content
    for bad in ("..%2F..%2Fconfig.yaml", "%2e%2e", "0" * 63, "0" * 64 + "%00", "config.yaml", "A" * 64):
        answer = asks.client.get(f"/api/runs/run/images/{bad}", headers=asks.headers)
        assert answer.status_code in (404, 415) and "game" not in answer.text
    (tmp_path / "run" / "log" / "blobs" / name).write_bytes(b"another")
    assert asks.client.get(path, headers=asks.headers).status_code == 404
