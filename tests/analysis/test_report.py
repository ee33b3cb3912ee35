"""The page of a run: what it says, and that texts in it can do nothing, in a parser's eyes and in a real browser's."""

import base64
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.page.matches import shade
from analysis.report import report
from arena.records import MatchRecord, Seating, trajectories
from arena.store.run import RunFolder
from games.contracts import MatchId, Message
from tests.factories.browser import chromium
from tests.factories.commands import arena, refused
from tests.factories.made_run import make_run, match
from tests.factories.spoken_run import recorded, spoken

BAD = "http://127.0.0.1:9/"
RUNS = "document.title='run'"
HOSTILE = [
    f"<script>{RUNS}</script>",
    f"<img src=x onerror={RUNS}>",
    f"<img src='{BAD}a.png'>",
    f'"><svg onload="{RUNS}"><image href="{BAD}b.svg"/></svg>',
    f"</style><style>body{{background:url({BAD}c.png)}}</style>",
    f"</code></li></ol><iframe src={BAD}d></iframe>",
    f"<link rel=stylesheet href={BAD}e.css>",
    f"<meta http-equiv=refresh content='0;url={BAD}f'>",
    "{{ 7 * 191 }}{% raw %}",
    f"<base href={BAD}>",
    f"<form action={BAD}><button autofocus onfocus={RUNS}>",
    "-->]]></title></textarea>",
    f"<a href='javascript:{RUNS}'>x</a><a ping={BAD} href={BAD}g>y</a>",
    f"<details open ontoggle={RUNS}>",
    f"<object data={BAD}h></object><embed src={BAD}i><video src={BAD}j autoplay></video>",
    "\u202e\x1b[2J\x00&lt;script&gt;",
    r"$\foo{$",
]
ALL = " ".join(HOSTILE)


