"""The report page: its contents, and that texts in it are inert in a parser and in a real browser."""

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

import analysis
from analysis.report import report
from arena.records import MatchRecord, Seating, trajectories
from arena.store.run import RunFolder
from games.contracts import MatchId, Message
from tests.factories.browser import open_chromium
from tests.factories.commands import arena, get_refusal
from tests.factories.made_run import make_match, make_run
from tests.factories.report import read_answers
from tests.factories.spoken_run import make_dialogue, write_run

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


def make_hostile_match(number: int) -> MatchRecord:
    """Return a match with hostile text in every field that a game, a model or a config may fill."""
    record = make_match(0, number)
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
    """Return the page of a hostile run."""
    folder = tmp_path_factory.mktemp("hostile") / f"run {HOSTILE[1].replace('/', '')}"
    run = RunFolder.create(
        folder, "game: parley\n", {"python": "3.11", "experiment": {"name": ALL, "x": {HOSTILE[0]: 1}}}
    )
    for k in range(3):
        records = [replace(make_hostile_match(n), identity=MatchId(k, n)) for n in range(len(HOSTILE))]
        run.log.extend(records)
        run.log.seal(k)
        credited = [
            one.credited([1.0 for _ in one.turns], [0.5 * (-1) ** i for i, _ in enumerate(one.turns)])
            for record in records
            for one in trajectories(record)
        ]
        run.log.write_credit(k, credited)
        run.metrics.append({"iteration": k, "valid_rate": 0.5, ALL[:200]: 1.0, "note": ALL})
    run.log.close()
    return report(analysis.load(folder))


@pytest.mark.parametrize("bad", [HOSTILE[0], HOSTILE[-1], ALL])
def test_payoffs_of_hostile_seats_are_drawn(tmp_path: Path, bad: str) -> None:
    """With more than two seats there is no such plot."""
    sides = {f"{bad} 1": "shared", f"{bad} 2": bad}
    paid = dict(zip(sides, (1.0, 2.0), strict=True))
    text = report(write_run(tmp_path / "run", [[make_dialogue(0, 0, [ALL, bad], sides, paid)]]))
    assert find_dangers(parse_page(text)) == [] and len(read_answers(text)["summary"]["outcomes"]["clouds"]) == 1


@pytest.mark.slow
def test_page_of_enormous_matches_is_bounded(tmp_path: Path) -> None:
    """With all turns, figures and settings it had 63 MB."""
    config = {"name": "x", "of": {f"k{n}": "v" * 3000 for n in range(1000)}}
    run = RunFolder.create(tmp_path / "run", "game: parley\n", {"python": "3.11", "experiment": config})
    for k in range(2):
        one, text = make_match(k, 1), "word " * 600
        turns = tuple(one.turns[0]._replace(index=i, action=f"act {i}.", public=text, private="") for i in range(400))
        run.log.extend([replace(one, turns=turns, report={f"figure{n}": float(n + k) for n in range(300)})])
        run.log.seal(k)
        run.metrics.append({"iteration": k, **{f"m{n}": float(n + k) for n in range(300)}})
    run.log.close()
    page = report(analysis.load(tmp_path / "run"))
    assert len(page) < 6e6
    answers = read_answers(page)
    matches = [match for name, match in answers.items() if name.startswith("matches/")]
    assert [len(one["turns"]) for one in matches] == [100, 100] and {one["left_out"] for one in matches} == {300}
    assert {one["turns"][0]["public"]["of"] for one in matches} == {3000}
    assert answers["summary"]["learning_in_all"] == 300 and len(answers["summary"]["learning"]) == 100
    assert len(answers[""]["settings"]) == 500


class Reader(HTMLParser):
    """Parser that collects what a browser would act upon."""

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