def hostile(number: int) -> MatchRecord:
    """A match with hostile text in every field that a game, a model or a config may fill."""
    record = match(0, number)
    bad = HOSTILE[number % len(HOSTILE)]
    rename = {"opener": f"opener {bad}", "responder": f"responder {ALL}"}
    turns = tuple(
        turn._replace(
            seat=rename[turn.seat], role=bad, policy=ALL if number % 2 else bad, raw=ALL, public=ALL, private=ALL,
            action=bad, rewards={ALL: 1.0, bad: -1.0}, messages=(Message.of(bad, ALL),),
            situation=ALL,
        )
        for turn in record.turns
    )  # fmt: skip
    return replace(
        record, game=bad, turns=turns, options={bad: ALL}, report={"end": ALL, bad: ALL, f"n {ALL}": number % 2 == 0},
        seats={rename[seat]: Seating(bad, held.policy + bad, 0, True, "model") for seat, held in record.seats.items()},
        payoffs={rename[seat]: paid for seat, paid in record.payoffs.items()},
        streams={rename[seat]: own for seat, own in record.streams.items()},
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of such a run."""
    folder = tmp_path_factory.mktemp("hostile") / f"run {HOSTILE[1].replace('/', '')}"
    run = RunFolder.create(
        folder, "game: parley\n", {"python": "3.11", "experiment": {"name": ALL, "x": {HOSTILE[0]: 1}}}
    )
    for k in range(3):
        made = [replace(hostile(n), identity=MatchId(k, n)) for n in range(len(HOSTILE))]
        run.log.extend(made)
        run.log.seal(k)
        credited = [
            one.credited([1.0 for _ in one.turns], [0.5 * (-1) ** i for i, _ in enumerate(one.turns)])
            for record in made
            for one in trajectories(record)
        ]
        run.log.write_credit(k, credited)
        run.metrics.append({"iteration": k, "valid_rate": 0.5, ALL[:200]: 1.0, "note": ALL})
    run.log.close()
    return report(analysis.load(folder))


@pytest.mark.parametrize("bad", [HOSTILE[0], HOSTILE[-1], ALL])
def test_what_two_hostile_sides_were_paid_is_drawn(tmp_path: Path, bad: str) -> None:
    """Of more sides than two, as above, there is no such picture."""
    sides = {f"{bad} 1": "shared", f"{bad} 2": bad}
    paid = dict(zip(sides, (1.0, 2.0), strict=True))
    text = report(recorded(tmp_path / "run", [[spoken(0, 0, [ALL, bad], sides, paid)]]))
    assert dangers(read(text)) == [] and "Outcomes</figcaption>" in text


def test_a_page_of_enormous_matches_is_still_a_page(tmp_path: Path) -> None:
    """With all of their turns, figures and settings it had 63 MB."""
    config = {"name": "x", "of": {f"k{n}": "v" * 3000 for n in range(1000)}}
    run = RunFolder.create(tmp_path / "run", "game: parley\n", {"python": "3.11", "experiment": config})
    for k in range(2):
        one, text = match(k, 1), "word " * 600
        turns = tuple(one.turns[0]._replace(index=i, action=f"act {i}.", public=text, private="") for i in range(400))
        run.log.extend([replace(one, turns=turns, report={f"figure{n}": float(n + k) for n in range(300)})])
        run.log.seal(k)
        run.metrics.append({"iteration": k, **{f"m{n}": float(n + k) for n in range(300)}})
    run.log.close()
    page = report(analysis.load(tmp_path / "run"))
    assert len(page) < 3e6
    assert "act 49.<" in page and "… 300 turns left out …" in page and "act 350.<" in page and "act 399.<" in page
    assert "act 50.<" not in page and "act 349.<" not in page
    for said in ("300 metrics of learning, league and speed, the first 100", "settings, the first 500 of them"):
        assert said in page


class Reader(HTMLParser):
    """What a browser would act upon."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.style = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style" and self.cdata_elem == "style":
            self.style += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section", "div", "a",
    "h1", "h2", "h3", "p", "ul", "li", "ol", "b", "small", "dl", "dt", "dd", "details", "summary", "figure",
    "figcaption", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "code", "em", "svg", "path",
    "circle", "text",
}  # fmt: skip
DRAWN = {"viewbox": r"[\d. ]+", "d": r"[MLHVhvZ\d. -]+", "transform": r"translate\([\d. ]+\) rotate\(-90\)"}
DRAWN |= dict.fromkeys(("x", "y", "cx", "cy", "r"), r"-?[\d.]+")
VALUES = DRAWN | {
    "class": r"[a-z0-9 ]+", "href": "#[a-z]+", "http-equiv": "Content-Security-Policy", "scope": "row|col",
    "tabindex": "0", "role": "img|region|note", "aria-hidden": "true", "id": "[a-z]+", "open": "",
}  # fmt: skip
"""What attributes may hold; `TEXTS` are read and never acted upon."""
TEXTS = {"lang", "charset", "content", "name", "title", "aria-label"}


def dangers(reader: Reader) -> list[Any]:
    """Tags and attributes that the page has no need of, and addresses that are not places within it."""
    return [tag for tag in reader.tags if tag not in TAGS] + [
        (tag, name, value)
        for tag, name, value in reader.attributes
        if name not in TEXTS and not (name in VALUES and re.fullmatch(VALUES[name], value))
    ]


def test_a_parser_finds_no_script_no_handler_and_no_address(page: str) -> None:
    reader = read(page)
    assert dangers(reader) == []
    assert reader.tags.count("style") == 1 and "url" not in reader.style and "@import" not in reader.style
    assert page.count("&lt;script&gt;") > 20 and "7 * 191" in page
    assert "1337" not in page
    assert not set("\x00\x1b\u202e") & set(page)


def test_the_parser_would_find_them() -> None:
    assert [bad for bad in HOSTILE if not dangers(read(bad))] == [HOSTILE[4], HOSTILE[8], HOSTILE[11], *HOSTILE[15:]]
    assert "url" in read(HOSTILE[4]).style  # the others are for templates, titles and terminals