def parse_page(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


TAGS = {"html", "head", "meta", "title", "style", "body", "div", "noscript", "p", "script"}
VALUES = {"id": "app|answers", "type": "module|application/json", "lang": "en", "charset": "utf-8", "name": "[a-z-]+"}
VALUES |= {"http-equiv": "Content-Security-Policy"}
"""Pattern of each allowed attribute's value, except the content of a meta."""


def find_dangers(reader: Reader) -> list[Any]:
    """Return unexpected tags and attributes, and addresses outside the page."""
    return [tag for tag in reader.tags if tag not in TAGS] + [
        (tag, name, value)
        for tag, name, value in reader.attributes
        if (tag, name) != ("meta", "content") and not (name in VALUES and re.fullmatch(VALUES[name], value))
    ]


@pytest.mark.slow
def test_a_parser_finds_the_pages_own_script_and_no_other(page: str) -> None:
    reader = parse_page(page)
    assert find_dangers(reader) == []
    assert {tag: reader.tags.count(tag) for tag in ("script", "style", "meta", "title")} == {
        "script": 2, "style": 1, "meta": 5, "title": 1,
    }  # fmt: skip
    assert "url(" not in reader.style and "@import" not in reader.style
    assert HOSTILE[0] in read_answers(page)["matches/0000-0000"]["turns"][0]["raw"]
    assert not set("\x00\x1b\u202e") & set(page)


def test_parser_finds_planted_dangers() -> None:
    without = [bad for bad in HOSTILE if not find_dangers(parse_page(bad))]
    assert without == [HOSTILE[0], HOSTILE[4], HOSTILE[8], HOSTILE[11], *HOSTILE[15:]]
    assert "url" in parse_page(HOSTILE[4]).style  # a script more is counted; the others are for templates and terminals


def test_the_policy_allows_the_pages_own_script_and_style_alone(page: str) -> None:
    (policy,) = [
        value for _, name, value in parse_page(page).attributes if name == "content" and "default-src" in value
    ]

    def digest(text: str) -> str:
        return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    script = page.partition('<script type="module">')[2].partition("</script>")[0]
    assert policy == (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(parse_page(page).style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as opened:
        yield opened


@pytest.fixture
def request_server() -> Iterator[tuple[str, list[str]]]:
    """Serve, and yield the address and the list of requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(404)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", paths
        server.shutdown()


def open_title(browser: Any, file: Path, text: str, address: str) -> str:
    """Return the page's title after a while; its hostile contents point at this address."""
    file.write_text(text.replace(BAD, address), "utf-8")
    view = browser.new_page()
    view.goto(file.as_uri())
    view.wait_for_timeout(1000)
    title = str(view.title())
    view.close()
    return title


def test_browser_runs_no_script_and_sends_no_request(
    page: str, browser: Any, tmp_path: Path, request_server: tuple[str, list[str]]
) -> None:
    """On the first page and in every match, all of whose texts are shown."""
    file = tmp_path / "page.html"
    file.write_text(page.replace(BAD, request_server[0]), "utf-8")
    view = browser.new_page()
    view.goto(file.as_uri())
    view.wait_for_selector("article.turn")
    links = view.eval_on_selector_all("table.matches a", "all => all.map(a => a.getAttribute('href'))")
    assert len(links) == 6 and view.title().startswith("run <img")
    for link in links:
        view.evaluate("link => { location.hash = link }", link)
        view.wait_for_selector(f"h1 >> text={link.rpartition('/')[2]}")
        view.wait_for_selector("article.turn")
        assert "<script>" in view.inner_text("article.turn") and view.title() not in ("run", "")
    assert "\u202e" not in view.inner_text("body")
    assert (
        view.evaluate("document.querySelectorAll('#app script, #app img, iframe, base, object, #app style').length")
        == 0
    )
    view.close()
    assert request_server[1] == []


def test_unescaped_page_would_run_scripts_and_send_requests(
    browser: Any, tmp_path: Path, request_server: tuple[str, list[str]]
) -> None:
    bare = f"<title>safe</title><body>{HOSTILE[0]}{HOSTILE[2]}{HOSTILE[5]}{HOSTILE[6]}"
    assert open_title(browser, tmp_path / "page.html", bare, request_server[0]) == "run"
    assert {"/a.png", "/d", "/e.css"} <= {*request_server[1]}


def test_security_policy_alone_blocks_unescaped_scripts(
    page: str, browser: Any, tmp_path: Path, request_server: tuple[str, list[str]]
) -> None:
    """Except for navigation away, which no policy in a page forbids."""
    bare = "".join(bad for bad in HOSTILE if "http-equiv" not in bad)
    assert (
        open_title(browser, tmp_path / "page.html", page.replace("<body>", f"<body>{bare}"), request_server[0]) != "run"
    )
    assert request_server[1] == []


# What it says


def test_page_shows_the_matches(tmp_path: Path) -> None:
    answers = read_answers(report(analysis.load(make_run(tmp_path / "run", live=False).path)))
    counts = ("iterations", "matches", "failed", "turns", "games")
    assert [answers["summary"][name] for name in counts] == [3, 12, 3, 21, ["negotiation"]]
    assert answers["alarms"] == [] and len(answers["curves"]["curves"]) >= 1 and answers["curves"]["unread"] == 0
    ids = [row["match"] for row in answers["matches"]["rows"]]
    assert ids == ["0000-0000", "0000-0001", "0000-0002", "0002-0000", "0002-0001", "0002-0002"]
    assert {f"matches/{id}" for id in ids} == {name for name in answers if name.startswith("matches/")}
    first = answers["matches/0002-0001"]["turns"][0]
    assert (first["rewards"], first["reward"], first["advantage"]) == ({"deal": 3.0}, 3.0, 0.125)


def test_live_and_empty_runs_have_a_page(tmp_path: Path) -> None:
    live = read_answers(report(make_run(tmp_path / "run").path))
    assert live["matches/0002-0002"]["turns"][0]["advantage"] is None and live[""]["live"] is False
    empty = report(RunFolder.create(tmp_path / "empty", "a: 1\n", {}).path)
    assert "No match has ended yet." in empty and find_dangers(parse_page(empty)) == []
    assert read_answers(empty)["matches"]["rows"] == []


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run")
    assert arena("report", "run").out.startswith("run.html: ")
    assert (tmp_path / "run.html").read_text("utf-8").startswith("<!-- arena report -->\n<!doctype html>")
    assert "there is no folder nowhere" in get_refusal("report", "nowhere")
    message = get_refusal("report", "run", "--out", "nowhere/page.html")
    assert message == "--out nowhere/page.html cannot be written: there is no folder nowhere"
    assert get_refusal("report", "run", "--out", "run").endswith("it is a folder; give the name of a file")