def test_the_policy_allows_the_pages_own_style_alone(page: str) -> None:
    (policy,) = [value for _, name, value in read(page).attributes if name == "content" and "default-src" in value]
    digest = base64.b64encode(hashlib.sha256(read(page).style.encode()).digest()).decode()
    assert policy == (f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server's address, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(404)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", paths
        server.shutdown()


def title_of(browser: Any, file: Path, text: str, address: str) -> str:
    """The page's title after a while; all that is hostile in it points at this address."""
    file.write_text(text.replace(BAD, address), "utf-8")
    view = browser.new_page()
    view.goto(file.as_uri())
    view.wait_for_timeout(1000)
    title = str(view.title())
    view.close()
    return title


def test_in_a_browser_no_script_runs_and_nothing_is_asked_for(
    page: str, browser: Any, tmp_path: Path, asked: tuple[str, list[str]]
) -> None:
    assert title_of(browser, tmp_path / "page.html", page, asked[0]).startswith("run <img")
    assert asked[1] == []


def test_without_escaping_scripts_would_have_run_and_things_been_asked_for(
    browser: Any, tmp_path: Path, asked: tuple[str, list[str]]
) -> None:
    bare = f"<title>safe</title><body>{HOSTILE[0]}{HOSTILE[2]}{HOSTILE[5]}{HOSTILE[6]}"
    assert title_of(browser, tmp_path / "page.html", bare, asked[0]) == "run"
    assert {"/a.png", "/d", "/e.css"} <= {*asked[1]}


def test_the_policy_alone_would_have_held_what_slipped_through(
    page: str, browser: Any, tmp_path: Path, asked: tuple[str, list[str]]
) -> None:
    """But for sending the reader elsewhere, which no policy in a page forbids."""
    bare = "".join(bad for bad in HOSTILE if "http-equiv" not in bad)
    assert title_of(browser, tmp_path / "page.html", page.replace("<body>", f"<body>{bare}"), asked[0]) != "run"
    assert asked[1] == []


# What it says


def test_the_page_tells_what_happened(tmp_path: Path) -> None:
    text = report(analysis.load(make_run(tmp_path / "run", live=False).path))
    assert "3 iterations, 12 matches (3 failed), 21 turns of negotiation" in text
    assert "No alarm rang" in text and text.count("<figure>") >= 2
    shown = re.findall(r"<h3>([^<]+)", text)
    assert shown == ["0000-0000", "0000-0001", "0000-0002", "0002-0000", "0002-0001", "0002-0002"]
    assert text.count('<li class="c5"') == 12 and "earned +3.00 (deal +3.00), advantage +0.125" in text


def test_a_live_run_and_an_empty_one(tmp_path: Path) -> None:
    assert "not credited" in report(make_run(tmp_path / "run").path)
    empty = report(RunFolder.create(tmp_path / "empty", "a: 1\n", {}).path)
    assert "0 iterations, 0 matches" in empty and dangers(read(empty)) == []


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(min_value=0, max_value=1e9))
@settings(max_examples=60)
def test_every_credit_has_a_colour(advantage: float, scale: float) -> None:
    name = shade(advantage, scale)
    assert re.fullmatch("c[0-5]|m[1-5]", name) and (name[0] == "c" or advantage < 0)


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run")
    assert arena("report", "run").out.startswith("run.html: ")
    assert (tmp_path / "run.html").read_text("utf-8").startswith("<!-- arena report -->\n<!doctype html>")
    assert "there is no folder nowhere" in refused("report", "nowhere")
    told = refused("report", "run", "--out", "nowhere/page.html")
    assert told == "--out nowhere/page.html cannot be written: there is no folder nowhere"
    assert refused("report", "run", "--out", "run").endswith("it is a folder; give the name of a file")
